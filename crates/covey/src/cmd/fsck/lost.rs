//! `covey fsck --accept-loss`: an I/O server's disk was replaced, and what it held is given up.

use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use covey_stripe::check::{Access, Held, held_by, paths_in_words};
use covey_stripe::client::Fs;
use covey_stripe::ops::{Op, Reply, StoreState};
use serde_json::json;

/// Names what is lost, and then lets the server serve from the store that it has.
pub async fn accept(node: &str, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let result = accept_in(&session.fs, node, context).await;
    session.close(result).await
}

async fn accept_in(fs: &Fs, node: &str, context: &Context) -> Result<()> {
    let cannot = || format!("accept the loss of {node}");
    let Reply::Stores { stores } = Access::ask(fs, Op::Stores {}).await.cannot(cannot)? else {
        return Err(Error::work(format!("cannot {}: an odd answer to Stores", cannot())));
    };
    let server = server(&stores.0, node)?;
    let held = held_by(fs, server).await.cannot(cannot)?;
    // Said before it is done: afterwards nothing shows what was there.
    let files: Vec<_> = held.iter().map(json_of).collect();
    let value = json!({ "node": node, "files": files });
    context.output.result(&value, |out| {
        use std::io::Write;
        held.iter().try_for_each(|one| writeln!(out, "{}", line(one)))?;
        let count = held.len();
        writeln!(out, "{count} files had bytes on {node}: what lay there is lost")
    })?;
    Access::ask(fs, Op::AcceptStore { server }).await.cannot(cannot)?;
    context.output.say(format!(
        "{node} serves again; the listed files read as zeros where their bytes lay: restore or \
         remove them. `covey fsck` finds those that lack bytes"
    ));
    Ok(())
}

/// The index of a server whose store is not the one that is known.
fn server(stores: &[StoreState], node: &str) -> Result<u16> {
    let Some(at) = stores.iter().position(|one| one.server.as_bytes() == node.as_bytes()) else {
        let all: Vec<_> = stores.iter().map(|one| one.server.lossy()).collect();
        return Err(Error::user(format!("cannot accept the loss of {node}: it is no I/O server"))
            .hint(format!("the I/O servers are {}", all.join(", "))));
    };
    if stores[at].why.is_empty() {
        let what = "its store is the one that it had, or it does not run";
        return Err(Error::user(format!("cannot accept the loss of {node}: {what}"))
            .hint("`covey status` shows the servers whose store is unknown"));
    }
    Ok(at as u16)
}

fn json_of(one: &Held) -> serde_json::Value {
    json!({
        "id": one.inode.id, "bytes_lost": one.bytes, "bytes": one.inode.size,
        "sparse": one.inode.sparse,
        "paths": one.paths.iter().map(|path| super::text(path)).collect::<Vec<_>>(),
    })
}

fn line(one: &Held) -> String {
    let most = if one.inode.sparse { "up to " } else { "" };
    let (paths, size) = (paths_in_words(&one.paths), one.inode.size);
    format!("lost: {paths}: {most}{} of {size} bytes", one.bytes)
}
