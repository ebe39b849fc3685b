//! `covey 9p`: a plain 9P client, for any server of any dialect.

mod classic;
mod mount;
pub(super) mod peer;

use super::Context;
use super::path::kind;
use super::show;
use crate::config;
use crate::error::{Cannot, Error, Result};
use crate::output::quote;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use covey_io::os::net::{self, Address};
use covey_ninep::client::Fid;
use covey_ninep::message::{Dialect, Message};
use covey_ninep::tree::Errno;
use peer::{Peer, Stat};
use std::io::Write;
use std::path::PathBuf;

/// Talk to any 9P server: ls, cat, write, stat, rm, mount
///
/// ADDR is tcp!HOST!PORT, unix!PATH, or shm!PATH for shared memory with the Covey server at that
/// socket; of a Covey node, `covey export`, diod, Plan 9 or any other 9P
/// server. A node of Covey offers /fs, and /meta and /data where it has them.
///
/// EXAMPLES
///
///     covey 9p ls -l 'tcp!127.0.0.1!5640' /fs
///     covey 9p cat 'unix!/run/covey/node1.sock' /fs/doc/README
///     covey 9p cat 'shm!/run/covey/node1.sock' /fs/large > /dev/null
///     echo hello | covey 9p write --create 'tcp!127.0.0.1!5640' /fs/hello
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub struct Args {
    /// Which tree to attach to; servers such as diod want the exported path
    #[arg(long, value_name = "TREE", default_value = "/", global = true)]
    aname: String,
    /// Prove the cluster key in FILE
    #[arg(long, value_name = "FILE", global = true)]
    key: Option<PathBuf>,
    /// Speak this dialect only; else the first of these that the server speaks
    #[arg(long, value_name = "DIALECT", global = true, value_parser = dialect_parser())]
    dialect: Option<Dialect>,
    #[command(subcommand)]
    what: What,
}

/// In order of preference.
const DIALECTS: [Dialect; 4] = [Dialect::Covey, Dialect::Linux, Dialect::Unix, Dialect::Plan9];

fn dialect_parser() -> impl TypedValueParser<Value = Dialect> {
    PossibleValuesParser::new(DIALECTS.map(Dialect::version))
        .map(|name| Dialect::parse(name.as_bytes()).expect("only dialects are possible"))
}

#[derive(clap::Args, Debug)]
struct Place {
    /// The server: tcp!HOST!PORT, unix!PATH or shm!PATH
    #[arg(value_name = "ADDR", value_parser = parse_server)]
    address: Address,
    /// The file in the server's tree
    #[arg(value_name = "PATH", default_value = "/")]
    path: String,
}

