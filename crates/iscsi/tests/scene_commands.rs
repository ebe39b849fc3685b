//! Commands of the full feature phase, as PDUs there and back.

#![allow(clippy::big_endian_bytes)]

mod line;

use covey_iscsi::message::{Array, Header, Lengths, NO_TAG, flags, reject};
use covey_iscsi::negotiate::Parameters;
use covey_iscsi::target::{Connection, Credit};
use covey_wire::{Bytes, BytesMut, Machine, Payload, Piece, Segments};
use line::*;
use std::sync::Arc;
use std::time::Duration;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;

#[test]
fn a_read_comes_in_pdus_that_fit_and_its_status_comes_with_the_last() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[("MaxRecvDataSegmentLength", "1000")]);
    let itt = line.read(3, 5);
    let mut sizes = Vec::new();
    let mut all = Vec::new();
    loop {
        let (header, data) = line.answer();
        let Header::DataIn { itt: of, flags: bits, offset, data_sn, .. } = header else {
            panic!("{header:?}")
        };
        assert_eq!((of, offset as usize, data_sn as usize), (itt, all.len(), sizes.len()));
        sizes.push(data.len());
        all.extend_from_slice(&data);
        if bits & flags::STATUS != 0 {
            assert_eq!(bits, flags::FINAL | flags::STATUS);
            break;
        }
        assert_eq!(bits, 0);
    }
    assert_eq!(sizes, [1000, 1000, 560]);
    assert!(all == toy.state.lock().unwrap().bytes[3 * BLOCK..8 * BLOCK]);
    assert!(line.next().is_none());
}

/// Of many commands that come at once some are answered before the others are looked at: initiator and target work at the same
/// time then.
#[test]
fn many_commands_are_taken_a_few_at_a_time() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let (mut input, mut taken) = (BytesMut::new(), Vec::new());
    for _ in 0..20 {
        line.raw_read_as(line.itt, &mut input, 8, 1);
        (line.itt, line.cmd_sn) = (line.itt + 1, line.cmd_sn + 1);
    }
    loop {
        line.connection.handle_input(line.now, &mut input).unwrap();
        taken.push(toy.state.lock().unwrap().reads);
        if !line.connection.has_left() {
            break;
        }
    }
    assert_eq!((taken, input.len()), (vec![8, 16, 20], 0));
}

/// An initiator that sends write after write and reads no answer yet is not woken up for. (This one never says that it has
/// read any.) Whatever else comes, and the time, end that.
#[test]
fn small_writes_are_waited_for_where_answers_are_unread() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let waited = |line: &mut Line, writes| {
        for _ in 0..writes {
            line.command(flags::WRITE, cdb(0x2a, 0, 1), BLOCK, &[7; BLOCK]);
            assert!(line.next().is_some(), "what has come is answered");
        }
        line.connection.low_water()
    };
    assert_eq!(line.connection.low_water(), 1);
    assert_eq!(waited(&mut line, 2), 2 * (48 + BLOCK));
    assert_eq!(waited(&mut line, 18), 8 * (48 + BLOCK));
    let itt = line.read(0, 1);
    assert_eq!(line.data(itt).0.len(), BLOCK);
    assert_eq!(line.connection.low_water(), 1);
    assert_eq!(waited(&mut line, 1), 8 * (48 + BLOCK));
    line.wait(Duration::from_millis(1));
    assert_eq!(line.connection.low_water(), 1);
    assert!(line.end.is_none(), "nothing else was due");
    assert_eq!(waited(&mut line, 1), 1, "that was of no use");
    line.wait(Duration::from_millis(100));
    assert_eq!(waited(&mut line, 1), 8 * (48 + BLOCK));
}

