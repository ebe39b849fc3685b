//! The file commands against a real cluster of this machine, and its life: up, down, up again.

use crate::home::{Home, Outcome};

/// A cluster that goes down with the test.
struct Cluster {
    home: Home,
}

impl Cluster {
    fn up() -> Cluster {
        let cluster = Cluster { home: Home::new() };
        cluster.covey(["up", "-n", "3", "--strip", "4 KiB", "--dir", "c"]).ok();
        cluster
    }

    fn covey<const N: usize>(&self, arguments: [&str; N]) -> Outcome {
        self.run(&arguments)
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let config: &[&str] =
            if arguments[0] == "up" { &[] } else { &["--config", "c/covey.toml"] };
        self.home.run(config.iter().chain(arguments))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.home.run(["down", "--dir", "c"]);
    }
}

/// Bytes that are nowhere the same: a block in the wrong place shows.
fn pattern(count: u64) -> Vec<u8> {
    (0..count / 8)
        .flat_map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

#[test]
fn a_copy_over_a_file_leaves_nothing_of_what_was_there() {
    let cluster = Cluster::up();
    let source = cluster.home.path("source");
    // Over what is shorter, longer, small and full of holes.
    for (round, size) in [9 << 20, 5 << 20, 7_654_328, 800, 6 << 20, 70_000].into_iter().enumerate()
    {
        let bytes: Vec<u8> = pattern(size).iter().map(|byte| byte ^ round as u8).collect();
        std::fs::write(&source, &bytes).unwrap();
        cluster.covey(["cp", "source", ":/copy"]).ok();
        cluster.covey(["cp", ":/copy", "back"]).ok();
        assert!(std::fs::read(cluster.home.path("back")).unwrap() == bytes, "of {size} bytes");
    }
    std::fs::File::create(&source).unwrap().set_len(8 << 20).unwrap();
    cluster.covey(["cp", "source", ":/copy"]).ok();
    cluster.covey(["cp", ":/copy", "back"]).ok();
    assert!(std::fs::read(cluster.home.path("back")).unwrap() == vec![0; 8 << 20]);
}

#[test]
fn a_tree_goes_in_and_comes_out_the_same() {
    let cluster = Cluster::up();
    let tree = cluster.home.path("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::write(tree.join("a/b/big"), pattern(5 << 20)).unwrap();
    std::fs::write(tree.join("a/empty"), "").unwrap();
    std::os::unix::fs::symlink("b/big", tree.join("a/link")).unwrap();
    let script = std::fs::File::create(tree.join("script")).unwrap();
    script.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o751)).unwrap();
    script
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
        .unwrap();

    let done = cluster.covey(["--json", "cp", "-rp", "tree", ":/in"]).ok().json();
    assert_eq!((&done["files"], &done["directories"]), (&4.into(), &3.into()));
    cluster.covey(["cp", "-rp", ":/in", "out"]).ok();

    let out = cluster.home.path("out");
    assert!(std::fs::read(out.join("a/b/big")).unwrap() == pattern(5 << 20));
    assert_eq!(std::fs::read(out.join("a/empty")).unwrap(), b"");
    assert_eq!(std::fs::read_link(out.join("a/link")).unwrap().to_str(), Some("b/big"));
    let (before, after) =
        (tree.join("script").metadata().unwrap(), out.join("script").metadata().unwrap());
    assert_eq!(before.permissions(), after.permissions());
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    let listed = cluster.covey(["ls", "-R", "/in"]).ok().stdout;
    assert_eq!(listed, "/in:\na\nscript\n\n/in/a:\nb\nempty\nlink\n\n/in/a/b:\nbig\n");
    let du = cluster.covey(["--json", "du", "-s", "--apparent-size", "/in"]).ok().json();
    assert_eq!(du[0]["bytes"], (5 << 20) + 5);
}

