//! `covey cat`: files to stdout.

use super::copy::{Source, out_to_stdout};
use super::path::{Failures, Follow, inside, is_kind, kind, shown};
use super::{Context, Session};
use crate::error::{Error, Kind, Result};
use covey_ninep::tree::Errno;
use std::ffi::OsString;

/// Write files to stdout, one after the other
///
/// EXAMPLES
///
///     covey cat /doc/README
///     covey cat /log/1 /log/2 | sort
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let mut failures = Failures::default();
    let mut result = Ok(());
    for path in args.paths.iter().map(|path| inside(path)) {
        match write(&session, &path, result.is_ok()).await {
            // Nobody reads any more: the others are still looked for, since the exit code tells of them.
            Err(error) if error.kind == Kind::BrokenPipe => result = Err(error),
            other => {
                failures.take(other, context);
            }
        }
    }
    session.close(result).await?;
    failures.result()
}

async fn write(session: &Session, path: &[u8], is_read: bool) -> Result<()> {
    let inode = session.find("read", path, Follow::Last).await?;
    if is_kind(&inode, kind::DIR) {
        return Err(Error::errno(format!("read {}", shown(path)), Errno::EISDIR.into()));
    }
    let source = Source::open(session, &inode, shown(path)).await?;
    if !is_read {
        return Ok(());
    }
    out_to_stdout(&source, inode.size, &indicatif::ProgressBar::hidden()).await.map(|_| ())
}
