//! `covey init`: formats stores.

use super::{Context, serve};
use crate::config::{Address, Node};
use crate::error::{Cannot, Error, Result};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// Format the store of a node, once, before it serves for the first time
///
/// Makes the directory named in covey.toml and marks it as the store of this node and cluster. A
/// directory that is not empty, or that belongs to another node or cluster, is refused and left
/// unchanged. So is the store of a node whose addresses belong to another machine.
///
/// EXAMPLES
///
///     covey init --node node1    on node1
///     covey init --all           every store, when all are on this machine
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Which node of covey.toml [default: the one named like this host]
    #[arg(long, value_name = "NODE", conflicts_with = "all")]
    node: Option<String>,
    /// Every node
    #[arg(long)]
    all: bool,
    /// This is the node's machine, although none of its addresses is found here
    #[arg(long)]
    here: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let names: Vec<String> = match (args.all, args.node) {
        (true, _) => config.nodes.iter().map(|node| node.name.clone()).collect(),
        (false, Some(name)) => vec![name],
        (false, None) => vec![serve::this_host(&config)?],
    };
    for name in &names {
        let node = config.node(name)?;
        if !args.here && !lives_here(node) {
            return Err(elsewhere(node, args.all));
        }
    }
    let mut formatted = Vec::new();
    for name in &names {
        let node = config.node(name)?;
        let Some(store) = &node.store else { continue };
        covey_serve::init(&config, name).await.cannot(|| format!("format the store of {name}"))?;
        formatted.push(serde_json::json!({ "node": name, "store": store }));
        context.output.detail(format!("formatted {}", store.display()));
    }
    context.output.result(&formatted, |out| {
        use std::io::Write;
        let stores = formatted.iter().map(|one| (one["node"].as_str(), one["store"].as_str()));
        for (node, store) in stores {
            writeln!(out, "formatted {} for {}", store.unwrap_or("-"), node.unwrap_or("-"))?;
        }
        Ok(())
    })
}

/// Whether a node may run on this machine: one of its addresses is this machine's. What cannot be found
/// out, because a name leads nowhere yet, is no reason to refuse it. Every machine has a place for a socket
/// in the file system: it says nothing beside an address of the network.
fn lives_here(node: &Node) -> bool {
    let of_network = node.listen.iter().filter_map(|address| match address {
        Address::Tcp { host, .. } => Some(host),
        _ => None,
    });
    let hosts: Vec<&String> = of_network.collect();
    let is_here = |host: &String| match (host.as_str(), 0).to_socket_addrs() {
        Ok(mut found) => found.any(is_own),
        Err(_) => true,
    };
    hosts.is_empty() || hosts.into_iter().any(is_here)
}

/// The kernel lets nobody listen at an address that another machine has.
fn is_own(address: SocketAddr) -> bool {
    match TcpListener::bind(address) {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::AddrNotAvailable,
    }
}

fn elsewhere(node: &Node, is_all: bool) -> Error {
    let name = &node.name;
    let at: Vec<String> = node.listen.iter().map(ToString::to_string).collect();
    let why = format!(
        "cannot format the store of {name} here: {name} listens at {}, which is not this machine",
        at.join(" ")
    );
    let run = if is_all {
        format!("`covey init` on each machine formats its own; {name}'s is elsewhere")
    } else {
        format!("run `covey init --node {name}` on {name}")
    };
    Error::user(why).hint(run).hint("--here, if this is its machine all the same")
}
