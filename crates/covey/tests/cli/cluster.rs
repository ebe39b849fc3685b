//! `covey up`, `down`, `status`, `ping` where nothing is started: what is refused and why.

use crate::home::Home;
use crate::support::{has_program, is_root, run, skip};
use std::process::Command;

#[test]
fn down_where_nothing_runs_is_no_error() {
    let home = Home::new();
    std::fs::create_dir(home.path("c")).unwrap();
    let dir = home.path("c").display().to_string();
    let done = home.run(["down", "--dir", &dir]).ok();
    assert_eq!(done.stdout, format!("nothing was running in {dir}\n"));
    assert_eq!(
        home.run(["--json", "down", "--dir", &dir]).ok().json()["stopped"],
        serde_json::json!([])
    );
}

#[test]
fn down_of_a_directory_that_is_not_there_is_told() {
    let home = Home::new();
    let dir = home.path("none").display().to_string();
    let message = format!("cannot stop the cluster in {dir}: there is none");
    home.run(["down", "--dir", &dir]).fails(2, &message, "covey up");
}

#[test]
fn up_does_not_take_a_described_cluster_for_its_own() {
    let home = Home::new();
    home.run(["genconfig", "--io", "a"]).ok();
    let message = "cannot use covey.toml: `covey up` did not make that cluster";
    home.run(["--config", "covey.toml", "up"]).fails(2, message, "--dir DIR");
    home.run(["--config", "covey.toml", "down"]).fails(2, message, "--dir DIR");
}

#[test]
fn up_does_not_take_over_stores_without_their_configuration() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("c/store/io1")).unwrap();
    let dir = home.path("c").display().to_string();
    let message = format!("cannot make a cluster in {dir}: there are stores, but no covey.toml");
    home.run(["up", "--dir", &dir]).fails(1, &message, "put back the covey.toml");
}

#[test]
fn a_first_up_that_fails_leaves_nothing_behind() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = home.path("c").display().to_string();
    let done = home.run(["up", "--dir", &dir, "-n", "1", "--tcp", &port]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(
        !home.path("c").exists(),
        "{:?}",
        std::fs::read_dir(home.path("c")).unwrap().collect::<Vec<_>>()
    );
    drop(taken);
    home.run(["up", "--dir", &dir, "-n", "1"]).ok();
    home.run(["down", "--dir", &dir]).ok();
}

#[test]
fn a_first_up_on_a_full_disk_leaves_nothing_behind() {
    if !is_root() || !has_program("unshare") {
        return skip("needs root and unshare for a full disk");
    }
    let home = Home::new();
    let script = "mount -t tmpfs -o size=64k none . && cd \"$PWD\" && \"$0\" up --dir \"$PWD/c\"; \
                  echo code $?; ls -A";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_covey")]);
    shell.current_dir(home.path(""));
    let done = run(shell);
    assert_eq!(done.stdout, "code 1\n", "{done}");
    assert!(done.stderr.contains(": no space left on device\nhint: `df` shows"), "{done}");
}

#[test]
fn a_mount_that_cannot_be_had_is_an_error_and_the_servers_run() {
    let home = Home::new();
    let dir = home.path("c").display().to_string();
    home.write("file", "not a directory");
    let done = home.run(["up", "--dir", &dir, "-n", "1", "--mount", "file"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(
        done.stderr.contains("hint: the servers run; `covey mount` adds a mount later"),
        "{done:?}"
    );
    home.run(["--config", &format!("{dir}/covey.toml"), "ping"]).ok();
    home.run(["down", "--dir", &dir]).ok();
}

#[test]
fn dead_servers_are_code_1_for_ping_and_rows_for_status() {
    let home = Home::new();
    let text = format!(
        "version = 1\n[cluster]\nname = \"c\"\nid = \"{}\"\nnodes = 1\n[[node]]\nname = \"one\"\n\
         roles = [\"meta\", \"data\"]\nlisten = [\"unix!{}\"]\nstore = \"/nonexistent\"\n",
        "0".repeat(32),
        home.path("no.sock").display()
    );
    home.write("covey.toml", &text);
    let done = home.run(["ping"]).fails(
        1,
        "cannot reach the cluster: none of the servers answers",
        "covey up",
    );
    let row = done.stdout.lines().nth(1).unwrap();
    assert!(row.starts_with("one   meta+data  dead"), "{done:?}");
    let status = home.run(["--json", "status"]).ok().json();
    assert_eq!(
        (&status["nodes"][0]["up"], &status["nodes"][0]["node"]),
        (&false.into(), &"one".into())
    );
    home.run(["ping", "two"]).fails(
        2,
        "cannot find node two: it is not in covey.toml",
        "the nodes are one",
    );
    assert_eq!(home.run(["ls"]).code, 1);
}

#[test]
fn paths_that_no_command_can_mean_are_refused_before_anything_is_tried() {
    let home = Home::new();
    let message = "cannot copy a b: neither side is in Covey";
    home.run(["cp", "a", "b"]).fails(2, message, "`:/path`");
    home.run(["cp", "-", ":/a", ":/b"]).fails(
        2,
        "cannot copy - :/a :/b: stdin goes to one file in Covey",
        "covey cp - :/file",
    );
    home.run(["cp", ":/a", ":/b", "-"]).fails(
        2,
        "cannot copy :/a :/b -: stdout takes one file out of Covey",
        "covey cat",
    );
    home.run(["chown", "no-such-user", "/a"]).fails(
        2,
        "cannot find user no-such-user: this machine does not know it",
        "getent",
    );
    home.run(["umount", &home.path("").display().to_string()]).fails(
        2,
        &format!(
            "cannot unmount {}: nothing is mounted there",
            home.path("").display().to_string().trim_end_matches('/')
        ),
        "findmnt",
    );
    let message =
        "cannot export at tcp!node1!5640: other machines could reach it without proving a key";
    home.run(["export", ".", "--listen", "tcp!node1!5640"]).fails(2, message, "ssh");
}