#[test]
fn a_read_is_sent_from_the_file_that_lends_it_unless_its_data_has_a_digest() {
    let toy = Toy::new(64);
    toy.state.lock().unwrap().lends = true;
    let portal = portal(&toy);
    let mut line = Line::logged_in(&portal, &[("MaxRecvDataSegmentLength", "4096")]);
    let mut input = BytesMut::new();
    line.raw_read(&mut input, 8, 16);
    line.connection.handle_input(line.now, &mut input).unwrap();
    let mut out = Segments::new();
    while line.connection.poll_output(&mut out, 1 << 20) {}
    let ranges: Vec<_> = out
        .pieces()
        .filter_map(|piece| match piece {
            Piece::File(range) => Some((range.offset, range.length)),
            _ => None,
        })
        .collect();
    assert_eq!(ranges, [(4096, 4096), (8192, 4096)]);
    assert_eq!(out.len(), 2 * 48 + 8192, "what is in memory is the headers");
    // Others may wait until the initiator has it: so it is asked, once, and not left alone for the time of a silent one.
    let soon = Duration::from_millis(200);
    line.wait(soon);
    let (header, _) = line.answer();
    assert!(matches!(header, Header::NopIn { itt: NO_TAG, .. }), "{header:?}");
    line.wait(soon);
    assert!(line.next().is_none());
    line.send(&pong(0, 3), true, Payload::default());
    line.wait(soon);
    assert!(line.next().is_none() && line.end.is_none());
    drop(line);
    let mut line = Line::logged_in(&portal, &[("DataDigest", "CRC32C")]);
    let itt = line.read(8, 16);
    assert_eq!(line.data(itt).0.len(), 8192);
}

