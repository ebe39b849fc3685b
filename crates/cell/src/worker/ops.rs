//! What a request takes in messages. Everything that can leave at once leaves when the operation is made.

use super::files::{File, mode};
use crate::devices::MAP;
use crate::header::Ticket;
use crate::plan::SLOT_BYTES;
use crate::trace::Arrival;
use covey_ninep::client::{Call, Conn, Fid};
use covey_ninep::message::{IOHDRSZ, Message, NAME_BYTES_MAX, WALK_NAMES_MAX};
use covey_ninep::tree::{Errno, O_TRUNC, Result};
use covey_wire::{Bytes, List, Name};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Messages that are on their way, and their answer.
pub(super) type Op = Pin<Box<dyn Future<Output = Result<Reply>>>>;

pub(super) enum Reply {
    Nothing,
    Count(u64),
    Data(Vec<Bytes>),
    /// The mapping is to be adopted before the file is used.
    Opened(File, Option<u32>),
    Log(Rc<Fid>),
}

/// Most payload of one message.
const PAYLOAD_BYTES: u64 = SLOT_BYTES - IOHDRSZ as u64;
/// Messages of one transfer that are on their way at once.
const AHEAD: u64 = 8;
/// The mode of what is made where none was asked for: on the devices of the host it is its user's alone.
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;

/// Nothing, whose answer comes from a recording.
pub(super) fn nothing() -> Op {
    Box::pin(std::future::pending())
}

/// The answer to a request on a file that waits, as a trace has it.
pub(super) fn arrival(cor: u32, result: &Result<Reply>) -> Arrival {
    let (result, data) = match result {
        Ok(Reply::Data(pieces)) => {
            let data = pieces.concat();
            (Ok(data.len() as u64), data)
        }
        Ok(Reply::Count(count)) => (Ok(*count), Vec::new()),
        Ok(_) => (Ok(0), Vec::new()),
        Err(error) => (Err(error.code), Vec::new()),
    };
    Arrival { cor, result, data }
}

/// Begins the connection and opens the log.
pub(super) fn greet(conn: &Conn, uid: u32) -> Op {
    let conn = conn.clone();
    Box::pin(async move {
        conn.version().await?;
        conn.auth_and_attach(0, "", Some(uid), "/", None, [0; 32]).await?;
        let fid = Fid::new(&conn);
        let names = ["cell", "l", "log"].map(Name::from).to_vec();
        walk(&conn, &fid, names).await?;
        conn.call(Message::Tlopen { fid: fid.number(), flags: O_WRONLY }).await?;
        Ok(Reply::Log(Rc::new(fid)))
    })
}

/// Walks from the root to a new fid. Where the walk ends early it is done once more, slowly, to learn why.
fn walk(conn: &Conn, fid: &Fid, names: Vec<Name>) -> impl Future<Output = Result<()>> + use<> {
    let (conn, newfid) = (conn.clone(), fid.number());
    let call = conn.call(Message::Twalk { fid: 0, newfid, names: List(names.clone()) });
    async move {
        match call.await? {
            Message::Rwalk { qids } if qids.0.len() == names.len() => Ok(()),
            Message::Rwalk { .. } => {
                Fid::walk(&conn, 0, &names).await?;
                // It is there by now. What was sent behind the walk has failed all the same.
                Err(Errno::ENOENT.into())
            }
            other => Err(odd(&other)),
        }
    }
}

/// ENAMETOOLONG for a path that no walk has room for.
pub(super) fn check_length(names: &[Name]) -> Result<()> {
    let refuse = |what| Err(Errno::because(Errno::ENAMETOOLONG, what));
    if names.len() > WALK_NAMES_MAX {
        return refuse(format!("the path has {} names, {WALK_NAMES_MAX} at most", names.len()));
    }
    match names.iter().find(|name| name.len() > NAME_BYTES_MAX) {
        Some(name) => {
            refuse(format!("a name of the path has {} bytes, {NAME_BYTES_MAX} at most", name.len()))
        }
        None => Ok(()),
    }
}

