//! Writes that weaker consistency modes gather.

use crate::mounted::Mounted;
use crate::process::{Deed, finish, start};
use covey_mount::MountOptions;
use covey_stripe::ops::Consistency;
use covey_wire::Rng;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

fn mounted(consistency: Consistency) -> Option<Mounted> {
    let fsname = "covey-test".into();
    Mounted::with(MountOptions { fsname, consistency, ..MountOptions::default() })
}

/// Requests that 1,000 writes of 4,000 bytes make.
fn requests(consistency: Consistency) -> Option<usize> {
    let mut mounted = mounted(consistency)?;
    let mut file = File::create(mounted.path("file")).expect("create");
    for index in 0..1_000_u32 {
        file.write_all(&[index as u8; 4_000]).expect("write");
    }
    drop(file);
    let writes = mounted.model.state().writes.clone();
    assert_eq!(writes.iter().sum::<usize>(), 4_000_000);
    let content = fs::read(mounted.path("file")).expect("read");
    assert!(content.chunks(4_000).enumerate().all(|(at, piece)| piece == [at as u8; 4_000]));
    mounted.unmount();
    Some(writes.len())
}

#[test]
fn small_writes_leave_in_few_requests_where_the_mode_lets_them_be_gathered() {
    let Some(strict) = requests(Consistency::Strict) else { return };
    assert_eq!(strict, 1_000);
    for weaker in [Consistency::CloseToOpen, Consistency::JobScratch] {
        let Some(gathered) = requests(weaker) else { return };
        assert!(gathered <= 8, "{weaker:?}: {gathered} requests");
    }
}

#[test]
fn of_gathered_writes_that_overlap_the_last_wins() {
    let Some(mut mounted) = mounted(Consistency::JobScratch) else { return };
    let path = mounted.path("file");
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("open");
    let mut wanted = vec![0; 600_000];
    let mut rng = Rng::new(1);
    for round in 0..600_u64 {
        // Small ones, which are gathered, and large ones, which leave by themselves.
        let length = if round % 10 == 0 { 150_000 } else { 1 + rng.index(9_000) };
        let at = rng.index(wanted.len() - length);
        let piece = vec![round as u8; length];
        file.write_all_at(&piece, at as u64).expect("write");
        wanted[at..at + length].copy_from_slice(&piece);
        if round % 50 == 49 {
            file.sync_all().expect("fsync");
        }
    }
    let size = file.metadata().expect("stat").len() as usize;
    drop(file);
    assert!(fs::read(&path).expect("read") == wanted[..size], "the content differs");
    assert!(wanted[size..].iter().all(|&byte| byte == 0));
    mounted.unmount();
}

#[test]
fn a_mapping_that_outlives_the_last_close_is_written_at_its_end() {
    let Some(mut mounted) = mounted(Consistency::CloseToOpen) else { return };
    let path = mounted.path("file");
    fs::write(&path, vec![b'.'; 3 * 4096]).expect("write");
    finish(start(Deed::MapPastTheClose, &path));
    assert_eq!(fs::read(&path).expect("read")[5000], b'm');
    crate::mounted::until(|| mounted.model.state().is_closed("file"), "the close");
    mounted.unmount();
}
