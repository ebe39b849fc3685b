//! A volume's file whose syncs fail: what initiators are told of that.

use super::file::FileStore;
use covey_io::disk::{Disk, Open};
use covey_io::sim::{DiskProfile, Rng, SimDisk};
use covey_iscsi::scsi::{
    Command, Completion, Config, Device, Input, Nexus, Step, TaskAttribute, Unit, Units,
};
use covey_iscsi::store::Answer;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE_FUA: [u8; 10] = [0x2a, 8, 0, 0, 0, 0, 0, 0, 1, 0];
const FLUSH: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const FLUSH_IMMED: [u8; 10] = [0x35, 2, 0, 0, 0, 0, 0, 0, 0, 0];
/// VERIFY with the bytes that are expected.
const VERIFY: [u8; 10] = [0x2f, 2, 0, 0, 0, 0, 0, 0, 1, 0];
const GOOD: (u8, u16) = (0, 0);
const WRITE_ERROR: (u8, u16) = (3, 0x0c00);
const MISCOMPARE: (u8, u16) = (0xe, 0x1d00);

/// A unit on a file of a disk that fails when it is told to.
struct Rig {
    disk: SimDisk,
    units: Units,
    runtime: Runtime,
}

impl Rig {
    fn new(write_cache: bool) -> Rig {
        Rig::seeded(write_cache, 1)
    }

    fn seeded(write_cache: bool, seed: u64) -> Rig {
        let disk = SimDisk::new(DiskProfile::default(), Rng::new(seed));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let path = Path::new("/d/disk");
        disk.make_dir(Path::new("/d")).unwrap();
        let file = disk.open(path, Open::Create).unwrap();
        file.set_length(1 << 20).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        let store = FileStore::of(file, path, 1 << 20, runtime.handle().clone());
        let config = Config {
            name: "disk".into(),
            serial: "0123456789".into(),
            target: "iqn.2026-01.org.example:disk".into(),
            block_bytes: 512,
            read_only: false,
            removable: false,
            write_cache,
            portal_groups: vec![1],
        };
        let unit = Unit::new(config, Arc::new(store), "").unwrap();
        Rig { disk, units: Units::of(Arc::new(unit)), runtime }
    }

    /// An initiator that has been told that the unit is new.
    fn visitor(&self, number: u64) -> Nexus {
        let initiator = format!("iqn.2026-01.org.example:client{number}").into();
        let isid = [0x80, 0, 0, 0, 0, number as u8];
        let nexus = Nexus { number, initiator, isid, portal_group: 1 };
        assert_eq!(self.run(&nexus, &[0; 6], 0), (6, 0x2900));
        nexus
    }

    /// A command with a block of `fill`, to its end: sense key, and additional sense code with its qualifier.
    fn run(&self, nexus: &Nexus, cdb: &[u8], fill: u8) -> (u8, u16) {
        let mut whole = cdb.to_vec();
        whole.resize(16, 0);
        let data_out = if matches!(cdb[0], 0x2a | 0x2f) { 512 } else { 0 };
        let attribute = TaskAttribute::Simple;
        let command = Command { cdb: whole.into(), attribute, data_out, data_in: 0 };
        let (mut task, mut step) = self.units.start(0, nexus, command);
        loop {
            let input = match step {
                Step::Collect { bytes } => Input::Data(vec![fill; bytes as usize].into()),
                Step::Store(request) => match self.units.ask(&task, request) {
                    Answer::Now(reply) => Input::Stored(reply),
                    Answer::Later(later) => Input::Stored(self.runtime.block_on(later)),
                },
                Step::End(Completion { status: 0, .. }) => return GOOD,
                Step::End(Completion { sense, .. }) => {
                    return (sense[2], u16::from(sense[12]) << 8 | u16::from(sense[13]));
                }
                other => panic!("{other:?}"),
            };
            step = self.units.next(&mut task, input);
        }
    }
}

#[test]
fn a_failed_sync_is_no_silent_success_for_anybody_who_had_written() {
    let rig = Rig::new(true);
    let [one, two, idle] = [1, 2, 3].map(|number| rig.visitor(number));
    assert_eq!(rig.run(&one, &WRITE, 1), GOOD);
    assert_eq!(rig.run(&two, &WRITE, 2), GOOD);
    rig.disk.fail_syncs(1);
    assert_eq!(rig.run(&one, &FLUSH, 0), WRITE_ERROR);
    // The disk has nothing more to say: the unit has.
    assert_eq!(rig.run(&two, &FLUSH, 0), WRITE_ERROR);
    for nexus in [&one, &two, &idle] {
        assert_eq!(rig.run(nexus, &FLUSH, 0), GOOD, "once each");
    }
}

