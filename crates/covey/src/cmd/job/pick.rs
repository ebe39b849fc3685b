//! Which nodes a command is about.

use super::tree::NodeTree;
use crate::config::{Config, hostlist};
use crate::error::{Error, Result};
use futures_util::future::join_all;
use std::rc::Rc;

/// The nodes that the user has named: by a list, all of the cluster, those that a batch system has given us, or
/// the one that the command runs on.
pub fn nodes(config: &Config, list: Option<&str>, all: bool) -> Result<Vec<String>> {
    match (list, all) {
        (Some(list), _) => named(config, list),
        (None, true) => Ok(config.nodes.iter().map(|node| node.name.clone()).collect()),
        (None, false) => match std::env::var("SLURM_JOB_NODELIST") {
            Ok(list) if !list.is_empty() => named(config, &list),
            _ => here(config).map(|node| vec![node]),
        },
    }
}

fn named(config: &Config, list: &str) -> Result<Vec<String>> {
    let names = hostlist::expand(list).map_err(|why| {
        Error::user(format!("cannot read the list of nodes: {why}")).hint("node[1-4,7],login")
    })?;
    let mut nodes: Vec<String> = Vec::new();
    for name in names {
        config.node(&name)?;
        if !nodes.contains(&name) {
            nodes.push(name);
        }
    }
    Ok(nodes)
}

/// The node of this machine: the one named like it, else the first whose socket is here.
fn here(config: &Config) -> Result<String> {
    if let Ok(name) = crate::cmd::serve::this_host(config) {
        return Ok(name);
    }
    let is_here = |path: &std::path::Path| path.exists();
    let node = config.nodes.iter().find(|node| node.unix_socket().is_some_and(is_here));
    node.map(|node| node.name.clone()).ok_or_else(|| {
        Error::user("cannot tell where to run: no node of the cluster is on this machine")
            .hint("-w NODES names some, --all means every node")
    })
}

/// Reaches all of them at the same time. Those that cannot be reached come as errors, in the order of the
/// names.
pub async fn reach_each(config: &Config, names: &[String]) -> Vec<Result<Rc<NodeTree>>> {
    join_all(names.iter().map(|name| NodeTree::reach(config, name))).await
}
