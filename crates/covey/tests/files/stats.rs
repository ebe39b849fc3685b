//! What the servers tell of themselves, read as `covey stats` and as any 9P client reads it.

use crate::support::bytes::noise;
use crate::support::command::Finished;
use crate::support::{Cluster, covey, run, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::process::Stdio;

#[test]
fn operations_clients_and_slow_requests_are_told() {
    let cluster = Cluster::up(2);
    let local = cluster.scratch("local");
    fs::write(&local, noise(1, 300_000)).unwrap();
    cluster.covey(&["stats", "--set", "slow 0"]);
    let mut copy = covey();
    copy.arg("--config").arg(cluster.config()).arg("cp").arg(&local).arg(":/file");
    copy.env("COVEY_JOB", "4711.n1");
    let copied = run(copy);
    assert!(copied.ok, "{copied}");
    cluster.covey(&["cat", "/file"]);

    let told: Value = serde_json::from_str(&cluster.covey(&["--json", "stats"])).unwrap();
    let written = |node: &str| told[node]["op data.write"]["bytes"].as_u64().unwrap_or(0);
    // The first bytes of a file may lie with its metadata.
    let all = written("io1") + written("io2");
    assert!((230_000..=300_000).contains(&all), "{told:#}");
    assert!(told["io1"]["op data.write"]["p99_us"].as_f64().unwrap() > 0.0, "{told:#}");
    assert!(told["meta"]["time meta.log_write"]["count"].as_u64().unwrap() > 0, "{told:#}");

    let slow = cluster.covey(&["stats", "--slow", "io1"]);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let who = format!("@{} job 4711.n1 pid ", host.trim());
    let is_named = |line: &&str, operation| line.contains(operation) && line.contains(&who);
    assert!(slow.lines().any(|line| is_named(&line, "data.write of \"")), "{slow}");
    // The file by its path, and in JSON by its number, too.
    assert!(
        slow.lines().any(|line| line.contains("data.write") && line.contains(" file \"/file\" ")),
        "{slow}"
    );
    let listed: Value =
        serde_json::from_str(&cluster.covey(&["--json", "stats", "--slow"])).unwrap();
    let mut lines = listed["io1"].as_array().unwrap().iter();
    let one = lines.find(|one| one["path"] == "/file").unwrap_or_else(|| panic!("{listed:#}"));
    let number = one["file"].as_str().unwrap();
    assert!(one["line"].as_str().unwrap().contains(number), "{one}");
    let slow = cluster.covey(&["stats", "--slow", "meta"]);
    assert!(slow.lines().any(|line| is_named(&line, "meta.Hello of \"")), "{slow}");
    let logged = |told: &Value| told["meta"]["time meta.log_write"]["count"].as_u64().unwrap();
    let before = logged(&told);
    cluster.covey(&["stats", "--set", "reset"]);
    let told: Value = serde_json::from_str(&cluster.covey(&["--json", "stats"])).unwrap();
    assert!(told["io1"].get("op data.write").is_none(), "{told:#}");
    assert!(logged(&told) < before, "{told:#}");
}

#[test]
fn who_reads_and_writes_what_is_told_by_path() {
    let cluster = Cluster::up(2);
    let local = cluster.scratch("local");
    fs::write(&local, noise(3, 300_000)).unwrap();
    let by_job = |arguments: &[&str]| {
        let mut command = covey();
        command.arg("--config").arg(cluster.config()).args(arguments).env("COVEY_JOB", "4712");
        let done = run(command);
        assert!(done.ok, "{done}");
    };
    cluster.covey(&["mkdir", ":/a dir"]);
    by_job(&["cp", local.to_str().unwrap(), ":/a dir/large"]);
    by_job(&["cat", ":/a dir/large"]);
    fs::write(&local, noise(4, 1000)).unwrap();
    by_job(&["cp", local.to_str().unwrap(), ":/small"]);
    by_job(&["cat", ":/small"]);

    let listed: Value =
        serde_json::from_str(&cluster.covey(&["--json", "stats", "--files"])).unwrap();
    let sum = |path: &str, key: &str| -> u64 {
        let files = listed["files"].as_array().unwrap().iter();
        let wanted = files.filter(|one| one["path"] == path && one["job"] == "4712");
        wanted.map(|one| one[key].as_u64().unwrap()).sum()
    };
    assert_eq!(sum("/a dir/large", "bytes_written"), 300_000, "{listed:#}");
    assert!(sum("/a dir/large", "bytes_read") >= 300_000, "{listed:#}");
    // A small file lies with its metadata.
    assert_eq!(sum("/small", "bytes_written"), 1000, "{listed:#}");
    assert_eq!(sum("/small", "bytes_read"), 1000, "{listed:#}");
    let shown = cluster.covey(&["stats", "--files"]);
    let is_it = |line: &str| line.ends_with(" /a dir/large") && line.contains(" job 4712 ");
    assert!(shown.lines().any(is_it), "{shown}");
    assert!(!cluster.covey(&["stats"]).contains("file "), "they have a view of their own");
    // One that is gone keeps its number.
    cluster.covey(&["rm", ":/small"]);
    let shown = cluster.covey(&["stats", "--files", "meta"]);
    assert!(shown.contains(" file 0000") && !shown.contains("/small"), "{shown}");
    cluster.covey(&["stats", "--set", "reset"]);
    let listed = cluster.covey(&["--json", "stats", "--files"]);
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap()["files"], serde_json::json!([]));
}

