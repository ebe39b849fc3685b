//! Listings of directories that change meanwhile.

use crate::mounted::Mounted;
use covey_mount::MountOptions;
use covey_stripe::ops::Consistency;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};

const ENTRIES: usize = 10_000;

fn fill(mounted: &Mounted) {
    for index in 0..ENTRIES {
        File::create(mounted.path(&format!("file-{index:05}"))).expect("create");
    }
}

#[test]
fn every_entry_is_listed_once_while_others_are_deleted() {
    let Some(mut mounted) = Mounted::new() else { return };
    fill(&mounted);
    let mut seen = HashSet::new();
    for (index, entry) in fs::read_dir(mounted.root()).expect("open").enumerate() {
        let name: OsString = entry.expect("an entry").file_name();
        // Each second one goes as soon as it is seen, as rm -r has it.
        if index % 2 == 0 {
            fs::remove_file(mounted.root().join(&name)).expect("unlink");
        }
        assert!(seen.insert(name), "an entry is listed twice");
    }
    assert_eq!(seen.len(), ENTRIES);
    assert_eq!(fs::read_dir(mounted.root()).expect("open").count(), ENTRIES / 2);
    mounted.unmount();
}

#[test]
fn a_listing_ends_though_each_entry_makes_another() {
    let Some(mut mounted) = Mounted::new() else { return };
    for index in 0..2_000 {
        File::create(mounted.path(&format!("file-{index}"))).expect("create");
    }
    let mut listed = 0;
    for entry in fs::read_dir(mounted.root()).expect("open") {
        let name = entry.expect("an entry").file_name();
        fs::rename(mounted.root().join(&name), mounted.path(&format!("again-{listed}")))
            .expect("rename");
        listed += 1;
        assert!(listed <= 2_000, "the listing follows what it makes");
    }
    assert_eq!(listed, 2_000);
    mounted.unmount();
}

#[test]
fn a_listing_with_attributes_says_the_same() {
    let options = MountOptions {
        fsname: "covey-test".into(),
        consistency: Consistency::JobScratch,
        ..MountOptions::default()
    };
    let Some(mut mounted) = Mounted::with(options) else { return };
    for index in 0..1_000usize {
        fs::write(mounted.path(&format!("{index}")), vec![0; index]).expect("write");
    }
    // Without what the kernel has kept of the writes.
    let mut sizes = HashSet::new();
    for entry in fs::read_dir(mounted.root()).expect("open") {
        let entry = entry.expect("an entry");
        let size = entry.metadata().expect("stat").len();
        assert_eq!(entry.file_name().to_str(), Some(size.to_string().as_str()));
        sizes.insert(size);
    }
    assert_eq!(sizes.len(), 1_000);
    assert!(mounted.model.state().listed_with_attributes > 0);
    mounted.unmount();
}
