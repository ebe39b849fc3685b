//! `/view`: nodes that an administrator shows together, of this cluster or of another.
//!
//! ```text
//!   /view/NAME/NODE/   another node's tree, as /n/NODE is
//! ```
//!
//! A program that is given a view does not know which nodes it is on: all of a cluster, those of one architecture, or
//! those of another cluster, whose key this node has and to which it vouches for its users.

use crate::tree::neighbour;
use covey_cluster::config::{Config, View, load};
use covey_cluster::key;
use covey_cluster::net::ClusterNet;
use covey_ninep::namespace::Namespace;
use covey_ninep::tree::Result;
use std::rc::Rc;
use std::sync::Arc;

/// Binds the views of the cluster. One whose cluster cannot be used is logged and left out: this node serves the rest.
pub fn bind(names: &Namespace, config: &Config, net: &Arc<ClusterNet>) -> Result<()> {
    for view in &config.views {
        let (net, nodes) = match members(view, config, net) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("view {} is not shown: {error:#}", view.name);
                continue;
            }
        };
        for node in nodes {
            let at = format!("view/{}/{node}", view.name);
            // A view within a view would have no end.
            let tree = neighbour(net.clone(), node).hide("view");
            names.bind(&at, Rc::new(tree))?;
        }
    }
    Ok(())
}

/// How the nodes of a view are reached, and what they are called.
fn members(
    view: &View,
    config: &Config,
    net: &Arc<ClusterNet>,
) -> anyhow::Result<(Arc<ClusterNet>, Vec<String>)> {
    let all = |config: &Config| config.nodes.iter().map(|node| node.name.clone()).collect();
    let chosen =
        |config: &Config| if view.nodes.is_empty() { all(config) } else { view.nodes.clone() };
    let Some(file) = &view.cluster else { return Ok((net.clone(), chosen(config))) };
    // A pipe would be waited for, and the node with it.
    anyhow::ensure!(std::fs::metadata(file)?.is_file(), "{} is no file", file.display());
    let other = load(file)?;
    let nodes = chosen(&other);
    for node in &nodes {
        other.node(node)?;
    }
    let key = key::read(&other)?;
    Ok((Arc::new(ClusterNet::new(Arc::new(other), key)), nodes))
}
