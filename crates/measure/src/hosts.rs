//! Where the processes of a parallel program run: on this machine, on nodes of a lab, or on nodes of a cluster.
//!
//! The launchers of MPI and PVM reach other hosts by a remote shell. Between the nodes of a lab that is a script of
//! four lines around `covey lab exec`, so no daemon is needed. Between machines `covey run` starts the ranks itself.

use super::scratch::Scratch;
use crate::error::{Cannot, Error, Result};
use covey_cluster::config::{Address, Config, Node};
use covey_lab::enter::ourselves;
use covey_lab::plan::Card;
use covey_lab::state::Lab;
use covey_tune::wire::Wire;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// All on this machine.
    Here,
    /// One on each of these nodes.
    Nodes(Nodes),
    /// One on each of these nodes of a cluster.
    Machines(Machines),
}

/// Nodes of a lab.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// The lab.
    pub lab: Lab,
    /// Their names.
    pub names: Vec<String>,
    /// The card of the first, in the network that is measured.
    pub card: Card,
    /// The wire between them, where it is known.
    pub wire: Option<Wire>,
}

/// Two nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Machines {
    /// The cluster's configuration, where it was named.
    config: Option<PathBuf>,
    /// Their names.
    pub names: [String; 2],
    /// The names or the addresses at which they are reached.
    pub hosts: [String; 2],
}

impl Hosts {
    /// Nodes of the cluster whose file is named, if it has them; else of a lab; else of the cluster that is found.
    pub fn find_any(
        lab: Option<&str>,
        names: &[String],
        config: impl FnOnce() -> Result<Config>,
    ) -> Result<Hosts> {
        let (Some(config), [from, to]) = (lab.is_none().then(|| config().ok()).flatten(), names)
        else {
            return Hosts::find(lab, names);
        };
        if config.is_named && config.node(from).is_ok() && config.node(to).is_ok() {
            return Hosts::between(&config, from, to);
        }
        match Hosts::find(lab, names) {
            Ok(in_lab) => Ok(in_lab),
            Err(_) => Hosts::between(&config, from, to),
        }
    }

    fn between(config: &Config, from: &str, to: &str) -> Result<Hosts> {
        let hosts = [host_of(config.node(from)?), host_of(config.node(to)?)];
        if from == to {
            return Err(
                Error::user(format!("cannot measure {to} to itself")).hint("name different nodes")
            );
        }
        let config = config.is_named.then(|| config.file.clone());
        Ok(Hosts::Machines(Machines { config, names: [from.to_owned(), to.to_owned()], hosts }))
    }

    /// Nodes of a lab by their names, or this machine when there are none.
    pub fn find(lab: Option<&str>, names: &[String]) -> Result<Hosts> {
        if names.is_empty() {
            return Ok(Hosts::Here);
        }
        let lab = Lab::named(lab)?;
        lab.living_keeper()?;
        let plan = lab.plan()?;
        for (index, name) in names.iter().enumerate() {
            lab.node(&plan, name)?;
            if names[..index].contains(name) {
                return Err(Error::user(format!("cannot measure {name} to itself"))
                    .hint("name different nodes"));
            }
        }
        if names.len() < 2 {
            return Err(Error::user(format!("cannot measure {} alone", names[0]))
                .hint("name two nodes of the lab, or none to measure this machine"));
        }
        Hosts::on_nodes(lab, names.to_vec())
    }

    /// Nodes of a lab that is up, by their names; one is enough.
    pub fn on_nodes(lab: Lab, names: Vec<String>) -> Result<Hosts> {
        let plan = lab.plan()?;
        let first = names.first().ok_or_else(|| Error::user("cannot run on no node"))?;
        let first = lab.node(&plan, first)?;
        let (_, card) = plan.cards_of(first).next().expect("every node has a card");
        let (card, wire) = (card.clone(), plan.networks[0].profile.wire());
        Ok(Hosts::Nodes(Nodes { lab, names, card, wire }))
    }

