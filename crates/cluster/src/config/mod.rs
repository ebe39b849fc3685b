//! The cluster's configuration: `covey.toml`, the same file on every node.
//!
//! ```toml
//! version = 1
//! [cluster]
//! name = "lab"
//! id = "8f1c0d5e3b7a49c2a6d4e1f09b3c7a58"
//! nodes = 2
//! strip = "64 KiB"
//! key_file = "/etc/covey/key"
//! user = "covey"
//! [[node]]
//! name = "node1"
//! roles = ["meta", "data"]
//! listen = ["unix!/run/covey/node1.sock", "tcp!node1!5640"]
//! store = "/var/lib/covey/node1"
//! [[node]]
//! name = "node2"
//! roles = ["data"]
//! listen = ["unix!/run/covey/node2.sock", "tcp!node2!5640"]
//! store = "/var/lib/covey/node2"
//! ```
//!
//! [`find`] says which file is meant, [`load`] reads and checks it. A [`Config`] that exists is
//! valid: exactly one metadata server, at least one I/O server, no name, address or store twice,
//! absolute stores, and a key file wherever something listens beyond this machine. The order of the
//! data nodes in the file is the index by which layouts name them, so it must never change.

mod address;
mod check;
mod find;
pub mod hostlist;
mod parse;
mod render;
pub mod size;

pub use address::{Address, UNIX_PATH_MAX};
pub use find::{LAB_DIR, Place, embedded_dir, find};
pub use parse::{Problem, load, load_found, parse};
pub use render::render;

use crate::error::{Error, Result};
use std::path::PathBuf;

/// The newest form of the file that is understood.
pub const VERSION: u64 = 1;
/// Strip size unless another is asked for, in bytes.
pub const STRIP_BYTES_DEFAULT: u32 = 64 << 10;
/// Least strip size in bytes; every strip size is a multiple of it.
pub const STRIP_BYTES_MIN: u32 = 4 << 10;
/// Greatest strip size in bytes.
pub const STRIP_BYTES_MAX: u32 = 64 << 20;
/// The port servers listen at unless another is asked for.
pub const PORT_DEFAULT: u16 = 5640;
/// Most nodes in one cluster: layouts count servers in 16 bits, people in fewer.
pub const NODES_MAX: usize = 4096;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file it came from.
    pub file: PathBuf,
    /// Somebody has named the file; else it was found where files are looked for.
    pub is_named: bool,
    /// What people call the cluster.
    pub name: String,
    /// 32 hexadecimal digits: which cluster a store belongs to.
    pub id: String,
    /// Strip size of new files in bytes, where somebody has asked for one.
    pub strip_bytes: Option<u32>,
    /// Whether bulk yields to messages, and how; see `covey help net`.
    pub pacing: Pacing,
    /// Where each node keeps the cluster key, when one is needed.
    pub key_file: Option<PathBuf>,
    /// The user who runs the servers, by name or number, where that is neither root nor whoever reads this.
    pub user: Option<String>,
    /// The nodes in the file's order.
    pub nodes: Vec<Node>,
    /// Nodes that are shown together.
    pub views: Vec<View>,
}

/// How bulk yields to messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacing {
    /// Whether it does.
    pub is_on: bool,
    /// Bytes that may be on their way on each connection, where somebody has set them.
    pub window_bytes: Option<usize>,
    /// The mark of its packets, where somebody has set one.
    pub dscp: Option<u8>,
}

/// Nodes that every node shows as `/view/NAME`, of this cluster or of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Which nodes; none is all of them.
    pub nodes: Vec<String>,
    /// The file of the other cluster.
    pub cluster: Option<PathBuf>,
}

/// One node: a process of `covey serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, unique in the cluster.
    pub name: String,
    /// What it does; empty for a gateway that only serves `/fs`, which every node does.
    pub roles: Vec<Role>,
    /// Where it listens, nearest first.
    pub listen: Vec<Address>,
    /// Where it keeps objects and metadata: set for every node that has a role that needs it.
    pub store: Option<PathBuf>,
    /// It runs programs of another architecture, by an emulator.
    pub emulated: Option<Emulated>,
}

