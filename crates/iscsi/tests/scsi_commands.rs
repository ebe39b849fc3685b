//! Commands as bytes, and what comes back.

mod support;

use covey_iscsi::scsi::{Config, Device, Function, Input, Step};
use covey_iscsi::store::{Failure, Request};
use support::{Bench, command, config, nexus, sense, wait};

#[test]
fn a_new_nexus_is_told_once_that_the_unit_began() {
    let bench = Bench::new();
    let one = nexus(1);
    // INQUIRY and REPORT LUNS do not wait for it.
    bench.good(&one, &[0x12, 0, 0, 0, 36, 0], &[], 36);
    bench.good(&one, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[], 16);
    assert_eq!(bench.sense(&one, &[0; 6], &[], 0), (6, 0x2900));
    bench.good(&one, &[0; 6], &[], 0);
}

#[test]
fn standard_inquiry_says_what_it_is() {
    let bench = Bench::new();
    let data = bench.good(&nexus(1), &[0x12, 0, 0, 0, 255, 0], &[], 255);
    assert_eq!(data.len(), 96);
    assert_eq!(data[..8], [0, 0, 6, 0x12, 91, 0x18, 0x10, 2]);
    assert_eq!(&data[8..32], b"COVEY   disk            ");
    assert_eq!(data[58..66], [0, 0xa0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xc0]);
}

#[test]
fn every_page_of_vital_data_that_is_listed_is_there() {
    let bench = Bench::new();
    let one = nexus(1);
    let page = |page: u8| bench.good(&one, &[0x12, 1, page, 2, 0, 0], &[], 512);
    let pages = page(0);
    assert_eq!(pages[..], [0, 0, 0, 7, 0, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2]);
    for number in &pages[4..] {
        let data = page(*number);
        assert_eq!((data[0], data[1]), (0, *number));
        assert_eq!(usize::from(data[3]) + 4, data.len(), "page {number:#x}");
    }
    assert_eq!(&page(0x80)[4..], b"0123456789abcdef");
    // The NAA designator behind the vendor's: as in every version before, or initiators see another disk.
    let identity = page(0x83);
    let naa = &identity[4 + 4 + usize::from(identity[7])..][..12];
    assert_eq!(naa, [1, 3, 0, 8, 0x3e, 0x37, 0x39, 0x13, 0xe5, 0xad, 0x67, 0x7d]);
    // LBPU, LBPWS, LBPWS10, LBPRZ; thin.
    assert_eq!(page(0xb2)[..], [0, 0xb2, 0, 4, 0, 0xe4, 2, 0]);
    assert_eq!(bench.sense(&bench.visitor(1), &[0x12, 1, 0x99, 0, 255, 0], &[], 255), (5, 0x2400));
}

#[test]
fn capacity_is_told_in_both_ways() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let short = bench.good(&one, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 8);
    assert_eq!(short[..], [0, 0, 7, 0xff, 0, 0, 2, 0]);
    let long = bench.good(&one, &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32], &[], 32);
    assert_eq!(long[..16], [0, 0, 0, 0, 0, 0, 7, 0xff, 0, 0, 2, 0, 0, 0, 0xc0, 0]);
}

#[test]
fn what_is_written_is_read_with_every_length_of_command() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let data: Vec<u8> = (0..1024u32).map(|index| (index * 7) as u8).collect();
    let writes: [&[u8]; 4] = [
        &[0x0a, 0, 0, 3, 2, 0],
        &[0x2a, 0, 0, 0, 0, 3, 0, 0, 2, 0],
        &[0xaa, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0],
        &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0],
    ];
    for (turn, write) in writes.into_iter().enumerate() {
        let data: Vec<u8> = data.iter().map(|byte| byte ^ turn as u8).collect();
        let end = bench.run(&one, write, &data, 0);
        assert_eq!((end.status, end.out_bytes), (0, 1024));
        for read in writes {
            let mut read = read.to_vec();
            read[0] -= 2;
            assert_eq!(bench.good(&one, &read, &[], 1024)[..], data);
        }
    }
}

