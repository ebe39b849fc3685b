//! Two machines on one: the host, and a network namespace at the other end of a virtual cable.
//!
//! Packets can be dropped between them without any filter: when the namespace has lost its address,
//! what arrives is not for it and is thrown away in silence, as a switch that has died would.

use super::{Cluster, covey, has_program, is_root, run, skip, until};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The host's end and the namespace's end, with an address each.
pub struct Network {
    /// The name of the namespace.
    pub namespace: String,
    /// The host's address.
    pub here: String,
    /// The namespace's address.
    pub there: String,
    device: String,
}

impl Network {
    /// Lays the cable. None, with the reason told, where that is not permitted.
    pub fn new() -> Option<Network> {
        if !is_root() || !has_program("ip") {
            skip("needs root and ip(8) for a network namespace");
            return None;
        }
        // Tests of other checkouts may run on this machine.
        let number = std::process::id() % 250 * 64;
        let (third, fourth) = (number / 256, number % 256);
        let network = Network {
            namespace: format!("covey-{number}"),
            here: format!("10.213.{third}.{}", fourth + 1),
            there: format!("10.213.{third}.{}", fourth + 2),
            device: format!("cv{number}"),
        };
        match network.lay() {
            Ok(()) => Some(network),
            Err(why) => {
                skip(format!("needs network namespaces: {why}"));
                None
            }
        }
    }

    fn lay(&self) -> Result<(), String> {
        let (ns, device, peer) = (&self.namespace, &self.device, format!("{}p", self.device));
        ip(&["netns", "add", ns])?;
        ip(&["link", "add", device, "type", "veth", "peer", "name", &peer])?;
        ip(&["link", "set", &peer, "netns", ns])?;
        ip(&["addr", "add", &format!("{}/30", self.here), "dev", device])?;
        ip(&["link", "set", device, "up"])?;
        ip(&["-n", ns, "link", "set", "lo", "up"])?;
        ip(&["-n", ns, "link", "set", &peer, "up"])?;
        self.join()?;
        // The hardware address stays known, or the host would learn by ARP that nobody answers.
        let shown = ip(&["-n", ns, "-o", "link", "show", &peer])?;
        let address = shown.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
        let address = address.ok_or("no hardware address")?;
        ip(&[
            "neigh",
            "replace",
            &self.there,
            "lladdr",
            address,
            "dev",
            device,
            "nud",
            "permanent",
        ])?;
        Ok(())
    }

    /// From now on packets are dropped.
    pub fn cut(&self) {
        let peer = format!("{}p", self.device);
        ip(&["-n", &self.namespace, "addr", "flush", "dev", &peer]).expect("ip works as before");
    }

    /// Packets go through again.
    pub fn join(&self) -> Result<(), String> {
        let (address, peer) = (format!("{}/30", self.there), format!("{}p", self.device));
        ip(&["-n", &self.namespace, "addr", "add", &address, "dev", &peer]).map(|_| ())
    }

    /// `covey` as the other machine runs it.
    pub fn covey_there(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(covey().get_program());
        command.env_remove("COVEY_CONFIG").current_dir("/");
        command
    }

    /// Makes a cluster over both machines and starts it: meta, io1, io2 and io3 here, io4 there, all
    /// over TCP under a key.
    pub fn spread(&self, cluster: &Cluster) -> Servers {
        let dir = &cluster.dir;
        for name in ["run", "log", "store"] {
            fs::create_dir_all(dir.join(name)).expect("directories");
        }
        fs::write(dir.join("lock"), "").expect("a file");
        fs::write(cluster.config(), self.config(dir)).expect("a file");
        cluster.covey(&["keygen"]);
        cluster.covey(&["init", "--all", "--here"]);
        let mut servers = Servers(Vec::new());
        for node in NODES {
            let mut command = if node == "io4" { self.covey_there() } else { covey() };
            let log = fs::File::create(dir.join(format!("log/{node}.log"))).expect("a log");
            let again = log.try_clone().expect("a descriptor");
            command.arg("--config").arg(cluster.config()).args(["serve", "--node", node]);
            command.stdin(Stdio::null()).stdout(log).stderr(again);
            servers.0.push(command.spawn().expect("covey runs"));
        }
        until("the answer of every server", || cluster.try_covey(&["ping"]).ok);
        servers
    }

    fn config(&self, dir: &Path) -> String {
        let dir = dir.display();
        let mut text = format!(
            "version = 1\n[cluster]\nname = \"spread\"\nid = \"{:032x}\"\nkey_file = \"{dir}/key\"\n",
            std::process::id()
        );
        for (index, node) in NODES.iter().enumerate() {
            let role = if index == 0 { "meta" } else { "data" };
            let host = if *node == "io4" { &self.there } else { &self.here };
            text += &format!(
                "[[node]]\nname = \"{node}\"\nroles = [\"{role}\"]\nlisten = [\"tcp!{host}!{}\"]\n\
                 store = \"{dir}/store/{node}\"\n",
                5700 + index
            );
        }
        text
    }
}

const NODES: [&str; 5] = ["meta", "io1", "io2", "io3", "io4"];

/// Servers that end with the test.
pub struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.device]);
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("ip");
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let done = run(command);
    if done.ok {
        Ok(done.stdout)
    } else {
        Err(format!("ip {}: {}", arguments.join(" "), done.stderr.trim()))
    }
}
