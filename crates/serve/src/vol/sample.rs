//! A configuration for tests: a metadata server that has the data, too, and two nodes that serve volumes.

use covey_cluster::config::{Config, parse};
use std::path::Path;
use std::sync::Arc;

/// With the nodes' sockets and stores in `dir`.
pub(super) fn config(dir: &Path) -> Arc<Config> {
    let nodes = [("meta", "\"meta\", \"data\""), ("gw1", "\"launch\""), ("gw2", "\"launch\"")];
    let nodes = nodes.map(|(name, roles)| {
        let place = dir.join(name);
        let place = place.display();
        format!("[[node]]\nname = \"{name}\"\nroles = [{roles}]\nlisten = [\"unix!{place}\"]\nstore = \"{place}.d\"\n")
    });
    let text =
        format!("version = 1\n[cluster]\nname = \"c\"\nid = \"{:032}\"\n{}", 0, nodes.concat());
    Arc::new(parse(&text, Path::new("test")).unwrap())
}
