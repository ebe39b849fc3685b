//! SCSI commands of two nexuses on one unit: any CDB with any data, one after another.

use covey_iscsi::scsi::{Command, Config, Device, Input, Nexus, Step, TaskAttribute, Unit, Units};
use covey_iscsi::store::{Answer, Hold, Reply, Request, Store};
use covey_wire::Bytes;
use std::sync::{Arc, Mutex};

const STORE_BYTES: usize = 64 << 10;
/// The target that the units are of.
pub const TARGET: &str = "iqn.2026-01.org.example:disk";

/// Blocks in memory.
struct Memory(Mutex<Vec<u8>>);

impl Store for Memory {
    fn ask(&self, request: Request, _: Hold) -> Answer {
        let mut bytes = self.0.lock().unwrap();
        Answer::Now(match request {
            Request::Read { offset, bytes: count, .. } => {
                Reply::Data(bytes[offset as usize..][..count as usize].to_vec().into())
            }
            Request::Write { offset, data, .. } => {
                let data = data.into_bytes();
                bytes[offset as usize..][..data.len()].copy_from_slice(&data);
                Reply::Done
            }
            Request::Fill { range, .. } | Request::Zero { range } | Request::Discard { range } => {
                bytes[range.start as usize..range.end as usize].fill(0);
                Reply::Done
            }
            Request::Allocated { range } => Reply::Extents(vec![(range.end, true)]),
            _ => Reply::Done,
        })
    }

    fn bytes(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    fn losses(&self) -> u64 {
        0
    }
}

/// One unit of so many bytes, in memory.
pub fn units(bytes: usize) -> Units {
    let config = Config {
        name: "disk".into(),
        serial: "0123456789abcdef".into(),
        target: TARGET.into(),
        block_bytes: 512,
        read_only: false,
        removable: true,
        write_cache: true,
        portal_groups: vec![1],
    };
    let store = Arc::new(Memory(Mutex::new(vec![0; bytes])));
    Units::of(Arc::new(Unit::new(config, store, "").expect("it has blocks")))
}

const ATTRIBUTES: [TaskAttribute; 4] = [
    TaskAttribute::Simple,
    TaskAttribute::Untagged,
    TaskAttribute::Ordered,
    TaskAttribute::HeadOfQueue,
];

fn nexus(number: u64) -> Nexus {
    let isid = [0, 0, 0, 0, 0, number as u8];
    Nexus { number, initiator: "iqn.2026-01.org.example:client".into(), isid, portal_group: 1 }
}

/// Each command is 20 bytes: who, in which order and where, how much data out, how much room for data in, and the CDB. The
/// data out follows.
pub fn commands(data: &[u8]) {
    let units = units(STORE_BYTES);
    let mut rest = data;
    while let Some((head, after)) = rest.split_at_checked(20) {
        let who = nexus(u64::from(head[0] & 1));
        let lun = u64::from(head[0] >> 6) << 48;
        let out = &after[..after.len().min(usize::from(head[1]) * 8)];
        rest = &after[out.len()..];
        let command = Command {
            cdb: Bytes::copy_from_slice(&head[4..]),
            attribute: ATTRIBUTES[usize::from(head[0] >> 4 & 3)],
            data_out: out.len() as u64,
            data_in: u64::from(head[2]) * 64,
        };
        run(&units, lun, &who, command, out);
    }
}

fn run(units: &Units, lun: u64, who: &Nexus, command: Command, out: &[u8]) {
    let (mut task, mut step) = units.start(lun, who, command);
    loop {
        let input = match step {
            Step::Collect { bytes } => {
                assert!(bytes <= out.len() as u64);
                Input::Data(out[..bytes as usize].to_vec().into())
            }
            Step::Stream { from, to, block_bytes } => {
                assert!(from < to && to <= out.len() as u64 && to % block_bytes == 0);
                Input::Data(out[from as usize..to as usize].to_vec().into())
            }
            Step::Store(request) => match units.ask(&task, request) {
                Answer::Now(reply) => Input::Stored(reply),
                Answer::Later(_) => panic!("one command at a time waits for nobody"),
            },
            Step::Turn => panic!("one command at a time has its turn"),
            Step::Abort(_) => Input::Aborted,
            Step::End(end) => {
                assert!(end.data_in.len() as u64 <= end.in_bytes);
                return;
            }
        };
        step = units.next(&mut task, input);
    }
}

/// A command of each kind: what the unit is, a write, a comparison, a reservation, an unmap.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let one = |cdb: &[u8], out: &[u8]| {
        let mut seed = vec![0, (out.len() / 8) as u8, 8, 0];
        seed.extend(cdb);
        seed.resize(20, 0);
        seed.extend(out);
        seed
    };
    let ready = one(&[0], &[]);
    let commands = [
        one(&[0x12, 1, 0x83, 0, 255], &[]),
        one(&[0x2a, 0, 0, 0, 0, 1, 0, 0, 1], &[7; 512]),
        one(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1], &[7; 1024]),
        one(&[0x5f, 6, 0, 0, 0, 0, 0, 0, 24], &[1; 24]),
        one(
            &[0x42, 0, 0, 0, 0, 0, 0, 0, 24],
            &[0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
        ),
        one(&[0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 2], &[]),
        one(&[0x1a, 0, 0x3f, 0, 255], &[]),
        one(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64], &[]),
    ];
    commands.into_iter().map(|command| ("scsi_commands", [&ready[..], &command].concat())).collect()
}
