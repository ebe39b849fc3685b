//! How the program gets to the nodes: down a tree, with what belongs to it, each architecture its own.

use crate::run::{cluster, started};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_long_program_reaches_every_rank_of_every_node_whatever_the_fan_out() {
    let cluster = cluster(4);
    let program = cluster.scratch("long");
    // The shell reads no further than exit.
    let mut text = b"#!/bin/sh\nsha256sum \"$0\"; exit $COVEY_RANK\n".to_vec();
    text.extend((0..3_000_001u32).map(|at| (at * 7 + at / 251) as u8));
    fs::write(&program, &text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let here = std::process::Command::new("sha256sum").arg(&program).output().unwrap();
    let hash = String::from_utf8(here.stdout).unwrap()[..64].to_owned();
    for fan_out in ["1", "2", "4"] {
        let words = ["--all", "--ppn", "2", "--fan-out", fan_out, program.to_str().unwrap()];
        let done = started(&cluster, &words);
        let hashes: Vec<&str> = done.stdout.lines().map(|line| &line[..64]).collect();
        assert_eq!((done.code, hashes), (Some(9), vec![hash.as_str(); 10]), "{done}");
    }
    let refused = started(&cluster, &["--all", "--fan-out", "0", program.to_str().unwrap()]);
    refused.says(&["--fan-out", "1 to 64"]);
}

#[test]
fn a_directory_is_copied_with_what_is_in_it() {
    let cluster = cluster(2);
    let dir = cluster.scratch("tree");
    fs::create_dir_all(dir.join("bin")).unwrap();
    fs::create_dir_all(dir.join("share/empty")).unwrap();
    script(
        &dir.join("bin/work"),
        "#!/bin/sh\necho ${0##*fs/}; cat share/words link; ls share | tr '\\n' ' '\n",
    );
    fs::write(dir.join("share/words"), "quail ").unwrap();
    symlink("share/words", dir.join("link")).unwrap();
    let tree = dir.to_str().unwrap();
    let done = started(&cluster, &["--all", "--gather", "--exec", "bin/work", tree]);
    assert!(done.ok && done.stdout.contains("io[1-2],meta (3)"), "{done}");
    assert!(done.stdout.contains("bin/work\nquail quail empty words"), "{done}");
    started(&cluster, &["-w", "io1", tree]).says(&["it is a directory", "--exec"]);
    started(&cluster, &["-w", "io1", "--exec", "../x", tree]).says(&["leads out of it"]);
    started(&cluster, &["-w", "io1", "--exec", "bin/none", tree]).says(&["bin/none"]);
    // From elsewhere, too: the program is found by where it was copied, not by where it starts.
    let done = started(&cluster, &["-w", "io1", "-C", "/", "--exec", "bin/work", tree]);
    assert!(done.stderr.contains("share/words"), "it ran in /: {done}");
}

#[test]
fn a_node_gets_the_program_of_its_architecture() {
    let cluster = cluster(1);
    let arch = std::env::consts::ARCH;
    let named = cluster.scratch(&format!("hello.{arch}"));
    script(&named, "#!/bin/sh\necho named\n");
    let pattern = cluster.scratch("hello.{arch}");
    let done = started(&cluster, &["-w", "io1", pattern.to_str().unwrap()]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "named\n"), "{done}");

    let roots = cluster.scratch("roots");
    fs::create_dir_all(roots.join(arch).join("usr/bin")).unwrap();
    script(&roots.join(arch).join("usr/bin/hello"), "#!/bin/sh\necho rooted\n");
    let root = roots.to_str().unwrap();
    for program in ["hello", "/usr/bin/hello"] {
        let done = started(&cluster, &["-w", "io1", "--root", root, program]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), "rooted\n"), "{done}");
        let local = ["-w", "io1", "--local", "--root", root, "/usr/bin/hello"];
        assert_eq!(started(&cluster, &local).stdout, "rooted\n");
    }
    let refused = started(&cluster, &["-w", "io1", "--root", "/no/such", "hello"]);
    refused.says(&["/no/such", arch]);
}

#[test]
fn a_node_that_cannot_keep_the_program_is_named_and_the_others_run_it() {
    let cluster = cluster(3);
    // What a restarted node no longer has is known to nobody until it is asked.
    cluster.kill("io2");
    let program = cluster.scratch("small");
    script(&program, "#!/bin/sh\necho $COVEY_NODE\n");
    let done = started(&cluster, &["--all", program.to_str().unwrap()]);
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((done.code, lines), (Some(254), vec!["io1", "io3", "meta"]), "{done}");
    assert!(done.stderr.contains("io2"), "{done}");
    cluster.restart();
}

#[test]
fn the_fan_out_of_tune_toml_is_used_and_shown() {
    let cluster = cluster(2);
    let file = cluster.config().with_file_name("tune.toml");
    let text = |value: u32| {
        format!(
            "version = 1\nfrom = \"a test\"\n[choose.fan_out]\nvalue = {value}\nlow = 1\nhigh = 9\nrule = \"r\"\nevidence = \"e\"\n"
        )
    };
    fs::write(&file, text(3)).unwrap();
    let shown = cluster.covey(&["status"]);
    let line = shown.lines().find(|line| line.contains("fan-out")).unwrap_or_default();
    assert!(line.contains(" 3") && line.contains("tune.toml"), "{shown}");
    let program = cluster.scratch("true");
    script(&program, "#!/bin/sh\nexit 0\n");
    assert!(started(&cluster, &["--all", program.to_str().unwrap()]).ok);
    fs::write(&file, text(1000)).unwrap();
    let done = started(&cluster, &["--all", program.to_str().unwrap()]);
    assert!(done.ok && done.stderr.contains("fan_out: value 1000 is outside"), "{done}");
}