#[test]
fn attributes_and_names_of_one_file_are_kept() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let cluster = Cluster::up();
    let tree = cluster.home.path("tree");
    std::fs::create_dir_all(tree.join("d")).unwrap();
    let names = ["d/first", "d/second", "third"].map(|name| tree.join(name));
    std::fs::write(&names[0], pattern(3 << 20)).unwrap();
    names[1..].iter().for_each(|name| std::fs::hard_link(&names[0], name).unwrap());
    std::fs::write(tree.join("small"), "small").unwrap();
    // Of a file that nobody may write to, of a directory, and an empty one.
    for (name, attribute, value) in
        [("small", "user.a", "1"), ("small", "user.empty", ""), ("d", "user.of", "directory")]
    {
        let set = setxattr(tree.join(name), attribute, value.as_bytes(), XattrFlags::empty());
        set.expect("this machine's scratch space has attributes");
    }
    let read_only = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(tree.join("small"), read_only).unwrap();

    cluster.covey(["cp", "-rp", "tree", ":/in"]).ok();
    cluster.covey(["cp", "-rp", ":/in", ":/t"]).ok();
    std::fs::create_dir(cluster.home.path("out")).unwrap();
    let out = cluster.home.path("out/t");
    let check = || {
        let value = |name: &str, attribute: &str| {
            let mut value = [0; 100];
            let length = getxattr(out.join(name), attribute, &mut value[..]).unwrap();
            String::from_utf8(value[..length].to_vec()).unwrap()
        };
        assert_eq!(value("small", "user.a") + &value("small", "user.empty"), "1");
        assert_eq!(value("d", "user.of"), "directory");
        assert_eq!(out.join("small").metadata().unwrap().mode() & 0o7777, 0o444);
        assert!(std::fs::read(out.join("third")).unwrap() == pattern(3 << 20));
        let identity = |name: &str| out.join(name).metadata().unwrap().ino();
        assert_eq!(identity("d/first"), identity("d/second"));
        assert_eq!(identity("d/first"), identity("third"));
        assert_eq!(out.join("third").metadata().unwrap().nlink(), 3);
    };
    cluster.covey(["cp", "-rp", ":/t", "out"]).ok();
    check();
    // Over what is there, where one of the names is a file of its own by now: on this side, then on the other.
    for name in ["third", "d/first"] {
        std::fs::remove_file(out.join(name)).unwrap();
        std::fs::write(out.join(name), "other").unwrap();
        cluster.covey(["cp", "-rp", ":/t", "out"]).ok();
        check();
        cluster.run(&["rm", &format!("/t/{name}")]).ok();
        cluster.run(&["cp", "out/t/small", &format!(":/t/{name}")]).ok();
        std::fs::create_dir_all(cluster.home.path("again")).unwrap();
        let _ = std::fs::rename(&tree, cluster.home.path("again/t"));
        cluster.covey(["cp", "-rp", "again/t", ":/"]).ok();
        std::fs::remove_dir_all(&out).unwrap();
        cluster.covey(["cp", "-rp", ":/t", "out"]).ok();
        check();
    }
}

#[test]
fn what_fails_is_told_and_the_rest_is_copied() {
    let cluster = Cluster::up();
    std::fs::create_dir(cluster.home.path("tree")).unwrap();
    cluster.home.write("tree/good", "good");
    let status =
        std::process::Command::new("mkfifo").arg(cluster.home.path("tree/pipe")).status().unwrap();
    assert!(status.success());
    let done = cluster.covey(["cp", "-r", "tree", ":/"]);
    done.fails(1, "cannot copy tree/pipe: it is a fifo", "only files");
    assert_eq!(cluster.covey(["cat", "/tree/good"]).ok().stdout, "good");
    let message = "cannot copy tree: it is a directory";
    cluster.covey(["cp", "tree", ":/x"]).fails(1, message, "-r copies it");
    cluster.covey(["cp", "-r", ":/tree", ":/tree/in"]).fails(
        1,
        "cannot copy a directory into itself, to :/tree/in",
        "outside",
    );
    cluster.covey(["cp", ":/tree/good", ":/tree/good"]).fails(
        1,
        "cannot write :/tree/good: it is the file that is read",
        "another name",
    );
}

