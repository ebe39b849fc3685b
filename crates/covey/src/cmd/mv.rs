//! `covey mv`: files renamed.

use super::path::{Failures, Follow, below, inside, is_kind, kind, last_name, shown, text};
use super::{Context, Session};
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::Errno;
use covey_stripe::ops::rename;
use std::ffi::OsString;

/// Rename or move files within the file system
///
/// When the destination is a directory, the files go into it. An existing file of the new name is
/// replaced in one step. To move files in or out use `covey cp`.
///
/// EXAMPLES
///
///     covey mv /doc/a /doc/b
///     covey mv /doc/a /doc/b /archive
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What to move, then where to
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Never replace an existing file
    #[arg(short, long)]
    no_clobber: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let result = move_all(&args, &session, context).await;
    session.close(result).await
}

async fn move_all(args: &Args, session: &Session, context: &Context) -> Result<()> {
    let (to, from) = args.paths.split_last().expect("clap wants two paths or more");
    let to = inside(to);
    let into = is_dir(session, &to).await?;
    if !into && from.len() > 1 {
        return Err(Error::user(format!(
            "cannot move {} files to {}: it is not a directory",
            from.len(),
            shown(&to)
        ))
        .hint("`covey mkdir` makes one"));
    }
    let mut failures = Failures::default();
    let mut moved = Vec::new();
    for path in from.iter().map(|path| inside(path)) {
        let target = match (into, last_name(&path)) {
            (true, Some(name)) => below(&to, name),
            _ => to.clone(),
        };
        let result = move_one(args, session, &path, &target).await;
        if failures.take(result, context).is_some() {
            moved.push(serde_json::json!({ "from": text(&path), "to": text(&target) }));
        }
    }
    context.output.result(&moved, |_| Ok(()))?;
    failures.result()
}

/// Whether a path is a directory or a link to one; one that is not there is not.
pub async fn is_dir(session: &Session, path: &[u8]) -> Result<bool> {
    match session.resolve(path, Follow::Last).await {
        Ok(inode) => Ok(is_kind(&inode, kind::DIR)),
        Err(error) if error.code() == Errno::ENOENT => Ok(false),
        Err(error) => Err(error).cannot(|| format!("look at {}", shown(path))),
    }
}

async fn move_one(args: &Args, session: &Session, from: &[u8], to: &[u8]) -> Result<()> {
    let (parent, name) = session.find_parent("move", from).await?;
    let (to_parent, to_name) = session.find_parent("move to", to).await?;
    let flags = if args.no_clobber { rename::NOREPLACE } else { 0 };
    let moved = session.fs.rename(&session.who, parent, &name, to_parent, &to_name, flags).await;
    let exists = matches!(&moved, Err(errno) if errno.code() == Errno::EEXIST);
    let moved = moved.cannot(|| format!("move {} to {}", shown(from), shown(to)));
    moved.map_err(|error| {
        if exists && args.no_clobber { error.hint("without -n it is replaced") } else { error }
    })
}
