use super::*;
use std::path::Path;

const GOOD: &str = r#"version = 1
[cluster]
name = "lab"
id = "8f1c0d5e3b7a49c2a6d4e1f09b3c7a58"
nodes = 2
strip = "64 KiB"
key_file = "/etc/covey/key"
user = "covey"
[[node]]
name = "node1"
roles = ["meta", "data"]
listen = ["unix!/run/covey/node1.sock", "tcp!node1!5640"]
store = "/var/lib/covey/node1"
[[node]]
name = "node2"
roles = ["data"]
listen = ["tcp!node2!5640"]
store = "/var/lib/covey/node2"
"#;

fn read(text: &str) -> std::result::Result<Config, Vec<Problem>> {
    parse(text, Path::new("covey.toml"))
}

/// The problems of `GOOD` with one piece of text replaced by another.
fn problems(from: &str, to: &str) -> Vec<Problem> {
    assert!(GOOD.contains(from), "{from}");
    read(&GOOD.replacen(from, to, 1)).expect_err("the file is wrong")
}

#[test]
fn a_good_file_gives_nodes_roles_and_indices() {
    let config = read(GOOD).unwrap();
    assert_eq!((config.name.as_str(), config.strip_bytes), ("lab", Some(65536)));
    assert_eq!(config.meta().name, "node1");
    assert_eq!(
        config.data().map(|node| node.name.as_str()).collect::<Vec<_>>(),
        ["node1", "node2"]
    );
    assert_eq!((config.server_index("node2"), config.server_index("node3")), (Some(1), None));
    assert!(config.needs_key());
    assert_eq!(config.node("node9").unwrap_err().hints, ["the nodes are node1, node2"]);
}

#[test]
fn a_rendered_file_reads_back_the_same() {
    let mut config = read(GOOD).unwrap();
    config.nodes.push(Node {
        name: "login".into(),
        roles: vec![],
        listen: vec![Address::tcp("login", 1)],
        store: None,
        emulated: Some(Emulated { arch: "s390x".into(), emulator: "/usr/bin/qemu-s390x".into() }),
    });
    let pacing = Pacing { is_on: true, window_bytes: Some(256 << 10), dscp: Some(10) };
    config.pacing = pacing;
    config.nodes[0].store = Some("/data/we \"quote\" \\ these".into());
    assert_eq!(read(&render(&config)), Ok(config));
}

#[test]
fn every_mistake_names_its_line_and_what_is_wrong() {
    for (from, to, line, what) in [
        ("name = \"lab\"", "name = \"a b\"", Some(3), "is not a name"),
        ("8f1c", "8F1C", Some(4), "32 hexadecimal digits"),
        ("nodes = 2", "nodes = 3", Some(5), "nodes = 3, the file has 2"),
        ("64 KiB", "5 KiB", Some(6), "strip size 5 KiB is outside the limits"),
        ("64 KiB", "128 MiB", Some(6), "strip size 128 MiB"),
        ("64 KiB", "big", Some(6), "`big` is not a size"),
        ("/etc/covey/key", "key", Some(7), "not an absolute path"),
        ("key_file = \"/etc/covey/key\"\n", "", None, "there is no key_file"),
        ("\"meta\", \"data\"", "\"data\"", None, "no node has the role meta"),
        ("[\"data\"]", "[\"data\", \"meta\"]", None, "2 nodes have the role meta, limit is 1"),
        ("[\"data\"]", "[\"disk\"]", Some(16), "role `disk` is unknown"),
        ("name = \"node2\"", "name = \"node1\"", Some(15), "node node1 is there twice"),
        ("tcp!node2!5640", "tcp!node1!5640", Some(15), "is also an address of node1"),
        ("tcp!node2!5640", "tcp!node2", Some(17), "is not an address"),
        ("/var/lib/covey/node2", "data", Some(18), "`data` is not an absolute path"),
        ("roles = [\"data\"]", "arch = \"s390x\"\nroles = [\"data\"]", Some(16), "belong together"),
        ("/var/lib/covey/node2", "/a/../b", Some(18), "is not an absolute path"),
        ("store = \"/var/lib/covey/node2\"\n", "", Some(15), "store is missing"),
        ("store = \"/var/lib/covey/node2\"", "shop = \"/x\"", Some(18), "unknown field `shop`"),
        ("version = 1", "version = 7", Some(1), "version is 7, this covey knows version 1"),
        ("version = 1", "", Some(1), "version is missing"),
    ] {
        let problems = problems(from, to);
        let found = problems.iter().find(|problem| problem.message.contains(what));
        let found = found.unwrap_or_else(|| panic!("{to}: {problems:?}"));
        assert_eq!(found.line, line, "{to}: {found:?}");
        assert!(!found.hint.is_empty());
    }
}

#[test]
fn a_newer_version_is_told_before_its_unknown_fields() {
    let text = GOOD.replacen("version = 1", "version = 2\nnews = true", 1);
    assert!(read(&text).unwrap_err()[0].message.contains("version is 2"));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = GOOD.trim_end();
    for end in 0..whole.len() {
        assert!(read(&whole[..end]).is_err(), "cut after {end} bytes");
    }
}

#[test]
fn one_store_may_serve_two_machines_but_not_two_nodes_of_one() {
    let apart = GOOD.replacen("/var/lib/covey/node2", "/var/lib/covey/node1", 1);
    assert!(read(&apart).is_ok());
    let together = apart.replacen("tcp!node2!5640", "tcp!node1!5641", 1);
    let problems = read(&together).unwrap_err();
    assert!(problems[0].message.contains("store /var/lib/covey/node1 is also that of node1"));
}

#[test]
fn all_problems_are_told_together() {
    let text = GOOD.replacen("64 KiB", "1", 1).replacen("nodes = 2", "nodes = 1", 1);
    assert_eq!(read(&text).unwrap_err().len(), 2);
}

#[test]
fn what_pacing_asks_for_is_checked() {
    let with = |line: &str| problems("nodes = 2", &format!("nodes = 2\npacing = true\n{line}"));
    for (line, why) in [
        ("pacing_window = \"5\"", "16 KiB to 32 MiB"),
        ("pacing_window = \"much\"", "not a size"),
        ("pacing_dscp = 64", "no DSCP"),
    ] {
        let found = with(line);
        assert!(found[0].message.contains(why), "{line}: {found:?}");
        assert_eq!(found[0].line, Some(7), "{line}");
    }
    let text = GOOD.replacen("nodes = 2", "nodes = 2\npacing_window = \"256k\"", 1);
    let pacing = Pacing { window_bytes: Some(256 << 10), ..Pacing::default() };
    assert_eq!(read(&text).unwrap().pacing, pacing);
}