#[test]
fn a_burst_ends_with_its_own_last_pdu() {
    let toy = Toy::new(64);
    let keys = [("MaxRecvDataSegmentLength", "1024"), ("MaxBurstLength", "2048")];
    let mut line = Line::logged_in(&portal(&toy), &keys);
    line.read(0, 10);
    let bits: Vec<u8> = (0..5)
        .map(|_| match line.answer().0 {
            Header::DataIn { flags, .. } => flags,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(bits, [0, 0x80, 0, 0x80, 0x81]);
}

#[test]
fn a_write_brings_data_with_it_unasked_and_asked_for() {
    let toy = Toy::new(64);
    let keys = [
        ("InitialR2T", "No"),
        ("FirstBurstLength", "1024"),
        ("MaxBurstLength", "1024"),
        ("MaxOutstandingR2T", "2"),
    ];
    let mut line = Line::logged_in(&portal(&toy), &keys);
    let data: Vec<u8> = (0..10 * BLOCK).map(|at| (at * 7) as u8).collect();
    let itt = line.command(flags::WRITE, cdb(0x2a, 4, 10), data.len(), &data[..512]);
    assert!(line.next().is_none(), "unsolicited data is still to come");
    line.data_out(itt, NO_TAG, 0, 512, &data[512..1024], true);
    let first = line.r2t(itt);
    let second = line.r2t(itt);
    assert_eq!((first.1, first.2, second.1, second.2), (1024, 1024, 2048, 1024));
    assert!(line.next().is_none(), "two at a time were agreed on");
    line.data_out(itt, first.0, 0, 1024, &data[1024..1536], false);
    line.data_out(itt, first.0, 1, 1536, &data[1536..2048], true);
    let third = line.r2t(itt);
    line.data_out(itt, second.0, 0, 2048, &data[2048..3072], true);
    let fourth = line.r2t(itt);
    line.data_out(itt, third.0, 0, 3072, &data[3072..4096], true);
    line.data_out(itt, fourth.0, 0, 4096, &data[4096..], true);
    assert_eq!(line.status(itt), GOOD);
    assert!(toy.state.lock().unwrap().bytes[4 * BLOCK..14 * BLOCK] == data);
    assert_eq!(toy.state.lock().unwrap().writes, 1);
}

/// Keys of a session in which one burst is 128 KiB.
const STREAMING: [(&str, &str); 3] =
    [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxBurstLength", "131072")];
const BURST: usize = 128 << 10;

/// The next burst is asked for before the last is written, so that the initiator and the store work at the same time.
#[test]
fn a_large_write_is_made_as_it_comes() {
    let toy = Toy::new(1024);
    let mut line = Line::logged_in(&portal(&toy), &STREAMING);
    let data: Vec<u8> = (0..3 * BURST).map(|at| (at * 7 / 512) as u8).collect();
    let itt = line.command(flags::FINAL | flags::WRITE, cdb(0xaa, 8, 768), data.len(), &[]);
    for turn in 0..3 {
        let (ttt, offset, length) = line.r2t(itt);
        assert_eq!((offset, length), (turn * BURST, BURST));
        let part = &data[turn * BURST..][..BURST];
        line.data_out(itt, ttt, 0, turn * BURST, &part[..BURST / 2], false);
        line.data_out(itt, ttt, 1, turn * BURST + BURST / 2, &part[BURST / 2..], true);
        assert_eq!(toy.state.lock().unwrap().writes, 2 * (turn + 1));
    }
    assert_eq!(line.status(itt), GOOD);
    assert!(toy.state.lock().unwrap().bytes[8 * BLOCK..776 * BLOCK] == data);
}

/// Its initiator sends what it was asked for, and must not take it for an answer to its next command.
#[test]
fn a_large_write_that_fails_ends_when_its_burst_has_ended() {
    let toy = Toy::new(1024);
    toy.state.lock().unwrap().is_broken = true;
    let mut line = Line::logged_in(&portal(&toy), &STREAMING);
    let itt = line.command(flags::FINAL | flags::WRITE, cdb(0xaa, 0, 768), 3 * BURST, &[]);
    let (ttt, ..) = line.r2t(itt);
    let half = vec![1; BURST / 2];
    line.data_out(itt, ttt, 0, 0, &half, false);
    assert!(line.next().is_none(), "the rest of the burst is on its way");
    line.data_out(itt, ttt, 1, BURST / 2, &half, true);
    assert_eq!(line.status(itt), CHECK_CONDITION);
    assert!(line.next().is_none(), "nothing more is asked for");
}

/// The store is asked for one part after the other, while the next is received.
#[test]
fn a_large_write_waits_for_its_store_and_not_for_its_data() {
    let toy = Toy::new(1024);
    toy.state.lock().unwrap().is_slow = true;
    let mut line = Line::logged_in(&portal(&toy), &STREAMING);
    let data: Vec<u8> = (0..3 * BURST).map(|at| (at / 640) as u8).collect();
    let itt = line.command(flags::FINAL | flags::WRITE, cdb(0xaa, 0, 768), data.len(), &[]);
    for turn in 0..3 {
        let (ttt, ..) = line.r2t(itt);
        line.data_out(itt, ttt, 0, turn * BURST, &data[turn * BURST..][..BURST], true);
        assert_eq!(toy.waiting(), 1);
        assert!(toy.is_heard(), "nobody would hear of the end of part {turn}");
    }
    assert!(toy.release());
    line.poll();
    assert_eq!(toy.waiting(), 1, "all the rest in one go");
    assert!(toy.is_heard(), "nobody would hear of the end of the rest");
    assert!(toy.release());
    line.poll();
    assert_eq!(line.status(itt), GOOD);
    assert!(toy.state.lock().unwrap().bytes[..data.len()] == data);
}

/// A connection in a session of long bursts, whose credit somebody else sets.
fn line_with_credit(toy: &Arc<Toy>, credit: &Arc<Credit>) -> Line {
    let portal = portal(toy);
    let mut line = Line::new(&portal);
    let local = "127.0.0.1:3260".into();
    line.connection = Connection::new(portal, local, [7; 33], line.now).with_credit(credit.clone());
    line.enter(&[("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxOutstandingR2T", "4")]);
    line
}

#[test]
fn a_window_bounds_what_initiators_are_asked_for() {
    let (toy, credit) = (Toy::new(64), Arc::new(Credit::default()));
    credit.set_window(Some(8192));
    let mut line = line_with_credit(&toy, &credit);
    let itt = line.write(0, &[9; 24 * BLOCK], 0);
    let first = line.r2t(itt);
    assert_eq!((first.1, first.2), (0, 8192));
    assert!(line.next().is_none(), "the window is full");
    line.data_out(itt, first.0, 0, 0, &[9; 8192], true);
    let second = line.r2t(itt);
    assert_eq!((second.1, second.2), (8192, 4096));
    line.data_out(itt, second.0, 0, 8192, &[9; 4096], true);
    assert_eq!(line.status(itt), GOOD);
}

#[test]
fn a_rate_spreads_what_initiators_are_asked_for() {
    let (toy, credit) = (Toy::new(64), Arc::new(Credit::default()));
    credit.set_rate(Some(1_000_000));
    let mut line = line_with_credit(&toy, &credit);
    let itt = line.write(0, &[9; 24 * BLOCK], 0);
    let first = line.r2t(itt);
    assert_eq!(first.2, 4096);
    line.data_out(itt, first.0, 0, 0, &[9; 4096], true);
    assert!(line.next().is_none(), "4096 bytes take 4 ms");
    line.wait(Duration::from_millis(5));
    let second = line.r2t(itt);
    assert_eq!((second.1, second.2), (4096, 4096));
    // Nobody limits it any more.
    credit.set_rate(None);
    line.wait(Duration::from_millis(5));
    let third = line.r2t(itt);
    assert_eq!((third.1, third.2), (8192, 4096));
    line.data_out(itt, second.0, 0, 4096, &[9; 4096], true);
    line.data_out(itt, third.0, 0, 8192, &[9; 4096], true);
    assert_eq!(line.status(itt), GOOD);
}

#[test]
fn a_data_out_out_of_order_fails_its_command_and_nothing_else() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[("InitialR2T", "Yes")]);
    for (sn, offset, length) in [(1, 0, 1024), (0, 512, 512), (0, 0, 512), (0, 0, 1536)] {
        let itt = line.write(0, &[9; 1024], 0);
        let r2t = line.r2t(itt);
        line.data_out(itt, r2t.0, sn, offset, &vec![9; length], true);
        assert_eq!(line.status(itt), CHECK_CONDITION, "{sn} {offset} {length}");
    }
    assert_eq!(toy.state.lock().unwrap().writes, 0);
    let itt = line.write(0, &[9; 1024], 1024);
    assert_eq!(line.status(itt), GOOD);
}

#[test]
fn data_of_the_wrong_digest_is_rejected_and_fails_its_command() {
    let toy = Toy::new(64);
    let mut line =
        Line::logged_in(&portal(&toy), &[("DataDigest", "CRC32C"), ("InitialR2T", "Yes")]);
    let itt = line.write(0, &[9; 512], 0);
    let r2t = line.r2t(itt);
    let header = Header::DataOut {
        flags: flags::FINAL,
        reserved: Default::default(),
        lengths: Lengths::of_data(512),
        lun: 0,
        itt,
        ttt: r2t.0,
        reserved_2: Default::default(),
        exp_stat_sn: 0,
        reserved_3: Default::default(),
        data_sn: 0,
        offset: 0,
        reserved_4: Default::default(),
    };
    let mut bytes = Vec::new();
    header.put(false, &mut bytes);
    bytes.extend_from_slice(&[9; 512]);
    bytes.extend_from_slice(&[0; 4]);
    line.send_bytes(&bytes);
    let (header, data) = line.answer();
    assert!(matches!(header, Header::Reject { reason: reject::DATA_DIGEST, .. }), "{header:?}");
    assert_eq!(data, bytes[..48]);
    assert_eq!(line.status(itt), CHECK_CONDITION);
    let itt = line.read(0, 1);
    assert_eq!(line.data(itt), (vec![0; 512], GOOD));
}

#[test]
fn a_header_of_the_wrong_digest_ends_the_connection() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[("HeaderDigest", "CRC32C")]);
    let itt = line.read(0, 1);
    assert_eq!(line.data(itt).1, GOOD);
    line.send_bytes(&[0; 52]);
    assert!(line.end.is_some());
}