#[test]
fn an_initiator_without_room_gets_what_fits_and_learns_the_rest() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0];
    let end = bench.run(&one, &read, &[], 200);
    assert_eq!((end.status, end.data_in.len(), end.in_bytes), (0, 200, 1024));
    // Of two blocks one is there to be written.
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0];
    let end = bench.run(&one, &write, &[b'b'; 512], 0);
    assert_eq!((end.status, end.out_bytes), (0, 1024));
    assert_eq!(bench.store.state.lock().unwrap().data[510..514], [b'b', b'b', 0, 0]);
    // Part of a block is not written.
    let end = bench.run(&one, &write, &[b'c'; 200], 0);
    assert_eq!((end.status, end.out_bytes, sense(&end)), (2, 1024, (5, 0x0e03)));
    assert_eq!(bench.store.state.lock().unwrap().data[0], b'b');
}

#[test]
fn what_does_not_lie_on_the_medium_is_refused() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let read = |lba: u16, blocks: u8| [0x28, 0, 0, 0, (lba >> 8) as u8, lba as u8, 0, 0, blocks, 0];
    assert_eq!(bench.sense(&one, &read(2047, 2), &[], 1024), (5, 0x2100));
    assert_eq!(bench.sense(&one, &read(2049, 0), &[], 0), (5, 0x2100));
    bench.good(&one, &read(2047, 1), &[], 512);
    // Addresses that wrap around.
    let far = [0x88, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2, 0, 0];
    assert_eq!(bench.sense(&one, &far, &[], 1024), (5, 0x2100));
    // Protection is asked for and there is none.
    assert_eq!(bench.sense(&one, &[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512), (5, 0x2400));
}

#[test]
fn compare_and_write_writes_where_it_compared() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let cdb = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0];
    let both = |old: u8, new: u8| [[old; 512], [new; 512]].concat();
    bench.good(&one, &cdb, &both(0, 1), 0);
    let mut other = both(1, 2);
    other[300] = 9;
    let end = bench.run(&one, &cdb, &other, 0);
    assert_eq!(sense(&end), (0xe, 0x1d00));
    // Where the first difference is: VALID, and the offset.
    assert_eq!((end.sense[0], &end.sense[3..7]), (0xf0, &[0, 0, 1, 44][..]));
    assert_eq!(bench.store.state.lock().unwrap().data[2048..2560], [1; 512]);
    assert_eq!(bench.sense(&one, &cdb, &[0; 512], 0), (5, 0x0e03));
}

#[test]
fn an_atomic_command_waits_for_who_is_on_its_blocks() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    let compare = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0];
    // A read has begun and its store is at work.
    let (mut reading, Step::Store(asked)) = bench.units.start(0, &one, command(&read, 0, 4096))
    else {
        panic!("a read asks the store");
    };
    let (mut comparing, Step::Collect { bytes: 1024 }) =
        bench.units.start(0, &two, command(&compare, 1024, 0))
    else {
        panic!("data comes first");
    };
    let Step::Store(look) = bench.units.next(&mut comparing, Input::Data(vec![0; 1024].into()))
    else {
        panic!("a comparison asks the store");
    };
    let covey_iscsi::store::Answer::Later(mut later) = bench.units.ask(&comparing, look) else {
        panic!("the blocks are taken");
    };
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(later.as_mut().poll(&mut context).is_pending());
    let reply = wait(bench.units.ask(&reading, asked));
    assert!(matches!(bench.units.next(&mut reading, Input::Stored(reply)), Step::End(_)));
    assert!(later.as_mut().poll(&mut context).is_ready());
}

