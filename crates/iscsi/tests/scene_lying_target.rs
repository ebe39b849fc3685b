//! Our initiator before targets that break the rules: what they ask for is neither given nor done for ever.

mod line;

use bytes::BytesMut;
use covey_iscsi::initiator::{Config, Connection, Request, Session};
use covey_iscsi::message::{Header, Lengths, NO_TAG, flags};
use covey_iscsi::negotiate::Parameters;
use covey_iscsi::pdu::{self, Digests};
use covey_iscsi::target;
use covey_wire::{Blame, Machine, Payload, Segments};
use line::{BLOCK, INITIATOR, TARGET, Toy, cdb, portal};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Instant;

/// What one side says now.
fn said(machine: &mut impl Machine) -> BytesMut {
    let _ = machine.poll_user(&mut Context::from_waker(Waker::noop()));
    let mut out = Segments::new();
    while machine.poll_output(&mut out, 1 << 20) {}
    out.runs().flatten().copied().collect::<Vec<u8>>()[..].into()
}

/// An initiator that a real target has let in, and that has sent a write of `blocks`, of which nothing may come unasked.
fn sent(blocks: u16) -> (Connection, Pin<Box<impl Future>>) {
    let parameters = Parameters {
        initial_r2t: true,
        immediate_data: false,
        burst_bytes_max: 2048,
        ..Parameters::INITIATOR
    };
    let session = Session::new(Config {
        initiator: INITIATOR.into(),
        target: Some(TARGET.into()),
        isid: [0x80, 0, 0, 1, 0, 0],
        chap: None,
        mutual: None,
        parameters,
    });
    let (now, portal) = (Instant::now(), portal(&Toy::new(64)));
    let mut initiator = Connection::new(&session, [5; 32], now);
    let mut target = target::Connection::new(portal, "127.0.0.1:3260".into(), [7; 33], now);
    loop {
        let mut bytes = said(&mut initiator);
        if bytes.is_empty() {
            break;
        }
        target.handle_input(now, &mut bytes).unwrap();
        initiator.handle_input(now, &mut said(&mut target)).unwrap();
    }
    let call = session.command(Request {
        lun: 0,
        cdb: cdb(0x2a, 0, blocks),
        data_out: vec![7; usize::from(blocks) * BLOCK].into(),
        data_in: BytesMut::new(),
        is_repeatable: true,
    });
    assert_eq!(said(&mut initiator).len(), 48, "the command alone");
    (initiator, Box::pin(call))
}

fn says(initiator: &mut Connection, header: &Header) -> Result<(), Blame> {
    let mut out = Segments::new();
    pdu::put_with_data(header, false, &Payload::default(), Digests::default(), &mut out);
    let mut bytes: BytesMut = out.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
    initiator.handle_input(Instant::now(), &mut bytes)
}

fn r2t(itt: u32, r2t_sn: u32, offset: u32, desired_bytes: u32) -> Header {
    Header::R2t {
        flags: flags::FINAL,
        reserved: Default::default(),
        lengths: Lengths::default(),
        lun: 0,
        itt,
        ttt: 9,
        stat_sn: 5,
        exp_cmd_sn: 2,
        max_cmd_sn: 40,
        r2t_sn,
        offset,
        desired_bytes,
    }
}

#[test]
fn data_is_given_in_its_order_and_once() {
    let (mut initiator, _call) = sent(8);
    says(&mut initiator, &r2t(0, 0, 0, 2048)).unwrap();
    says(&mut initiator, &r2t(0, 1, 2048, 1024)).unwrap();
    assert_eq!(said(&mut initiator).len(), 48 + 2048 + 48 + 1024);
    let wrong = [
        ("the same again", r2t(0, 1, 0, 2048)),
        ("what follows later", r2t(0, 1, 3072, 1024)),
        ("another number", r2t(0, 2, 2048, 1024)),
        ("nothing", r2t(0, 1, 2048, 0)),
        ("more than a burst", r2t(0, 1, 2048, 2049)),
        ("more than there is", r2t(0, 1, 2048, 2048 + 512)),
        ("of a task that is none", r2t(3, 1, 2048, 1024)),
        ("at the end of all numbers", r2t(0, 1, u32::MAX, u32::MAX)),
    ];
    for (what, header) in wrong {
        let (mut initiator, _call) = sent(8);
        says(&mut initiator, &r2t(0, 0, 0, 2048)).unwrap();
        said(&mut initiator);
        let end = says(&mut initiator, &header);
        assert!(matches!(end, Err(Blame::Violation(_))), "{what}: {end:?}");
        assert!(said(&mut initiator).is_empty(), "{what}: it was given data");
    }
}

#[test]
fn pings_whose_answers_are_not_taken_end_the_connection() {
    let ping = Header::NopIn {
        flags: flags::FINAL,
        reserved: Default::default(),
        lengths: Lengths::default(),
        lun: 0,
        itt: NO_TAG,
        ttt: 1,
        stat_sn: 5,
        exp_cmd_sn: 2,
        max_cmd_sn: 40,
        reserved_2: Default::default(),
    };
    let (mut initiator, _call) = sent(1);
    for _ in 0..5000 {
        says(&mut initiator, &ping).unwrap();
        assert_eq!(said(&mut initiator).len(), 48);
    }
    let mut answered = 0;
    while says(&mut initiator, &ping).is_ok() {
        answered += 1;
        assert!(answered < 5000, "they are answered without end");
    }
    assert!(answered > 100, "{answered}: a target may ping");
}