#[test]
fn commands_are_executed_in_their_order_and_once() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let ready = cdb(0, 0, 0);
    line.command_as(1, 12, flags::FINAL, ready, 0, &[]);
    line.command_as(2, 11, flags::FINAL, ready, 0, &[]);
    line.command_as(7, 11, flags::FINAL, ready, 0, &[]);
    assert!(line.next().is_none(), "the first one is missing");
    line.command_as(3, 10, flags::FINAL, ready, 0, &[]);
    assert_eq!([line.status(3), line.status(2), line.status(1)], [GOOD; 3]);
    // Too low, and too high.
    line.command_as(8, 12, flags::FINAL, ready, 0, &[]);
    line.command_as(9, 13 + 128, flags::FINAL, ready, 0, &[]);
    assert!(line.next().is_none());
    line.command_as(10, 13, flags::FINAL, ready, 0, &[]);
    assert_eq!(line.status(10), GOOD);
}

#[test]
fn the_window_is_as_large_as_there_are_commands_free() {
    let toy = Toy::new(64);
    toy.state.lock().unwrap().is_slow = true;
    let mut line = Line::logged_in(&portal(&toy), &[]);
    for _ in 0..128 {
        line.read(0, 1);
    }
    assert_eq!(toy.waiting(), 128);
    line.read(0, 1);
    assert_eq!(toy.waiting(), 128, "the last one was beyond MaxCmdSN");
    toy.release();
    line.poll();
    let (header, _) = line.answer();
    let Header::DataIn { exp_cmd_sn, max_cmd_sn, .. } = header else { panic!("{header:?}") };
    assert_eq!((exp_cmd_sn, max_cmd_sn), (10 + 128, 10 + 128));
}