/// A server to be dialled: what a configuration may name, or shared memory.
fn parse_server(text: &str) -> std::result::Result<Address, String> {
    let named = match text.strip_prefix("shm!") {
        Some(path) => format!("unix!{path}").parse::<config::Address>(),
        None => text.parse(),
    };
    named?;
    text.parse().map_err(|why: net::AddressError| why.to_string())
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// List a directory
    Ls {
        /// Mode, owner, size and time too
        #[arg(short)]
        long: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Write a file to stdout
    Cat {
        #[command(flatten)]
        place: Place,
    },
    /// Write stdin to a file
    Write {
        /// Make the file if it is missing
        #[arg(long, short)]
        create: bool,
        /// Empty the file first
        #[arg(long, short)]
        truncate: bool,
        /// Begin at this byte
        #[arg(long, value_name = "BYTES", default_value_t = 0)]
        offset: u64,
        #[command(flatten)]
        place: Place,
    },
    /// Show a file's attributes
    Stat {
        #[command(flatten)]
        place: Place,
    },
    /// Remove a file or an empty directory
    Rm {
        #[command(flatten)]
        place: Place,
    },
    /// Mount the tree of any server as a directory
    ///
    /// This process serves the mount until it is unmounted, interrupted, or the server is gone; it
    /// is for the user who mounts it. The kernel caches nothing, so that files that the server
    /// changes are seen as they are. For the file system of a cluster, `covey mount` is faster and
    /// outlives its servers.
    #[command(verbatim_doc_comment)]
    Mount {
        /// The server: tcp!HOST!PORT, unix!PATH or shm!PATH
        #[arg(value_name = "ADDR", value_parser = parse_server)]
        address: Address,
        /// The directory to mount at
        #[arg(value_name = "DIR")]
        mountpoint: PathBuf,
        /// Refuse every change
        #[arg(long)]
        read_only: bool,
    },
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    if let What::Mount { address, mountpoint, read_only } = args.what {
        let mountpoint = mount::check(&mountpoint)?;
        if let Some(dialect) = args.dialect.filter(|dialect| !dialect.is_linux()) {
            return Err(Error::user(format!("cannot mount in {}", dialect.version()))
                .hint("a mount needs 9P2000.L; Linux's own client mounts the older dialects"));
        }
        let (aname, key, dialect) = (args.aname, args.key, args.dialect);
        let mount = mount::Mount { address, mountpoint, aname, key, dialect, read_only };
        return mount::mount(mount).await;
    }
    let place = match &args.what {
        What::Ls { place, .. } | What::Cat { place } | What::Write { place, .. } => place,
        What::Stat { place } | What::Rm { place } => place,
        What::Mount { .. } => unreachable!("it was run before"),
    };
    let dialects = args.dialect.as_ref().map_or(&DIALECTS[..], std::slice::from_ref);
    let peer = Peer::connect(&place.address, &args.aname, args.key.as_deref(), dialects).await?;
    let path = place.path.as_str();
    match &args.what {
        What::Ls { long, .. } => ls(&peer, path, *long, context).await,
        What::Cat { .. } => cat(&peer, path).await,
        What::Write { create, truncate, offset, .. } => {
            write(&peer, path, (*create, *truncate), *offset, context).await
        }
        What::Stat { .. } => stat(&peer, path, context).await,
        What::Rm { .. } => rm(&peer, path, context).await,
        What::Mount { .. } => unreachable!("it was run before"),
    }
}

async fn ls(peer: &Peer, path: &str, long: bool, context: &Context) -> Result<()> {
    let what = || format!("list {path}");
    let fid = peer.walk(path).await.cannot(what)?;
    let stat = peer.getattr(&fid).await.cannot(what)?;
    let mut entries = match stat.mode & kind::MASK {
        kind::DIR => peer.names(&fid).await.cannot(what)?,
        _ => Vec::new(),
    };
    entries.sort();
    let mut rows = Vec::new();
    if stat.mode & kind::MASK != kind::DIR {
        rows.push((path.as_bytes().to_vec(), stat));
    }
    for name in entries {
        let inner = peer.walk_from(&fid, &[name.as_slice()]).await;
        let stat = match inner {
            Ok(inner) => peer.getattr(&inner).await,
            Err(error) => Err(error),
        };
        rows.push((
            name.clone(),
            stat.cannot(|| format!("look at {path}/{}", String::from_utf8_lossy(&name)))?,
        ));
    }
    let json: Vec<_> =
        rows.iter().map(|(name, stat)| stat_json(&String::from_utf8_lossy(name), stat)).collect();
    context.output.result(&json, |out| {
        for (name, stat) in &rows {
            if long {
                let (mode, time) = (show::mode(stat.mode), show::time(stat.mtime));
                write!(
                    out,
                    "{mode} {:>3} {:>6} {:>6} {:>12} {time} ",
                    stat.nlink, stat.uid, stat.gid, stat.size
                )?;
            }
            out.extend([&quote::name(name), &b"\n"[..]].concat());
        }
        Ok(())
    })
}

fn stat_json(name: &str, stat: &Stat) -> serde_json::Value {
    serde_json::json!({
        "name": name, "type": show::kind_of_bits(stat.mode & kind::MASK),
        "mode": format!("{:04o}", stat.mode & 0o7777), "uid": stat.uid, "gid": stat.gid,
        "links": stat.nlink, "size": stat.size, "blocks": stat.blocks,
        "qid_path": stat.qid.path, "qid_version": stat.qid.version, "qid_type": stat.qid.kind,
        "atime_ns": stat.atime, "mtime_ns": stat.mtime, "ctime_ns": stat.ctime,
    })
}

async fn cat(peer: &Peer, path: &str) -> Result<()> {
    let what = || format!("read {path}");
    let fid = peer.walk(path).await.cannot(what)?;
    peer.open(&fid, 0).await.cannot(what)?;
    let mut offset = 0;
    loop {
        let count = peer.conn.payload_max().min(1 << 20);
        let data = peer.read(&fid, offset, count).await.cannot(what)?;
        if data.is_empty() {
            // Who is lost with a pipe open is an error for who writes into it.
            let _ = fid.clunk().await;
            return Ok(());
        }
        offset += data.len() as u64;
        // A stdout that nobody reads must not keep the connection from being served.
        let written = tokio::task::spawn_blocking(move || crate::output::write_out(&data)).await;
        written.map_err(|_| Error::work("cannot write: the writing thread has panicked"))??;
    }
}

async fn write(
    peer: &Peer,
    path: &str,
    (create, truncate): (bool, bool),
    offset: u64,
    context: &Context,
) -> Result<()> {
    const O_WRONLY: u32 = 1;
    const O_TRUNC: u32 = 0o1000;
    let what = || format!("write {path}");
    let flags = O_WRONLY | if truncate { O_TRUNC } else { 0 };
    let fid = match peer.walk(path).await {
        Ok(fid) => {
            peer.open(&fid, flags).await.cannot(what)?;
            fid
        }
        Err(error) if create && error.code == Errno::ENOENT => {
            let mode = 0o666 & !super::mkdir::umask();
            peer.create(path, flags, mode).await.cannot(what)?
        }
        Err(error) => return Err(error).cannot(what),
    };
    let bytes = match write_stdin(peer, &fid, offset, path).await {
        Ok(bytes) => bytes,
        Err(error) => {
            // It is not closed as if this were all.
            peer.conn.close("cannot go on");
            return Err(error);
        }
    };
    fid.clunk().await.map_err(Errno::from).cannot(what)?;
    context.output.result(&serde_json::json!({ "path": path, "bytes": bytes }), |_| Ok(()))
}

/// Writes what stdin has from an offset on; how much.
async fn write_stdin(peer: &Peer, fid: &Fid, offset: u64, path: &str) -> Result<u64> {
    let mut at = offset;
    let block = peer.conn.payload_max().min(1 << 20);
    loop {
        let data = tokio::task::spawn_blocking(move || read_stdin(block)).await;
        let data = data.map_err(|_| Error::work("cannot read: the reading thread has panicked"))?;
        let data = data.cannot(|| "read stdin")?;
        if data.is_empty() {
            return Ok(at - offset);
        }
        let what = || format!("write {path}");
        at += peer.write_all(fid, at, data.into()).await.cannot(what)?;
    }
}

/// What there is, up to a block: a terminal's lines are sent one by one.
fn read_stdin(block: u32) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut data = vec![0; block as usize];
    let count = std::io::stdin().lock().read(&mut data)?;
    data.truncate(count);
    Ok(data)
}

