//! `covey config`: what is wrong is told with its line and what to do.

use crate::home::Home;

fn home_with(change: impl Fn(String) -> String) -> Home {
    let home = Home::new();
    home.run(["genconfig", "--io", "a,b"]).ok();
    let text = change(home.read("covey.toml"));
    home.write("covey.toml", &text);
    home
}

#[test]
fn a_right_file_says_so_and_that_the_key_is_missing() {
    let home = home_with(|text| text.replace("/etc/covey/key", "/nonexistent/key"));
    let done = home.run(["config", "check"]).ok();
    let wanted = "covey.toml is right: cluster covey, 2 nodes, 2 of them I/O servers\n\
                  the key /nonexistent/key is not on this machine: `covey keygen` makes it\n";
    assert_eq!(done.stdout, wanted);
}

#[test]
fn every_problem_is_listed_with_its_line() {
    let home = home_with(|text| {
        text.replace("# strip = \"64 KiB\"", "strip = \"3 KiB\"").replace("nodes = 2", "nodes = 9")
    });
    let done = home.run(["config", "check"]).fails(
        2,
        "cannot use covey.toml: 2 problems",
        "covey help config",
    );
    assert!(
        done.stdout.contains("covey.toml:11: strip: strip size 3 KiB is outside the limits"),
        "{done:?}"
    );
    assert!(
        done.stdout.contains("covey.toml:9: cluster says nodes = 9, the file has 2"),
        "{done:?}"
    );
    assert_eq!(done.stdout.matches("  hint: ").count(), 2);
}

#[test]
fn other_commands_tell_the_first_problem() {
    let home = home_with(|text| text.replace("version = 1", "version = 2"));
    let message = "cannot use covey.toml:2: version is 2, this covey knows version 1";
    home.run(["ping"]).fails(2, message, "install the covey");
}

#[test]
fn a_truncated_file_is_refused() {
    let home = home_with(|text| text[..text.rfind("[[node]]").unwrap()].to_string());
    let message = "cannot use covey.toml:9: cluster says nodes = 2, the file has 1";
    home.run(["ping"]).fails(2, message, "cut short");
}

#[test]
fn a_missing_file_is_told_with_the_places_that_were_looked_at() {
    let home = Home::new();
    let message = "cannot find the cluster's configuration: there is no covey.toml";
    // root would find the machine's own cluster.
    if !std::path::Path::new("/var/lib/covey/covey.toml").exists()
        && !std::path::Path::new("/etc/covey/covey.toml").exists()
    {
        home.run(["ping"]).fails(2, message, "`covey up` starts a cluster");
    }
    home.run(["--config", "none.toml", "ping"]).fails(
        2,
        "cannot read none.toml: no such file or directory",
        "covey genconfig",
    );
}

#[test]
fn errors_are_json_when_asked_for() {
    let done = Home::new().run(["--json", "--config", "none.toml", "ping"]);
    let error: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!((done.code, error["error"]["kind"].as_str()), (2, Some("config")));
    assert_eq!(error["error"]["hints"].as_array().map(Vec::len), Some(1));
}
