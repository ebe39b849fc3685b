//! Golden bytes, written down from the struct definitions of the kernel's header.

use super::reply::{Attr, Dirents, Entry, InitOut, LkOut, OpenOut, OutHeader, encode};
use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |two: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(two).expect("digits"), 16).expect("two digits")
    };
    digits.chunks(2).map(pair).collect()
}

/// A request with this opcode and body: unique 0x22, nodeid 1, uid 1000, gid 100, pid 7.
fn request(opcode: &str, body: &str) -> Bytes {
    let rest = hex(&format!(
        "{opcode} 2200000000000000 0100000000000000 e8030000 64000000 07000000 0000 0000 {body}"
    ));
    let mut message = ((rest.len() + 4) as u32).to_le_bytes().to_vec();
    message.extend(rest);
    message.into()
}

fn body_of(opcode: &str, body: &str) -> Request {
    parse(request(opcode, body)).expect("a header").1.expect("a body")
}

#[test]
fn a_header_is_read_field_by_field() {
    let (header, body) = parse(request("01000000", "61 00")).expect("a header");
    assert_eq!((header.len, header.opcode, header.unique, header.nodeid), (42, 1, 0x22, 1));
    assert_eq!((header.uid, header.gid, header.pid), (1000, 100, 7));
    assert_eq!(body, Ok(Request::Lookup { name: Text("a".into()) }));
}

#[test]
fn a_write_shares_its_payload_with_the_message() {
    let message = request(
        "10000000",
        "0500000000000000 0010000000000000 03000000 04000000 0900000000000000 01840000 00000000
         aabbcc",
    );
    let data_at = message.len() - 3;
    let (_, body) = parse(message.clone()).expect("a header");
    let Ok(Request::Write { fh, offset, size, write_flags, lock_owner, flags, data, .. }) = body
    else {
        panic!("not a write: {body:?}");
    };
    assert_eq!((fh, offset, size, write_flags), (5, 4096, 3, flags::write::KILL_SUIDGID));
    assert_eq!((lock_owner, flags), (9, 0x8401));
    assert_eq!(data.0.as_ptr(), message[data_at..].as_ptr());
}

#[test]
fn a_rename_holds_two_strings() {
    let body = body_of("2d000000", "0300000000000000 01000000 00000000 6f6c6400 6e00");
    let expected = Request::Rename2 {
        newdir: 3,
        flags: 1,
        padding: Pad,
        name: Text("old".into()),
        newname: Text("n".into()),
    };
    assert_eq!(body, expected);
}

#[test]
fn a_lock_request_has_its_range_type_and_owner() {
    let body = body_of(
        "21000000",
        "0100000000000000 0200000000000000 0a00000000000000 ffffffffffffff7f 01000000 2a000000
         01000000 00000000",
    );
    let Request::Setlkw { fh, owner, start, end, kind, pid, lk_flags, .. } = body else {
        panic!("not a lock: {body:?}");
    };
    assert_eq!((fh, owner, start, end), (1, 2, 10, i64::MAX as u64));
    assert_eq!((kind, pid, lk_flags), (flags::lock_type::WRLCK, 42, flags::lk::FLOCK));
}

#[test]
fn setattr_fields_stand_where_the_kernel_puts_them() {
    let body = body_of(
        "04000000",
        "6d010000 00000000 0100000000000000 0200000000000000 0300000000000000 0400000000000000
         0500000000000000 0600000000000000 07000000 08000000 09000000 a4810000 00000000 0a000000
         0b000000 00000000",
    );
    let Request::Setattr { valid, fh, size, atime, mtime, atimensec, mode, uid, gid, .. } = body
    else {
        panic!("not a setattr: {body:?}");
    };
    assert_eq!((valid, fh, size, atime, mtime), (0x16d, 1, 2, 4, 5));
    assert_eq!((atimensec, mode, uid, gid), (7, 0o100644, 10, 11));
}

#[test]
fn unknown_opcodes_are_refused_by_name_and_not_by_dropping_the_header() {
    for opcode in ["25000000", "00100000"] {
        let (header, body) = parse(request(opcode, "")).expect("a header");
        assert_eq!(header.unique, 0x22);
        assert!(matches!(body, Err(Blame::Unsupported(_))), "{body:?}");
    }
}

#[test]
fn short_long_and_unterminated_requests_are_malformed() {
    for body in ["61", "61 00 62"] {
        let (_, body) = parse(request("01000000", body)).expect("a header");
        assert!(matches!(body, Err(Blame::Malformed(_))), "{body:?}");
    }
    let whole = request("01000000", "61 00");
    assert!(matches!(parse(whole.slice(..41)), Err(Blame::Malformed(_))));
    assert!(matches!(parse(whole.slice(..30)), Err(Blame::Malformed(_))));
}

#[test]
fn every_prefix_of_every_request_is_parsed_without_panic() {
    for &(number, _) in Request::NUMBERS {
        let whole = request(&format!("{number:02x}000000"), &"41".repeat(96));
        for end in 0..=whole.len() {
            let mut short = whole.slice(..end).to_vec();
            if end >= 4 {
                short[..4].copy_from_slice(&(end as u32).to_le_bytes());
            }
            // Only that it answers at all is checked; many of these are valid requests.
            let _ = parse(short.into());
        }
    }
}

#[test]
fn replies_have_the_sizes_of_the_kernel_structs() {
    let entry = Entry {
        nodeid: 1,
        generation: 0,
        entry_valid: 0,
        attr_valid: 0,
        entry_valid_nsec: 0,
        attr_valid_nsec: 0,
        attr: Attr::default(),
    };
    assert_eq!(encode(&entry).len(), 128);
    assert_eq!(encode(&Attr::default()).len(), 88);
    assert_eq!(encode(&InitOut::default()).len(), 64);
    assert_eq!(encode(&reply::StatfsOut::default()).len(), 80);
    assert_eq!(encode(&LkOut { start: 0, end: 0, kind: 0, pid: 0 }).len(), 24);
    assert_eq!(encode(&OpenOut { fh: 1, open_flags: 0, backing_id: 0 }).len(), 16);
}

#[test]
fn an_error_reply_carries_the_negated_errno() {
    let header = OutHeader { len: 16, error: 2u32.wrapping_neg(), unique: 0x22 };
    assert_eq!(encode(&header), hex("10000000 feffffff 2200000000000000"));
}

#[test]
fn directory_entries_are_padded_and_bounded() {
    let mut listing = Dirents::new(64);
    assert!(listing.push(None, 7, 3, 8, b"abc"));
    assert!(listing.push(None, 8, 4, 4, b"12345678"));
    assert!(!listing.push(None, 9, 5, 4, b"x"));
    let expected = hex("0700000000000000 0300000000000000 03000000 08000000 616263 0000000000
         0800000000000000 0400000000000000 08000000 04000000 3132333435363738");
    assert_eq!(listing.into_vec(), expected);
}
