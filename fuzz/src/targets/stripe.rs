//! The metadata and data servers' own operations.

use covey_layout::{Element, Layout};
use covey_ninep::tree::View as Asked;
use covey_stripe::kv::MemoryKv;
use covey_stripe::meta::Store;
use covey_stripe::objects::{self, DataOp, DataReply};
use covey_stripe::ops::{Op, Reply, Request, StripingHint};
use covey_stripe::view::{self, STEPS_MAX};
use covey_wire::{Bytes, Field, Reader};

/// What decodes is encoded to the same bytes.
fn back<T: Field<()>>(data: &[u8]) {
    let mut from = Reader::new(Bytes::copy_from_slice(data));
    let Ok(value) = <T as Field<()>>::get((), &mut from) else { return };
    let taken = data.len() - from.remaining();
    let mut out = Vec::new();
    value.put((), &mut out);
    assert_eq!(out, &data[..taken]);
    assert_eq!(value.size(()), taken);
}

/// Requests, operations and replies of the metadata server.
pub fn ops(data: &[u8]) {
    back::<Request>(data);
    back::<Op>(data);
    back::<Reply>(data);
}

/// A metadata store applies any requests that decode: what a log may hold, and what a peer with the
/// cluster key may send.
pub fn store(data: &[u8]) {
    let mut kv = MemoryKv::default();
    let servers = ["io1", "io2", "io3"].map(String::from);
    let params = Default::default();
    let hint = StripingHint { kind: 1, strip_bytes: 65536, server_count: 0, params };
    Store::format(&mut kv, "fuzz", &servers, hint, 1, (0, 0)).expect("a store is formatted");
    let mut store = Store::open(kv).expect("a formatted store opens");
    let mut from = Reader::new(Bytes::copy_from_slice(data));
    let mut now = 1000;
    while let Ok(mut request) = <Request as Field<()>>::get((), &mut from) {
        now += 1;
        request.now = now;
        let is_replay = request.seq_done % 2 == 1;
        if is_replay && request.op.is_logged() {
            store.replay(&request).expect("no request breaks the store");
        } else if let covey_stripe::meta::Applied::Fatal(error) = store.apply(&request) {
            panic!("{error}");
        }
        let _ = store.take_work();
    }
}

/// Operations and replies of a data server, and the names of its objects.
pub fn data_ops(data: &[u8]) {
    if let Ok(op) = DataOp::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(op.encode(), data);
    }
    if let Ok(reply) = DataReply::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(reply.encode(), data);
    }
    if let Some((id, Some(epoch))) = objects::parse(data) {
        let name = objects::name(id, epoch);
        assert_eq!(objects::parse(name.as_bytes()), Some((id, Some(epoch))));
    }
}

/// A view of an object: `start[8] end[8] bytes[4]` and the body. It is refused with words, or its pieces are what was
/// announced.
pub fn view(data: &[u8]) {
    let Some((head, body)) = data.split_first_chunk::<20>() else { return };
    let number = |from: usize| {
        let bytes = head[from..].first_chunk().copied();
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let bytes = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
    let body = Bytes::copy_from_slice(body);
    let asked = Asked { start: number(0), end: number(8), bytes, body };
    match view::walk(&asked) {
        Ok(pieces) => {
            assert!(pieces.len() as u64 <= STEPS_MAX);
            let total: u64 = pieces.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
            assert_eq!(total, u64::from(bytes));
            let is_within = |&(at, bytes): &(u64, u32)| {
                asked.start <= at && at + u64::from(bytes) <= asked.end && bytes > 0
            };
            assert!(pieces.iter().all(is_within));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A view of each kind of striping, and of an object.
fn views() -> Vec<Vec<u8>> {
    let layout = Layout::hvector(9, 8, 32, &Layout::element(Element::Byte));
    let layout = layout.and_then(|layout| layout.encode()).expect("it is small");
    let stripings: [(u8, &[u32]); 5] =
        [(1, &[]), (2, &[]), (3, &[0, 16, 1, 48]), (4, &[2, 1]), (5, &[16, 64])];
    let view = |(kind, params): (u8, &[u32])| {
        let mut out = [0u64.to_le_bytes(), 1000u64.to_le_bytes()].concat();
        out.extend_from_slice(&if kind == 2 { 72u32 } else { 40 }.to_le_bytes());
        out.push(kind);
        16u32.put((), &mut out);
        (params.len() as u16).put((), &mut out);
        params.iter().for_each(|param| param.put((), &mut out));
        [if kind == 2 { 1u16 } else { 3 }, 0].iter().for_each(|number| number.put((), &mut out));
        [0, u64::MAX, 0, 72].iter().for_each(|number: &u64| number.put((), &mut out));
        out.extend_from_slice(&layout);
        out
    };
    stripings.into_iter().map(view).collect()
}

/// Short sessions with a metadata store, and one of each small operation of a data server.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let request = |seq, op| {
        let caller = Default::default();
        let mut out = Vec::new();
        Request { session: 1, seq, seq_done: 0, now: 0, caller, op }.put((), &mut out);
        out
    };
    let ops = [
        request(
            0,
            Op::Hello {
                session: 1,
                files: Default::default(),
                appends: Default::default(),
                name: "a".into(),
            },
        ),
        request(1, Op::Unlink { parent: 1, name: "f".into(), dir: false }),
        request(0, Op::Getattr { id: 1 }),
    ];
    let mut found: Vec<_> = ops.iter().map(|op| ("stripe_ops", op.clone())).collect();
    found.push(("stripe_store", ops.concat()));
    found.extend(views().into_iter().map(|view| ("stripe_view", view)));
    for op in [DataOp::Allocated { id: 1 }, DataOp::Objects { after: 0, count: 9 }] {
        found.push(("data_ops", op.encode()));
    }
    found
}