/// Nobody knows when the next part comes: as long as it does not, the blocks are everybody's.
#[test]
fn a_large_write_is_made_in_parts_and_keeps_nobody_away_between_them() {
    const PART: u64 = 64 << 10;
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    let write = [0x2a, 0, 0, 0, 0, 4, 0, 1, 0, 0];
    let (mut task, mut step) = bench.units.start(0, &one, command(&write, 2 * PART, 0));
    for (from, fill) in [(0, 7), (PART, 8)] {
        assert_eq!(step, Step::Stream { from, to: 2 * PART, block_bytes: 512 });
        // A comparison has its block alone.
        let compare = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0];
        let old = if from == 0 { 0 } else { 7 };
        bench.good(&two, &compare, &[[old; 512], [old; 512]].concat(), 0);
        let part = vec![fill; PART as usize];
        let Step::Store(request) = bench.units.next(&mut task, Input::Data(part.into())) else {
            panic!("it is written")
        };
        let reply = wait(bench.units.ask(&task, request));
        step = bench.units.next(&mut task, Input::Stored(reply));
    }
    assert!(matches!(step, Step::End(end) if end.status == 0 && end.out_bytes == 2 * PART));
    let state = bench.store.state.lock().unwrap();
    let data = &state.data[2048..][..2 * PART as usize];
    assert!(data[..PART as usize].iter().all(|byte| *byte == 7));
    assert!(data[PART as usize..].iter().all(|byte| *byte == 8));
}

/// What must be on stable storage at its end is not made in parts.
#[test]
fn a_large_write_that_is_to_be_durable_is_collected() {
    let bench = Bench::new();
    let write = [0x2a, 8, 0, 0, 0, 4, 0, 1, 0, 0];
    let (_, step) = bench.units.start(0, &bench.visitor(1), command(&write, 128 << 10, 0));
    assert_eq!(step, Step::Collect { bytes: 128 << 10 });
}

/// A command that timed out is aborted and sent again: what is left of the first one must not come after the second.
#[test]
fn what_an_aborted_command_still_writes_is_waited_for_by_all_others() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    let write = [0x2a, 0, 0, 0, 0, 4, 0, 0, 1, 0];
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    let begin = |nexus| {
        let (mut task, step) = bench.units.start(0, nexus, command(&write, 512, 0));
        assert!(matches!(step, Step::Collect { bytes: 512 }));
        match bench.units.next(&mut task, Input::Data(vec![7; 512].into())) {
            Step::Store(request) => (task, request),
            other => panic!("it is written, not {other:?}"),
        }
    };
    bench.store.state.lock().unwrap().works_on = Some(Vec::new());
    let (first, request) = begin(&one);
    let answer = bench.units.ask(&first, request);
    // As long as its initiator waits for it, it keeps nobody away: the order is theirs.
    bench.good(&two, &read, &[], 4096);
    drop((first, answer));
    let (second, request) = begin(&two);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let covey_iscsi::store::Answer::Later(mut later) = bench.units.ask(&second, request) else {
        panic!("it does not wait")
    };
    assert!(later.as_mut().poll(&mut context).is_pending());
    let working = bench.store.state.lock().unwrap().works_on.take().unwrap();
    assert_eq!(working.len(), 1, "the second has come to the store");
    // Elsewhere nobody waits.
    bench.good(&two, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0], &[1; 512], 0);
    drop(working);
    assert!(later.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_command_that_is_aborted_before_it_has_its_blocks_writes_nothing() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let write = |lba| [0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0];
    let begin = |lba| {
        let (mut task, _) = bench.units.start(0, &one, command(&write(lba), 512, 0));
        match bench.units.next(&mut task, Input::Data(vec![7; 512].into())) {
            Step::Store(request) => (task, request),
            other => panic!("it is written, not {other:?}"),
        }
    };
    bench.store.state.lock().unwrap().works_on = Some(Vec::new());
    let (first, request) = begin(4);
    let answer = bench.units.ask(&first, request);
    drop((first, answer));
    let (second, request) = begin(4);
    let covey_iscsi::store::Answer::Later(mut later) = bench.units.ask(&second, request) else {
        panic!("it does not wait")
    };
    drop(second);
    bench.store.state.lock().unwrap().works_on = None;
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(later.as_mut().poll(&mut context).is_ready());
    assert_eq!(bench.store.log(), [""; 0]);
}

