//! Two machines on one: the host, and a network namespace at the other end of a virtual cable.
//!
//! Packets can be dropped between them without any filter: when the namespace has lost its address,
//! what arrives is not for it and is thrown away in silence, as a switch that has died would.

use super::{covey, has_program, is_root, run, skip};
use std::process::Command;

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
        let link = std::fs::read_to_string(format!("/sys/class/net/{device}/address"));
        let _ = link.map_err(|error| error.to_string())?;
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
    match done.ok {
        true => Ok(done.stdout),
        false => Err(format!("ip {}: {}", arguments.join(" "), done.stderr.trim())),
    }
}
