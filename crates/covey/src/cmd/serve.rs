//! `covey serve`: one node, in the foreground.

use super::{Context, cluster};
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use crate::output::announce;
use covey_cluster::tuned::{self, TuneFile};
use std::path::{Path, PathBuf};

/// Run one node of the cluster, in the foreground
///
/// Serves the roles of the node in the configuration (metadata, file data, /fs) until SIGTERM or
/// SIGINT. The store must have been formatted with `covey init`. systemd runs this through
/// covey@NODE.service, see `covey systemd`; `covey up` runs it for every node of the embedded
/// cluster.
///
/// EXAMPLES
///
///     covey serve --node node1
///     covey --config /etc/covey/covey.toml -v serve --node node1
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Which node of covey.toml [default: the one named like this host]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Read parameters chosen by `covey tune choose` from FILE [default: tune.toml beside
    /// covey.toml]
    #[arg(long, value_name = "FILE")]
    tune: Option<PathBuf>,
    /// Leave the terminal's session: what `covey up` asks for
    #[arg(long, hide = true)]
    detached: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    if args.detached {
        cluster::detach();
    }
    let config = context.config()?;
    let name = match args.node {
        Some(name) => name,
        None => this_host(&config)?,
    };
    config.node(&name)?;
    let tune = tuned(args.tune.as_deref(), &config)?;
    covey_serve::serve(&config, &name, tune.as_ref(), |text| {
        announce(format_args!("covey: {text}"))
    })
    .await
    .cannot(|| format!("serve node {name}"))
}

/// What was chosen. A file that was named must be good; without one that lies there the defaults hold,
/// because a server that does not start helps nobody.
fn tuned(named: Option<&Path>, config: &Config) -> Result<Option<TuneFile>> {
    let found = match named {
        Some(file) => match TuneFile::load(file)? {
            None => {
                let why = format!("cannot use {}: there is no such file", file.display());
                return Err(Error::user(why).hint("`covey tune choose` makes one"));
            }
            found => found,
        },
        None => TuneFile::load(&tuned::place(config)).unwrap_or_else(|error| {
            tracing::warn!("{}: the defaults hold", error.message);
            None
        }),
    };
    if let Some(why) = tuned::short_of_buffers(found.as_ref()) {
        tracing::warn!("{why} (tune.toml); long transfers may be slow");
    }
    Ok(found)
}

/// The node that is named like this host, with or without its domain.
pub fn this_host(config: &Config) -> Result<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let short = host.split('.').next().unwrap_or_default();
    let found = config.nodes.iter().find(|node| node.name == host || node.name == short);
    found.map(|node| node.name.clone()).ok_or_else(|| {
        let known: Vec<&str> = config.nodes.iter().map(|node| node.name.as_str()).collect();
        Error::user(format!("cannot choose a node: none is named like this host, {host}"))
            .hint(format!("--node NAME chooses one of {}", known.join(", ")))
    })
}