#[test]
fn or_write_sets_bits() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let cdb = [0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    bench.good(&one, &cdb, &[0x0f; 512], 0);
    bench.good(&one, &cdb, &[0xa0; 512], 0);
    assert_eq!(bench.store.state.lock().unwrap().data[..512], [0xaf; 512]);
}

#[test]
fn durability_is_what_was_asked_for() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let write = |flags: u8| [0x2a, flags, 0, 0, 0, 0, 0, 0, 1, 0];
    bench.good(&one, &write(0), &[1; 512], 0);
    bench.good(&one, &write(0x08), &[1; 512], 0);
    bench.good(&one, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0);
    assert_eq!(bench.store.log(), ["write", "write fua", "flush"]);
    // The write cache is turned off: page 8 without WCE.
    let mut page = vec![0, 0, 0, 0, 0x08, 18];
    page.resize(24, 0);
    bench.good(&one, &[0x15, 0x10, 0, 0, 24, 0], &page, 0);
    bench.good(&one, &write(0), &[1; 512], 0);
    bench.good(&one, &[0x0a, 0, 0, 0, 1, 0], &[1; 512], 0);
    assert_eq!(bench.store.log(), ["flush", "write fua", "write fua"]);
}

#[test]
fn unmapped_blocks_read_as_zeros_and_are_told_apart() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 32, 0];
    bench.good(&one, &write, &[7; 32 * 512], 0);
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend([0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0]);
    bench.good(&one, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list, 0);
    let status = [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 56, 0, 0];
    let data = bench.good(&one, &status, &[], 56);
    assert_eq!(data[..8], [0, 0, 0, 52, 0, 0, 0, 0]);
    assert_eq!(data[8..24], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0]);
    assert_eq!(data[24..40], [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 1, 0, 0, 0]);
    let read = [0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0];
    assert_eq!(bench.good(&one, &read, &[], 512)[..], [0; 512]);
}

#[test]
fn a_read_only_unit_is_not_written() {
    let bench = Bench::with(Config { read_only: true, ..config() }, 1 << 20);
    let one = bench.visitor(1);
    assert_eq!(bench.sense(&one, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512], 0), (7, 0x2701));
    let mode = bench.good(&one, &[0x1a, 0, 0x3f, 0, 255, 0], &[], 255);
    assert_eq!(mode[2], 0x90);
}

#[test]
fn a_store_that_fails_is_told_with_its_reason() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    for (failure, expected) in [
        (Failure::Read, (3, 0x1100)),
        (Failure::Write, (3, 0x0c00)),
        (Failure::Full, (7, 0x2707)),
        (Failure::Unreachable, (4, 0x0800)),
    ] {
        bench.store.fail_next(failure);
        assert_eq!(bench.sense(&one, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512), expected);
    }
}

#[test]
fn a_change_of_size_is_told_to_everybody() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    bench.store.grow(2 << 20);
    assert_eq!(bench.sense(&one, &[0; 6], &[], 0), (6, 0x2a09));
    bench.good(&one, &[0; 6], &[], 0);
    assert_eq!(bench.sense(&two, &[0; 6], &[], 0), (6, 0x2a09));
    let size = bench.good(&two, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 8);
    assert_eq!(size[..4], [0, 0, 0x0f, 0xff]);
}

#[test]
fn a_reset_undoes_what_sessions_set_and_is_told_to_everybody() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    bench.good(&one, &[0x16, 0, 0, 0, 0, 0], &[], 0);
    assert_eq!(bench.run(&two, &[0; 6], &[], 0).status, 0x18);
    bench.units.manage(0, &two, Function::LogicalUnitReset);
    for nexus in [&one, &two] {
        assert_eq!(bench.sense(nexus, &[0; 6], &[], 0), (6, 0x2903));
        bench.good(nexus, &[0; 6], &[], 0);
    }
}

