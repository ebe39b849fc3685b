//! One connection to a server, and the requests of 9P as functions.

use super::unexpected;
use crate::error::{Cannot, Error, Result};
use covey_cluster::net;
use covey_io::os::net::Address;
use covey_ninep::client::{Conn, Fid};
use covey_ninep::message::{Dialect, DirEntry, Message, Qid, WALK_NAMES_MAX};
use covey_ninep::tree::Errno;
use covey_stripe::ops::nanos_of;
use covey_wire::{Bytes, Name};
use std::path::Path;

/// What every request answers.
pub(in crate::cmd) type Reply<T> = std::result::Result<T, Errno>;

/// A connection with its root at fid 0.
pub struct Peer {
    /// The connection.
    pub conn: Conn,
}

/// A file's attributes.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Stat {
    pub qid: Qid,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u64,
    pub size: u64,
    pub blocks: u64,
    /// Nanoseconds since 1970.
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
}

impl Peer {
    /// Connects and attaches, as this process's user.
    pub async fn connect(
        address: &Address,
        aname: &str,
        key_file: Option<&Path>,
        dialects: &[Dialect],
    ) -> Result<Peer> {
        let key = key_file.map(read_key).transpose()?;
        let what = || format!("talk to {address}");
        let runtime = tokio::runtime::Handle::current();
        let conn =
            net::dial_speaking(address, aname, key, &runtime, dialects, net::Trust::Anyone).await;
        let conn = conn.map_err(|errno| {
            let why = if errno.reason.is_empty() { errno.text() } else { &errno.reason };
            Error::work(format!("cannot {}: {why}", what())).hint(match errno.code {
                Errno::ENOENT => "the server has no such tree: diod wants --aname DIR, others none",
                _ => "servers of other machines want --key FILE; diod wants --aname DIR",
            })
        })?;
        Ok(Peer { conn })
    }

    /// A fid at a path below the root.
    pub async fn walk(&self, path: &str) -> Reply<Fid> {
        let names: Vec<&[u8]> = path
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
            .map(str::as_bytes)
            .collect();
        self.walk_number(0, &names).await
    }

    /// A fid at names below another.
    pub async fn walk_from(&self, from: &Fid, names: &[&[u8]]) -> Reply<Fid> {
        self.walk_number(from.number(), names).await
    }

    async fn walk_number(&self, from: u32, names: &[&[u8]]) -> Reply<Fid> {
        let (first, rest) = names.split_at(names.len().min(WALK_NAMES_MAX));
        let mut fid = self.step(from, first).await?;
        for part in rest.chunks(WALK_NAMES_MAX) {
            fid = self.step(fid.number(), part).await?;
        }
        Ok(fid)
    }

    async fn step(&self, from: u32, names: &[&[u8]]) -> Reply<Fid> {
        let names: Vec<Name> = names.iter().map(|name| Name::from(*name)).collect();
        Ok(Fid::walk(&self.conn, from, &names).await?)
    }

    /// Whether Linux's own calls are spoken.
    fn is_linux(&self) -> bool {
        self.conn.dialect().is_none_or(Dialect::is_linux)
    }

