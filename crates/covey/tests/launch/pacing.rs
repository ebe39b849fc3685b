//! Storage and pushed programs that yield to messages, in a lab.

use crate::run::Beside;
use crate::support::bytes::noise;
use crate::support::lab::Lab;
use crate::support::{has_program, is_root, skip, until};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file of a cluster of three nodes that pace: n1 has nothing, n2 data and n3 names.
fn config(dir: &Path) -> PathBuf {
    let mut text = format!(
        "version = 1\n[cluster]\nname = \"paced\"\nid = \"{:032x}\"\nnodes = 3\npacing = true\n\
         pacing_dscp = 10\nkey_file = \"{}\"\n",
        std::process::id(),
        dir.join("key").display()
    );
    for (node, roles) in [("n1", ""), ("n2", "\"data\", \"launch\""), ("n3", "\"meta\"")] {
        let store = dir.join(node);
        write!(text, "[[node]]\nname = \"{node}\"\nroles = [{roles}]\n").unwrap();
        writeln!(text, "listen = [\"tcp!{node}!5640\"]").unwrap();
        if !roles.is_empty() {
            writeln!(text, "store = \"{}\"", store.display()).unwrap();
        }
    }
    let file = dir.join("covey.toml");
    fs::write(&file, text).unwrap();
    file
}

struct Paced {
    lab: Lab,
    config: String,
}

impl Paced {
    fn covey(&self, node: &str, words: &[&str]) -> String {
        self.lab.covey(node, &[&["--config", &self.config], words].concat())
    }

    /// The connections that a node reports: class, limit and direction of those with another node.
    fn flows(&self, node: &str, way: &str, with: &str) -> Vec<(String, bool)> {
        let shown = self.covey(node, &["--json", "net", "show", node, "--flows"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let shown = shown.as_array().map_or(&shown, |all| &all[0]);
        let flows = shown["flows"].as_array().into_iter().flatten();
        let of = flows.filter(|flow| flow["direction"] == way && flow["node"] == with);
        of.map(|flow| (flow["class"].as_str().unwrap().to_owned(), flow["limit"] != "none"))
            .collect()
    }

    /// Whether the kernel paces a connection of a node for which `filter` holds.
    fn obeys(&self, node: &str, filter: &str) -> bool {
        let shown = self.lab.exec(node, &["ss", "-tinH", filter]);
        // The rate of now and the greatest.
        let rates = shown.split("pacing_rate ").skip(1).filter_map(|rest| rest.split(' ').next());
        rates.into_iter().any(|rate| rate.contains('/'))
    }
}

#[test]
fn storage_and_pushed_programs_yield_to_messages() {
    if !is_root() || !has_program("bash") || !has_program("ss") {
        return skip("needs root, bash and ss");
    }
    let Some(lab) = Lab::up("paced", &["3", "--link", "fast-ethernet"]) else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = config(dir.path()).to_str().unwrap().to_owned();
    let program = env!("CARGO_BIN_EXE_covey");
    let paced = Paced { lab, config: config.clone() };
    let lab = &paced.lab;
    lab.covey("n1", &["keygen", dir.path().join("key").to_str().unwrap()]);
    for node in ["n2", "n3"] {
        paced.covey(node, &["init", "--node", node]);
    }
    let serve =
        |node| Beside::on(lab, node, &[program, "--config", &config, "serve", "--node", node]);
    let [receiver, _server, _names] = ["n1", "n2", "n3"].map(serve);
    until("the nodes answer", || lab.try_exec("n1", &[program, "--config", &config, "ping"]).ok);

    let source = dir.path().join("source");
    fs::write(&source, noise(16, 4 << 20)).unwrap();
    paced.covey("n1", &["cp", source.to_str().unwrap(), ":/f"]);
    let again =
        |words: &str| format!("while :; do {program} --config {config} {words} || sleep 0.1; done");
    let read = || Beside::on(lab, "n1", &["sh", "-c", &again("cat :/f")]);
    let reader = read();
    until("storage is seen and free", || {
        // What is taken for messages at first, before its connections are known, is a limit that ends.
        paced.flows("n1", "in", "n2").contains(&("storage".to_owned(), false))
            && !paced.obeys("n2", "sport = :5640")
    });
    let talk = |node| {
        let talk = format!("while :; do echo m >/dev/udp/{node}/9; sleep 0.005; done");
        Beside::on(lab, "n3", &["bash", "-c", &talk])
    };
    let _talk = talk("n1");
    until("storage is limited", || {
        paced.flows("n1", "in", "n2").contains(&("storage".to_owned(), true))
    });
    until("its server obeys", || paced.obeys("n2", "sport = :5640"));
    drop(reader);

    let talk = talk("n2");
    let pushed = dir.path().join("pushed");
    let script = format!("#!/bin/sh\nexit 0\n# {}\n", "x".repeat(6 << 20));
    fs::write(&pushed, script).unwrap();
    fs::set_permissions(&pushed, fs::Permissions::from_mode(0o755)).unwrap();
    let words = format!("run -w n2 {}", pushed.display());
    let push = Beside::on(lab, "n1", &["sh", "-c", &again(&words)]);
    let images = ("images".to_owned(), true);
    until("the node that starts programs limits them", || {
        paced.flows("n2", "in", "n1").contains(&images)
    });
    until("who pushes obeys", || paced.obeys("n1", "dport = :5640"));
    until("the other end knows what they are", || {
        paced.flows("n1", "out", "n2").iter().any(|(class, _)| class == "images")
    });
    drop(push);
    // What that node answers to messages are messages as well, and it keeps its own port free for them.
    drop(talk);

    let _reader = read();
    until("the server obeys again", || paced.obeys("n2", "sport = :5640"));
    drop(receiver);
    until("limits end with the node that set them", || !paced.obeys("n2", "sport = :5640"));
}