#[test]
fn a_write_back_that_failed_before_is_told_to_who_syncs() {
    let rig = Rig::new(true);
    let one = rig.visitor(1);
    assert_eq!(rig.run(&one, &WRITE, 1), GOOD);
    rig.disk.fail_write_back();
    assert_eq!(rig.run(&one, &FLUSH, 0), WRITE_ERROR);
    assert_eq!(rig.run(&one, &WRITE_FUA, 1), GOOD);
}

/// With FUA, and without a write cache, each write is on the disk or has failed.
#[test]
fn a_write_that_is_to_last_fails_with_its_sync() {
    for (write_cache, cdb) in [(true, WRITE_FUA), (false, WRITE)] {
        let rig = Rig::new(write_cache);
        let one = rig.visitor(1);
        rig.disk.fail_syncs(2);
        assert_eq!(rig.run(&one, &cdb, 1), WRITE_ERROR);
        assert_eq!(rig.run(&one, &cdb, 1), WRITE_ERROR);
        assert_eq!(rig.run(&one, &cdb, 1), GOOD);
        rig.disk.lose_power();
        assert_eq!(rig.run(&one, &VERIFY, 1), GOOD, "what was answered has lasted");
    }
}

/// Its end is waited for by nobody; it is waited for here by the next sync, which comes behind it.
#[test]
fn a_sync_in_the_background_that_fails_is_told_by_the_next() {
    let rig = Rig::new(true);
    let one = rig.visitor(1);
    assert_eq!(rig.run(&one, &WRITE, 1), GOOD);
    rig.disk.fail_syncs(1);
    assert_eq!(rig.run(&one, &FLUSH_IMMED, 0), GOOD);
    assert_eq!(rig.run(&one, &FLUSH, 0), WRITE_ERROR);
    assert_eq!(rig.run(&one, &FLUSH, 0), GOOD);
}

#[test]
fn verify_compares_with_what_the_file_has() {
    let rig = Rig::new(true);
    let one = rig.visitor(1);
    assert_eq!(rig.run(&one, &WRITE, 7), GOOD);
    assert_eq!(rig.run(&one, &VERIFY, 7), GOOD);
    assert_eq!(rig.run(&one, &VERIFY, 8), MISCOMPARE);
    assert_eq!(rig.run(&one, &VERIFY, 7), GOOD, "nothing was changed by that");
}

/// The same command for another block.
fn at(cdb: [u8; 10], block: usize) -> [u8; 10] {
    let mut cdb = cdb;
    cdb[5] = block as u8;
    cdb
}

/// What a block has for certain, and what it may have instead since then.
#[derive(Clone, Default)]
struct Block {
    kept: u8,
    later: Vec<u8>,
}

impl Block {
    fn last(&self) -> u8 {
        *self.later.last().unwrap_or(&self.kept)
    }

    fn keep(&mut self) {
        *self = Block { kept: self.last(), later: Vec::new() };
    }
}

/// Writes, syncs and losses of power in any order: what a sync, FUA or a unit without a cache has answered is there after
/// each, whatever else is lost.
#[test]
fn what_was_synced_outlasts_every_loss_of_power() {
    let mut lost = 0;
    for seed in 0..100 {
        let has_cache = seed % 4 > 0;
        let (rig, mut rng) = (Rig::seeded(has_cache, seed), Rng::new(seed));
        let one = rig.visitor(1);
        let mut blocks = vec![Block::default(); 8];
        for fill in 1..=60 {
            let block = rng.index(blocks.len());
            match rng.index(8) {
                0 => {
                    assert_eq!(rig.run(&one, &FLUSH, 0), GOOD);
                    blocks.iter_mut().for_each(Block::keep);
                }
                1 => {
                    rig.disk.lose_power();
                    for (number, block) in blocks.iter_mut().enumerate() {
                        let is = |fill: &&u8| rig.run(&one, &at(VERIFY, number), **fill) == GOOD;
                        let found = block.later.iter().rev().chain([&block.kept]).find(is);
                        let found = *found.unwrap_or_else(|| panic!("{seed}: block {number}"));
                        lost += u32::from(found != block.last());
                        *block = Block { kept: found, later: Vec::new() };
                    }
                }
                kind => {
                    let lasts = kind == 2 || !has_cache;
                    let cdb = if kind == 2 { WRITE_FUA } else { WRITE };
                    assert_eq!(rig.run(&one, &at(cdb, block), fill), GOOD);
                    blocks[block].later.push(fill);
                    if lasts {
                        blocks[block].keep();
                    }
                }
            }
        }
    }
    assert!(lost > 0, "no loss of power ever took anything");
}