#[test]
fn residuals_say_what_was_too_much_and_too_little() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let read = flags::FINAL | flags::READ;
    for (expected, bits, residual) in [
        (0, flags::OVERFLOW, 512),
        (200, flags::OVERFLOW, 312),
        (10_000, flags::UNDERFLOW, 9488),
        (512, 0, 0),
    ] {
        line.command(read, cdb(0x28, 1, 1), expected, &[]);
        let (header, data) = line.answer();
        let (found, count) = match header {
            Header::DataIn { flags, residual, .. } => (flags, residual),
            Header::ScsiResponse { flags, residual, .. } => (flags, residual),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (found & 6, count, data.len()),
            (bits, residual, expected.min(512)),
            "{expected}"
        );
    }
    // More data than the command wants is taken off the wire and forgotten.
    let itt = line.command(flags::FINAL | flags::WRITE, cdb(0x2a, 1, 1), 1000, &[5; 1000]);
    let (header, _) = line.answer();
    assert!(
        matches!(header, Header::ScsiResponse { flags: 0x82, residual: 488, .. }),
        "{header:?}"
    );
    let _ = itt;
}

#[test]
fn a_command_that_fails_waits_for_data_that_is_on_its_way() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[("InitialR2T", "No")]);
    let itt = line.command(flags::WRITE, cdb(0x77, 0, 1), 1024, &[0; 512]);
    assert!(line.next().is_none());
    line.data_out(itt, NO_TAG, 0, 512, &[0; 512], true);
    let (header, data) = line.answer();
    assert!(matches!(header, Header::ScsiResponse { status: CHECK_CONDITION, .. }));
    assert_eq!(data[..3], [0, 18, 0x70]);
}

