//! What 9P2000 and 9P2000.u say instead of .L's messages.

use super::peer::{Peer, Reply, Stat, split};
use super::unexpected;
use covey_io::os::users;
use covey_ninep::client::Fid;
use covey_ninep::message::{self, Extension, Message, NONUNAME, Number};
use covey_ninep::tree::{Errno, O_TRUNC};
use covey_wire::Name;

impl Peer {
    /// Topen with Linux flags.
    pub(super) async fn classic_open(&self, fid: &Fid, flags: u32) -> Reply<()> {
        let mode = open_mode(flags);
        match self.conn.call(Message::Topen { fid: fid.number(), mode }).await? {
            Message::Ropen { .. } => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Tcreate of a plain file.
    pub(super) async fn classic_create(&self, path: &str, flags: u32, perm: u32) -> Reply<Fid> {
        let (dir, name) = split(path)?;
        let fid = self.walk(dir).await?;
        let (name, extension) = (name.into(), Extension::default());
        let mode = open_mode(flags);
        let create = Message::Tcreate { fid: fid.number(), name, perm, mode, extension };
        match self.conn.call(create).await? {
            Message::Rcreate { .. } => Ok(fid),
            other => Err(unexpected(&other)),
        }
    }

    /// Tstat. What these dialects do not tell is as it would be of a plain file.
    pub(super) async fn classic_stat(&self, fid: &Fid) -> Reply<Stat> {
        match self.conn.call(Message::Tstat { fid: fid.number() }).await? {
            Message::Rstat { stat } => Ok(stat_of(&stat)),
            other => Err(unexpected(&other)),
        }
    }

    /// The names in an open directory.
    pub(super) async fn classic_names(&self, open: &Fid) -> Reply<Vec<Vec<u8>>> {
        let dialect = self.conn.dialect().ok_or(Errno::EPROTO)?;
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let count = self.conn.payload_max().min(128 << 10);
            let data = self.read(open, offset, count).await?;
            if data.is_empty() {
                return Ok(names);
            }
            offset += data.len() as u64;
            let stats = message::Stat::take_entries(dialect, data).map_err(|blame| {
                Errno::because(Errno::EPROTO, format!("a directory holds no records: {blame}"))
            })?;
            names.extend(stats.iter().map(|stat| stat.name.as_bytes().to_vec()));
        }
    }

    /// Tremove. The fid is gone either way; its drop sends a Tclunk that the server refuses, which is
    /// how the number becomes free.
    pub(super) async fn remove_fid(&self, fid: &Fid) -> Reply<()> {
        match self.conn.call(Message::Tremove { fid: fid.number() }).await? {
            Message::Rremove {} => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

fn open_mode(flags: u32) -> u8 {
    const OTRUNC: u8 = 0x10;
    (flags & 3) as u8 | if flags & O_TRUNC != 0 { OTRUNC } else { 0 }
}

fn stat_of(stat: &message::Stat) -> Stat {
    let nanos = |sec: u32| u64::from(sec) * 1_000_000_000;
    Stat {
        qid: stat.qid,
        mode: stat.linux_mode(),
        uid: id(stat.n_uid, &stat.uid),
        gid: id(stat.n_gid, &stat.gid),
        nlink: 1,
        size: stat.length,
        blocks: stat.length.div_ceil(512),
        atime: nanos(stat.atime),
        mtime: nanos(stat.mtime),
        ctime: nanos(stat.mtime),
    }
}

/// The number of a user or group: .u tells it, 9P2000 a name that may be one or be known here.
fn id(number: Number, name: &Name) -> u32 {
    if number.0 != NONUNAME {
        return number.0;
    }
    let name = name.lossy();
    let known = || users::by_name(&name).ok().flatten().map(|account| account.uid);
    name.parse().ok().or_else(known).unwrap_or(NONUNAME)
}