#[test]
fn a_reservation_ends_with_its_nexus() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    bench.good(&one, &[0x16, 0, 0, 0, 0, 0], &[], 0);
    // To release what one does not hold does nothing, and is no error.
    bench.good(&two, &[0x17, 0, 0, 0, 0, 0], &[], 0);
    assert_eq!(bench.run(&two, &[0x16, 0, 0, 0, 0, 0], &[], 0).status, 0x18);
    bench.units.lost(&one);
    bench.good(&two, &[0x16, 0, 0, 0, 0, 0], &[], 0);
}

#[test]
fn a_medium_is_not_ejected_while_somebody_forbids_it() {
    let bench = Bench::with(Config { removable: true, ..config() }, 1 << 20);
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    let (eject, load) = ([0x1b, 0, 0, 0, 2, 0], [0x1b, 0, 0, 0, 3, 0]);
    bench.good(&one, &[0x1e, 0, 0, 0, 1, 0], &[], 0);
    assert_eq!(bench.sense(&two, &eject, &[], 0), (5, 0x5302));
    bench.units.lost(&one);
    bench.good(&two, &eject, &[], 0);
    assert_eq!(bench.sense(&two, &[0; 6], &[], 0), (2, 0x3a00));
    bench.good(&two, &load, &[], 0);
    bench.good(&two, &[0; 6], &[], 0);
}

#[test]
fn a_copy_may_overlap_itself() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let data: Vec<u8> = (0..8 * 512u32).map(|index| (index / 512) as u8 + 1).collect();
    bench.good(&one, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0], &data, 0);
    let identity = bench.good(&one, &[0x12, 1, 0x83, 1, 0, 0], &[], 256);
    // The NAA designator of the unit stands behind the vendor's.
    let at = 4 + 4 + usize::from(identity[7]);
    let mut list = vec![5, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    let mut target = vec![0xe4, 0, 0, 0];
    target.extend(&identity[at..at + 12]);
    target.resize(28, 0);
    target.extend([0, 0, 2, 0]);
    list.extend(target);
    let mut segment = vec![2, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 8];
    segment.extend([0, 0, 0, 0, 0, 0, 0, 0]);
    segment.extend([0, 0, 0, 0, 0, 0, 0, 4]);
    list.extend(segment);
    let length = list.len() as u8;
    let cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, length, 0, 0];
    bench.good(&one, &cdb, &list, 0);
    assert_eq!(bench.store.state.lock().unwrap().data[4 * 512..12 * 512], data);
    let results = [0x84, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0];
    let status = bench.good(&one, &results, &[], 12);
    assert_eq!(status[..], [0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 16, 0]);
    assert_eq!(bench.sense(&one, &results, &[], 12), (5, 0x2400));
}

#[test]
fn while_a_unit_is_sanitized_it_does_nothing_else() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    bench.good(&one, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[9; 512], 0);
    let (mut task, Step::Store(flush)) =
        bench.units.start(0, &one, command(&[0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0], 0, 0))
    else {
        panic!("everything is settled first");
    };
    assert_eq!(bench.sense(&two, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512), (2, 0x041b));
    bench.good(&two, &[0x12, 0, 0, 0, 36, 0], &[], 36);
    let reply = wait(bench.units.ask(&task, flush));
    let Step::Store(save) = bench.units.next(&mut task, Input::Stored(reply)) else {
        panic!("that it has begun is saved");
    };
    let reply = wait(bench.units.ask(&task, save));
    let Step::Store(erase) = bench.units.next(&mut task, Input::Stored(reply)) else {
        panic!("then it is erased");
    };
    let reply = wait(bench.units.ask(&task, erase));
    let Step::Store(flush) = bench.units.next(&mut task, Input::Stored(reply)) else {
        panic!("what was erased is to stay so");
    };
    assert_eq!(flush, Request::Flush);
    assert_eq!(bench.sense(&two, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512), (2, 0x041b));
    let reply = wait(bench.units.ask(&task, flush));
    assert!(matches!(bench.units.next(&mut task, Input::Stored(reply)), Step::End(_)));
    drop(task);
    assert_eq!(bench.store.log(), ["write", "flush", "save", "discard", "flush", "save"]);
    assert_eq!(bench.good(&two, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512)[..], [0; 512]);
    assert_eq!(bench.store.saved(), "");
}