/// Opens a file.
pub(super) fn open(conn: &Conn, names: Vec<Name>, mode: u32, maps: Option<u32>) -> Op {
    if mode & mode::ANY == 0 {
        return opened(conn, names, flags(mode), maps);
    }
    let conn = conn.clone();
    let is_host_s = names.first().is_some_and(|name| name.as_bytes() == b"cell");
    let perm = if is_host_s { PRIVATE } else { PUBLIC };
    Box::pin(async move {
        match opened(&conn, names.clone(), O_RDWR, maps).await {
            Err(error) if error.code == Errno::ENOENT => {
                create(&conn, names, perm, mode::BOTH, maps).await
            }
            Err(error) if REFUSALS.contains(&error.code) => opened(&conn, names, 0, maps).await,
            result => result,
        }
    })
}

/// What may be read all the same.
const REFUSALS: [u32; 4] = [Errno::EACCES, Errno::EROFS, Errno::EPERM, Errno::EISDIR];

fn flags(mode: u32) -> u32 {
    let access = match mode & 3 {
        mode::WRITE => O_WRONLY,
        mode::BOTH => O_RDWR,
        _ => 0,
    };
    access | if mode & mode::TRUNCATE != 0 { O_TRUNC } else { 0 }
}

fn opened(conn: &Conn, names: Vec<Name>, flags: u32, maps: Option<u32>) -> Op {
    let fid = Fid::new(conn);
    let walked = walk(conn, &fid, names);
    let open = conn.call(Message::Tlopen { fid: fid.number(), flags });
    let map = maps.map(|worker| ask_map(conn, &fid, worker));
    Box::pin(async move {
        walked.await?;
        let Message::Rlopen { iounit, .. } = open.await? else { return Err(Errno::EPROTO.into()) };
        finish(fid, iounit, flags, map).await
    })
}

/// Makes a file, or empties one that is there.
pub(super) fn create(
    conn: &Conn,
    mut names: Vec<Name>,
    perm: u32,
    mode: u32,
    maps: Option<u32>,
) -> Op {
    let Some(name) = names.pop() else { return Box::pin(async { Err(Errno::EINVAL.into()) }) };
    let (fid, whole) = (Fid::new(conn), [&names[..], std::slice::from_ref(&name)].concat());
    let walked = walk(conn, &fid, names);
    let flags = flags(mode) | O_TRUNC;
    let number = fid.number();
    let made = conn.call(Message::Tlcreate { fid: number, name, flags, mode: perm, gid: 0 });
    let map = maps.map(|worker| ask_map(conn, &fid, worker));
    let conn = conn.clone();
    Box::pin(async move {
        walked.await?;
        match made.await {
            Ok(Message::Rlcreate { iounit, .. }) => finish(fid, iounit, flags, map).await,
            Ok(other) => Err(odd(&other)),
            Err(error) => match Errno::from(error) {
                error if error.code == Errno::EEXIST => opened(&conn, whole, flags, maps).await,
                error => Err(error),
            },
        }
    })
}

fn ask_map(conn: &Conn, fid: &Fid, worker: u32) -> Call {
    let body: Vec<u8> = [MAP, worker].iter().flat_map(|word| word.to_le_bytes()).collect();
    conn.call(Message::Tcall { fid: fid.number(), body: Bytes::from(body).into() })
}

async fn finish(fid: Fid, iounit: u32, flags: u32, map: Option<Call>) -> Result<Reply> {
    let mapped = match map {
        // A file that cannot be mapped is used by messages.
        Some(call) => match call.await {
            Ok(Message::Rcall { body }) => Ticket::decode(&body.into_bytes()),
            _ => None,
        },
        None => None,
    };
    let map = mapped.map(|(ticket, _)| ticket);
    let mapping = mapped.map(|(_, mapping)| mapping).filter(|mapping| *mapping != 0);
    let (may_read, may_write) = (flags & 3 != O_WRONLY, flags & 3 != 0);
    let fid = Rc::new(fid);
    let file = File { fid, offset: 0, map, may_read, may_write, blocks: iounit == 0 };
    Ok(Reply::Opened(file, mapping))
}

