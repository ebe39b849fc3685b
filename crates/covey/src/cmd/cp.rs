//! `covey cp`: files in and out of the file system, without a mount.

use super::copy::{Copier, Job, Options, Place, Sink, Source, in_from_stdin, out_to_stdout};
use super::path::{Failures, Follow, below, inside, is_kind, kind, last_name, shown};
use super::{Context, Session, mkdir, mv};
use crate::config::size;
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_ninep::tree::SetAttr;
use covey_stripe::client::{Taken, access};
use covey_stripe::ops::ROOT;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Copy files into, out of and within the file system
///
/// A path that begins with `:` (or `covey:`) is in Covey, anything else is on this machine, `-` is
/// stdin or stdout. Several files are copied at once, and several parts of each. Holes stay holes.
/// An existing file is overwritten in place: an interrupted copy leaves its old contents after the
/// copied part. Files that cannot be copied are reported, the others are copied, and the exit code
/// is 1.
///
/// With -r, symbolic links are copied as links; without it, their targets are.
///
/// EXAMPLES
///
///     covey cp -r /usr/share/doc :/doc       in
///     covey cp -rp :/doc ./copy              out, with modes, times and attributes
///     covey cp :/a :/b                       within
///     tar c dir | covey cp - :/dir.tar
///     covey cp :/dir.tar - | tar t
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What to copy, then where to
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Directories too, with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep modes, times, extended attributes and, below a directory, hard links; as root owners, too
    #[arg(short, long)]
    preserve: bool,
    /// Number of files copied at the same time
    #[arg(short, long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
}

/// A path of the command line.
enum Side {
    Covey(Vec<u8>),
    Local(PathBuf),
    Stream,
}

fn side(path: &OsStr) -> Side {
    let bytes = path.as_bytes();
    match () {
        () if bytes == b"-" => Side::Stream,
        () if bytes.starts_with(b":") || bytes.starts_with(b"covey:") => Side::Covey(inside(path)),
        () => Side::Local(path.into()),
    }
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    covey_io::os::place::make_way();
    let (to, from) = args.paths.split_last().expect("clap wants two paths or more");
    check_sides(from, to)?;
    let umask = mkdir::umask();
    let session = context.session().await?;
    let result = match (&from.iter().map(|path| side(path)).collect::<Vec<_>>()[..], side(to)) {
        ([Side::Stream], Side::Covey(path)) => from_stdin(&session, &path, umask, context).await,
        ([Side::Covey(path)], Side::Stream) => to_stdout(&session, path, context).await,
        (sides, to) => copy_all(&args, &session, sides, &to, umask, context).await,
    };
    session.close(result).await
}

/// One side is in Covey, and a stream is alone.
fn check_sides(from: &[OsString], to: &OsString) -> Result<()> {
    let refuse = |why: &str, hint: &str| {
        let shown: Vec<_> = from.iter().chain([to]).map(|path| path.to_string_lossy()).collect();
        Err(Error::user(format!("cannot copy {}: {why}", shown.join(" "))).hint(hint))
    };
    let is_covey = |path: &OsString| matches!(side(path), Side::Covey(_));
    let is_stream = |path: &OsString| matches!(side(path), Side::Stream);
    if from.iter().any(is_stream) && (from.len() > 1 || !is_covey(to)) {
        return refuse("stdin goes to one file in Covey", "covey cp - :/file");
    }
    if is_stream(to) && (from.len() > 1 || !is_covey(&from[0])) {
        return refuse("stdout takes one file out of Covey", "`covey cat` writes several");
    }
    if !is_covey(to) && !from.iter().all(is_covey) {
        return refuse(
            "neither side is in Covey",
            "write a path in Covey with a colon before it: `:/path`",
        );
    }
    Ok(())
}

async fn from_stdin(session: &Session, path: &[u8], umask: u32, context: &Context) -> Result<()> {
    let what = || format!("write :{}", shown(path));
    let (dir, name) = session.resolve_parent(path).await.cannot(what)?;
    let mode = 0o666 & !umask;
    let (inode, file) = session
        .fs
        .create(&session.who, dir, &name, mode, Taken::Open, access::WRITE)
        .await
        .cannot(what)?;
    if inode.size > 0 {
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        session.fs.setattr(&session.who, inode.id, empty).await.cannot(what)?;
    }
    let bar = context.output.progress(None);
    let sink = Sink::Covey { session: session.clone(), file, name: format!(":{}", shown(path)) };
    let begin = Instant::now();
    let bytes = in_from_stdin(&sink, &bar).await?;
    sink.finish().await?;
    bar.finish_and_clear();
    tell(Totals { files: 1, directories: 0, bytes, begin }, context)
}

async fn to_stdout(session: &Session, path: &[u8], context: &Context) -> Result<()> {
    let what = || format!("read :{}", shown(path));
    let inode = session.resolve(path, Follow::Last).await.cannot(what)?;
    if !is_kind(&inode, kind::FILE) {
        return Err(Error::user(format!("cannot {}: it is no regular file", what()))
            .hint("`covey cp -r` copies directories"));
    }
    let bar = context.output.progress(Some(inode.size));
    let source = Source::open(session, &inode, format!(":{}", shown(path))).await?;
    let copied = out_to_stdout(&source, inode.size, &bar).await;
    bar.finish_and_clear();
    copied.map(|_| ())
}