/// With IMMED nobody waits for it; it is over when what was erased is on stable storage, and not before.
#[test]
fn a_sanitize_that_nobody_waits_for_ends_on_stable_storage() {
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    for fails in [false, true] {
        let bench = Bench::new();
        let one = bench.visitor(1);
        bench.store.state.lock().unwrap().works_on = Some(Vec::new());
        bench.good(&one, &[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0);
        assert_eq!(bench.store.log(), ["flush", "save"]);
        assert_eq!(bench.sense(&one, &read, &[], 512), (2, 0x041b));
        if fails {
            bench.store.fail_next(Failure::Write);
        }
        let erased = bench.store.state.lock().unwrap().works_on.take();
        drop(erased);
        if fails {
            assert!(bench.store.log().is_empty());
            assert_eq!(bench.sense(&one, &read, &[], 512), (3, 0x3103));
            let bench = bench.restart();
            assert_eq!(bench.sense(&nexus(1), &[0; 6], &[], 0), (6, 0x2900));
            assert_eq!(bench.sense(&nexus(1), &read, &[], 512), (3, 0x3103));
        } else {
            assert_eq!(bench.store.log(), ["flush", "save"]);
            bench.good(&one, &read, &[], 512);
            assert_eq!(bench.store.saved(), "");
        }
    }
}

/// It is answered, and not with GOOD.
#[test]
fn a_sanitize_that_does_not_reach_stable_storage_has_failed() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let cdb = [0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0];
    let (mut task, mut step) = bench.units.start(0, &one, command(&cdb, 0, 0));
    let mut has_erased = false;
    let completion = loop {
        let request = match step {
            Step::Store(request) => request,
            Step::End(completion) => break completion,
            other => panic!("{other:?}"),
        };
        if has_erased {
            bench.store.fail_next(Failure::Write);
        }
        has_erased |= matches!(request, Request::Discard { .. });
        let reply = wait(bench.units.ask(&task, request));
        step = bench.units.next(&mut task, Input::Stored(reply));
    };
    drop(task);
    assert_eq!((completion.status, sense(&completion)), (2, (3, 0x0c00)));
    let bench = bench.restart();
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(bench.sense(&nexus(1), &[0; 6], &[], 0), (6, 0x2900));
    assert_eq!(bench.sense(&nexus(1), &read, &[], 512), (3, 0x3103));
}

