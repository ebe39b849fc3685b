//! A lab of a test's own.

use super::command::{Finished, covey, run};
use super::skip;

/// A lab that goes down with its test.
pub struct Lab {
    name: String,
}

impl Lab {
    /// Makes one with these words after `covey lab up`. None, with the reason told, where this machine
    /// does not permit it.
    pub fn up(name: &str, words: &[&str]) -> Option<Lab> {
        // Tests of other checkouts may run on this machine.
        let lab = Lab { name: format!("test-{}-{name}", std::process::id()) };
        let done = lab.try_lab("up", words);
        let forbidden = ["cannot make network cards", "user namespace", "mount /proc for the lab"];
        if !done.ok && forbidden.iter().any(|words| done.stderr.contains(words)) {
            skip(format!("needs a lab: {}", done.stderr.lines().next().unwrap_or_default()));
            return None;
        }
        assert!(done.ok, "covey lab up: {done}");
        Some(lab)
    }

    /// Its name, for programs that are started without this.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `covey lab VERB --name THIS WORDS`.
    pub fn try_lab(&self, verb: &str, words: &[&str]) -> Finished {
        let mut command = covey();
        command.args(["--json", "lab", verb, "--name", &self.name]).args(words);
        run(command)
    }

    /// The same in words for people: it must fail.
    pub fn refused(&self, verb: &str, words: &[&str]) -> Finished {
        let mut command = covey();
        command.args(["lab", verb, "--name", &self.name]).args(words);
        run(command)
    }

    /// One that must succeed: its result.
    pub fn lab(&self, verb: &str, words: &[&str]) -> serde_json::Value {
        let done = self.try_lab(verb, words);
        assert!(done.ok, "covey lab {verb}: {done}");
        serde_json::from_str(&done.stdout).unwrap_or_default()
    }

    /// Runs a program on a node.
    pub fn try_exec(&self, node: &str, words: &[&str]) -> Finished {
        let mut command = covey();
        command.args(["lab", "exec", "--name", &self.name, node, "--"]).args(words);
        run(command)
    }

    /// One that must succeed: what it wrote.
    pub fn exec(&self, node: &str, words: &[&str]) -> String {
        let done = self.try_exec(node, words);
        assert!(done.ok, "{} on {node}: {done}", words.join(" "));
        done.stdout
    }

    /// Runs `covey` on a node: it must succeed.
    pub fn covey(&self, node: &str, words: &[&str]) -> String {
        self.exec(node, &[&[env!("CARGO_BIN_EXE_covey")], words].concat())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let down = self.try_lab("down", &[]);
        if !down.ok && !std::thread::panicking() {
            panic!("covey lab down: {down}");
        }
    }
}