async fn stat(peer: &Peer, path: &str, context: &Context) -> Result<()> {
    let what = || format!("look at {path}");
    let fid = peer.walk(path).await.cannot(what)?;
    let stat = peer.getattr(&fid).await.cannot(what)?;
    let dialect = peer.conn.dialect().map_or("unknown", |dialect| dialect.version());
    context.output.result(&stat_json(path, &stat), |out| {
        writeln!(out, "  File: {}", quote::text(path))?;
        writeln!(
            out,
            "  Size: {:<15} Blocks: {:<10} {}",
            stat.size,
            stat.blocks,
            show::kind_of_bits(stat.mode & kind::MASK)
        )?;
        let qid = stat.qid;
        writeln!(out, "   Qid: path {} version {} type {:#04x}", qid.path, qid.version, qid.kind)?;
        let (bits, mode) = (stat.mode & 0o7777, show::mode(stat.mode));
        writeln!(
            out,
            "Access: ({bits:04o}/{mode})  Uid: {}  Gid: {}  Links: {}",
            stat.uid, stat.gid, stat.nlink
        )?;
        writeln!(out, "Modify: {}", show::exact_time(stat.mtime))?;
        writeln!(out, "Server: {dialect}, messages up to {} bytes", peer.conn.msize())
    })
}

async fn rm(peer: &Peer, path: &str, context: &Context) -> Result<()> {
    peer.remove(path).await.cannot(|| format!("remove {path}"))?;
    context.output.result(&serde_json::json!({ "removed": path }), |_| Ok(()))
}

/// A reply of another type than the request's.
pub(in crate::cmd) fn unexpected(reply: &Message) -> covey_ninep::tree::Errno {
    use covey_ninep::tree::Errno;
    Errno::because(Errno::EPROTO, format!("the server answered with {}", reply.name()))
}