/// Whoever had data destroyed must not be told that it is well when the process ended on the way.
#[test]
fn a_sanitize_that_was_cut_off_has_failed() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    bench.store.state.lock().unwrap().works_on = Some(Vec::new());
    bench.good(&one, &[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0);
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let mut bench = bench;
    for _ in 0..2 {
        bench = bench.restart();
        // The first command is told that the unit began.
        assert_eq!(bench.sense(&nexus(1), &[0; 6], &[], 0), (6, 0x2900));
        assert_eq!(bench.sense(&nexus(1), &read, &[], 512), (3, 0x3103));
    }
    // EXIT FAILURE MODE.
    bench.good(&one, &[0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0);
    let bench = bench.restart();
    bench.good(&bench.visitor(1), &read, &[], 512);
}

#[test]
fn a_registration_that_cannot_be_saved_is_none() {
    // Without APTPL, too: the store knows whether the unit is another node's by now.
    for persists in [0, 1] {
        let bench = Bench::new();
        let one = bench.visitor(1);
        // REGISTER with a key.
        let (cdb, mut list) = ([0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], [0; 24]);
        (list[15], list[20]) = (7, persists);
        bench.store.fail_next(Failure::Full);
        assert_eq!(bench.run(&one, &cdb, &list, 0).status, 2);
        assert_eq!(bench.good(&one, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[], 64)[4..8], [0; 4]);
        bench.good(&one, &cdb, &list, 0);
        assert_eq!(bench.good(&one, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[], 64)[7], 8);
        assert_eq!(bench.store.saved().is_empty(), persists == 0);
    }
}

#[test]
fn a_unit_that_is_not_there_says_so() {
    let bench = Bench::new();
    let lun = 5 << 48;
    let run =
        |cdb: &[u8], data_in| match bench.units.start(lun, &nexus(1), command(cdb, 0, data_in)) {
            (_, Step::End(completion)) => completion,
            _ => panic!("nothing is asked where there is nothing"),
        };
    assert_eq!(run(&[0x12, 0, 0, 0, 36, 0], 36).data_in.into_bytes()[0], 0x7f);
    assert_eq!(sense(&run(&[0; 6], 0)), (5, 0x2500));
    let luns = run(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], 16).data_in.into_bytes();
    assert_eq!(luns[..], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn one_command_is_reported_as_the_list_has_it() {
    let bench = Bench::new();
    let one = bench.visitor(1);
    let all = bench.good(&one, &[0xa3, 0x0c, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &[], 65536);
    for known in all[4..].chunks(8) {
        let option = if known[5] & 1 == 1 { 2 } else { 1 };
        let cdb = [0xa3, 0x0c, option, known[0], known[2], known[3], 0, 0, 1, 0, 0, 0];
        let one = bench.good(&one, &cdb, &[], 256);
        assert_eq!((one[1], &one[2..4], one[4]), (3, &known[6..8], known[0]));
    }
    let unknown = bench.good(&one, &[0xa3, 0x0c, 1, 0xff, 0, 0, 0, 0, 1, 0, 0, 0], &[], 256);
    assert_eq!(unknown[1], 1);
}

/// Data that is still on its way from the file must not be half before and half after an atomic command: that one waits until
/// the initiator has the data, and from then on nothing is lent any more.
#[test]
fn an_atomic_command_waits_for_data_that_was_lent() {
    let bench = Bench::new();
    let (one, two) = (bench.visitor(1), bench.visitor(2));
    bench.store.state.lock().unwrap().lends = true;
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 64, 0];
    let lent = bench.run(&one, &read, &[], 64 * 512);
    assert!(!lent.lent.is_empty() && lent.data_in.is_in_files());
    // Who writes is not kept waiting: only atomic commands promise anything about reads at the same time.
    bench.good(&two, &[0x2a, 0, 0, 0, 0, 3, 0, 0, 1, 0], &[7; 512], 0);
    let swap = command(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1], 1024, 0);
    let (mut swapping, step) = bench.units.start(0, &two, swap);
    assert!(matches!(step, Step::Collect { bytes: 1024 }));
    let both = [[7; 512], [9; 512]].concat();
    let Step::Store(look) = bench.units.next(&mut swapping, Input::Data(both.into())) else {
        panic!("it compares first")
    };
    let covey_iscsi::store::Answer::Later(mut later) = bench.units.ask(&swapping, look) else {
        panic!("it does not wait")
    };
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(later.as_mut().poll(&mut context).is_pending());
    drop(lent);
    assert!(later.as_mut().poll(&mut context).is_ready());
    drop((later, swapping));
    let copied = bench.run(&one, &read, &[], 64 * 512);
    assert!(copied.lent.is_empty() && !copied.data_in.is_in_files());
}
