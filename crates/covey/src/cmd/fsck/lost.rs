//! `covey fsck --accept-loss`: an I/O server's disk was replaced, and what it held is given up.
//! `covey fsck --adopt`: the metadata came back from a copy, and an I/O server takes it for another's.

use crate::cmd::{Context, files};
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_stripe::check::{Access, Held, forgive, held_by, lost_on};
use covey_stripe::client::Fs;
use covey_stripe::ops::{Op, Reply, StoreState};
use serde_json::json;

/// What reads of bytes that lay on a lost disk get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostBytes {
    /// Zeros.
    Zeros,
    /// An error, until the loss is accepted file by file.
    Error,
}

impl LostBytes {
    fn op(self, server: u16) -> Op {
        match self {
            LostBytes::Zeros => Op::AcceptStore { server },
            LostBytes::Error => Op::ReplaceStore { server },
        }
    }

    fn told(self, node: &str) -> String {
        match self {
            LostBytes::Zeros => format!(
                "{node} serves again; the listed files read as zeros where their bytes lay: restore or \
                 remove them"
            ),
            LostBytes::Error => format!(
                "{node} serves again; reads of the bytes that lay there fail with EIO until the listed files are put back \
                 or removed, or `covey server accept-loss {node}` accepts zeros. `covey files --on {node} --lost` lists \
                 the files that are left"
            ),
        }
    }
}

/// Names what is lost, and then lets the server serve from the store that it has.
pub async fn accept(node: &str, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let result = serve_again(&session.fs, node, LostBytes::Zeros, context).await;
    session.close(result).await
}

/// The same, with zeros or errors in place of the lost bytes.
pub async fn serve_again(fs: &Fs, node: &str, how: LostBytes, context: &Context) -> Result<()> {
    let cannot = || match how {
        LostBytes::Zeros => format!("accept the loss of {node}"),
        LostBytes::Error => format!("replace the disk of {node}"),
    };
    let stores_before = stores(fs, cannot()).await?;
    let server = server(&stores_before, node, cannot())?;
    let held = held_by(fs, server).await.cannot(cannot)?;
    // Said before it is done: where zeros will do, nothing shows afterwards what was there.
    let files: Vec<_> = held.iter().map(json_of).collect();
    let value = json!({ "node": node, "files": files });
    context.output.result(&value, |out| {
        use std::io::Write;
        held.iter().try_for_each(|one| writeln!(out, "{}", line(one)))?;
        let files = counted(held.len() as u64, "file");
        writeln!(out, "{files} had bytes on {node}: what lay there is lost")
    })?;
    if let Err(error) = Access::ask(fs, how.op(server)).await {
        // Its answer may have been lost, and the question asked again.
        let now = stores(fs, cannot()).await?;
        let had = &stores_before[usize::from(server)].found;
        if now[usize::from(server)].known != *had {
            return Err(error).cannot(cannot);
        }
    }
    if how == LostBytes::Zeros {
        // Left by a `replace` that was interrupted.
        let marked = lost_on(fs, server).await.cannot(cannot)?;
        let ids = marked.iter().map(|one| one.inode.id).collect();
        forgive(fs, server, ids).await.cannot(cannot)?;
    }
    context.output.say(how.told(node));
    Ok(())
}

/// Lets a server serve the metadata that came back from a copy.
pub async fn adopt(node: &str, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let result = adopt_in(&session.fs, node, context).await;
    session.close(result).await
}

async fn adopt_in(fs: &Fs, node: &str, context: &Context) -> Result<()> {
    let cannot = || format!("adopt the store of {node}");
    let server = server(&stores(fs, cannot()).await?, node, cannot())?;
    let held = held_by(fs, server).await.cannot(cannot)?;
    // All that it holds would be removed: a metadata store that was formatted anew is no copy.
    if held.is_empty() {
        let what = "no file of this metadata has bytes there";
        return Err(Error::user(format!("cannot {}: {what}", cannot()))
            .hint("restore the copy of the metadata store first, or `covey salvage` the stores"));
    }
    Access::ask(fs, Op::AdoptStore { server }).await.cannot(cannot)?;
    let count = held.len();
    context.output.result(&json!({ "node": node, "files": count }), |out| {
        use std::io::Write;
        let have = if count == 1 { "has" } else { "have" };
        writeln!(out, "{node} serves the {} that {have} bytes there", counted(count as u64, "file"))
    })?;
    context.output.say(
        "what was made since the copy is removed from it, and sizes are those of the copy; `covey fsck` finds what \
         does not fit",
    );
    Ok(())
}

async fn stores(fs: &Fs, what: String) -> Result<Vec<StoreState>> {
    match Access::ask(fs, Op::Stores {}).await.cannot(|| what.clone())? {
        Reply::Stores { stores } => Ok(stores.0),
        _ => Err(Error::work(format!("cannot {what}: an odd answer to Stores"))),
    }
}

/// The index of a server whose store is not the one that is known.
fn server(stores: &[StoreState], node: &str, what: String) -> Result<u16> {
    let Some(at) = stores.iter().position(|one| one.server.as_bytes() == node.as_bytes()) else {
        let all: Vec<_> = stores.iter().map(|one| one.server.lossy()).collect();
        return Err(Error::user(format!("cannot {what}: it is no I/O server"))
            .hint(format!("the I/O servers are {}", all.join(", "))));
    };
    if stores[at].why.is_empty() {
        let why = "its store is the one that it had, or it does not run";
        return Err(Error::user(format!("cannot {what}: {why}"))
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
    format!("lost: {}", files::line(one))
}
