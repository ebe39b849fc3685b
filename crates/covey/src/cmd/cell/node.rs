//! The node that a host of workers belongs to: a connection to it that is made again when the node comes back.

use crate::cmd::Context;
use crate::config::{Config, find, load_found};
use crate::error::{Error, Result};
use covey_cluster::net::{addresses, dial_node};
use covey_io::os::net::Address;
use covey_ninep::client::{Conn, Fid};
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, Result as Answer};
use covey_wire::{Bytes, Name};
use std::cell::RefCell;

/// A node, by name, and the connection to it.
pub(super) struct Node {
    config: Config,
    name: String,
    conn: RefCell<Conn>,
}

impl Node {
    /// The connection; a lost one while there is no other.
    pub fn conn(&self) -> Conn {
        self.conn.borrow().clone()
    }

    /// Connects once more.
    pub async fn dial(&self) -> Answer<()> {
        let conn = dial_node(&self.config, &self.name, "/", None).await?;
        self.conn.replace(conn);
        Ok(())
    }

    /// Writes a command into the node's control file of hosts.
    pub async fn command(&self, line: String) -> Answer<()> {
        let (conn, fid) = self.control(1).await?;
        let data = Bytes::from(line).into();
        conn.call(Message::Twrite { fid: fid.number(), offset: 0, data }).await?;
        Ok(())
    }

    /// What that file says.
    pub async fn hosts(&self) -> Answer<Vec<u8>> {
        let (conn, control) = self.control(0).await?;
        let (mut text, mut offset) = (Vec::new(), 0);
        loop {
            let (fid, count) = (control.number(), 8192);
            let Message::Rread { data } = conn.call(Message::Tread { fid, offset, count }).await?
            else {
                return Err(Errno::EPROTO.into());
            };
            let data = data.into_bytes();
            if data.is_empty() {
                return Ok(text);
            }
            offset += data.len() as u64;
            text.extend_from_slice(&data);
        }
    }

    async fn control(&self, flags: u32) -> Answer<(Conn, Fid)> {
        let conn = self.conn();
        let fid = Fid::walk(&conn, 0, &["cell", "ctl"].map(Name::from)).await?;
        conn.call(Message::Tlopen { fid: fid.number(), flags }).await?;
        Ok((conn, fid))
    }
}

/// The node on this machine, or the one that was named. None where there is none.
pub(super) async fn node(named: Option<&str>, context: &Context) -> Result<Option<Node>> {
    let is_asked = named.is_some() || context.config_file.is_some();
    let found = find(context.config_file.as_deref()).and_then(|found| load_found(&found));
    let config = match found {
        Ok(config) => config,
        Err(error) if is_asked => return Err(error),
        Err(_) => return Ok(None),
    };
    let name = match named {
        Some(name) => config.node(name)?.name.clone(),
        None => match here(&config) {
            Some(name) => name,
            None => return Ok(None),
        },
    };
    let dialed = dial_node(&config, &name, "/", None).await;
    match dialed {
        Ok(conn) => Ok(Some(Node { config, name, conn: conn.into() })),
        Err(error) if named.is_none() => {
            context.output.say(format!("without a node: {name} does not answer ({error})"));
            Ok(None)
        }
        Err(error) => Err(Error::work(format!("cannot reach node {name}: {error}"))
            .hint("--alone runs workers without a node")),
    }
}

/// The node on this machine: of several the one whose job this is, or else the first.
fn here(config: &Config) -> Option<String> {
    let job = std::env::var("COVEY_NODE").ok();
    let is_job = |name: &&str| job.as_deref() == Some(*name);
    let mut all = config.nodes.iter().map(|node| &*node.name).filter(|name| is_here(config, name));
    let first = all.next()?;
    Some(std::iter::once(first).chain(all).find(is_job).unwrap_or(first).to_owned())
}

/// Whether the node has a socket on this machine.
fn is_here(config: &Config, name: &str) -> bool {
    addresses(config, name).is_ok_and(|all| {
        all.iter().any(|address| matches!(address, Address::Unix(path) if path.exists()))
    })
}
