//! `covey mkdir`: directories made.

use super::path::{Failures, Follow, inside, is_kind, kind, shown, text};
use super::{Context, Session};
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::Errno;
use covey_wire::Name;
use std::ffi::OsString;

/// Make directories
///
/// EXAMPLES
///
///     covey mkdir /data
///     covey mkdir -p /data/2026/november
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Make missing parents as well; an existing directory is no error
    #[arg(short, long)]
    parents: bool,
    /// Permission bits in octal [default: 0777 less the umask]
    #[arg(short, long, value_parser = parse_mode)]
    mode: Option<u32>,
}

fn parse_mode(text: &str) -> std::result::Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("`{text}` is not an octal mode such as 755"))
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let mut failures = Failures::default();
    let usual = 0o777 & !umask();
    let mut made = Vec::new();
    for path in args.paths.iter().map(|path| inside(path)) {
        let result = if args.parents {
            make_all(&session, &path, usual, args.mode.unwrap_or(usual)).await
        } else {
            make(&session, &path, args.mode.unwrap_or(usual)).await
        };
        made.extend(failures.take(result, context).map(|()| text(&path)));
    }
    let result = context.output.result(&made, |_| Ok(()));
    session.close(result).await?;
    failures.result()
}

/// The umask of this process. Reading it means setting it: at start, while there is one thread.
pub fn umask() -> u32 {
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(old);
    old.as_raw_mode()
}

async fn make(session: &Session, path: &[u8], mode: u32) -> Result<()> {
    let what = || format!("make directory {}", shown(path));
    let (parent, name) = session.resolve_parent(path).await.cannot(what)?;
    let made =
        session.fs.make(&session.who, parent, &name, kind::DIR | mode, 0, Name::from("")).await;
    made.map(|_| ()).cannot(what)
}

/// Makes a directory and those above it, if missing.
pub async fn make_all(session: &Session, path: &[u8], above: u32, last: u32) -> Result<()> {
    let ends: Vec<usize> =
        (1..path.len()).filter(|at| path[*at] == b'/' && path[at - 1] != b'/').collect();
    let trimmed = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    for end in ends.into_iter().filter(|end| *end < trimmed) {
        make_if_missing(session, &path[..end], above).await?;
    }
    make_if_missing(session, &path[..trimmed], last).await
}

async fn make_if_missing(session: &Session, path: &[u8], mode: u32) -> Result<()> {
    match session.resolve(path, Follow::Last).await {
        Ok(inode) if is_kind(&inode, kind::DIR) => return Ok(()),
        Ok(_) => {
            return Err(Error::errno(
                format!("make directory {}", shown(path)),
                Errno::EEXIST.into(),
            ));
        }
        Err(error) if error.code() != Errno::ENOENT => {
            return Err(error).cannot(|| format!("make directory {}", shown(path)));
        }
        Err(_) => {}
    }
    match make(session, path, mode).await {
        // Another may have made it in between.
        Err(_)
            if session
                .resolve(path, Follow::Last)
                .await
                .is_ok_and(|inode| is_kind(&inode, kind::DIR)) =>
        {
            Ok(())
        }
        other => other,
    }
}