    /// A command that runs a program on the first of them. It gets the signal to end when we end.
    pub fn command(&self, program: &str) -> Command {
        let mut command = match self {
            Hosts::Here => Command::new(program),
            Hosts::Nodes(nodes) => nodes.command(&nodes.names[0], program),
            Hosts::Machines(machines) => {
                let mut command = machines.run(&machines.names[..1]);
                command.arg("--local").arg(program);
                command
            }
        };
        command.stdin(Stdio::null());
        covey_io::os::namespaces::die_with_parent(&mut command);
        command
    }

    /// The two ends as they are called.
    pub fn ends(&self) -> (String, String) {
        match self {
            Hosts::Here => {
                let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                (host.trim().to_string(), host.trim().to_string())
            }
            Hosts::Nodes(nodes) => (nodes.names[0].clone(), nodes.names[1].clone()),
            Hosts::Machines(machines) => machines.names.clone().into(),
        }
    }
}

/// Where others reach a node: this machine, if it listens nowhere else.
fn host_of(node: &Node) -> String {
    let tcp = node.listen.iter().find_map(|address| match address {
        Address::Tcp { host, .. } => Some(host.clone()),
        _ => None,
    });
    match tcp {
        Some(host) if host == "*" || host == "0.0.0.0" || host == "::" => node.name.clone(),
        Some(host) => host,
        None => "127.0.0.1".to_owned(),
    }
}

impl Machines {
    /// `covey run` on some of them. More options, the program and its words are to follow.
    pub fn run(&self, nodes: &[String]) -> Command {
        let mut command = Command::new(ourselves());
        let config = self.config.as_ref().map(|file| file.display().to_string());
        if let Some(config) = &config {
            command.args(["--config", config]);
        }
        command.args(["run", "-w", &nodes.join(","), "--stdin", "none"]);
        // What runs there may run more on other nodes, if it has the file at the same place.
        if let Some(config) = &config {
            command.args(["-e", &format!("COVEY_CONFIG={config}")]);
        }
        command
    }
}

impl Nodes {
    /// A command that runs a program on a node.
    pub fn command(&self, node: &str, program: &str) -> Command {
        let mut command = Command::new(ourselves());
        command.args(["lab", "exec", "--name", &self.lab.name, node, "--", program]);
        command
    }

    /// A remote shell for launchers: `SHELL [OPTIONS] HOST WORDS...`.
    pub fn remote_shell(&self, scratch: &Scratch) -> Result<PathBuf> {
        let text = format!(
            "#!/bin/sh\n\
             while :; do case $1 in -l) shift 2 ;; -*) shift ;; *) break ;; esac; done\n\
             host=$1\nshift\n\
             exec {} lab exec --name {} \"$host\" -- /bin/sh -c \"$*\"\n",
            quoted(&ourselves().display().to_string()),
            quoted(&self.lab.name),
        );
        script(scratch, "rsh", &text)
    }

    /// The network of the measured cards, as 10.1.2.0/24.
    pub fn network(&self) -> String {
        let [a, b, c, _] = self.card.address.octets();
        format!("{a}.{b}.{c}.0/24")
    }
}

/// Writes a program that the shell runs.
pub fn script(scratch: &Scratch, name: &str, text: &str) -> Result<PathBuf> {
    let file = scratch.file(name);
    let mut options = std::fs::File::options();
    let made = options.write(true).create_new(true).mode(0o700).open(&file);
    let written = made.and_then(|mut out| std::io::Write::write_all(&mut out, text.as_bytes()));
    written.cannot(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// A word as the shell takes it for itself.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for word in ["plain", "two words", "it's", "$HOME", "a\"b"] {
            let script = format!("printf %s {}", quoted(word));
            let done = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&done.stdout), word);
        }
    }

    #[test]
    fn nothing_named_is_this_machine_and_one_node_is_too_few() {
        assert!(matches!(Hosts::find(None, &[]), Ok(Hosts::Here)));
        let error = Hosts::find(Some("never-up"), &["n1".into(), "n2".into()]).unwrap_err();
        assert!(error.message.contains("it is not up"), "{error}");
    }
}