#[test]
fn two_who_watch_see_what_happens_and_take_nothing_from_others() {
    let cluster = Cluster::up(1);
    let local = cluster.scratch("local");
    fs::write(&local, noise(2, 300_000)).unwrap();
    let all = || serde_json::from_str(&cluster.covey(&["--json", "stats"])).unwrap();
    cluster.covey(&["cp", local.to_str().unwrap(), ":/before"]);
    let before = count_of_writes(&all());
    assert!(before > 0);
    let watch = || {
        let mut command = covey();
        command.arg("--config").arg(cluster.config());
        command.args(["--json", "stats", "--watch", "--interval", "0.2", "io1"]);
        command.stdout(Stdio::piped()).spawn().expect("covey starts")
    };
    let mut watchers = [watch(), watch()];
    // Intervals without writes come first: those of the first file are none of theirs.
    let readers = watchers.each_mut().map(|one| {
        let told = serde_json::Deserializer::from_reader(one.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            let mut counts = told.into_iter().map(|told| count_of_writes(&told.unwrap()));
            counts.find(|count| *count > 0).expect("it goes on")
        })
    });
    until("both have begun", || {
        cluster.covey(&["cp", local.to_str().unwrap(), ":/after"]);
        readers.iter().all(|reader| reader.is_finished())
    });
    for reader in readers {
        let seen = reader.join().unwrap();
        assert!(seen > 0 && seen < count_of_writes(&all()), "{seen}");
    }
    for mut one in watchers {
        one.kill().unwrap();
        one.wait().unwrap();
    }
    assert!(count_of_writes(&all()) > before, "somebody has begun the counts anew");
}

#[test]
fn a_dead_and_a_stopped_server_hide_nothing_of_the_others() {
    let cluster = Cluster::up(3);
    cluster.covey(&["stats", "--set", "slow 0"]);
    cluster.covey(&["mkdir", ":/dir"]);
    cluster.kill("io1");
    cluster.signal("io2", Signal::STOP);
    let parsed = |done: &Finished| -> Value { serde_json::from_str(&done.stdout).unwrap() };
    let missing = serde_json::json!(["io1", "io2"]);

    let done = cluster.refused(&["--json", "stats"]);
    assert_eq!(done.code, Some(1), "{done}");
    for words in ["/stats of io1, io2", "no answer within 3 s"] {
        assert!(done.stderr.contains(words), "{done}");
    }
    let told = parsed(&done);
    assert_eq!(told["servers_missing"], missing, "{told:#}");
    assert!(told["io3"].is_object() && told["meta"]["op meta.Hello"].is_object(), "{told:#}");
    let done = cluster.refused(&["stats"]);
    assert!(done.stdout.contains("io1, io2 do not answer and are not shown"), "{done}");
    assert!(done.stdout.contains("meta.Hello"), "{done}");

    let done = cluster.refused(&["--json", "stats", "--slow"]);
    let told = parsed(&done);
    assert_eq!((done.code, &told["servers_missing"]), (Some(1), &missing), "{told:#}");
    assert!(!told["meta"].as_array().unwrap().is_empty(), "{told:#}");
    let set = cluster.refused(&["stats", "--set", "slow 7"]);
    set.says(&["cannot set \"slow 7\" at io1, io2"]);
    let address = format!("unix!{}", cluster.socket("io3").display());
    let ctl = cluster.covey(&["9p", "cat", &address, "/ctl"]);
    assert!(ctl.starts_with("slow 7\n"), "{ctl}");

    let mut watch = covey();
    watch.arg("--config").arg(cluster.config());
    watch.args(["--json", "stats", "--watch", "--interval", "0.1", "io2", "io3"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("covey starts");
    let told = serde_json::Deserializer::from_reader(watch.stdout.take().expect("piped"));
    let mut told = told.into_iter().map(|told: Result<Value, _>| told.unwrap());
    let first = told.next().unwrap();
    assert_eq!(first["servers_missing"], serde_json::json!(["io2"]), "{first:#}");
    assert!(first["io3"].is_object(), "{first:#}");
    cluster.signal("io2", Signal::CONT);
    assert!(told.any(|told| told["io2"].is_object()), "who is back is shown again");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

fn count_of_writes(told: &Value) -> u64 {
    told["io1"]["op data.write"]["count"].as_u64().unwrap_or(0)
}

/// The servers are clients of each other, and are not to be looked for among the programs.
#[test]
fn a_server_is_shown_by_its_nodes_name_where_it_is_a_client() {
    let cluster = Cluster::up(2);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let is_meta = format!("client data meta@{} ", host.trim());
    until("io1 shows the metadata server among its clients", || {
        let told: Value = serde_json::from_str(&cluster.covey(&["--json", "stats"])).unwrap();
        let items = told["io1"].as_object().unwrap_or_else(|| panic!("{told:#}"));
        let clients = items.keys().filter(|item| item.starts_with("client data "));
        let clients: Vec<&String> = clients.collect();
        assert!(!clients.iter().any(|name| name.contains("unix!pid")), "{clients:?}");
        clients.iter().any(|name| name.starts_with(&is_meta))
    });
}

#[test]
fn any_9p_client_reads_the_numbers_and_a_wrong_command_is_refused_with_a_reason() {
    let cluster = Cluster::up(1);
    let address = format!("unix!{}", cluster.socket("io1").display());
    let stats = cluster.covey(&["9p", "cat", &address, "/stats"]);
    assert!(stats.starts_with("node io1\n"), "{stats}");
    assert!(cluster.covey(&["9p", "cat", &address, "/ctl"]).starts_with("slow 1000\n"));
    let refused = cluster.refused(&["stats", "--set", "slow down", "io1"]);
    assert!(refused.stderr.contains("nvalid argument"), "{refused}");
    assert!(refused.stderr.contains("the commands are `slow MILLISECONDS`"), "{refused}");
}
