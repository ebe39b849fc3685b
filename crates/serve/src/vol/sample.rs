//! A configuration for tests: a metadata server that has the data, too, and two nodes that serve volumes.

use covey_cluster::config::{Config, parse};
use std::path::Path;
use std::sync::Arc;

/// With the nodes' sockets and stores in `dir`.
pub(super) fn config(dir: &Path) -> Arc<Config> {
    let text = FILE.replace("DIR", &dir.display().to_string());
    Arc::new(parse(&text, Path::new("test")).unwrap())
}

const FILE: &str = r#"
version = 1
[cluster]
name = "c"
id = "00000000000000000000000000000000"
[[node]]
name = "meta"
roles = ["meta", "data"]
listen = ["unix!DIR/meta"]
store = "DIR/meta.d"
[[node]]
name = "gw1"
roles = ["launch"]
listen = ["unix!DIR/gw1"]
store = "DIR/gw1.d"
[[node]]
name = "gw2"
roles = ["launch"]
listen = ["unix!DIR/gw2"]
store = "DIR/gw2.d"
"#;