    /// Opens a fid with Linux flags.
    pub async fn open(&self, fid: &Fid, flags: u32) -> Reply<()> {
        if !self.is_linux() {
            return self.classic_open(fid, flags).await;
        }
        match self.conn.call(Message::Tlopen { fid: fid.number(), flags }).await? {
            Message::Rlopen { .. } => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a file and opens it.
    pub async fn create(&self, path: &str, flags: u32, mode: u32) -> Reply<Fid> {
        if !self.is_linux() {
            return self.classic_create(path, flags, mode).await;
        }
        let (dir, name) = split(path)?;
        let fid = self.walk(dir).await?;
        let gid = rustix::process::getegid().as_raw();
        let create = Message::Tlcreate { fid: fid.number(), name: name.into(), flags, mode, gid };
        match self.conn.call(create).await? {
            Message::Rlcreate { .. } => Ok(fid),
            other => Err(unexpected(&other)),
        }
    }

    /// Up to `count` bytes.
    pub async fn read(&self, fid: &Fid, offset: u64, count: u32) -> Reply<Bytes> {
        match self.conn.call(Message::Tread { fid: fid.number(), offset, count }).await? {
            Message::Rread { data } if data.len() <= count as usize => Ok(data.into_bytes()),
            other => Err(unexpected(&other)),
        }
    }

    /// All of `data`, however little the server takes at a time; answers how much it was.
    pub async fn write_all(&self, fid: &Fid, offset: u64, mut data: Bytes) -> Reply<u64> {
        let mut done = 0;
        while !data.is_empty() {
            let write = Message::Twrite {
                fid: fid.number(),
                offset: offset + done,
                data: data.clone().into(),
            };
            let count = match self.conn.call(write).await? {
                Message::Rwrite { count } if count as usize <= data.len() => count,
                other => return Err(unexpected(&other)),
            };
            if count == 0 {
                return Err(Errno::because(Errno::EIO, "the server takes no bytes"));
            }
            let _ = data.split_to(count as usize);
            done += u64::from(count);
        }
        Ok(done)
    }

    /// Attributes.
    pub async fn getattr(&self, fid: &Fid) -> Reply<Stat> {
        if !self.is_linux() {
            return self.classic_stat(fid).await;
        }
        const BASIC: u64 = 0x7ff;
        let nanos = |sec: u64, nsec: u64| nanos_of(sec.cast_signed(), nsec);
        match self.conn.call(Message::Tgetattr { fid: fid.number(), request_mask: BASIC }).await? {
            Message::Rgetattr {
                qid,
                mode,
                uid,
                gid,
                nlink,
                size,
                blocks,
                atime_sec,
                atime_nsec,
                mtime_sec,
                mtime_nsec,
                ctime_sec,
                ctime_nsec,
                ..
            } => Ok(Stat {
                qid,
                mode,
                uid,
                gid,
                nlink,
                size,
                blocks,
                atime: nanos(atime_sec, atime_nsec),
                mtime: nanos(mtime_sec, mtime_nsec),
                ctime: nanos(ctime_sec, ctime_nsec),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// The names in a directory, without `.` and `..`.
    pub async fn names(&self, dir: &Fid) -> Reply<Vec<Vec<u8>>> {
        let open = self.walk_from(dir, &[]).await?;
        self.open(&open, 0).await?;
        if !self.is_linux() {
            return self.classic_names(&open).await;
        }
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let count = self.conn.payload_max().min(128 << 10);
            let data = match self
                .conn
                .call(Message::Treaddir { fid: open.number(), offset, count })
                .await?
            {
                Message::Rreaddir { data } => data.into_bytes(),
                other => return Err(unexpected(&other)),
            };
            if data.is_empty() {
                return Ok(names);
            }
            let broken = |blame: covey_wire::Blame| {
                Errno::because(Errno::EPROTO, format!("Rreaddir: {blame}"))
            };
            offset = read_entries(data, &mut names).map_err(broken)?;
        }
    }

    /// Removes a name, whatever it is.
    pub async fn remove(&self, path: &str) -> Reply<()> {
        const AT_REMOVEDIR: u32 = 0x200;
        let (dir, name) = split(path)?;
        let fid = self.walk(path).await?;
        if !self.is_linux() {
            return self.remove_fid(&fid).await;
        }
        let is_dir = self.getattr(&fid).await?.qid.kind & Qid::DIR != 0;
        let dir = self.walk(dir).await?;
        let flags = if is_dir { AT_REMOVEDIR } else { 0 };
        let unlink = Message::Tunlinkat { dirfid: dir.number(), name: name.into(), flags };
        match self.conn.call(unlink).await.map_err(Errno::from) {
            Ok(Message::Runlinkat {}) => Ok(()),
            Ok(other) => Err(unexpected(&other)),
            // An older server knows removal by fid only.
            Err(error) if matches!(error.code, Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                self.remove_fid(&fid).await
            }
            Err(error) => Err(error),
        }
    }
}

/// The key in a file that `covey keygen` made.
fn read_key(file: &Path) -> Result<[u8; 32]> {
    let text =
        std::fs::read_to_string(file).cannot(|| format!("read the key {}", file.display()))?;
    let digits = text.trim().as_bytes();
    let digit = |at: usize| digits.get(at).and_then(|letter| char::from(*letter).to_digit(16));
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        let pair = digit(2 * at).zip(digit(2 * at + 1)).filter(|_| digits.len() == 64);
        let (high, low) = pair.ok_or_else(|| {
            Error::config(format!(
                "cannot use the key {}: it is not 64 hexadecimal digits",
                file.display()
            ))
            .hint("`covey keygen FILE` makes one")
        })?;
        *byte = (high * 16 + low) as u8;
    }
    Ok(key)
}

/// Notes the names of an Rreaddir; answers the offset of the last one.
fn read_entries(
    data: Bytes,
    names: &mut Vec<Vec<u8>>,
) -> std::result::Result<u64, covey_wire::Blame> {
    let entries = DirEntry::take_entries(data)?;
    let shown = entries.iter().filter(|entry| !matches!(entry.name.as_bytes(), b"." | b".."));
    names.extend(shown.map(|entry| entry.name.as_bytes().to_vec()));
    Ok(entries.last().map_or(0, |entry| entry.offset))
}

/// The directory and the last name of a path.
pub(in crate::cmd) fn split(path: &str) -> Reply<(&str, &str)> {
    let trimmed = path.trim_end_matches('/');
    let (dir, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    match name {
        "" | "." | ".." => {
            Err(Errno::because(Errno::EINVAL, "the path names no entry of a directory"))
        }
        name => Ok((dir, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_wire::Field;

    #[test]
    fn a_path_splits_into_directory_and_name() {
        assert_eq!(split("/a/b/"), Ok(("/a", "b")));
        assert_eq!(split("b"), Ok(("", "b")));
        assert!(split("/").is_err() && split("/a/..").is_err());
    }

    #[test]
    fn directory_entries_are_read_and_a_torn_one_is_refused() {
        let mut data = Vec::new();
        for (cookie, name) in [(1u64, "."), (2, ".."), (9, "file")] {
            Field::put(&Qid::default(), Dialect::Linux, &mut data);
            Field::<Dialect>::put(&cookie, Dialect::Linux, &mut data);
            data.push(0);
            Field::<Dialect>::put(&Name::from(name), Dialect::Linux, &mut data);
        }
        let mut names = Vec::new();
        assert_eq!(read_entries(data.clone().into(), &mut names).ok(), Some(9));
        assert_eq!(names, [b"file".to_vec()]);
        data.pop();
        assert!(read_entries(data.into(), &mut names).is_err());
    }
}
