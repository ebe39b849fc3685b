//! `covey server accept-loss`: what was lost with a disk reads as zeros from now on.

use super::index;
use crate::cmd::path::{Failures, Follow, inside, shown, text};
use crate::cmd::{Context, Session};
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_stripe::check::{forgive, lost_on};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;

/// Accepts the loss of what these files had on a server; None: of all that is lost there.
pub async fn accept_loss(
    session: &Session,
    node: &str,
    paths: Option<&[OsString]>,
    context: &Context,
) -> Result<()> {
    let cannot = || format!("accept the loss on {node}");
    let server = index(&session.fs, node, cannot()).await?;
    let mut failures = Failures::default();
    let mut accepted: Vec<Vec<u8>> = Vec::new();
    match paths {
        None => {
            let lost = lost_on(&session.fs, server).await.cannot(cannot)?;
            let ids = lost.iter().map(|one| one.inode.id).collect();
            let forgiven = forgive(&session.fs, server, ids).await.cannot(cannot)?;
            let is_forgiven = |id| forgiven.binary_search(&id).is_ok();
            accepted.extend(
                lost.into_iter().filter(|one| is_forgiven(one.inode.id)).flat_map(|one| one.paths),
            );
        }
        Some(paths) => {
            for path in paths.iter().map(|path| inside(path)) {
                let done = accept_one(session, node, server, &path).await;
                accepted.extend(failures.take(done, context).map(|()| path));
            }
        }
    }
    let value = json!({
        "node": node, "paths": accepted.iter().map(|path| text(path)).collect::<Vec<_>>(),
    });
    context.output.result(&value, |out| {
        accepted.iter().try_for_each(|path| writeln!(out, "accepted: {}", shown(path)))
    })?;
    let files = counted(accepted.len() as u64, "path");
    context.output.say(format!("{files}: what was lost on {node} reads as zeros"));
    failures.result()
}

async fn accept_one(session: &Session, node: &str, server: u16, path: &[u8]) -> Result<()> {
    let id = session.find("accept the loss of", path, Follow::Last).await?.id;
    let what = || format!("accept the loss of {}", shown(path));
    if forgive(&session.fs, server, vec![id]).await.cannot(what)?.is_empty() {
        let text = format!("cannot {}: nothing of it is lost on {node}", what());
        return Err(Error::user(text).hint(format!(
            "`covey files --on {node} --lost` lists the files of which something is"
        )));
    }
    Ok(())
}
