//! `covey server add`: a new I/O server is taken in while everything runs.

use super::places;
use crate::cmd::{Context, ping};
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::Errno;
use covey_stripe::check::Access;
use covey_stripe::client::Fs;
use covey_stripe::ops::Op;
use covey_wire::Name;
use serde_json::json;
use std::time::{Duration, Instant};

/// How long the metadata server may take to meet it.
const MET_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

pub async fn add(fs: &Fs, node: &str, context: &Context) -> Result<()> {
    let cannot = || format!("add {node}");
    let config = context.config()?;
    must_run(&config, node).await?;
    let name = Name::from(node);
    match Access::ask(fs, Op::AddServerListed { name }).await {
        Err(error) if error.code() == Errno::EINVAL => {
            return Err(Error::user(format!("cannot add {node}: {error}"))
                .hint("covey.toml must list it behind the I/O servers there are, on the metadata server's node, too"));
        }
        other => other.cannot(cannot)?,
    };
    must_serve(fs, node).await?;
    context.output.result(&json!({ "server": node, "added": true }), |_| Ok(()))?;
    context
        .output
        .say(format!("{node} gets new files; `covey server rebalance` moves old ones there, too"));
    Ok(())
}

async fn must_run(config: &Config, node: &str) -> Result<()> {
    let listed = config.data().find(|one| one.name == node);
    let Some(listed) = listed else {
        let what = format!(
            "cannot add {node}: {} lists no I/O server of that name",
            config.file.display()
        );
        return Err(Error::user(what)
            .hint("append its [[node]] with roles = [\"data\"], and raise `nodes`"));
    };
    ping::ask(config, listed).await.map(drop).map_err(|silence| {
        Error::work(format!("cannot add {node}: {}", silence.reason))
            .hint(format!("`covey init --node {node}`, and start it there"))
    })
}

/// Until the metadata server has met it.
async fn must_serve(fs: &Fs, node: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let places = places(fs).await?;
        if places.iter().any(|place| place.is_serving && place.server.as_bytes() == node.as_bytes())
        {
            return Ok(());
        }
        if begun.elapsed() > MET_WITHIN {
            return Err(Error::work(format!("{node} was added, but does not serve yet"))
                .hint("`covey status` says why"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
