//! What volumes hold: copies of them, what is counted, and files that change behind their backs.

use crate::attach::{Attached, may_mount};
use crate::commands::shown;
use crate::initiator::{export, free_address};
use crate::support::bytes::noise;
use crate::support::{Cluster, until};
use std::os::unix::fs::FileExt;

const MIB: usize = 1 << 20;

/// A copy has the bytes of the original, and each goes its own way from there.
#[test]
fn a_clone_is_a_volume_of_its_own_with_the_same_bytes() {
    if !may_mount() {
        return;
    }
    let cluster = Cluster::up(2);
    let (image, copy) = (cluster.scratch("disk.img"), cluster.scratch("copy.img"));
    let [image, copy] = [&image, &copy].map(|path| path.to_str().unwrap());
    let (bytes, other) = (noise(1, 3 * MIB), noise(2, MIB));
    for (create, clone) in [(&[][..], &[][..]), (&["--file", image], &["--path", copy])] {
        cluster.covey(&[&["volume", "create", "disk", "--size", "24M"], create].concat());
        export(&cluster, "disk", &free_address());
        let attached = Attached::new(&cluster, "disk", &[]);
        let original = attached.open();
        // A piece at the beginning and one at the end; what is between them is not allocated.
        for offset in [0, 21 * MIB] {
            original.write_all_at(&bytes, offset as u64).unwrap();
        }
        original.sync_data().unwrap();
        let words = [&["volume", "clone", "disk", "copy"], clone].concat();
        cluster.refused(&words).says(&["exported", "unexport"]);
        drop(original);
        attached.detach();
        cluster.covey(&["volume", "unexport", "disk"]);
        cluster.covey(&words);
        for name in ["disk", "copy"] {
            export(&cluster, name, &free_address());
        }
        let both = ["disk", "copy"].map(|name| Attached::new(&cluster, name, &[]));
        let [original, copied] = both.each_ref().map(Attached::open);
        let mut found = vec![0; 24 * MIB];
        copied.read_exact_at(&mut found, 0).unwrap();
        assert!(found[..3 * MIB] == bytes && found[21 * MIB..] == bytes);
        assert!(found[3 * MIB..21 * MIB].iter().all(|byte| *byte == 0));
        copied.write_all_at(&other, 0).unwrap();
        copied.sync_data().unwrap();
        original.read_exact_at(&mut found[..MIB], 0).unwrap();
        assert!(found[..MIB] == bytes[..MIB], "the original has none of the copy's");
        drop((original, copied));
        both.into_iter().for_each(Attached::detach);
        for name in ["disk", "copy"] {
            cluster.covey(&["volume", "unexport", name]);
            cluster.covey(&["volume", "rm", name]);
        }
    }
}

/// Somebody cuts the file of a volume that is in use: what the node knew of it holds no more. It takes the file anew, and the
/// initiator sees nothing of that but time.
#[test]
fn a_file_that_is_cut_behind_its_volumes_back_is_taken_anew() {
    if !may_mount() {
        return;
    }
    let cluster = Cluster::up(2);
    cluster.covey(&["volume", "create", "disk", "--size", "16M"]);
    export(&cluster, "disk", &free_address());
    let attached = Attached::new(&cluster, "disk", &[]);
    let file = attached.open();
    let (before, after) = (noise(1, 8 * MIB), noise(2, 8 * MIB));
    file.write_all_at(&before, 0).unwrap();
    file.sync_data().unwrap();
    for size in ["12M", "16M"] {
        cluster.covey(&["truncate", "--size", size, "/volumes/disk"]);
    }
    file.write_all_at(&after, 8 * MIB as u64).unwrap();
    file.sync_data().unwrap();
    let mut found = vec![0; 16 * MIB];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found[..8 * MIB] == before && found[8 * MIB..] == after);
    until("the volume is open", || shown(&cluster, "disk")["closed"].is_null());
    drop(file);
    attached.detach();
}
