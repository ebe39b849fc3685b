//! The form of answers: one thing is told in one form, whichever command tells of it; one is not told as many; and a table
//! fits the terminal.

use crate::home::Home;
use crate::support::Cluster;
use serde_json::{Value, json};

#[test]
fn a_node_is_told_in_one_form_by_all_commands() {
    let cluster = Cluster::up(1);
    let told = |arguments: &[&str]| -> Value {
        serde_json::from_str(&cluster.covey(&[&["--json"], arguments].concat())).unwrap()
    };
    let dir = cluster.dir.display().to_string();
    let (up, status) = (told(&["up", "--dir", &dir]), told(&["status"]));
    let (ping, config) = (told(&["ping"]), told(&["config", "show"]));
    let socket = format!("unix!{}", cluster.socket("io1").display());
    for nodes in [&up["nodes"], &status["nodes"], &ping, &config["nodes"]] {
        let nodes = nodes.as_array().unwrap();
        let node = nodes.iter().find(|node| node["node"] == "io1").unwrap_or_else(|| {
            panic!("no node io1 in {nodes:?}");
        });
        assert_eq!(node["roles"], json!(["data", "launch"]), "{node}");
        assert_eq!(node["listen"], json!([socket]), "{node}");
    }
    assert_eq!(status["nodes"][1]["latency_us"].is_u64(), ping[1]["latency_us"].is_u64());
}

#[test]
fn status_fits_80_columns_and_tells_the_rest_when_asked() {
    let cluster = Cluster::up(4);
    let told = cluster.covey(&["status"]);
    let (head, tables) = told.split_once("\n\n").unwrap();
    assert!(head.starts_with("cluster local ("), "{told}");
    for line in tables.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    let store = cluster.store("io1").display().to_string();
    assert!(!told.contains(&store), "{told}");
    let all = cluster.covey(&["-v", "status"]);
    assert!(all.contains(&store) && all.contains("io1.sock"), "{all}");
}

#[test]
fn one_is_not_told_as_many() {
    let home = Home::new();
    let file = home.path("covey.toml").display().to_string();
    let told = home.run(["genconfig", "--io", "a", "--meta", "a", "--output", &file]).ok().stdout;
    assert!(told.contains("1 node, 1 I/O server, metadata on a"), "{told}");
    let told = home.run(["config", "check", &file]).ok().stdout;
    assert!(told.contains("1 node, 1 of them an I/O server"), "{told}");
    let cluster = Cluster::up(1);
    // The root directory.
    let told = cluster.covey(&["fsck"]);
    assert!(told.contains("1 file, 0 objects: clean"), "{told}");
}