async fn copy_all(
    args: &Args,
    session: &Session,
    from: &[Side],
    to: &Side,
    umask: u32,
    context: &Context,
) -> Result<()> {
    let into = is_dir(session, to).await?;
    if !into && from.len() > 1 {
        let to = args.paths.last().map(|path| path.to_string_lossy()).unwrap_or_default();
        let make = match to.strip_prefix(':') {
            Some(path) => format!("covey mkdir -p {path}"),
            None => format!("mkdir -p {to}"),
        };
        return Err(Error::user(format!(
            "cannot copy {} files to {to}: there is no such directory",
            from.len()
        ))
        .hint(format!("`{make}` makes it")));
    }
    let options = Options {
        recursive: args.recursive,
        preserve: args.preserve,
        jobs: args.jobs.into(),
        umask,
        beside: None,
    };
    let begin = Instant::now();
    let copier = Copier::new(session, context, options, context.output.progress(None));
    let mut failures = Failures::default();
    let mut jobs = Vec::new();
    for from in from {
        let job = plan(args, session, from, to, into).await;
        jobs.extend(failures.take(job, context));
    }
    copier.run(jobs, &mut failures).await;
    copier.bar.finish_and_clear();
    let (files, directories, bytes) =
        (copier.files.get(), copier.directories.get(), copier.bytes.get());
    tell(Totals { files, directories, bytes, begin }, context)?;
    failures.result()
}

async fn is_dir(session: &Session, side: &Side) -> Result<bool> {
    match side {
        Side::Covey(path) => mv::is_dir(session, path).await,
        Side::Local(path) => Ok(path.is_dir()),
        Side::Stream => Ok(false),
    }
}

async fn plan(args: &Args, session: &Session, from: &Side, to: &Side, into: bool) -> Result<Job> {
    let (from, inode, name) = match from {
        Side::Covey(path) => {
            let follow = if args.recursive { Follow::NotLast } else { Follow::Last };
            let inode = session.find("read", path, follow).await?;
            let name = last_name(path).map(<[u8]>::to_vec);
            (
                Place::Covey {
                    path: path.clone(),
                    dir: ROOT,
                    name: name.clone().unwrap_or_default().into(),
                },
                Some(inode),
                name,
            )
        }
        Side::Local(path) => (Place::Local(path.clone()), None, local_name(path)),
        Side::Stream => {
            return Err(Error::user("cannot copy `-` with other files").hint("covey cp - :/file"));
        }
    };
    let to = match to {
        Side::Covey(path) => {
            let path = match (into, &name) {
                (true, Some(name)) => below(path, name),
                _ => path.clone(),
            };
            covey_target(session, &path, from_id(&inode)).await?
        }
        Side::Local(path) => Place::Local(match (into, &name) {
            (true, Some(name)) => path.join(OsStr::from_bytes(name)),
            _ => path.clone(),
        }),
        Side::Stream => {
            return Err(
                Error::user("cannot copy several files to `-`").hint("`covey cat` writes several")
            );
        }
    };
    Ok(Job { from, inode, follow: !args.recursive, to })
}

fn from_id(inode: &Option<covey_stripe::ops::Inode>) -> Option<u64> {
    inode.as_ref().filter(|inode| is_kind(inode, kind::DIR)).map(|inode| inode.id)
}

/// The last name of a local path; none for `.`, `..` and `/`, whose content is meant.
fn local_name(path: &Path) -> Option<Vec<u8>> {
    last_name(path.as_os_str().as_bytes()).map(<[u8]>::to_vec)
}

/// A place in Covey by its directory, which must not lie in the directory that is copied.
async fn covey_target(session: &Session, path: &[u8], copied: Option<u64>) -> Result<Place> {
    let what = || format!("write :{}", shown(path));
    if last_name(path).is_none() {
        // The root, or a path that ends in a dot: its content is merged with what is copied.
        let inode = session.resolve(path, Follow::Last).await.cannot(what)?;
        not_into_itself(session, inode.id, copied, path).await?;
        return Ok(Place::Covey { path: path.to_vec(), dir: inode.parent, name: ".".into() });
    }
    let (dir, name) = session.resolve_parent(path).await.cannot(what)?;
    not_into_itself(session, dir, copied, path).await?;
    Ok(Place::Covey { path: path.to_vec(), dir, name })
}

async fn not_into_itself(
    session: &Session,
    dir: u64,
    copied: Option<u64>,
    path: &[u8],
) -> Result<()> {
    let Some(copied) = copied else { return Ok(()) };
    let mut at = dir;
    loop {
        if at == copied {
            return Err(Error::user(format!(
                "cannot copy a directory into itself, to :{}",
                shown(path)
            ))
            .hint("choose a destination outside of it"));
        }
        if at == ROOT {
            return Ok(());
        }
        at = session.fs.stat(at).await.cannot(|| format!("look at :{}", shown(path)))?.inode.parent;
    }
}

struct Totals {
    files: u64,
    directories: u64,
    bytes: u64,
    begin: Instant,
}

fn tell(totals: Totals, context: &Context) -> Result<()> {
    let seconds = totals.begin.elapsed().as_secs_f64();
    let Totals { files, directories, bytes, .. } = totals;
    let rate = (bytes as f64 / seconds.max(1e-9)) as u64;
    context.output.detail(format!(
        "copied {} and {}, {} in {seconds:.2} s: {}/s",
        counted(files, "file"),
        counted(directories, "directory"),
        size::rounded(bytes),
        size::rounded(rate)
    ));
    let value = serde_json::json!({
        "files": files, "directories": directories, "bytes": bytes, "seconds": seconds,
    });
    context.output.result(&value, |_| Ok(()))
}
