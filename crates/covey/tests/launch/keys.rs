//! A cluster key that is replaced while the cluster works.

use crate::run::Beside;
use crate::support::bytes::noise;
use crate::support::lab::Lab;
use crate::support::{Finished, has_program, is_root, no_fuse, skip, until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// n1 has nothing, n2 data and n3 names; each has its own files, as on machines of their own.
const NODES: [&str; 3] = ["n1", "n2", "n3"];

struct Keyed {
    lab: Lab,
    dir: PathBuf,
}

impl Keyed {
    fn config(&self, node: &str) -> String {
        self.dir.join(node).join("covey.toml").to_str().unwrap().to_owned()
    }

    fn key(&self, node: &str) -> PathBuf {
        self.dir.join(node).join("key")
    }

    fn next(&self, node: &str) -> PathBuf {
        self.dir.join(node).join("key.next")
    }

    fn write_configs(&self, id: &str) {
        for owner in NODES {
            let (dir, key) = (self.dir.join(owner), self.key(owner));
            fs::create_dir(&dir).unwrap();
            let mut text = format!(
                "version = 1\n[cluster]\nname = \"keyed\"\nid = \"{id}\"\nnodes = 3\nkey_file = \"{}\"\n",
                key.display()
            );
            for (node, roles) in [("n1", ""), ("n2", "\"data\""), ("n3", "\"meta\"")] {
                let store = self.dir.join(format!("store-{node}"));
                text += &format!("[[node]]\nname = \"{node}\"\nroles = [{roles}]\n");
                text += &format!("listen = [\"tcp!{node}!5640\"]\n");
                if !roles.is_empty() {
                    text += &format!("store = \"{}\"\n", store.display());
                }
            }
            fs::write(dir.join("covey.toml"), text).unwrap();
        }
    }

    fn copy(&self, from: &Path, to: &Path) {
        fs::copy(from, to).unwrap();
    }

    fn try_covey(&self, node: &str, words: &[&str]) -> Finished {
        let program = env!("CARGO_BIN_EXE_covey");
        self.lab.try_exec(node, &[&[program, "--config", &self.config(node)], words].concat())
    }

    fn covey(&self, node: &str, words: &[&str]) -> String {
        let done = self.try_covey(node, words);
        assert!(done.ok, "covey {} on {node}: {done}", words.join(" "));
        done.stdout
    }

    fn serve(&self, node: &str) -> Beside {
        let program = env!("CARGO_BIN_EXE_covey");
        let words = [program, "--config", &self.config(node), "serve", "--node", node];
        Beside::on(&self.lab, node, &words)
    }

    /// What the nodes say to the keys of one of them, `covey key ls` there: each its word for the key and the next.
    fn said(&self, at: &str) -> Vec<(String, String)> {
        let done = self.try_covey(at, &["--json", "key", "ls"]);
        let said: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
        let word = |word: &Value| word.as_str().unwrap_or("-").to_owned();
        let nodes = said["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().map(|node| (word(&node["key"]), word(&node["next"]))).collect()
    }

    fn all_say(&self, at: &str, key: &str, next: &str) -> bool {
        self.said(at) == vec![(key.to_owned(), next.to_owned()); NODES.len()]
    }
}

#[test]
fn a_key_is_replaced_node_by_node_while_all_of_them_work_and_the_old_one_is_worth_nothing_then() {
    if !is_root() || !has_program("bash") {
        return skip("needs root and bash");
    }
    if let Some(reason) = no_fuse() {
        return skip(reason);
    }
    let Some(lab) = Lab::up("keyed", &["3"]) else { return };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let keyed = Keyed { lab, dir: dir.path().to_owned() };
    keyed.write_configs(&format!("{:032x}", std::process::id()));
    keyed.covey("n1", &["keygen"]);
    for node in ["n2", "n3"] {
        keyed.copy(&keyed.key("n1"), &keyed.key(node));
        keyed.covey(node, &["init", "--node", node]);
    }
    let mut served: Vec<Beside> = NODES.iter().map(|node| keyed.serve(node)).collect();
    until("the nodes answer", || keyed.try_covey("n1", &["ping"]).ok);

    // A mount that lives through it: each turn of its shell shows that it works.
    let turns = dir.path().join("turns");
    let script = format!(
        "mkdir -p {dir}/m && {covey} --config {config} mount {dir}/m && while :; do \
         date +%N > {dir}/m/now && cat {dir}/m/now > {turns}.new && mv {turns}.new {turns} || \
         echo failed >> {dir}/failures; sleep 0.05; done",
        dir = dir.path().display(),
        covey = env!("CARGO_BIN_EXE_covey"),
        config = keyed.config("n1"),
        turns = turns.display(),
    );
    let mount = Beside::on(&keyed.lab, "n1", &["bash", "-c", &script]);
    let works_on = |what: &str| {
        let seen = fs::read(&turns).unwrap_or_default();
        until(what, || fs::read(&turns).is_ok_and(|now| !now.is_empty() && now != seen));
        assert!(!dir.path().join("failures").exists(), "{what}: the mount has failed");
    };
    works_on("the mount works");

    keyed.covey("n1", &["keygen", "--next"]);
    let again = keyed.try_covey("n1", &["keygen", "--next"]);
    assert!(!again.ok && again.stderr.contains("exists already"), "{again}");
    until("only n1 takes the next key", || {
        let said = keyed.said("n1");
        let next: Vec<&str> = said.iter().map(|(_, next)| next.as_str()).collect();
        next == ["takes it", "refuses it", "refuses it"]
    });
    let early = keyed.try_covey("n1", &["key", "rotate"]);
    assert!(!early.ok && early.stderr.contains("n2, n3 do not take the next key"), "{early}");
    let absent = keyed.try_covey("n2", &["key", "rotate"]);
    assert!(!absent.ok && absent.stderr.contains("covey keygen --next"), "{absent}");
    for node in ["n2", "n3"] {
        keyed.copy(&keyed.next("n1"), &keyed.next(node));
    }
    until("all nodes take both keys", || keyed.all_say("n1", "takes it", "takes it"));
    works_on("the mount works with two keys");
    let early = keyed.try_covey("n2", &["key", "retire"]);
    assert!(!early.ok && early.stderr.contains("is the newer one"), "{early}");

    let (old, source) = (dir.path().join("old"), dir.path().join("source"));
    keyed.copy(&keyed.key("n1"), &old);
    fs::write(&source, noise(5, 3 << 20)).unwrap();
    for node in NODES {
        keyed.covey(node, &["key", "rotate"]);
        // Who proves the new key and who proves the old one get in, whichever the node has first.
        for (at, client) in NODES.iter().enumerate() {
            let name = format!(":/{node}-{at}");
            keyed.covey(client, &["cp", source.to_str().unwrap(), &name]);
            keyed.covey(client, &["ping"]);
        }
        works_on("the mount works while the key is replaced");
        let again = keyed.try_covey(node, &["key", "rotate"]);
        assert!(!again.ok && again.stderr.contains("is the older one"), "{again}");
    }
    assert_ne!(fs::read(&old).unwrap(), fs::read(keyed.key("n3")).unwrap());
    until("the new key is the first everywhere", || {
        NODES.iter().all(|node| keyed.all_say(node, "takes it", "takes it"))
    });

    for node in NODES {
        keyed.covey(node, &["key", "retire"]);
        assert!(!keyed.next(node).exists());
    }
    keyed.copy(&old, &keyed.next("n1"));
    until("nobody else takes the old key", || {
        let said = keyed.said("n1");
        let next: Vec<&str> = said.iter().map(|(_, next)| next.as_str()).collect();
        next == ["takes it", "refuses it", "refuses it"]
    });
    fs::remove_file(keyed.next("n1")).unwrap();
    works_on("the mount works with the old key gone");

    // Whoever must connect anew does so with the new key, the mount too.
    drop(served.remove(1));
    served.push(keyed.serve("n2"));
    until("n2 is back", || keyed.try_covey("n1", &["ping"]).ok);
    let (found, back) = (dir.path().join("m").join("n3-0"), dir.path().join("back"));
    until("the mount has met it", || {
        keyed.lab.try_exec("n1", &["cp", found.to_str().unwrap(), back.to_str().unwrap()]).ok
    });
    assert!(fs::read(&back).unwrap() == noise(5, 3 << 20), "the mount reads other bytes");
    works_on("the mount works with the new key");
    keyed.lab.try_exec("n1", &["umount", "-l", dir.path().join("m").to_str().unwrap()]);
    drop(mount);
}
