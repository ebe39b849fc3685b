//! What the servers tell of themselves, read as `covey stats` and as any 9P client reads it.

use crate::support::bytes::noise;
use crate::support::{Cluster, covey, run, until};
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
    assert!((250_000..=300_000).contains(&all), "{told:#}");
    assert!(told["io1"]["op data.write"]["p99_us"].as_f64().unwrap() > 0.0, "{told:#}");
    assert!(told["meta"]["time meta.log_write"]["count"].as_u64().unwrap() > 0, "{told:#}");

    let slow = cluster.covey(&["stats", "--slow", "io1"]);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let who = format!("@{} job 4711.n1 pid ", host.trim());
    let is_named = |line: &&str, operation| line.contains(operation) && line.contains(&who);
    assert!(slow.lines().any(|line| is_named(&line, "data.write of \"")), "{slow}");
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

fn count_of_writes(told: &Value) -> u64 {
    told["io1"]["op data.write"]["count"].as_u64().unwrap_or(0)
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
