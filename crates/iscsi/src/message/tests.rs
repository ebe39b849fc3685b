use super::*;
use covey_wire::Bytes;

/// A header, and its bytes as the figures of RFC 7143, section 11, place them.
fn golden() -> Vec<(Header, bool, &'static str)> {
    let mut cdb = [0; 16];
    cdb[..10].copy_from_slice(&[0x2a, 0, 0, 0, 0, 0x64, 0, 0, 0x08, 0]);
    vec![
        (
            Header::ScsiCommand {
                flags: 0xa1,
                reserved: Zero,
                lengths: Lengths { ahs_words: 2, data: 0x0001_0203 },
                lun: 0x0001_0000_0000_0000,
                itt: 0x1122_3344,
                expected_bytes: 0x1000,
                cmd_sn: 7,
                exp_stat_sn: 9,
                cdb: Array(cdb),
            },
            false,
            "01a10000 02010203 00010000 00000000 11223344 00001000 00000007 00000009 \
             2a000000 00640000 08000000 00000000",
        ),
        (
            Header::LoginRequest {
                flags: 0x87,
                version_max: 1,
                version_min: 0,
                lengths: Lengths::of_data(5),
                isid: Array([0x40, 1, 2, 3, 4, 5]),
                tsih: 0x0607,
                itt: 8,
                cid: 0x0a0b,
                reserved: Zero,
                cmd_sn: 12,
                exp_stat_sn: 13,
                reserved_2: Zero,
            },
            true,
            "43870100 00000005 40010203 04050607 00000008 0a0b0000 0000000c 0000000d \
             00000000 00000000 00000000 00000000",
        ),
        (
            Header::DataIn {
                flags: 0x83,
                reserved: Zero,
                status: 0x04,
                lengths: Lengths::of_data(512),
                lun: 0,
                itt: 1,
                ttt: NO_TAG,
                stat_sn: 2,
                exp_cmd_sn: 3,
                max_cmd_sn: 4,
                data_sn: 5,
                offset: 6,
                residual: 7,
            },
            false,
            "25830004 00000200 00000000 00000000 00000001 ffffffff 00000002 00000003 \
             00000004 00000005 00000006 00000007",
        ),
        (
            Header::R2t {
                flags: 0x80,
                reserved: Zero,
                lengths: Lengths::default(),
                lun: 1 << 48,
                itt: 1,
                ttt: 2,
                stat_sn: 3,
                exp_cmd_sn: 4,
                max_cmd_sn: 5,
                r2t_sn: 6,
                offset: 7,
                desired_bytes: 8,
            },
            false,
            "31800000 00000000 00010000 00000000 00000001 00000002 00000003 00000004 \
             00000005 00000006 00000007 00000008",
        ),
        (
            Header::LoginResponse {
                flags: 0x87,
                version_max: 0,
                version_active: 0,
                lengths: Lengths::default(),
                isid: Array([1, 2, 3, 4, 5, 6]),
                tsih: 7,
                itt: 8,
                reserved: Zero,
                stat_sn: 9,
                exp_cmd_sn: 10,
                max_cmd_sn: 11,
                status: login::NOT_FOUND,
                reserved_2: Zero,
            },
            false,
            "23870000 00000000 01020304 05060007 00000008 00000000 00000009 0000000a \
             0000000b 02030000 00000000 00000000",
        ),
        (
            Header::Async {
                flags: 0x80,
                reserved: Zero,
                lengths: Lengths::default(),
                lun: 0,
                itt: NO_TAG,
                reserved_2: Zero,
                stat_sn: 1,
                exp_cmd_sn: 2,
                max_cmd_sn: 3,
                event: event::LOGOUT,
                vendor_code: 0,
                parameter_1: 4,
                parameter_2: 5,
                parameter_3: 6,
                reserved_3: Zero,
            },
            false,
            "32800000 00000000 00000000 00000000 ffffffff 00000000 00000001 00000002 \
             00000003 01000004 00050006 00000000",
        ),
        (
            Header::LogoutResponse {
                flags: 0x80,
                response: 1,
                reserved: Zero,
                lengths: Lengths::default(),
                reserved_2: Zero,
                itt: 2,
                reserved_3: Zero,
                stat_sn: 3,
                exp_cmd_sn: 4,
                max_cmd_sn: 5,
                reserved_4: Zero,
                time2wait: 6,
                time2retain: 7,
                reserved_5: Zero,
            },
            false,
            "26800100 00000000 00000000 00000000 00000002 00000000 00000003 00000004 \
             00000005 00000000 00060007 00000000",
        ),
    ]
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn headers_are_the_bytes_that_the_specification_draws() {
    for (header, is_immediate, hex) in golden() {
        let mut out = Vec::new();
        header.put(is_immediate, &mut out);
        assert_eq!(out, bytes(hex), "{}", header.name());
        assert_eq!(Header::take(out.into()), Ok((is_immediate, header)));
    }
}

#[test]
fn every_header_has_48_bytes_and_is_the_same_there_and_back() {
    for (number, name) in Header::NUMBERS {
        let mut raw = vec![0xa5; HEADER_BYTES];
        raw[0] = *number;
        let (is_immediate, header) = Header::take(raw.into()).unwrap();
        assert_eq!((is_immediate, header.name()), (false, *name));
        let mut out = Vec::new();
        header.put(true, &mut out);
        assert_eq!((out.len(), out[0]), (HEADER_BYTES, number | IMMEDIATE), "{name}");
        assert_eq!(Header::take(out.into()), Ok((true, header)));
    }
    assert!(matches!(Header::take(Bytes::from(vec![0x1c; 48])), Err(Blame::Unsupported(_))));
    for length in 0..HEADER_BYTES {
        Header::take(Bytes::from(vec![1; length])).unwrap_err();
    }
}
