//! `covey truncate`: sizes set.

use super::path::{Failures, Follow, Found, inside, shown, text};
use super::{Context, Session, mkdir, touch};
use crate::config::size;
use crate::error::{Cannot, Result};
use covey_ninep::tree::{Errno, SetAttr};
use std::ffi::OsString;

/// Cut files short, or extend them with a hole
///
/// A missing file is made.
///
/// EXAMPLES
///
///     covey truncate --size 0 /log
///     covey truncate --size '10 GiB' /image
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// The new size, such as `4096` or `10 GiB`
    #[arg(short, long, value_parser = size::parse)]
    size: u64,
    /// Make no file
    #[arg(short = 'c', long)]
    no_create: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let mut failures = Failures::default();
    let mode = 0o666 & !mkdir::umask();
    let mut cut = Vec::new();
    for path in args.paths.iter().map(|path| inside(path)) {
        let result = truncate(&args, &session, &path, mode)
            .await
            .cannot(|| format!("set the size of {}", shown(&path)));
        cut.extend(failures.take(result, context).map(|()| text(&path)));
    }
    let result = context.output.result(&cut, |_| Ok(()));
    session.close(result).await?;
    failures.result()
}

async fn truncate(args: &Args, session: &Session, path: &[u8], mode: u32) -> Found<()> {
    let inode = match session.resolve(path, Follow::Last).await {
        Err(error) if error.code() == Errno::ENOENT && args.no_create => return Ok(()),
        Err(error) if error.code() == Errno::ENOENT => touch::make(session, path, mode).await?,
        other => other?,
    };
    let set = SetAttr { size: Some(args.size), ..SetAttr::default() };
    session.fs.setattr(&session.who, inode.id, set).await.map(|_| ())
}
