//! The ways a writer reaches its files: a mount, or the client library.

use super::log::Act;
use crate::support::bytes::noise;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Error, File, Fs, Options, Taken, access};
use covey_stripe::ops::{Caller, Id, ROOT};
use covey_wire::{Bytes, Name, Payload};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// The log that all writers share, in the root directory.
pub const SHARED: &str = "shared.log";

/// One writer's directory.
pub enum Way {
    Mount { root: PathBuf, dir: PathBuf },
    Library { runtime: Runtime, fs: Fs, who: Caller, dir: Id },
}

/// What a client has open is closed when it says goodbye, else after the grace.
impl Drop for Way {
    fn drop(&mut self) {
        if let Way::Library { runtime, fs, .. } = self {
            runtime.block_on(fs.bye());
        }
    }
}

impl Way {
    /// The directory NAME of a mount; it is made when missing.
    pub fn mount(root: &Path, name: &str) -> io::Result<Way> {
        let dir = root.join(name);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Way::Mount { root: root.to_owned(), dir }),
        }
    }

    /// The directory NAME, without a mount.
    pub fn library(config: &Path, name: &str) -> io::Result<Way> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (fs, who, dir) = runtime.block_on(async {
            let config =
                covey_cluster::config::load(config).map_err(|e| io::Error::other(e.to_string()))?;
            let options = Options { name: format!("campaign {name}"), ..Options::default() };
            let fs = covey_cluster::connect(&config, options).await.map_err(io::Error::other)?;
            let who = Caller::default();
            let name = Name::from(name);
            let dir = match fs.make(&who, ROOT, &name, 0o040_755, 0, Name::EMPTY).await {
                Ok(inode) => inode.id,
                Err(error) if error.code() == Errno::EEXIST => {
                    fs.lookup(&who, ROOT, &name)
                        .await
                        .map_err(|e| io::Error::other(e.to_string()))?
                        .id
                }
                Err(error) => return Err(io::Error::other(error.to_string())),
            };
            Ok((fs, who, dir))
        })?;
        Ok(Way::Library { runtime, fs, who, dir })
    }

    /// Does it.
    pub fn act(&self, act: &Act) -> io::Result<()> {
        match self {
            Way::Mount { root, dir } => on_mount(root, dir, act),
            Way::Library { runtime, fs, who, dir } => runtime
                .block_on(by_library(fs, who, *dir, act))
                .map_err(|error| io::Error::from_raw_os_error(error.code() as i32)),
        }
    }

    /// A file's bytes; None when it is not there.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let found = match self {
            Way::Mount { dir, .. } => fs::read(dir.join(name)),
            Way::Library { runtime, fs, who, dir } => runtime
                .block_on(async {
                    let inode = fs.lookup(who, *dir, &Name::from(name)).await?;
                    let file = fs.open(who, inode.id, 4).await?;
                    let mut bytes = Vec::new();
                    while bytes.len() < inode.size as usize {
                        let piece = file.read_at(bytes.len() as u64, 1 << 20).await?.into_bytes();
                        if piece.is_empty() {
                            break;
                        }
                        bytes.extend_from_slice(&piece);
                    }
                    Ok(bytes)
                })
                .map_err(|error: Error| io::Error::from_raw_os_error(error.code() as i32)),
        };
        match found {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn on_mount(root: &Path, dir: &Path, act: &Act) -> io::Result<()> {
    let path = dir.join(act.name());
    let existing = || fs::File::options().read(true).write(true).open(&path);
    match act {
        Act::Create { seed, length, .. } => {
            fs::File::create_new(&path)?.write_all_at(&noise(*seed, *length), 0)
        }
        Act::Write { seed, offset, length, .. } => {
            existing()?.write_all_at(&noise(*seed, *length), *offset as u64)
        }
        Act::Append { seed, length, .. } => {
            fs::File::options().append(true).open(&path)?.write_all(&noise(*seed, *length))
        }
        Act::Truncate { size, .. } => existing()?.set_len(*size as u64),
        Act::Rename { to, .. } => fs::rename(&path, dir.join(to)),
        Act::Unlink { .. } => fs::remove_file(&path),
        Act::Fsync { .. } => existing()?.sync_all(),
        Act::Shared { record } => {
            let mut log = fs::File::options().append(true).create(true).open(root.join(SHARED))?;
            let written = log.write(&line_of(record))?;
            if written == 64 { Ok(()) } else { Err(io::Error::other("half a record")) }
        }
    }
}

async fn by_library(fs: &Fs, who: &Caller, dir: Id, act: &Act) -> Result<(), Error> {
    let name = Name::from(act.name());
    let open = async || -> Result<File, Error> {
        let inode = fs.lookup(who, dir, &name).await?;
        fs.open(who, inode.id, 6).await
    };
    let data = |seed: u64, length: usize| Payload::from(Bytes::from(noise(seed, length)));
    match act {
        Act::Create { seed, length, .. } => {
            let (_, file) = fs.create(who, dir, &name, 0o644, Taken::Refuse, access::BOTH).await?;
            file.write_at(0, data(*seed, *length)).await
        }
        Act::Write { seed, offset, length, .. } => {
            open().await?.write_at(*offset as u64, data(*seed, *length)).await
        }
        Act::Append { seed, length, .. } => {
            open().await?.append(data(*seed, *length)).await.map(drop)
        }
        Act::Truncate { size, .. } => {
            let file = open().await?;
            let change = SetAttr { size: Some(*size as u64), ..SetAttr::default() };
            fs.setattr(who, file.id(), change).await.map(drop)
        }
        Act::Rename { to, .. } => {
            fs.rename(who, dir, &name, dir, &Name::from(to.as_str()), 0).await
        }
        Act::Unlink { .. } => fs.unlink(who, dir, &name, Removal::File).await,
        Act::Fsync { .. } => open().await?.fsync().await,
        Act::Shared { record } => {
            let (_, log) =
                fs.create(who, ROOT, &Name::from(SHARED), 0o666, Taken::Open, access::BOTH).await?;
            log.append(Payload::from(line_of(record))).await.map(drop)
        }
    }
}

/// A record's line of 64 bytes.
fn line_of(record: &str) -> Vec<u8> {
    format!("{record:<63}\n").into_bytes()
}
