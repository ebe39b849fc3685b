//! 9P: single messages, a server's session, a client's machine.

use covey_ninep::client::{self, Config as ClientConfig};
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{
    Dialect, DirEntry, HEADER_BYTES, Message, NOFID, NONUNAME, NOTAG, Number, Stat,
};
use covey_ninep::server::{Config, Session};
use covey_ninep::tree::Peer;
use covey_wire::{Bytes, BytesMut, Field, Machine, Segments};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

const DIALECTS: [Dialect; 4] = [Dialect::Plan9, Dialect::Unix, Dialect::Linux, Dialect::Covey];

/// The first byte chooses the dialect, the rest is the input.
fn choose(data: &[u8]) -> Option<(Dialect, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((DIALECTS[usize::from(first % 4)], rest))
}

fn bytes_of(messages: &[(u16, Message)], dialect: Dialect) -> BytesMut {
    let mut out = Segments::new();
    messages.iter().for_each(|(tag, message)| message.put(*tag, dialect, &mut out));
    out.runs().flatten().copied().collect::<Vec<u8>>()[..].into()
}

/// Whatever decodes is encoded to the same bytes.
pub fn message(data: &[u8]) {
    for dialect in DIALECTS {
        let Ok((tag, message)) = Message::get(Bytes::copy_from_slice(data), dialect) else {
            continue;
        };
        let written = bytes_of(&[(tag, message.clone())], dialect);
        // The size field is checked where the stream is cut into messages, not here.
        assert_eq!(written[4..], data[4..], "{}", message.name());
        assert_eq!(written.len(), HEADER_BYTES + message.body_size(dialect));
    }
}

/// A server over the tree in memory takes any bytes after a proper beginning.
pub fn server(data: &[u8]) {
    let Some((dialect, data)) = choose(data) else { return };
    let tree = Rc::new(MemoryTree::default());
    let config = Config { msize: 8192, key: Some([1; 32].into()), ..Config::default() };
    let mut session = Session::new(tree, Peer::default(), config);
    let version = Message::Tversion { msize: 8192, version: dialect.version().into() };
    let (uname, aname, n_uname) = ("u".into(), "".into(), Number(NONUNAME));
    let attach = Message::Tattach { fid: 0, afid: NOFID, uname, aname, n_uname };
    let mut input = bytes_of(&[(NOTAG, version), (0, attach)], dialect);
    input.extend_from_slice(data);
    let _ = session.handle_input(Instant::now(), &mut input);
    let mut context = Context::from_waker(Waker::noop());
    let mut out = Segments::new();
    while session.poll_output(&mut out, 1 << 16) {}
    let _ = session.poll_user(&mut context);
    while session.poll_output(&mut out, 1 << 16) {}
}

/// A client with one request of each kind on its way takes any bytes.
pub fn client(data: &[u8]) {
    let Some((dialect, data)) = choose(data) else { return };
    let now = Instant::now();
    let (conn, mut machine) = client::pair(ClientConfig::default(), now);
    let mut context = Context::from_waker(Waker::noop());
    let dialects = [dialect];
    let mut version = Box::pin(conn.version_of(&dialects));
    let _ = version.as_mut().poll(&mut context);
    let mut out = Segments::new();
    while machine.poll_output(&mut out, 1 << 16) {}
    let settled = Message::Rversion { msize: 8192, version: dialect.version().into() };
    let _ = machine.handle_input(now, &mut bytes_of(&[(NOTAG, settled)], dialect));
    let _ = version.as_mut().poll(&mut context);
    let mut calls = Vec::new();
    for request in [
        Message::Tread { fid: 1, offset: 0, count: 100 },
        Message::Tstat { fid: 1 },
        Message::Tgetattr { fid: 1, request_mask: 1 },
        Message::Tstatfs { fid: 1 },
        Message::Treaddir { fid: 1, offset: 0, count: 100 },
        Message::Treadlink { fid: 1 },
        Message::Tclunk { fid: 1 },
        Message::Tremove { fid: 1 },
    ] {
        calls.push(Box::pin(conn.call(request)));
    }
    while machine.poll_output(&mut out, 1 << 16) {}
    calls.truncate(5); // Dropped: flushed.
    while machine.poll_output(&mut out, 1 << 16) {}
    let mut input = BytesMut::from(data);
    let _ = machine.handle_input(now, &mut input);
    for call in &mut calls {
        let _ = call.as_mut().poll(&mut context);
    }
    let _ = machine.poll_user(&mut context);
    while machine.poll_output(&mut out, 1 << 16) {}
}

/// What a directory is read as, in each dialect, decodes to what is encoded to the same bytes.
pub fn entries(data: &[u8]) {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        if let Ok(stats) = Stat::take_entries(dialect, Bytes::copy_from_slice(data)) {
            let mut out = Vec::new();
            for stat in stats {
                stat.put_entry(dialect, &mut out);
            }
            assert_eq!(out, data);
        }
    }
    if let Ok(entries) = DirEntry::take_entries(Bytes::copy_from_slice(data)) {
        let mut out = Vec::new();
        entries.iter().for_each(|entry| entry.put(Dialect::Linux, &mut out));
        assert_eq!(out, data);
    }
}

/// Beginnings: every message of the golden bytes, and whole sessions of them.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<_> = DIALECTS.iter().map(|_| Vec::new()).collect();
    let mut found = Vec::new();
    for (dialect, message, _) in golden::golden() {
        let bytes = bytes_of(&[(1, message.clone())], dialect).to_vec();
        let index = DIALECTS.iter().position(|known| *known == dialect).unwrap_or(0);
        let first = |rest: &[u8]| [&[index as u8], rest].concat();
        found.push(("ninep_message", bytes.clone()));
        found.push((
            if message.number() % 2 == 0 { "ninep_server" } else { "ninep_client" },
            first(&bytes),
        ));
        if message.number() % 2 == 0 {
            all[index].extend_from_slice(&bytes);
        }
        if let Message::Rstat { stat } = message {
            let mut entry = Vec::new();
            stat.put_entry(dialect, &mut entry);
            found.push(("ninep_entries", entry));
        }
    }
    for (index, session) in all.into_iter().enumerate() {
        found.push(("ninep_server", [&[index as u8], &session[..]].concat()));
    }
    found
}

/// The golden bytes of the crate's own tests.
#[path = "../../../crates/ninep/tests/golden/messages.rs"]
mod golden;