#[test]
fn stdin_and_stdout_carry_whole_files() {
    let cluster = Cluster::up();
    let text = "line\n".repeat(1_000_000);
    cluster.home.run_with_input(["--config", "c/covey.toml", "cp", "-", ":/piped"], &text).ok();
    assert!(cluster.covey(["cp", ":/piped", "-"]).ok().stdout == text);
    cluster.home.run_with_input(["--config", "c/covey.toml", "cp", "-", ":/piped"], "short").ok();
    assert_eq!(cluster.covey(["cat", "/piped"]).ok().stdout, "short");
}

#[test]
fn holes_stay_holes() {
    let cluster = Cluster::up();
    let file = std::fs::File::create(cluster.home.path("holes")).unwrap();
    file.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 500 << 20).unwrap();
    cluster.covey(["cp", "holes", ":/holes"]).ok();
    let stat = cluster.covey(["--json", "stat", "/holes"]).ok().json();
    assert_eq!(stat[0]["size"], 1 << 30);
    assert!(stat[0]["blocks"].as_u64().unwrap() < 1000, "{stat}");
}

#[test]
fn names_are_made_moved_linked_and_removed() {
    let cluster = Cluster::up();
    cluster.covey(["mkdir", "-p", "/d/e/f"]).ok();
    cluster.covey(["mkdir", "-p", "/d/e/f"]).ok();
    let message = "cannot make directory /d: file exists";
    assert_eq!(
        cluster.covey(["mkdir", "/d"]).stderr.lines().next(),
        Some(format!("covey: {message}").as_str())
    );
    cluster.covey(["touch", "-d", "2001-02-03T04:05:06", "/d/file"]).ok();
    cluster.covey(["ln", "/d/file", "/d/hard"]).ok();
    cluster.covey(["ln", "-s", "../file", "/d/e/soft"]).ok();
    let stat = cluster.covey(["--json", "stat", "-L", "/d/e/soft"]).ok().json();
    assert_eq!(
        (&stat[0]["links"], &stat[0]["mtime_ns"]),
        (&2.into(), &981_173_106_000_000_000_u64.into())
    );
    cluster.covey(["mv", "/d/hard", "/d/e"]).ok();
    cluster.covey(["mv", "-n", "/d/file", "/d/e/hard"]).fails(
        1,
        "cannot move /d/file to /d/e/hard: file exists",
        "-n",
    );
    assert_eq!(cluster.covey(["ls", "/d/e"]).ok().stdout, "f\nhard\nsoft\n");
    cluster.covey(["rm", "/d"]).fails(1, "cannot remove /d: it is a directory", "-r removes it");
    cluster.covey(["rm", "-r", "/d"]).ok();
    assert_eq!(cluster.covey(["ls", "/"]).ok().stdout, "");
    cluster.covey(["rm", "/d"]).fails(1, "cannot remove /d: no such file or directory", "covey ls");
    cluster.covey(["rm", "-f", "/d"]).ok();
}

#[test]
fn a_link_that_leads_to_itself_is_told() {
    let cluster = Cluster::up();
    cluster.covey(["ln", "-s", "loop", "/loop"]).ok();
    cluster.covey(["cat", "/loop"]).fails(
        1,
        "cannot read /loop: too many symbolic links",
        "symbolic link",
    );
    assert!(cluster.covey(["ls", "-l", "/loop"]).ok().stdout.ends_with("/loop -> loop\n"));
}

#[test]
fn modes_owners_and_sizes_are_set() {
    let cluster = Cluster::up();
    cluster.covey(["truncate", "--size", "10000", "/f"]).ok();
    cluster.covey(["chmod", "u=rw,go=", "/f"]).ok();
    cluster.covey(["truncate", "--size", "9 KiB", "/f"]).ok();
    let stat = cluster.covey(["--json", "stat", "/f"]).ok().json();
    assert_eq!((&stat[0]["mode"], &stat[0]["size"]), (&"0600".into(), &9216.into()));
    let uid = rustix::process::geteuid().as_raw();
    cluster.covey(["chown", &uid.to_string(), "/f"]).ok();
    assert!(cluster.covey(["--json", "df"]).ok().json()["bytes_total"].as_u64() > Some(0));
}