/// Removes a file by its name.
pub(super) fn remove(conn: &Conn, mut names: Vec<Name>) -> Op {
    let Some(name) = names.pop() else { return Box::pin(async { Err(Errno::EINVAL.into()) }) };
    let fid = Fid::new(conn);
    let walked = walk(conn, &fid, names);
    let gone = conn.call(Message::Tunlinkat { dirfid: fid.number(), name, flags: 0 });
    Box::pin(async move {
        walked.await?;
        gone.await?;
        Ok(Reply::Nothing)
    })
}

/// Reads up to `bytes`; less at the end of the file, or where it waits: there one message only.
pub(super) fn read(fid: &Rc<Fid>, at: u64, bytes: u64, blocks: bool) -> Op {
    let fid = fid.clone();
    let ask = move |fid: &Rc<Fid>, from: u64| {
        let count = (bytes - from).min(PAYLOAD_BYTES) as u32;
        let read = Message::Tread { fid: fid.number(), offset: at.saturating_add(from), count };
        (count, fid.conn().call(read))
    };
    let most = if blocks { 1 } else { AHEAD };
    let first = window(bytes, 0, most).map(|from| ask(&fid, from)).collect::<Vec<_>>();
    Box::pin(async move {
        let (mut pieces, mut have, mut calls) = (Vec::new(), 0, first);
        while !calls.is_empty() {
            for (count, call) in calls {
                let Message::Rread { data } = call.await? else { return Err(Errno::EPROTO.into()) };
                let data = data.into_bytes();
                if data.len() as u64 > u64::from(count) {
                    return Err(Errno::because(Errno::EPROTO, "more came than was asked for"));
                }
                let is_short = data.len() < count as usize;
                have += data.len() as u64;
                pieces.push(data);
                if is_short || blocks {
                    return Ok(Reply::Data(pieces));
                }
            }
            calls = window(bytes, have, most).map(|from| ask(&fid, from)).collect();
        }
        Ok(Reply::Data(pieces))
    })
}

/// Where the next messages of a transfer begin.
fn window(bytes: u64, from: u64, most: u64) -> impl Iterator<Item = u64> {
    let left = (bytes - from).div_ceil(PAYLOAD_BYTES).min(most);
    (0..left).map(move |index| from + index * PAYLOAD_BYTES)
}

/// Writes all of the data, or as much as the file takes.
pub(super) fn write(fid: &Rc<Fid>, at: u64, data: Bytes, blocks: bool) -> Op {
    let (fid, bytes) = (fid.clone(), data.len() as u64);
    let tell = move |fid: &Rc<Fid>, from: u64| {
        let end = (from + PAYLOAD_BYTES).min(bytes);
        let part = data.slice(from as usize..end as usize);
        let offset = at.saturating_add(from);
        let write = Message::Twrite { fid: fid.number(), offset, data: part.into() };
        (end - from, fid.conn().call(write))
    };
    // What follows a part that a pipe takes later must not pass it.
    let most = if blocks { 1 } else { AHEAD };
    let first = window(bytes, 0, most).map(|from| tell(&fid, from)).collect::<Vec<_>>();
    Box::pin(async move {
        let (mut done, mut calls) = (0, first);
        while !calls.is_empty() {
            for (count, call) in calls {
                let Message::Rwrite { count: written } = call.await? else {
                    return Err(Errno::EPROTO.into());
                };
                done += u64::from(written).min(count);
                if u64::from(written) < count {
                    return Ok(Reply::Count(done));
                }
            }
            calls = window(bytes, done, most).map(|from| tell(&fid, from)).collect();
        }
        Ok(Reply::Count(done))
    })
}

/// The size of a file.
pub(super) fn size(fid: &Rc<Fid>) -> Op {
    let fid = fid.clone();
    let call = fid.conn().call(Message::Tgetattr { fid: fid.number(), request_mask: SIZE });
    Box::pin(async move {
        let reply = call.await;
        drop(fid);
        match reply? {
            Message::Rgetattr { size, .. } => Ok(Reply::Count(size)),
            other => Err(odd(&other)),
        }
    })
}

const SIZE: u64 = 0x200;

fn odd(reply: &Message) -> Errno {
    Errno::because(Errno::EPROTO, format!("{} is no answer here", reply.name()))
}
