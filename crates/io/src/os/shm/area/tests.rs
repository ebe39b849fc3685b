//! Areas, what is handed over, and what becomes of files that are cut off.

use super::*;
use crate::os::shm::Bell;
use std::os::unix::fs::FileExt;

fn copied(span: Span) -> Vec<u8> {
    let mut bytes = vec![0; span.bytes as usize];
    let from = std::ptr::with_exposed_provenance::<u8>(span.address as usize);
    // SAFETY: the span is of a mapping that is alive.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

#[test]
fn two_mappings_of_an_area_are_the_same_memory() {
    let (ours, file) = Area::make(1 << 20).expect("memory");
    let theirs = Area::open(file.as_fd()).expect("the same memory");
    ours.store(64, 7);
    ours.write(5000, b"quail");
    assert_eq!(theirs.load(64), 7);
    assert_eq!(copied(theirs.span(5000, 5).expect("a part")), b"quail");
    assert_eq!(theirs.span(1 << 20, 1), None);
    assert_eq!(theirs.span(u64::MAX, 2), None);
}

#[test]
fn memory_that_could_shrink_is_refused() {
    let file = rustix::fs::memfd_create("loose", MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, 4096).expect("a size");
    assert!(Area::open(file.as_fd()).is_err());
}

#[test]
fn a_heap_gives_out_zeros_again() {
    let (area, file) = Area::make(1 << 20).expect("memory");
    let mut heap = AreaHeap::new(&area, 8192, file).expect("a heap");
    let at = heap.allocate(64 << 10).expect("room");
    assert!(at >= 8192);
    area.write(at, &[9; 70]);
    heap.release(at, 64 << 10);
    let again = heap.allocate(64 << 10).expect("room");
    let mut bytes = [1; 70];
    area.read(again, &mut bytes);
    assert_eq!((again, bytes), (at, [0; 70]));
    assert_eq!(heap.allocate(1 << 20), None);
}

#[test]
fn a_worker_is_greeted_and_files_are_handed_over() {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let (area, file) = Area::make(1 << 16).expect("memory");
    area.store(0, 42);
    let (host, worker) = (Bell::new().expect("a bell"), Bell::new().expect("a bell"));
    let card = Card { worker: 3, workers: 8, store_bytes: 1 << 18, uid: 9, is_huge: true };
    greet(&ours, card, file.as_fd(), &host, &worker).expect("sent");
    let (got, area, their_host, _) = greeted(&theirs).expect("received");
    assert_eq!((got, area.load(0)), (card, 42));
    their_host.ring();
    assert!(!host.sleep(ours.as_fd(), std::time::Duration::from_secs(10)));

    let file = tempfile::tempfile().expect("a file");
    file.write_all_at(b"on disk", 0).expect("written");
    hand_over(&ours, 5, 1 << 20, &file).expect("sent");
    let Ok(Handed::File(number, Ok(mapped))) = handed_over(&theirs) else { panic!("a file") };
    assert_eq!((number, copied(mapped.span(0, 7).expect("mapped"))), (5, b"on disk".to_vec()));
    take_back(&ours, 5).expect("sent");
    assert!(matches!(handed(&theirs), Ok(Some(Handed::Back(5)))));
    assert!(matches!(handed(&theirs), Ok(None)));
    drop(ours);
    assert!(worker.sleep(theirs.as_fd(), std::time::Duration::from_secs(10)));
    assert!(handed_over(&theirs).is_err());
}

#[test]
fn what_a_file_has_lost_reads_as_zeros_and_is_noticed() {
    let file = tempfile::tempfile().expect("a file");
    file.write_all_at(&[7; 3 * PAGE], 0).expect("written");
    let mapped = MappedFile::new(file.as_fd(), 1 << 20).expect("mapped");
    let span = mapped.span(0, 3 * PAGE as u64).expect("mapped");
    assert_eq!(copied(span), vec![7; 3 * PAGE]);
    file.set_len(PAGE as u64).expect("cut off");
    let rest = copied(span);
    assert_eq!((rest[0], rest[2 * PAGE]), (7, 0));
    assert!(!mapped.is_whole());
    assert_eq!(mapped.span(0, 1), None);
}

/// Kilobytes of a mapping that lie in huge pages.
fn huge_kilobytes(address: u64) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("a map");
    let mut is_it = false;
    for line in text.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let range = range.map(|(a, b)| (u64::from_str_radix(a, 16), u64::from_str_radix(b, 16)));
        if let Some((Ok(begin), Ok(end))) = range {
            is_it = (begin..end).contains(&address);
        } else if is_it && let Some(rest) = line.strip_prefix("ShmemPmdMapped:") {
            return rest.trim().trim_end_matches(" kB").parse().expect("a number");
        }
    }
    0
}

#[test]
fn huge_pages_are_the_same_for_both_sides_and_keep_their_bytes() {
    if huge_pages().is_err() {
        return;
    }
    let (ours, file) = Area::make(16 << 20).expect("memory");
    ours.write(5 << 20, b"quail");
    ours.make_huge(4 << 20, 4 << 20).expect("huge pages");
    let theirs = Area::open(file.as_fd()).expect("the same memory");
    let span = theirs.span(4 << 20, 4 << 20).expect("a part");
    assert_eq!(span.address % HUGE_PAGE_BYTES, 0);
    assert_eq!(copied(span)[1 << 20..][..5], *b"quail");
    assert_eq!(huge_kilobytes(span.address), 4096);
    assert!(ours.make_huge(15 << 20, 2 << 20).is_err(), "it is not all there");
}
