//! What `covey lab set NODE` changes: a node itself rather than a cable.

use super::Which;
use crate::error::{Cannot, Error, Result};
use covey_io::os::card;
use covey_lab::enter;
use covey_lab::state::Lab;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// One thing that can be changed.
struct Key {
    name: &'static str,
    form: &'static str,
    what: &'static str,
    check: fn(&str) -> std::result::Result<(), String>,
}

const KEYS: [Key; 3] = [
    Key {
        name: "buffers",
        form: "4KiB, 32MiB",
        what: "the greatest buffers that TCP takes on the node",
        check: |value| bytes(value).map(|_| ()),
    },
    Key {
        name: "offloads",
        form: "off, on",
        what: "whether its card may do what cards can: checksums, segments, merging",
        check: |value| on(value).map(|_| ()),
    },
    Key {
        name: "address",
        form: "10.24.1.2",
        what: "one more address of its first card",
        check: |value| address(value).map(|_| ()),
    },
];

/// Change this node: what `covey lab set NODE` starts.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// The first card.
    card: String,
    /// Keys and values.
    pairs: Vec<String>,
}

/// From outside: checks all, then changes the node.
pub fn set(lab: &Lab, node: &str, pairs: &[(String, String)]) -> Result<()> {
    for (key, value) in pairs {
        let known = KEYS.iter().find(|known| known.name == key).ok_or_else(|| {
            let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            Error::user(format!("cannot set {key} of node {node}: there is no such key"))
                .hint(format!("the keys of a node are {}", names.join(", ")))
        })?;
        (known.check)(value).map_err(|why| {
            Error::user(format!("cannot set {key} of node {node}: {why}"))
                .hint(format!("{key} is {}: {}", known.what, known.form))
        })?;
    }
    let plan = lab.plan()?;
    let (_, card) = plan.cards_of(lab.node(&plan, node)?).next().expect("every node has a card");
    let mut command = enter::ourselves_on(lab, node);
    command.args(["lab", "host", &card.interface]);
    command.args(pairs.iter().flat_map(|(key, value)| [key, value]));
    let done = command.output().cannot(|| format!("change node {node}"))?;
    if done.status.success() {
        remember(lab, node, pairs)
    } else {
        let why = String::from_utf8_lossy(&done.stderr).trim().to_string();
        Err(Error::work(format!("cannot change node {node}: {why}")))
    }
}

/// What was set, by node and key. The kernel keeps it; this is for those who look.
pub type Set = BTreeMap<String, BTreeMap<String, String>>;

/// What has been set on the nodes of a lab.
pub fn all_set(lab: &Lab) -> Set {
    let text = std::fs::read(lab.file(SET_FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

const SET_FILE: &str = "nodes.json";

fn remember(lab: &Lab, node: &str, pairs: &[(String, String)]) -> Result<()> {
    let mut all = all_set(lab);
    let of = all.entry(node.to_string()).or_default();
    for (key, value) in pairs {
        match (key.as_str(), of.get(key)) {
            ("offloads", _) if value == "on" => drop(of.remove(key)),
            ("address", Some(before)) => drop(of.insert(key.clone(), format!("{before} {value}"))),
            _ => drop(of.insert(key.clone(), value.clone())),
        }
    }
    all.retain(|_, of| !of.is_empty());
    let (new, file) = (lab.file("nodes.json.new"), lab.file(SET_FILE));
    let written = std::fs::write(&new, serde_json::to_vec(&all)?);
    let written = written.and_then(|()| std::fs::rename(&new, &file));
    written.cannot(|| format!("write {}", file.display()))
}

/// On the node.
pub fn run(args: &Args) -> Result<()> {
    for pair in args.pairs.chunks_exact(2) {
        let (key, value) = (pair[0].as_str(), pair[1].as_str());
        match key {
            "buffers" => buffers(bytes(value).map_err(Error::user)?)?,
            "offloads" => card::set_offloads(&args.card, on(value).map_err(Error::user)?)
                .cannot(|| format!("switch offloads of {}", args.card))?,
            "address" => card::add_address(&args.card, address(value).map_err(Error::user)?, 24)
                .cannot(|| format!("add an address to {}", args.card))?,
            _ => return Err(Error::user(format!("there is no key {key}"))),
        }
    }
    Ok(())
}

/// The least, the first and the greatest size, which each connection grows to.
fn buffers(most: u64) -> Result<()> {
    for (key, first) in [("tcp_rmem", 131_072), ("tcp_wmem", 16_384)] {
        let file = format!("/proc/sys/net/ipv4/{key}");
        let text = format!("{} {} {most}", most.min(4096), most.min(first));
        std::fs::write(&file, text).cannot(|| format!("write {file}"))?;
    }
    Ok(())
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    let bytes = crate::config::size::parse(text)?;
    if (2048..=1 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("`{text}` is outside the limits: 2 KiB to 1 GiB"))
    }
}

fn on(text: &str) -> std::result::Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}` is neither `on` nor `off`")),
    }
}

fn address(text: &str) -> std::result::Result<Ipv4Addr, String> {
    text.parse().map_err(|_| format!("`{text}` is no IPv4 address"))
}
