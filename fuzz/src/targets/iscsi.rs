//! iSCSI: headers, texts, a target's connection before and after the login, an initiator's connection.

use super::scsi::{TARGET, units};
use bytes::BytesMut;
use covey_iscsi::initiator::{self, Request};
use covey_iscsi::message::{Array, HEADER_BYTES, Header, Lengths};
use covey_iscsi::negotiate::Parameters;
use covey_iscsi::pdu::{self, Digests};
use covey_iscsi::scsi::Units;
use covey_iscsi::target::{self, Access, Portal, TargetConfig};
use covey_iscsi::text::Text;
use covey_wire::{Bytes, Machine, Payload, Segments};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

const STORE_BYTES: usize = 1 << 20;

fn portal() -> Arc<Portal<Units>> {
    let portal = Portal::new();
    portal.add(TargetConfig {
        name: TARGET.into(),
        alias: None,
        portal_group: 1,
        device: Arc::new(units(STORE_BYTES)),
        access: Access::default(),
        addresses: Vec::new(),
        parameters: Parameters::TARGET,
    });
    portal
}

/// Whatever decodes is encoded to a header that decodes to the same; texts as well.
pub fn message(data: &[u8]) {
    if let Some(Ok((is_immediate, header))) =
        data.get(..HEADER_BYTES).map(|raw| Header::take(Bytes::copy_from_slice(raw)))
    {
        let mut out = Vec::new();
        header.put(is_immediate, &mut out);
        assert_eq!(Header::take(out.into()), Ok((is_immediate, header)));
    }
    if let Ok(text) = Text::parse(data) {
        assert_eq!(Text::parse(&text.to_bytes()), Ok(text));
    }
}

fn act(machine: &mut impl Machine) {
    let mut context = Context::from_waker(Waker::noop());
    let mut out = Segments::new();
    for _ in 0..4 {
        while machine.poll_output(&mut out, 1 << 16) {}
        out.advance(out.len());
        if machine.poll_user(&mut context).is_pending() {
            break;
        }
    }
}

fn connection() -> target::Connection<Units> {
    target::Connection::new(portal(), "127.0.0.1:3260".into(), [7; 33], Instant::now())
}

/// A target takes any bytes of a stranger.
pub fn login(data: &[u8]) {
    let mut connection = connection();
    let _ = connection.handle_input(Instant::now(), &mut BytesMut::from(data));
    act(&mut connection);
}

fn login_request() -> Vec<u8> {
    let mut text = Text::default();
    text.push("InitiatorName", "iqn.2026-01.org.example:me");
    text.push("TargetName", TARGET);
    text.push("InitialR2T", "No");
    let data = Payload::from(text.to_bytes());
    let header = Header::LoginRequest {
        flags: 0x87,
        version_max: 0,
        version_min: 0,
        lengths: Lengths::of_data(data.len()),
        isid: Array([0x80, 0, 0, 0, 0, 1]),
        tsih: 0,
        itt: 0,
        cid: 0,
        reserved: Default::default(),
        cmd_sn: 0,
        exp_stat_sn: 0,
        reserved_2: Default::default(),
    };
    let mut out = Segments::new();
    pdu::put_with_data(&header, true, &data, Digests::default(), &mut out);
    out.runs().flatten().copied().collect()
}

/// A target takes any bytes of an initiator that has logged in.
pub fn target(data: &[u8]) {
    let mut connection = connection();
    let mut input = BytesMut::from(&login_request()[..]);
    connection.handle_input(Instant::now(), &mut input).expect("the login is one");
    act(&mut connection);
    assert!(connection.session().is_some());
    let mut input = BytesMut::from(data);
    while connection.handle_input(Instant::now(), &mut input).is_ok() && connection.has_left() {}
    act(&mut connection);
}

/// An initiator with a read and a write under way takes any bytes, behind the login if the first byte says so.
pub fn initiator(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let now = Instant::now();
    let session = initiator::Session::new(initiator::Config {
        initiator: "iqn.2026-01.org.example:me".into(),
        target: Some(TARGET.into()),
        isid: [0x80, 0, 0, 0, 0, 1],
        chap: None,
        mutual: None,
        parameters: Parameters::INITIATOR,
    });
    let mut connection = initiator::Connection::new(&session, [5; 32], now);
    let mut target = self::connection();
    if first & 1 == 1 {
        let mut out = Segments::new();
        while connection.poll_output(&mut out, 1 << 16) {}
        let mut input = bytes_of(&mut out);
        target.handle_input(now, &mut input).expect("our login is one");
        let _ = target.poll_user(&mut Context::from_waker(Waker::noop()));
        while target.poll_output(&mut out, 1 << 16) {}
        connection.handle_input(now, &mut bytes_of(&mut out)).expect("our answer is one");
    }
    let request = |data_out: Vec<u8>, data_in| Request {
        lun: 0,
        cdb: [0; 16],
        data_out: data_out.into(),
        data_in: BytesMut::zeroed(data_in),
        is_repeatable: true,
    };
    let _calls =
        [session.command(request(vec![], 20_000)), session.command(request(vec![1; 9000], 0))];
    act(&mut connection);
    let mut input = BytesMut::from(data);
    if let Some(mut landing) = connection.landing(&mut input) {
        let missing = landing.wanted();
        landing.put(&vec![0; missing]);
        let _ = connection.landed(now, &mut input, landing);
    } else {
        let _ = connection.handle_input(now, &mut input);
    }
    act(&mut connection);
}

fn bytes_of(out: &mut Segments) -> BytesMut {
    let bytes: Vec<u8> = out.runs().flatten().copied().collect();
    out.advance(bytes.len());
    BytesMut::from(&bytes[..])
}

/// A login, and a few commands.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let login = login_request();
    let command = |flags, cdb: [u8; 10], data: Vec<u8>, cmd_sn| {
        let mut all = [0; 16];
        all[..10].copy_from_slice(&cdb);
        let header = Header::ScsiCommand {
            flags,
            reserved: Default::default(),
            lengths: Lengths::of_data(data.len()),
            lun: 0,
            itt: cmd_sn,
            expected_bytes: 1024,
            cmd_sn,
            exp_stat_sn: 0,
            cdb: Array(all),
        };
        let mut out = Segments::new();
        pdu::put_with_data(&header, false, &data.into(), Digests::default(), &mut out);
        out.runs().flatten().copied().collect::<Vec<u8>>()
    };
    let read = command(0xc1, [0x28, 0, 0, 0, 0, 1, 0, 0, 2, 0], vec![], 0);
    let write = command(0xa1, [0x2a, 0, 0, 0, 0, 1, 0, 0, 2, 0], vec![3; 1024], 1);
    let both = [&read[..], &write].concat();
    vec![
        ("iscsi_message", read),
        ("iscsi_message", b"InitiatorName=a\0X=1\0".to_vec()),
        ("iscsi_login", login),
        ("iscsi_target", both),
        ("iscsi_initiator", [&[1, 0x25, 0x81][..], &[0; 61]].concat()),
    ]
}
