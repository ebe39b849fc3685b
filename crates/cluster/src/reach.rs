//! How a node is reached: a sign of life, its text files, its control file.

use crate::config::{Config, Role};
use crate::error::{Error, Result};
use crate::{key, net};
use covey_ninep::client::Conn;
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use std::time::{Duration, Instant};

/// The answer of one server to a ping.
#[derive(Clone, Debug)]
pub struct PingReport {
    /// Time of one request, there and back: the least of a few.
    pub latency: Duration,
    /// The server's version.
    pub version: String,
    /// Bytes its store can hold, when it has one.
    pub bytes_total: Option<u64>,
    /// Bytes that are used on its disk, by whatever.
    pub bytes_used: Option<u64>,
    /// Bytes still free for it.
    pub bytes_free: Option<u64>,
    /// Bytes that the metadata takes, and what it may grow to, where the node has it.
    pub metadata: Option<(u64, u64)>,
    /// The longest message that it takes, in bytes.
    pub msize: u32,
    /// Why an I/O server serves no objects, when it does not.
    pub store: StoreWord,
}

/// Whether the metadata server lets an I/O server serve from its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreWord {
    /// It does, or there are no objects here.
    #[default]
    Known,
    /// It has not met the store yet.
    Unmet(String),
    /// It does not know the store: nothing is served.
    Unknown(String),
}

impl StoreWord {
    /// From the text of `/store`.
    fn parse(text: &str) -> StoreWord {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let reason = value("reason ").unwrap_or_default().to_owned();
        match value("state ") {
            Some("unknown") => StoreWord::Unknown(reason),
            Some("unmet") => StoreWord::Unmet(reason),
            _ => StoreWord::Known,
        }
    }
}

/// Asks a node for a sign of life.
pub async fn ping(config: &Config, name: &str) -> Result<PingReport> {
    const ROUNDS: usize = 5;
    let conn = dial_root(config, name).await?;
    let mut latency = Duration::MAX;
    let mut space = (None, None, None);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let reply = conn.call(Message::Tstatfs { fid: 0 }).await?;
        latency = latency.min(begun.elapsed());
        if let Message::Rstatfs { bsize, blocks, bfree, bavail, .. } = reply
            && blocks > 0
        {
            let unit = u64::from(bsize);
            let of = |blocks: u64| Some(blocks.saturating_mul(unit));
            space = (of(blocks), of(blocks.saturating_sub(bfree)), of(bavail));
        }
    }
    let version = read_text(&conn, "version").await.unwrap_or_default().trim().to_owned();
    let metadata = if config.node(name)?.is(Role::Meta) {
        metadata_space(&read_text(&conn, "space").await.unwrap_or_default())
    } else {
        None
    };
    // A server of an older version has no such file.
    let store = StoreWord::parse(&read_text(&conn, "store").await.unwrap_or_default());
    let ((bytes_total, bytes_used, bytes_free), msize) = (space, conn.msize());
    Ok(PingReport { latency, version, bytes_total, bytes_used, bytes_free, metadata, msize, store })
}

/// What a node's `space` says.
fn metadata_space(text: &str) -> Option<(u64, u64)> {
    let (used, max) = text.trim().strip_prefix("metadata ")?.split_once(' ')?;
    Some((used.parse().ok()?, max.parse().ok()?))
}

/// Reads a text file of a node's root.
pub async fn read_text(conn: &Conn, name: &str) -> Result<String> {
    let fid = open_root_file(conn, name, 0).await?;
    let mut text = Vec::new();
    loop {
        let read = Message::Tread { fid, offset: text.len() as u64, count: 64 << 10 };
        match conn.call(read).await? {
            Message::Rread { data } if data.is_empty() => break,
            Message::Rread { data } => text.extend_from_slice(&data.into_bytes()),
            other => return Err(odd(&other)),
        }
        if text.len() > TEXT_BYTES_MAX {
            let what = format!("{name} has more than {TEXT_BYTES_MAX} bytes");
            return Err(Errno::because(Errno::EFBIG, what).into());
        }
    }
    let _ = conn.call(Message::Tclunk { fid }).await;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A node may say what it likes, but not without end.
const TEXT_BYTES_MAX: usize = 16 << 20;

fn odd(reply: &Message) -> Error {
    Errno::because(Errno::EPROTO, format!("Tread was answered with {}", reply.name())).into()
}

/// Opens a file by its path from the root.
async fn open_root_file(conn: &Conn, name: &str, flags: u32) -> Result<u32> {
    let fid = conn.fid();
    let names = List(name.split('/').map(Name::from).collect());
    let walk = conn.call(Message::Twalk { fid: 0, newfid: fid, names });
    let open = conn.call(Message::Tlopen { fid, flags });
    walk.await?;
    open.await?;
    Ok(fid)
}

/// A connection to a node's root, by the first of its addresses that answers.
async fn dial_root(config: &Config, name: &str) -> Result<Conn> {
    Ok(net::dial_node(config, name, "/", key::read(config)?).await?)
}

/// Writes a command to one of a node's control files, by its path from the root. If it is refused, the error has the
/// reason in the node's words.
pub async fn write_control(config: &Config, name: &str, file: &str, command: &str) -> Result<()> {
    const WRITE: u32 = 1;
    let conn = dial_root(config, name).await?;
    let fid = open_root_file(&conn, file, WRITE).await?;
    let data = covey_wire::Payload::from(format!("{command}\n").into_bytes());
    let Err(error) = conn.call(Message::Twrite { fid, offset: 0, data }).await else {
        return Ok(());
    };
    let text = read_text(&conn, file).await.unwrap_or_default();
    let last = text.lines().find_map(|line| line.strip_prefix("# last error: "));
    // The line that was refused is repeated in front of the reason.
    let reason = last.map(|last| last.split_once(": ").map_or(last, |(_, reason)| reason));
    match reason {
        Some(reason) => Err(Error::bare(Errno::from(error).code, reason)),
        None => Err(error.into()),
    }
}

/// A text file of a node's root.
pub async fn read_of(config: &Config, name: &str, file: &str) -> Result<String> {
    read_text(&dial_root(config, name).await?, file).await
}

/// Writes a command to a node's control file.
pub async fn write_ctl(config: &Config, name: &str, command: &str) -> Result<()> {
    const WRITE: u32 = 1;
    let conn = dial_root(config, name).await?;
    let fid = open_root_file(&conn, "ctl", WRITE).await?;
    let data = covey_wire::Payload::from(format!("{command}\n").into_bytes());
    conn.call(Message::Twrite { fid, offset: 0, data }).await?;
    Ok(())
}