#[test]
fn a_layout_is_set_on_a_directory_and_shown_of_its_files() {
    let cluster = Cluster::up();
    cluster.covey(["mkdir", "/d"]).ok();
    let set =
        ["layout", "set", "--kind", "simple_stripe", "--strip", "8 KiB", "--servers", "2", "/d"];
    cluster.covey(set).ok();
    assert_eq!(
        cluster.covey(["layout", "/d"]).ok().stdout,
        "/d: new files get simple_stripe of 8 KiB over 2 servers\n"
    );
    cluster.covey(["truncate", "--size", "20000", "/d/f"]).ok();
    let layout = cluster.covey(["--json", "layout", "/d/f"]).ok().json();
    assert_eq!(layout[0]["strip_bytes"], 8192);
    assert_eq!(layout[0]["servers"].as_array().unwrap().len(), 2);
    let lengths: Vec<_> = layout[0]["ranges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|range| range["length"].as_u64().unwrap())
        .collect();
    assert_eq!(lengths, [8192, 8192, 3616]);
    cluster.covey(["layout", "set", "--servers", "9", "/d"]).fails(
        2,
        "cannot stripe over 9 servers: the cluster has 3",
        "--servers 0",
    );
    cluster.covey(["layout", "set", "--servers", "1", "/d/f"]).fails(
        1,
        "cannot set the layout of /d/f: it holds 20000 bytes already",
        "covey cp",
    );
}

#[test]
fn every_kind_of_layout_can_be_set_on_directories_and_on_empty_files() {
    let cluster = Cluster::up();
    let shown = |path: &str| cluster.covey(["layout", path]).ok().stdout;
    assert_eq!(
        shown("/"),
        "/: new files get progressive: 64 KiB with the metadata, up to 4 MiB on 1 server, then \
         4 KiB over 3 servers\n"
    );
    let set = |words: &[&str]| cluster.run(&[&["layout", "set"][..], words].concat());
    cluster.covey(["mkdir", "/d"]).ok();
    set(&["--kind", "varstrip", "--strips", "0:8K,1:4K,0:4K", "/d"]).ok();
    assert_eq!(
        shown("/d"),
        "/d: new files get varstrip of 0:8 KiB,1:4 KiB,0:4 KiB over 2 servers\n"
    );
    set(&["--kind", "twod_stripe", "--groups", "2", "--factor", "4", "/d"]).ok();
    assert_eq!(
        shown("/d"),
        "/d: new files get twod_stripe of 4 KiB over 3 servers in 2 groups, factor 4\n"
    );
    set(&["--kind", "basic", "/d"]).ok();
    assert_eq!(shown("/d"), "/d: new files get basic: all of it on 1 server\n");
    set(&["--kind", "progressive", "--inline", "4K", "--single", "64K", "--servers", "2", "/d"])
        .ok();
    set(&["--strip", "4K", "/d"]).ok();
    assert_eq!(
        shown("/d"),
        "/d: new files get progressive: 4 KiB with the metadata, up to 64 KiB on 1 server, then \
         4 KiB over 2 servers\n"
    );
    // An empty file keeps what is not said.
    cluster.covey(["touch", "/d/f"]).ok();
    set(&["--strip", "8K", "/d/f"]).ok();
    cluster.covey(["truncate", "--size", "80000", "/d/f"]).ok();
    let layout = cluster.covey(["--json", "layout", "/d/f"]).ok().json();
    let parts = layout[0]["servers"].as_array().unwrap();
    let parts: Vec<_> = parts.iter().map(|part| part["bytes"].as_u64().unwrap()).collect();
    assert_eq!(parts, [4096, 61440 + 6272, 8192]);
    assert_eq!(layout[0]["parameters"]["single_bytes"], 65536);
    assert_eq!(layout[0]["ranges"][0]["server"], "(metadata)");
    set(&["--kind", "basic", "--strip", "4K", "/d"]).fails(
        1,
        "basic has no --strip",
        "it belongs to --kind",
    );
    set(&["--kind", "varstrip", "/d"]).fails(
        1,
        "cannot lay files out by varstrip without its strips",
        "--strips",
    );
    let refused = |words: &[&str], why: &str| {
        let what = format!("cannot set the layout of /d: {why}");
        set(words).fails(1, &what, "covey layout set --help");
    };
    let far = ["--kind", "varstrip", "--strips", "7:4K", "/d"];
    refused(&far, "a strip on server 7, the last of 3 is 2");
    refused(&["--kind", "twod_stripe", "--groups", "9", "/d"], "9 groups of 2 servers");
    refused(&["--inline", "1M", "/d"], "1048576 bytes with the metadata, limit is 65536");
    set(&["--groups", "9", "/d"]).fails(1, "progressive has no --groups", "twod_stripe");
}

#[test]
fn any_9p_client_reads_and_writes_the_same_files() {
    let cluster = Cluster::up();
    let address = format!("unix!{}", cluster.home.path("c/run/io2.sock").display());
    cluster
        .home
        .run_with_input(["9p", "write", "--create", &address, "/fs/note"], "by hand\n")
        .ok();
    assert_eq!(cluster.covey(["cat", "/note"]).ok().stdout, "by hand\n");
    assert_eq!(cluster.home.run(["9p", "cat", &address, "/fs/note"]).ok().stdout, "by hand\n");
    assert_eq!(cluster.home.run(["9p", "ls", &address, "/fs"]).ok().stdout, "note\n");
    let stat = cluster.home.run(["--json", "9p", "stat", &address, "/fs/note"]).ok().json();
    assert_eq!((&stat["size"], &stat["type"]), (&8.into(), &"regular file".into()));
    cluster.home.run(["9p", "rm", &address, "/fs/note"]).ok();
    cluster.covey(["stat", "/note"]).fails(
        1,
        "cannot look at /note: no such file or directory",
        "covey ls",
    );
}

#[test]
fn a_cluster_goes_down_comes_up_and_has_everything() {
    let cluster = Cluster::up();
    std::fs::write(cluster.home.path("data"), pattern(1 << 20)).unwrap();
    cluster.covey(["cp", "data", ":/data"]).ok();
    let down = cluster.covey(["--json", "down"]).ok().json();
    assert_eq!(down["stopped"], serde_json::json!(["meta", "io1", "io2", "io3"]));
    assert_eq!(cluster.covey(["ping"]).code, 1);
    let dir = cluster.home.path("c").display().to_string();
    let message =
        format!("cannot start the cluster in {dir} with 2 I/O servers: it was made with 3");
    cluster.covey(["up", "-n", "2", "--dir", "c"]).fails(2, &message, "-n 3");
    let up = cluster.covey(["--json", "up", "--dir", "c"]).ok().json();
    assert!(up["nodes"].as_array().unwrap().iter().all(|node| node["started"] == true), "{up}");
    cluster.covey(["cp", ":/data", "back"]).ok();
    assert!(std::fs::read(cluster.home.path("back")).unwrap() == pattern(1 << 20));
}

#[test]
fn a_server_that_was_killed_is_told_and_comes_back_with_up() {
    let cluster = Cluster::up();
    let pid = |up: &serde_json::Value| up["nodes"][2]["pid"].as_u64().unwrap();
    let before = cluster.covey(["--json", "up", "--dir", "c"]).ok().json();
    let process = rustix::process::Pid::from_raw(pid(&before) as i32).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    cluster.covey(["ping"]).fails(1, "cannot reach 1 of 4 servers", "covey up");
    let after = cluster.covey(["--json", "up", "--dir", "c"]).ok().json();
    assert_ne!(pid(&before), pid(&after));
    cluster.covey(["ping"]).ok();
}

#[test]
fn two_ups_at_the_same_time_make_one_cluster() {
    let home = Home::new();
    std::fs::create_dir(home.path("c")).unwrap();
    let start = || {
        let mut command = crate::home::command(&home.path(""));
        command
            .args(["--json", "up", "-n", "2", "--dir", "c"])
            .stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let (one, two) = (start(), start());
    let json = |child: std::process::Child| -> serde_json::Value {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (one, two) = (json(one), json(two));
    home.run(["down", "--dir", "c"]).ok();
    assert_eq!(one["id"], two["id"]);
    assert_ne!(one["nodes"][0]["started"], two["nodes"][0]["started"]);
}
