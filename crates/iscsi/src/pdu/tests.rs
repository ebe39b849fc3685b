use super::*;
use crate::message::{NO_TAG, Zero};

fn nop(data: usize) -> Header {
    Header::NopOut {
        flags: 0x80,
        reserved: Zero,
        lengths: Lengths::of_data(data),
        lun: 0,
        itt: 1,
        ttt: NO_TAG,
        cmd_sn: 2,
        exp_stat_sn: 3,
        reserved_2: Zero,
    }
}

fn stream(digests: Digests) -> Vec<u8> {
    let mut out = Segments::new();
    for length in [0, 1, 2, 3, 4, 5000] {
        let data =
            Payload::gather(vec![vec![7; length / 2].into(), vec![8; length - length / 2].into()]);
        put_with_data(&nop(length), true, &data, digests, &mut out);
    }
    out.runs().flatten().copied().collect()
}

const ALL: [Digests; 4] = [
    Digests { header: false, data: false },
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    Digests { header: true, data: true },
];

fn read(input: &mut BytesMut, limits: Limits, lengths: &mut Vec<usize>) {
    while let Some(pdu) = next(input, limits).unwrap() {
        assert!(pdu.is_sound && pdu.is_immediate);
        assert_eq!(pdu.header, Ok(nop(pdu.data.len())));
        lengths.push(pdu.data.len());
    }
}

#[test]
fn a_stream_is_the_same_pdus_wherever_it_is_cut() {
    for digests in ALL {
        let limits = Limits { data_bytes_max: 5000, digests };
        let bytes = stream(digests);
        for cut in (0..400).chain([bytes.len() - 1]) {
            let (mut input, mut lengths) = (BytesMut::from(&bytes[..cut]), Vec::new());
            read(&mut input, limits, &mut lengths);
            let wanted = bytes_wanted(&input, limits);
            assert!(wanted > 0 && wanted <= bytes.len() - cut, "{cut}");
            input.extend_from_slice(&bytes[cut..]);
            read(&mut input, limits, &mut lengths);
            assert_eq!((lengths, input.len()), (vec![0, 1, 2, 3, 4, 5000], 0));
        }
    }
}

/// Data that has come in memory of its own stays there, where it is all the data of the PDU, and nothing else.
#[test]
fn placed_data_is_not_moved() {
    for digests in ALL {
        let limits = Limits { data_bytes_max: 5000, digests };
        for (length, placed) in [(5000, 5000), (4998, 4998), (5000, 4996), (4996, 5000), (4, 0)] {
            let mut out = Segments::new();
            put(&nop(length), true, digests, &mut out);
            let head: Vec<u8> = out.runs().flatten().copied().collect();
            let placed = Bytes::from(vec![7; placed]);
            let mut input = BytesMut::from(&head[..]);
            let fits = digests == ALL[0] && length == 5000 && placed.len() == 5000;
            match next_placed(&mut input, &placed, limits).unwrap() {
                Some(pdu) => {
                    assert!(fits && input.is_empty() && pdu.is_sound && pdu.is_immediate);
                    assert_eq!(pdu.header, Ok(nop(length)));
                    assert_eq!(pdu.data.as_ptr(), placed.as_ptr());
                }
                None => assert!(!fits && input == head),
            }
            let mut begun = BytesMut::from(&head[..40]);
            assert_eq!(next_placed(&mut begun, &placed, limits), Ok(None));
        }
    }
}

#[test]
fn every_bit_is_covered_by_a_digest() {
    let digests = Digests { header: true, data: true };
    let limits = Limits { data_bytes_max: 64, digests };
    let mut out = Segments::new();
    put_with_data(&nop(5), false, &vec![1, 2, 3, 4, 5].into(), digests, &mut out);
    let bytes: Vec<u8> = out.runs().flatten().copied().collect();
    assert_eq!(bytes.len(), 48 + 4 + 8 + 4);
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        match next(&mut BytesMut::from(&bad[..]), limits) {
            Err(_) => assert!(bit / 8 < 52),
            Ok(Some(pdu)) => assert!(!pdu.is_sound && bit / 8 >= 52),
            // The length of the additional headers says where the digest is.
            Ok(None) => {
                assert_eq!(bit / 8, 4, "a length was believed before its digest was checked")
            }
        }
    }
}

#[test]
fn data_stays_in_the_buffer_that_it_came_in() {
    let bytes = stream(ALL[0]);
    let limits = Limits { data_bytes_max: 5000, digests: ALL[0] };
    let mut input = BytesMut::from(&bytes[..]);
    let begin = input.as_ptr() as usize;
    while let Some(pdu) = next(&mut input, limits).unwrap() {
        let at = pdu.data.as_ptr() as usize;
        assert!(pdu.data.is_empty() || (begin..begin + bytes.len()).contains(&at));
    }
}

#[test]
fn additional_headers_are_cut_out_and_unknown_opcodes_are_kept() {
    let limits = Limits { data_bytes_max: 64, digests: Digests::default() };
    let mut bytes = [0; 48 + 8 + 4];
    (bytes[0], bytes[4], bytes[7]) = (0x5c, 2, 3);
    bytes[48..56].copy_from_slice(b"headers!");
    bytes[56..].copy_from_slice(b"abc\0");
    let pdu = next(&mut BytesMut::from(&bytes[..]), limits).unwrap().unwrap();
    assert_eq!((pdu.header, pdu.is_immediate), (Err(0x1c), true));
    assert_eq!(
        (&pdu.ahs[..], &pdu.data[..], &pdu.raw[..]),
        (&b"headers!"[..], &b"abc"[..], &bytes[..48])
    );
}

#[test]
fn a_length_over_the_limit_is_refused_before_anything_is_read() {
    let limits = |data_bytes_max| Limits { data_bytes_max, digests: Digests::default() };
    let mut bytes = [0; 48];
    bytes[5..8].copy_from_slice(&[1, 0, 0]);
    assert_eq!(next(&mut BytesMut::from(&bytes[..]), limits(1 << 16)), Ok(None));
    assert_eq!(bytes_wanted(&bytes, limits(1 << 16)), 1 << 16);
    let error = next(&mut BytesMut::from(&bytes[..]), limits((1 << 16) - 1)).unwrap_err();
    assert!(matches!(error, Blame::Violation(_)));
    assert_eq!(bytes_wanted(&bytes, limits((1 << 16) - 1)), 0);
}
