//! A server with the in-memory tree takes any bytes after a proper beginning.
#![no_main]

use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, Message, NOFID, NONUNAME, NOTAG, Number};
use covey_ninep::server::{Config, Session};
use covey_ninep::tree::Peer;
use covey_wire::{BytesMut, Machine, Segments};
use libfuzzer_sys::fuzz_target;
use std::rc::Rc;
use std::time::Instant;

fuzz_target!(|data: &[u8]| {
    let tree = Rc::new(MemoryTree::default());
    let config = Config { msize: 8192, key: Some([1; 32]), ..Config::default() };
    let mut session = Session::new(tree, Peer::default(), config);
    let mut start = Segments::new();
    let version = Message::Tversion { msize: 8192, version: "9P2000.L.covey1".into() };
    version.put(NOTAG, Dialect::Covey, &mut start);
    let (uname, aname, n_uname) = ("u".into(), "".into(), Number(NONUNAME));
    let attach = Message::Tattach { fid: 0, afid: NOFID, uname, aname, n_uname };
    attach.put(0, Dialect::Covey, &mut start);
    let mut input: BytesMut = start.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
    input.extend_from_slice(data);
    let _ = session.handle_input(Instant::now(), &mut input);
    let mut out = Segments::new();
    while session.poll_output(&mut out, 1 << 16) {}
});
