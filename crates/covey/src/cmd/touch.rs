//! `covey touch`: times set, files made.

use super::path::{Failures, Follow, Found, inside, shown, text};
use super::{Context, Session, mkdir, show};
use crate::error::{Cannot, Result};
use covey_ninep::tree::{Errno, SetAttr, SetTime, Time};
use covey_stripe::client::{Taken, access};
use covey_stripe::ops::{Inode, Nanos, seconds_of};
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

/// Set the times of files to now, and make missing files
///
/// EXAMPLES
///
///     covey touch /doc/new
///     covey touch -d 2026-11-21T07:31:00 /doc/new      UTC
///     covey touch -c -m /doc/a /doc/b
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Make no file
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Only the time of the last read
    #[arg(short)]
    atime: bool,
    /// Only the time of the last change
    #[arg(short)]
    mtime: bool,
    /// This time (UTC) instead of now: `2026-11-21T07:31:00` or `@SECONDS`
    #[arg(short, long, value_name = "TIME", value_parser = show::parse_time)]
    date: Option<Nanos>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let mut failures = Failures::default();
    let mode = 0o666 & !mkdir::umask();
    let time = args.date.map_or(SetTime::Now, |nanos| SetTime::To(to_time(nanos)));
    let both = args.atime == args.mtime;
    let set = SetAttr {
        atime: (both || args.atime).then_some(time),
        mtime: (both || args.mtime).then_some(time),
        ..SetAttr::default()
    };
    let mut touched = Vec::new();
    for path in args.paths.iter().map(|path| inside(path)) {
        let result = touch(&args, &session, &path, mode, &set)
            .await
            .cannot(|| format!("touch {}", shown(&path)));
        touched.extend(failures.take(result, context).map(|()| text(&path)));
    }
    let result = context.output.result(&touched, |_| Ok(()));
    session.close(result).await?;
    failures.result()
}

/// The two numbers of 9P.
pub fn to_time(nanos: Nanos) -> Time {
    let (sec, nsec) = seconds_of(nanos);
    Time { sec: sec.cast_unsigned(), nsec: nsec.into() }
}

/// A time as the standard library has it.
pub fn system_time(time: Nanos) -> SystemTime {
    let distance = Duration::from_nanos(time.cast_signed().unsigned_abs());
    match time.cast_signed() {
        0.. => SystemTime::UNIX_EPOCH + distance,
        ..0 => SystemTime::UNIX_EPOCH - distance,
    }
}

async fn touch(args: &Args, session: &Session, path: &[u8], mode: u32, set: &SetAttr) -> Found<()> {
    let (inode, is_new) = match session.resolve(path, Follow::Last).await {
        Err(error) if error.code() == Errno::ENOENT && args.no_create => return Ok(()),
        Err(error) if error.code() == Errno::ENOENT => (make(session, path, mode).await?, true),
        other => (other?, false),
    };
    if is_new && args.date.is_none() {
        return Ok(());
    }
    session.fs.setattr(&session.who, inode.id, set.clone()).await.map(|_| ())
}

/// Makes an empty file; one that someone made meanwhile is as good.
pub async fn make(session: &Session, path: &[u8], mode: u32) -> Found<Inode> {
    let (parent, name) = session.resolve_parent(path).await?;
    let (inode, _file) =
        session.fs.create(&session.who, parent, &name, mode, Taken::Open, access::WRITE).await?;
    Ok(inode)
}