#[test]
fn what_was_not_agreed_on_is_rejected() {
    let toy = Toy::new(64);
    let keys = [("ImmediateData", "No"), ("InitialR2T", "Yes")];
    let mut line = Line::logged_in(&portal(&toy), &keys);
    let reason = |line: &mut Line| match line.answer().0 {
        Header::Reject { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    line.write(0, &[0; 512], 512);
    assert_eq!(reason(&mut line), reject::PROTOCOL);
    line.command(flags::WRITE, cdb(0x2a, 0, 1), 512, &[]);
    assert_eq!(reason(&mut line), reject::PROTOCOL);
    let snack = Header::Snack {
        flags: 0x80,
        reserved: Default::default(),
        lengths: Lengths::default(),
        lun: 0,
        itt: 1,
        ttt: NO_TAG,
        reserved_2: Default::default(),
        exp_stat_sn: 0,
        reserved_3: Default::default(),
        begin: 0,
        run: 0,
    };
    line.send(&snack, false, Payload::default());
    assert_eq!(reason(&mut line), reject::SNACK);
    let mut unknown = [0; 48];
    unknown[0] = 0x1c;
    line.send_bytes(&unknown);
    assert_eq!(reason(&mut line), reject::UNSUPPORTED);
    let itt = line.read(0, 1);
    assert_eq!(line.data(itt).1, GOOD, "the session goes on");
}

#[test]
fn a_ping_is_answered_with_its_own_data() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[("MaxRecvDataSegmentLength", "512")]);
    let ping = |itt, bytes: usize| Header::NopOut {
        flags: 0x80,
        reserved: Default::default(),
        lengths: Lengths::of_data(bytes),
        lun: 0,
        itt,
        ttt: NO_TAG,
        cmd_sn: 10,
        exp_stat_sn: 0,
        reserved_2: Default::default(),
    };
    line.send(&ping(5, 3), true, Bytes::from_static(b"abc").into());
    let (header, data) = line.answer();
    assert!(matches!(header, Header::NopIn { itt: 5, ttt: NO_TAG, .. }));
    assert_eq!(data, &b"abc"[..]);
    line.send(&ping(6, 600), true, Bytes::from(vec![1; 600]).into());
    assert_eq!(line.answer().1.len(), 512);
    line.send(&ping(NO_TAG, 0), true, Payload::default());
    assert!(line.next().is_none());
}

/// The answer to a ping of the target's.
fn pong(ttt: u32, exp_stat_sn: u32) -> Header {
    Header::NopOut {
        flags: 0x80,
        reserved: Default::default(),
        lengths: Lengths::default(),
        lun: 0,
        itt: NO_TAG,
        ttt,
        cmd_sn: 10,
        exp_stat_sn,
        reserved_2: Default::default(),
    }
}

#[test]
fn a_silent_initiator_is_pinged_and_then_left() {
    let toy = Toy::new(64);
    let portal = portal(&toy);
    let mut line = Line::logged_in(&portal, &[]);
    let seconds = std::time::Duration::from_secs;
    line.wait(seconds(15));
    let (header, _) = line.answer();
    let Header::NopIn { itt: NO_TAG, ttt, .. } = header else { panic!("{header:?}") };
    assert_ne!(ttt, NO_TAG);
    line.send(&pong(ttt, 0), true, Payload::default());
    line.wait(seconds(15));
    line.answer();
    assert!(line.end.is_none());
    line.wait(seconds(15));
    assert!(line.end.is_some());
    drop(line);
    assert!(target(&portal).sessions().is_empty());
    assert!(!toy.state.lock().unwrap().lost.is_empty());
}

#[test]
fn a_logout_ends_the_connection_behind_its_answer() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let logout = |reason: u8, cid| Header::LogoutRequest {
        reason: 0x80 | reason,
        reserved: Default::default(),
        lengths: Lengths::default(),
        reserved_2: Default::default(),
        itt: 50,
        cid,
        reserved_3: Default::default(),
        cmd_sn: 10,
        exp_stat_sn: 0,
        reserved_4: Default::default(),
    };
    for (reason, cid, answer) in [(2, 1, 2), (1, 9, 1), (0, 0, 0)] {
        line.send(&logout(reason, cid), true, Payload::default());
        let (header, _) = line.answer();
        let Header::LogoutResponse { itt: 50, response, .. } = header else { panic!("{header:?}") };
        assert_eq!(response, answer);
        assert_eq!(line.end.is_some(), answer == 0);
    }
}

