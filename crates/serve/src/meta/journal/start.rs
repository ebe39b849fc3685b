//! In which start of its machine a store was opened, and whether that is another one than last time.

use super::{Rows, number};
use covey_io::disk::Disk;
use covey_ninep::tree::Result;
use covey_stripe::kv::Kv as Map;
use std::path::Path;

/// The number that clients are told of the start in which the store was opened last.
const TOLD: &[u8] = b"gmachine";
/// That start's number with the mount of the disk. None in a store of a version that did not know of mounts.
const START: &[u8] = b"gstart";

/// Notes in the map, for its next commit, in which start it was opened. What clients are to be told, and whether
/// it is another start than the last.
pub(super) fn note(map: &mut Rows, disk: &dyn Disk, dir: &Path) -> Result<(u64, bool)> {
    let (told, noted) = (number(map, TOLD)?, number(map, START)?);
    let start = disk.machine_start(dir);
    let is_same = match (told, noted) {
        (_, Some(noted)) => noted == start,
        (Some(told), None) => told == start || told == disk.machine_boot(),
        (None, None) => true,
    };
    // Clients that have been told keep their number: another one would be a loss to them.
    let now = told.filter(|_| is_same).unwrap_or(start);
    map.put(TOLD, &now.to_le_bytes())?;
    map.put(START, &start.to_le_bytes())?;
    Ok((now, !is_same))
}

#[cfg(test)]
mod tests {
    use super::super::{Journal, Media};
    use super::*;
    use covey_io::sim::{DiskProfile, Rng, SimDisk};
    use covey_stripe::meta::{Applied, Store};
    use covey_stripe::ops::{Caller, Op, Reply, Request, StripingHint};
    use covey_wire::{List, Name};
    use std::rc::Rc;
    use std::sync::Arc;

    /// What a client is told of the machine when the store is opened.
    fn opened(map: &Path, disk: &SimDisk) -> u64 {
        let media = Media {
            dir: "/meta".into(),
            disk: Arc::new(disk.clone()),
            map: Media::open(map).unwrap().map,
        };
        let opened = Journal::open(media, &["io0".to_owned()], Rc::default());
        let (mut store, _journal) = opened.unwrap();
        let (files, appends) = (List(vec![]), List(vec![]));
        let op = Op::Hello { session: 0, files, appends, name: Name::from("client") };
        let caller = Caller::default();
        match store.apply(&Request { session: 0, seq: 0, seq_done: 0, now: 1, caller, op }) {
            Applied::Reply(Reply::Session { machine, .. }) => machine,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_store_that_did_not_know_of_mounts_goes_on_in_the_same_start() {
        let map = tempfile::tempdir().unwrap();
        let disk = SimDisk::new(DiskProfile::default(), Rng::new(1));
        disk.make_dir(Path::new("/meta")).unwrap();
        let mut rows = Media::open(map.path()).unwrap().map;
        let hint = StripingHint::simple_stripe(4096, 1);
        Store::format(&mut rows, "flock", &["io0".to_owned()], hint, 1, (0, 0)).unwrap();
        let boot = disk.machine_boot();
        assert_ne!(boot, disk.machine_start(Path::new("/meta")));
        rows.put(TOLD, &boot.to_le_bytes()).unwrap();
        rows.checkpoint().unwrap();
        drop(rows);
        assert_eq!(opened(map.path(), &disk), boot, "nothing is lost, and clients need not ask");
        assert_eq!(opened(map.path(), &disk), boot);
        disk.lose_power();
        let after = opened(map.path(), &disk);
        assert!(after != boot && after != disk.machine_boot(), "that was a loss of power");
        assert_eq!(opened(map.path(), &disk), after);
    }
}