/// Programs of another architecture on a machine that has none of that kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulated {
    /// As `uname -m` calls it there: `s390x`.
    pub arch: String,
    /// The program that runs one program of that architecture: qemu's, for its user mode.
    pub emulator: PathBuf,
}

/// What a node does besides serving `/fs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Keeps names and attributes: one node of the cluster.
    Meta,
    /// Keeps file data.
    Data,
    /// Starts programs for its users: `/xcpu`.
    Launch,
    /// Serves images to machines that boot: `/boot`.
    Boot,
}

impl Role {
    /// Whether it keeps something in the node's store.
    pub fn is_storage(self) -> bool {
        matches!(self, Role::Meta | Role::Data)
    }

    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Role::Meta => "meta",
            Role::Data => "data",
            Role::Launch => "launch",
            Role::Boot => "boot",
        }
    }
}

impl Config {
    /// The node of that name.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.iter().find(|node| node.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            Error::user(format!("cannot find node {name}: it is not in {}", self.file.display()))
                .hint(format!("the nodes are {}", known.join(", ")))
        })
    }

    /// The metadata server.
    pub fn meta(&self) -> &Node {
        let meta = self.nodes.iter().find(|node| node.is(Role::Meta));
        meta.expect("a checked configuration has one metadata server")
    }

    /// The I/O servers in the order in which layouts count them.
    pub fn data(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is(Role::Data))
    }

    /// The index by which layouts name an I/O server.
    pub fn server_index(&self, name: &str) -> Option<u16> {
        let index = self.data().position(|node| node.name == name)?;
        u16::try_from(index).ok()
    }

    /// The file, and how it was found.
    pub fn place(&self) -> Place {
        if self.is_named {
            Place::Named(self.file.clone())
        } else {
            Place::Found(self.file.clone())
        }
    }

    /// The number of the user whom the file names, where this machine knows it.
    pub fn user_number(&self) -> Option<u32> {
        let user = self.user.as_deref()?;
        match user.parse() {
            Ok(number) => Some(number),
            Err(_) => covey_io::os::users::by_name(user).ok().flatten().map(|found| found.uid),
        }
    }

    /// Whether something listens beyond this machine, so that the cluster key must be proven.
    pub fn needs_key(&self) -> bool {
        self.nodes.iter().flat_map(|node| &node.listen).any(|address| !address.is_local())
    }
}

impl Node {
    /// Whether it has the role.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Its first unix socket: how this machine reaches it.
    pub fn unix_socket(&self) -> Option<&std::path::Path> {
        self.listen.iter().find_map(Address::unix_path)
    }

    /// Its roles as people read them.
    pub fn roles_text(&self) -> String {
        joined(self.roles.iter().copied())
    }

    /// What it keeps, as its store is marked with: what the node does besides may change.
    pub fn storage_text(&self) -> String {
        joined(self.roles.iter().copied().filter(|role| role.is_storage()))
    }

    /// Whether it keeps anything.
    pub fn is_storage(&self) -> bool {
        self.roles.iter().any(|role| role.is_storage())
    }
}

fn joined(roles: impl Iterator<Item = Role>) -> String {
    let words: Vec<_> = roles.map(Role::word).collect();
    if words.is_empty() { "gateway".to_string() } else { words.join("+") }
}

/// A new cluster id: 16 random bytes in hexadecimal.
pub fn new_id() -> Result<String> {
    random_hex(16)
}

/// `count` random bytes in hexadecimal.
pub fn random_hex(count: usize) -> Result<String> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::work(format!("cannot get random bytes: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Checks a strip size in bytes.
pub fn checked_strip(bytes: u64) -> std::result::Result<u32, String> {
    let (min, max) = (u64::from(STRIP_BYTES_MIN), u64::from(STRIP_BYTES_MAX));
    if (min..=max).contains(&bytes) && bytes.is_multiple_of(min) {
        Ok(bytes as u32)
    } else {
        Err(format!(
            "strip size {} is outside the limits: a multiple of 4 KiB from 4 KiB to 64 MiB",
            size::exact(bytes)
        ))
    }
}

/// Reads a strip size as people write it.
pub fn parse_strip(text: &str) -> std::result::Result<u32, String> {
    size::parse(text).and_then(checked_strip)
}

#[cfg(test)]
mod tests;
