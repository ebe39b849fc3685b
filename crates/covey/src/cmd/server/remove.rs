//! `covey server remove`: an I/O server leaves the cluster for good.

use super::index;
use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_ninep::tree::Errno;
use covey_stripe::check::{Access, laid_out_on, paths_in_words};
use covey_stripe::client::Fs;
use covey_stripe::ops::Op;
use serde_json::json;

/// Files that are named at most.
const NAMED_MAX: usize = 20;

pub async fn remove(fs: &Fs, node: &str, context: &Context) -> Result<()> {
    let cannot = || format!("remove {node}");
    let server = index(fs, node, cannot()).await?;
    let there = laid_out_on(fs, server).await.cannot(cannot)?;
    if !there.is_empty() {
        for file in there.iter().take(NAMED_MAX) {
            context.output.say(format!("{} lies there", paths_in_words(&file.paths)));
        }
        let count = counted(there.len() as u64, "file");
        let what = format!("cannot remove {node}: {count} would be lost or could not grow");
        return Err(
            Error::work(what).hint(format!("`covey server drain {node}` moves them to the others"))
        );
    }
    match Access::ask(fs, Op::RemoveServer { server }).await {
        Err(error) if error.code() == Errno::EBUSY => {
            return Err(Error::work(format!("cannot remove {node}: {error}"))
                .hint(format!("`covey server drain {node}` moves files to the others")));
        }
        other => other.cannot(cannot)?,
    };
    context.output.result(&json!({ "server": node, "removed": true }), |_| Ok(()))?;
    context.output.say(format!(
        "{node} was removed; stop it, and take it out of covey.toml (or \"data\" out of its roles) on all nodes"
    ));
    Ok(())
}
