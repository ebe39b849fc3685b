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

#[cfg(test)]
#[macro_use]
extern crate covey_harness_macro;

pub mod config;
pub mod error;
pub mod key;
pub mod net;
pub mod pace;
pub mod process_name;
pub mod reach;
pub mod tuned;

use config::Config;
use covey_ninep::tree::Errno;
use covey_stripe::client::{self, Forget, Fs, Handover, Opened, Options};
use error::{Error, Result};
use net::ClusterNet;
use std::sync::Arc;

/// A client of the cluster's file system. Its connections run on the runtime that this is called in.
pub async fn connect(config: &Config, options: Options) -> Result<Fs> {
    let key = key::read(config)?;
    let net = ClusterNet::new(Arc::new(config.clone()), key).called(&options.name);
    let net = Arc::new(net);
    Fs::connect(net, &config.meta().name, options).await.map_err(|error| unconnected(config, error))
}

/// As [`connect`], for a client that the servers know by this process's user, host, job and number.
pub async fn connect_fs(config: &Config, options: Options) -> Result<Fs> {
    connect(config, Options { name: process_name::own(), ..options }).await
}

/// As [`connect`], in the session that this process had before it became another program.
pub async fn resume(
    config: &Config,
    options: Options,
    before: &Handover,
) -> Result<(Fs, Vec<Opened>)> {
    let key = key::read(config)?;
    let net = ClusterNet::new(Arc::new(config.clone()), key).called(&options.name);
    let net = Arc::new(net);
    let resumed = Fs::resume(net, &config.meta().name, options, before).await;
    resumed.map_err(|error| unconnected(config, error))
}

/// As [`resume`], in the session that another process has lent: see [`Fs::borrow`].
pub async fn borrow(
    config: &Config,
    options: Options,
    before: &Handover,
    forget: Forget,
) -> Result<(Fs, Vec<Opened>)> {
    let options = Options { name: process_name::own(), ..options };
    let key = key::read(config)?;
    let net = ClusterNet::new(Arc::new(config.clone()), key).called(&options.name);
    let net = Arc::new(net);
    let borrowed = Fs::borrow(net, &config.meta().name, options, before, forget).await;
    borrowed.map_err(|error| unconnected(config, error))
}

fn unconnected(config: &Config, error: client::Error) -> Error {
    let is_shut_out = error.is_shut_out() || matches!(error, client::Error::Denied(_));
    let told = Error::work(format!("cannot connect to cluster {}: {error}", config.name));
    if is_shut_out {
        told.coded(Errno::EACCES)
            .hint("root and the user who runs the servers may; others go through a mount")
            .hint("or through a node's /fs: `covey 9p ls unix!SOCKET /fs`, see `covey status`")
    } else {
        told.hint("`covey ping` shows which servers answer")
            .hint("`covey up` starts the cluster of this machine")
    }
}

#[cfg(test)]
fn main() {
    covey_harness::run()
}
