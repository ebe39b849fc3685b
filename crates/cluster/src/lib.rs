//! A cluster as its clients see it: what `covey.toml` says, and how the servers it names are reached.
//!
//! The binary and the C libraries stand on it: both find and check the same file, prove the same key,
//! and get the same [`Fs`]. It serves nothing and prints nothing; errors come with hints, in the words
//! that a command would print.
//!
//! ```text
//!   config::find ─► config::load ─► Config ─► connect ─► Fs      (striping client, tokio underneath)
//!                                     └─► key::read               proven to nodes beyond this machine
//! ```

#![forbid(unsafe_code)]

pub mod config;
pub mod error;
pub mod key;
pub mod net;
pub mod reach;
pub mod tuned;

use config::Config;
use covey_stripe::client::{Caching, Fs, Handover, Opened, Options};
use net::ClusterNet;
use std::sync::Arc;

/// A client of the cluster's file system. Its connections run on the runtime that this is called in.
pub async fn connect(config: &Config, options: Options) -> anyhow::Result<Fs> {
    let key = key::read(config)?;
    let net = Arc::new(ClusterNet::new(Arc::new(config.clone()), key));
    Ok(Fs::connect(net, &config.meta().name, options).await?)
}

/// A client of the cluster's file system.
pub async fn connect_fs(config: &Config, hard: bool, caching: Caching) -> anyhow::Result<Fs> {
    let name = format!("pid {}", std::process::id());
    connect(config, Options { hard, name, caching, ..Options::default() }).await
}

/// As [`connect`], in the session that this process had before it became another program.
pub async fn resume(
    config: &Config,
    options: Options,
    before: &Handover,
) -> anyhow::Result<(Fs, Vec<Opened>)> {
    let key = key::read(config)?;
    let net = Arc::new(ClusterNet::new(Arc::new(config.clone()), key));
    Ok(Fs::resume(net, &config.meta().name, options, before).await?)
}
