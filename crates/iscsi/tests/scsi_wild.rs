//! Commands that nobody would send: whatever is in a CDB and behind it, a unit ends the command and goes on.

mod support;

use covey_iscsi::scsi::Config;
use proptest::prelude::*;
use support::{Bench, config, nexus};

/// Opcodes that are known, and some that are not.
const OPCODES: [u8; 56] = [
    0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1e, 0x25, 0x28, 0x2a, 0x2e, 0x2f,
    0x34, 0x35, 0x37, 0x41, 0x42, 0x48, 0x55, 0x56, 0x57, 0x5a, 0x5e, 0x5f, 0x83, 0x84, 0x88, 0x89,
    0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xae, 0xaf, 0xb7,
    0x01, 0x04, 0x3b, 0x7f, 0x9d, 0xb5, 0xc0, 0xff,
];

fn cdb() -> impl Strategy<Value = Vec<u8>> {
    // Most bytes are small, so that blocks are often there.
    let byte = prop_oneof![6 => Just(0u8), 3 => 0..8u8, 1 => any::<u8>()];
    let opcode = prop::sample::select(OPCODES.to_vec());
    (opcode, prop::collection::vec(byte, 15))
        .prop_map(|(opcode, rest)| [vec![opcode], rest].concat())
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    let small = prop::collection::vec(prop_oneof![3 => 0..32u8, 1 => any::<u8>()], 0..64);
    let blocks = (0..5usize, any::<u8>()).prop_map(|(blocks, byte)| vec![byte; blocks * 512]);
    prop_oneof![small, blocks, prop::collection::vec(any::<u8>(), 0..600)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_command_ends(
        commands in prop::collection::vec((0..3u64, cdb(), data(), 0..2048u64), 1..40),
        removable in any::<bool>(),
    ) {
        let bench = Bench::with(Config { removable, ..config() }, 64 << 10);
        for (who, cdb, out, data_in) in commands {
            let end = bench.run(&nexus(who), &cdb, &out, data_in);
            prop_assert!(end.data_in.len() as u64 <= end.in_bytes, "{:02x?}", cdb);
            prop_assert!(matches!(end.status, 0 | 2 | 0x18), "{:02x?}", cdb);
            prop_assert_eq!(end.status == 2, !end.sense.is_empty());
        }
    }
}
