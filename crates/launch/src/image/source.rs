//! Reading from one source: walks, opens and reads that leave together.

use covey_ninep::client::{CallError, Conn, Fid};
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, List, Name};
use futures_util::TryFutureExt;
use futures_util::future::try_join_all;
use std::cell::Cell;
use std::rc::Rc;

/// What a call answers.
pub type Result<T> = std::result::Result<T, CallError>;

/// Opens a file below the tree's root, which is fid 0.
pub async fn open(conn: &Conn, names: &[Name], flags: u32) -> Result<Fid> {
    let fid = Fid::new(conn);
    let number = fid.number();
    let walk = conn.call(Message::Twalk { fid: 0, newfid: number, names: List(names.to_vec()) });
    let open = conn.call(Message::Tlopen { fid: number, flags });
    match walk.await? {
        Message::Rwalk { qids } if qids.0.len() == names.len() => {}
        _ => return Err(Errno::from(Errno::ENOENT).into()),
    }
    open.await?;
    Ok(fid)
}

/// The first bytes of a text file, at most `max`.
pub async fn read_text(conn: &Conn, names: &[Name], max: usize) -> Result<String> {
    let fid = open(conn, names, O_RDONLY).await?;
    let mut text = Vec::new();
    while text.len() < max {
        let count = (max - text.len()).min(conn.payload_max() as usize) as u32;
        let data = read(conn, fid.number(), text.len() as u64, count).await?;
        if data.is_empty() {
            break;
        }
        text.extend_from_slice(&data);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// One read.
pub async fn read(conn: &Conn, fid: u32, offset: u64, count: u32) -> Result<Bytes> {
    match conn.call(Message::Tread { fid, offset, count }).await? {
        Message::Rread { data } => Ok(data.into_bytes()),
        other => Err(Errno::because(Errno::EPROTO, other.name()).into()),
    }
}

/// A whole range, as pieces one after another; the bytes of each that comes are counted in `arrived`. EPROTO where the
/// file ends before.
pub async fn read_range(
    conn: Conn,
    fid: u32,
    begin: u64,
    count: u32,
    arrived: Rc<Cell<u64>>,
) -> Result<Vec<Bytes>> {
    let most = conn.payload_max().min(PIECE_BYTES);
    let pieces = (0..count.div_ceil(most)).map(|index| {
        let at = index * most;
        let bytes = most.min(count - at);
        let piece = read_piece(&conn, fid, begin + u64::from(at), bytes);
        let arrived = &arrived;
        piece.inspect_ok(move |_| arrived.set(arrived.get() + u64::from(bytes)))
    });
    Ok(try_join_all(pieces).await?.concat())
}

async fn read_piece(conn: &Conn, fid: u32, begin: u64, count: u32) -> Result<Vec<Bytes>> {
    let (mut pieces, mut got) = (Vec::new(), 0);
    while got < count {
        let data = read(conn, fid, begin + u64::from(got), count - got).await?;
        if data.is_empty() || data.len() > (count - got) as usize {
            let what = format!("{} bytes at {begin} of {count}", data.len());
            return Err(Errno::because(Errno::EPROTO, what).into());
        }
        got += data.len() as u32;
        pieces.push(data);
    }
    Ok(pieces)
}

/// Writes a line to an open file.
pub async fn write(conn: &Conn, fid: u32, text: String) -> Result<()> {
    let data = Bytes::from(text).into();
    conn.call(Message::Twrite { fid, offset: 0, data }).await.map(drop)
}

/// What is asked for at once: on a slow link a source that sends is told from one that is silent.
const PIECE_BYTES: u32 = 256 << 10;

pub const O_RDONLY: u32 = 0;
pub const O_WRONLY: u32 = 1;
pub const O_RDWR: u32 = 2;
