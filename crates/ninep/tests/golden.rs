//! Messages against their golden bytes, which are in `golden/messages.rs`.

#[path = "golden/messages.rs"]
mod messages;

use covey_ninep::message::{Dialect, Message, Stat};
use covey_wire::{Blame, Bytes, Segments};
use messages::{TAG, golden, stat};
use std::collections::BTreeSet;

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hex") as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn every_message_is_written_as_the_specification_has_it() {
    for (dialect, message, hex) in golden() {
        let mut out = Segments::new();
        message.put(TAG, dialect, &mut out);
        let written: Vec<u8> = out.runs().flatten().copied().collect();
        assert_eq!(written, bytes(hex), "{}", message.name());
    }
}

#[test]
fn every_message_is_read_back_from_those_bytes() {
    for (dialect, message, hex) in golden() {
        let read = Message::get(Bytes::from(bytes(hex)), dialect);
        assert_eq!(read, Ok((TAG, message)));
    }
}

#[test]
fn no_message_of_the_table_is_left_out_here() {
    let here: BTreeSet<u8> = golden().iter().map(|(_, message, _)| message.number()).collect();
    let table: BTreeSet<u8> = Message::NUMBERS.iter().map(|(number, _)| *number).collect();
    assert_eq!(here, table);
}

const DIALECTS: [Dialect; 4] = [Dialect::Plan9, Dialect::Unix, Dialect::Linux, Dialect::Covey];
/// What is written differently from dialect to dialect.
const MANIFOLD: [&str; 6] = ["Tauth", "Tattach", "Rerror", "Tcreate", "Rstat", "Twstat"];

#[test]
fn a_message_has_these_bytes_in_every_dialect_that_speaks_it() {
    let lines = golden();
    for (dialect, message, hex) in &lines {
        assert!(dialect.speaks(message.number()), "{} in {dialect:?}", message.name());
        for other in DIALECTS.into_iter().filter(|other| other.speaks(message.number())) {
            if MANIFOLD.contains(&message.name()) {
                let is_there =
                    lines.iter().any(|(d, m, _)| *d == other && m.name() == message.name());
                assert!(is_there, "{} in {other:?}", message.name());
            } else {
                let read = Message::get(Bytes::from(bytes(hex)), other);
                assert_eq!(read, Ok((TAG, message.clone())), "{other:?}");
            }
        }
    }
}

#[test]
fn a_message_of_another_dialect_is_unsupported() {
    for (_, message, hex) in golden() {
        for other in DIALECTS.into_iter().filter(|other| !other.speaks(message.number())) {
            let read = Message::get(Bytes::from(bytes(hex)), other);
            assert!(matches!(read, Err(Blame::Unsupported(_))), "{} in {other:?}", message.name());
        }
    }
}

#[test]
fn a_directory_holds_records_one_after_the_other() {
    for dialect in [Dialect::Plan9, Dialect::Unix] {
        let mut data = Vec::new();
        stat(dialect).put_entry(dialect, &mut data);
        assert_eq!(usize::from(u16::from_le_bytes([data[0], data[1]])), data.len() - 2);
        stat(dialect).put_entry(dialect, &mut data);
        let read = Stat::take_entries(dialect, data.clone().into()).unwrap();
        assert_eq!(read, [*stat(dialect), *stat(dialect)]);
        data.pop();
        assert!(Stat::take_entries(dialect, data.into()).is_err());
    }
}

#[test]
fn a_record_whose_lengths_do_not_agree_is_malformed() {
    let whole = bytes(golden().iter().find(|(_, m, _)| m.name() == "Rstat").unwrap().2);
    for (at, by) in [(7, 1u8), (7, 255), (9, 1), (9, 255)] {
        let mut bad = whole.clone();
        bad[at] = bad[at].wrapping_add(by);
        assert!(Message::get(bad.into(), Dialect::Plan9).is_err(), "{at} {by}");
    }
}

#[test]
fn a_message_that_is_short_or_long_by_one_byte_is_malformed() {
    for (dialect, message, hex) in golden() {
        let whole = bytes(hex);
        let mut long = whole.clone();
        long.push(0);
        let short = whole[..whole.len() - 1].to_vec();
        assert!(Message::get(long.into(), dialect).is_err(), "{} long", message.name());
        assert!(Message::get(short.into(), dialect).is_err(), "{} short", message.name());
    }
}
