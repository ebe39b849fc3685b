//! `covey rm`: files removed.

use super::path::{Failures, below, inside, is_kind, kind, last_name, shown, text};
use super::{Context, Session, tree};
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::{Errno, Removal};
use covey_stripe::ops::{Id, Inode};
use covey_wire::Name;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::ffi::OsString;

/// Remove files
///
/// A program that has a removed file open keeps it until it is closed. Removing works on a full
/// file system.
///
/// EXAMPLES
///
///     covey rm /doc/old.txt
///     covey rm -r /doc
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What to remove
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Directories too, with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// A missing file is no error
    #[arg(short, long)]
    force: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let mut failures = Failures::default();
    let mut removed = Vec::new();
    for path in args.paths.iter().map(|path| inside(path)) {
        let gone = remove(&args, &session, &path, &mut failures, context).await;
        if failures.take(gone, context) == Some(true) {
            removed.push(text(&path));
        }
    }
    let result = context.output.result(&removed, |_| Ok(()));
    session.close(result).await?;
    failures.result()
}

async fn remove(
    args: &Args,
    session: &Session,
    path: &[u8],
    failures: &mut Failures,
    context: &Context,
) -> Result<bool> {
    let what = || format!("remove {}", shown(path));
    if last_name(path).is_none() {
        return Err(Error::user(format!("cannot {}: it is not a name in a directory", what()))
            .hint("`covey rm -r /*` of your shell is not that either: name what shall go"));
    }
    let found = async {
        let (parent, name) = session.resolve_parent(path).await?;
        let inode = session.fs.lookup(&session.who, parent, &name).await?;
        Ok::<_, covey_stripe::client::Error>((parent, name, inode))
    };
    let (parent, name, inode) = match found.await {
        Err(error) if args.force && error.code() == Errno::ENOENT => return Ok(false),
        other => other.cannot(what)?,
    };
    match (is_kind(&inode, kind::DIR), args.recursive) {
        (false, _) => session
            .fs
            .unlink(&session.who, parent, &name, Removal::File)
            .await
            .cannot(what)
            .map(|()| true),
        (true, true) => {
            Ok(remove_tree(session, parent, name, inode, path.to_vec(), failures, context).await)
        }
        (true, false) => Err(Error::user(format!("cannot {}: it is a directory", what()))
            .hint("-r removes it with everything in it")),
    }
}

/// Removes what a directory holds, then the directory; whether all of it went.
fn remove_tree<'a>(
    session: &'a Session,
    parent: Id,
    name: Name,
    dir: Inode,
    path: Vec<u8>,
    failures: &'a mut Failures,
    context: &'a Context,
) -> LocalBoxFuture<'a, bool> {
    async move {
        let what = |path: &[u8]| format!("remove {}", shown(path));
        let entries = session.entries(dir.id).await.cannot(|| what(&path));
        let Some(entries) = failures.take(entries, context) else { return false };
        let (dirs, files): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(_, inode)| is_kind(inode, kind::DIR));
        let mut all = true;
        for (name, inode) in dirs {
            let inner = below(&path, name.as_bytes());
            all &= remove_tree(session, dir.id, name, inode, inner, failures, context).await;
        }
        let id = dir.id;
        let gone = tree::each(files, |(name, _)| {
            async move {
                let result = session.fs.unlink(&session.who, id, &name, Removal::File).await;
                (name, result)
            }
            .boxed_local()
        });
        for (name, result) in gone.await {
            // Someone else may remove the same tree.
            let result = match result {
                Err(error) if error.code() == Errno::ENOENT => Ok(()),
                other => other,
            };
            all &= failures
                .take(result.cannot(|| what(&below(&path, name.as_bytes()))), context)
                .is_some();
        }
        if !all {
            return false;
        }
        let gone = session
            .fs
            .unlink(&session.who, parent, &name, Removal::Directory)
            .await
            .cannot(|| what(&path));
        failures.take(gone, context).is_some()
    }
    .boxed_local()
}
