//! What a node serves. (A placeholder of this branch: the real one replaces this file.)

use crate::config::Config;
use covey_stripe::client::Fs;
use std::time::Duration;

/// What a server says of itself.
#[derive(Clone, Debug)]
pub struct PingReport {
    /// Time of one request, there and back.
    pub latency: Duration,
    /// The server's version.
    pub version: String,
    /// Bytes its store can hold, when it has one.
    pub bytes_total: Option<u64>,
    /// Bytes still free for it.
    pub bytes_free: Option<u64>,
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
