//! `covey genconfig`: from a host list or by questions, never over an existing file.

use crate::home::Home;

#[test]
fn a_host_list_becomes_a_configuration_that_checks() {
    let home = Home::new();
    let done = home.run(["genconfig", "--io", "node[1-2,04]", "--meta", "head"]).ok();
    assert!(
        done.stdout.starts_with("wrote covey.toml: 4 nodes, 3 I/O servers, metadata on head\n"),
        "{done:?}"
    );
    let show = home.run(["--json", "config", "show"]).ok().json();
    let names: Vec<_> = show["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["node"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["head", "node1", "node2", "node04"]);
    assert_eq!(show["nodes"][0]["roles"], serde_json::json!(["meta", "launch"]));
    assert_eq!(show["nodes"][1]["listen"][1], "tcp!node1!5640");
    assert_eq!(show["nodes"][1]["store"], "/var/lib/covey/node1");
    assert_eq!(show["key_file"], "/etc/covey/key");
}

#[test]
fn the_metadata_server_may_be_one_of_the_io_servers() {
    let home = Home::new();
    let options =
        ["--store", "/scratch", "--port", "99", "--strip", "1 MiB", "--gateways", "login"];
    home.run(["genconfig", "--io", "a,b"].iter().chain(&options)).ok();
    let show = home.run(["--json", "config", "show"]).ok().json();
    assert_eq!(show["nodes"][0]["roles"], serde_json::json!(["meta", "data", "launch"]));
    assert_eq!(show["nodes"][1]["listen"][1], "tcp!b!99");
    assert_eq!(show["nodes"][1]["store"], "/scratch/b");
    assert_eq!(
        (show["nodes"][2]["node"].as_str(), show["nodes"][2]["store"].as_str()),
        (Some("login"), None)
    );
    assert_eq!(show["strip_bytes"], 1 << 20);
}

#[test]
fn one_machine_alone_needs_no_key() {
    let home = Home::new();
    home.run(["genconfig", "--io", "localhost"]).ok();
    assert!(home.run(["--json", "config", "show"]).ok().json()["key_file"].is_null());
}

#[test]
fn it_asks_for_what_the_options_leave_open() {
    let home = Home::new();
    let done = home
        .run_with_input(["genconfig", "--port", "7000"], "n[1-2]\nhead\n/data\n128K\nlab\n")
        .ok();
    assert!(done.stderr.starts_with("I/O servers, such as node[1-4,7] [localhost]: "), "{done:?}");
    assert!(!done.stderr.contains("TCP port"), "{done:?}");
    let show = home.run(["--json", "config", "show"]).ok().json();
    assert_eq!(show["name"], "lab");
    assert_eq!(show["strip_bytes"], 128 << 10);
    assert_eq!(show["nodes"][2]["store"], "/data/n2");
    assert_eq!(show["nodes"][2]["listen"][1], "tcp!n2!7000");
}

#[test]
fn answers_that_end_early_are_told() {
    let done = Home::new().run_with_input(["genconfig"], "a\n");
    let lines: Vec<&str> = done.stderr.lines().skip(1).collect();
    let hint = "hint: --io HOSTS and the other options answer without questions";
    assert_eq!(lines, ["covey: cannot ask \"metadata server\": the input has ended", hint]);
    assert_eq!(done.code, 2);
}

#[test]
fn an_existing_file_is_kept_unless_forced() {
    let home = Home::new();
    home.write("covey.toml", "mine");
    let message = "cannot write covey.toml: it exists already";
    home.run(["genconfig", "--io", "a"]).fails(2, message, "--force overwrites it");
    assert_eq!(home.read("covey.toml"), "mine");
    home.run(["genconfig", "--io", "a", "--force"]).ok();
    assert!(home.read("covey.toml").contains("[[node]]"));
}

#[test]
fn a_wrong_host_list_writes_nothing() {
    let home = Home::new();
    home.run(["genconfig", "--io", "n[4-1]"]).fails(
        2,
        "cannot read --io: `4-1` runs backwards",
        "node[1-4,7]",
    );
    let message = "cannot make this cluster: node a is there twice";
    home.run(["genconfig", "--io", "a,a"]).fails(2, message, "rename one");
    assert!(!home.path("covey.toml").exists());
}

#[test]
fn the_file_may_go_to_stdout() {
    let done = Home::new().run(["genconfig", "--io", "a", "-o", "-"]).ok();
    assert!(done.stdout.starts_with("# One file for the whole cluster"), "{done:?}");
}