#[test]
fn a_long_cdb_and_a_command_that_goes_both_ways_have_additional_headers() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let header = Header::ScsiCommand {
        flags: flags::FINAL | flags::READ | flags::WRITE | 1,
        reserved: Default::default(),
        lengths: Lengths { ahs_words: 4, data: 0 },
        lun: 0,
        itt: 1,
        expected_bytes: 0,
        cmd_sn: 10,
        exp_stat_sn: 0,
        cdb: Array(cdb(0x28, 1, 1)),
    };
    let mut bytes = Vec::new();
    header.put(false, &mut bytes);
    // An extended CDB of 20 bytes, and 512 bytes of data-in.
    bytes.extend_from_slice(&[0, 5, 1, 0, 1, 2, 3, 4, 0, 5, 2, 0, 0, 0, 2, 0]);
    line.send_bytes(&bytes);
    let (header, data) = line.answer();
    assert!(matches!(header, Header::DataIn { flags: flags::FINAL, .. }), "{header:?}");
    assert_eq!(data.len(), 512);
    let (header, _) = line.answer();
    assert!(matches!(header, Header::ScsiResponse { exp_data_sn: 1, bidi_residual: 0, .. }));
    // An additional header that ends beyond its end.
    bytes[48 + 9] = 6;
    bytes[24..28].copy_from_slice(&11_u32.to_be_bytes());
    line.send_bytes(&bytes);
    assert!(matches!(line.answer().0, Header::Reject { reason: reject::INVALID, .. }));
}

#[test]
fn reads_wait_for_memory_and_all_of_them_come() {
    let toy = Toy::new(65_535);
    let keys = [("MaxRecvDataSegmentLength", "262144")];
    let mut line = Line::logged_in(&portal(&toy), &keys);
    toy.state.lock().unwrap().is_slow = true;
    let itts: Vec<u32> = (0..8).map(|_| line.read(0, 20_000)).collect();
    assert_eq!(toy.waiting(), 3, "the others would be over 32 MiB");
    for itt in itts {
        toy.release();
        line.poll();
        let (data, status) = line.data(itt);
        assert_eq!((data.len(), status), (20_000 * BLOCK, GOOD));
    }
}

#[test]
fn more_than_this_side_takes_in_one_pdu_ends_the_connection() {
    let toy = Toy::new(64);
    let parameters = Parameters { segment_bytes_max: 4096, ..Parameters::TARGET };
    let portal = portal_with(&toy, Default::default(), parameters);
    let mut line = Line::logged_in(&portal, &[]);
    let mut header = [0; 48];
    (header[0], header[6], header[7]) = (1, 0x10, 0x01);
    line.send_bytes(&header);
    assert!(line.end.is_some());
}

/// A store that answers at once must not keep all others of its thread waiting until a long command is over.
#[test]
fn a_long_command_lets_others_have_their_turn() {
    let toy = Toy::new(2048);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    line.command(flags::FINAL, cdb(0x2f, 0, 2048), 0, &[]);
    let reads = || toy.state.lock().unwrap().reads;
    let first = reads();
    assert!((1..16).contains(&first), "{first} of 16 MiB were read in one turn");
    let ready = line.command(flags::FINAL, cdb(0, 0, 0), 0, &[]);
    let (Header::ScsiResponse { itt, .. }, _) = line.answer() else { panic!("no response") };
    assert_eq!((itt, reads() < 16), (ready, true), "the other command is not kept waiting");
    for _ in 0..16 {
        line.poll();
    }
    assert_eq!(reads(), 16);
    assert!(matches!(line.answer().0, Header::ScsiResponse { status: 0, .. }));
}
