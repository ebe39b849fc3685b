//! What a node serves. (A placeholder of this branch: the real one replaces this file.)

use crate::config::Config;
use covey_stripe::client::Fs;

/// The answer of one server to a ping.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PingReport {
    /// The node.
    pub node: String,
    /// Where it answered.
    pub address: String,
    /// Round trip of one small request, in microseconds: the least of a few.
    pub latency_us: f64,
}

/// Formats the node's store.
pub async fn init(_config: &Config, _node: &str) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}

/// Serves until SIGTERM or SIGINT.
pub async fn serve(_config: &Config, _node: &str) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}

/// Serves a directory of this machine.
pub async fn export(
    _dir: &std::path::Path,
    _listen: &[crate::config::Address],
    _read_only: bool,
) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}

/// Connects to the cluster's file system.
pub async fn connect_fs(_config: &Config, _hard: bool) -> anyhow::Result<Fs> {
    anyhow::bail!("not built yet")
}

/// Asks a server whether it is alive.
pub async fn ping(_config: &Config, _node: &str) -> anyhow::Result<PingReport> {
    anyhow::bail!("not built yet")
}
