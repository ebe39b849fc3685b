//! The world itself, before anybody lives in it.

use super::net::{Quality, Socket, connect, listen};
use super::*;
use crate::disk::{Disk, Flush, Open};
use crate::task;
use bytes::Bytes;
use std::io::IoSlice;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MINUTE: Duration = Duration::from_secs(60);

/// Sends `bytes` from one machine to another that sends them back; the trace's hash and the time.
fn echo(seed: u64) -> (u64, Duration) {
    let sim = Sim::new(seed, false);
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.boot(server, async {
        let listener = listen();
        loop {
            let mut stream = listener.accept().await;
            task::spawn(async move {
                let mut buffer = vec![0; 5000];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    stream.write_all(&buffer[..count]).await.unwrap();
                }
            });
        }
    });
    let (sender, answer) = tokio::sync::oneshot::channel();
    sim.boot(client, async move {
        let mut stream = connect("server").await.unwrap();
        let sent: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        let mut back = vec![0; sent.len()];
        let (mut reader, mut writer) = tokio::io::split(&mut stream);
        let (written, read) =
            futures_util::join!(writer.write_all(&sent), reader.read_exact(&mut back));
        written.unwrap();
        read.unwrap();
        assert!(back == sent);
        sender.send(()).unwrap();
    });
    sim.run(MINUTE, answer).unwrap().unwrap();
    (sim.trace_hash(), sim.elapsed())
}

#[test]
fn a_seed_is_repeated_exactly_and_seeds_differ() {
    assert_eq!(echo(1), echo(1));
    assert_ne!(echo(1), echo(2));
}

#[test]
fn a_blocked_way_delays_and_a_dead_machine_refuses() {
    let sim = Sim::new(3, false);
    let (server, client) = (sim.node("server"), sim.node("client"));
    let serve = || async {
        let listener = listen();
        let mut stream = listener.accept().await;
        stream.write_all(b"late").await.unwrap();
        task::sleep(MINUTE).await;
    };
    sim.boot(server, serve());
    sim.block(server, client);
    sim.boot(client, async {});
    let read = async {
        let mut stream = connect("server").await.unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"late");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.map(drop).ok();
        connect("server").await.unwrap_err().kind()
    };
    let (sender, answer) = tokio::sync::oneshot::channel();
    sim.spawn(client, async move {
        let _ = sender.send(read.await);
    });
    sim.run(Duration::from_secs(5), task::sleep(Duration::from_secs(4))).unwrap();
    sim.unblock_all();
    sim.run(MINUTE, task::sleep(Duration::from_secs(4))).unwrap();
    sim.kill(server);
    let kind = sim.run(MINUTE, answer).unwrap().unwrap();
    assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn who_waits_for_nobody_is_found() {
    let sim = Sim::new(4, false);
    let hang = sim.run(MINUTE, std::future::pending::<()>()).unwrap_err();
    assert!(hang.is_deadlock);
    let forever = async {
        loop {
            task::sleep(Duration::from_secs(1)).await;
        }
    };
    assert!(!sim.run::<()>(MINUTE, forever).unwrap_err().is_deadlock);
}

#[test]
fn a_stopped_process_goes_on_where_it_was() {
    let sim = Sim::new(5, false);
    let node = sim.node("one");
    let (sender, mut ticks) = tokio::sync::mpsc::unbounded_channel();
    sim.boot(node, async move {
        loop {
            task::sleep(Duration::from_secs(1)).await;
            let _ = sender.send(());
        }
    });
    let mut count = |seconds| {
        sim.run(MINUTE, task::sleep(Duration::from_secs(seconds))).unwrap();
        std::iter::from_fn(|| ticks.try_recv().ok()).count()
    };
    assert_eq!(count(5), 4);
    sim.stop(node);
    assert_eq!(count(5), 0);
    sim.cont(node);
    assert!((4..=6).contains(&count(5)));
}

#[test]
fn datagrams_get_lost_doubled_and_out_of_order() {
    let sim = Sim::new(6, false);
    sim.set_network(Quality { lost_permille: 100, doubled_permille: 100, ..Quality::default() });
    sim.node("other");
    let sent = 0..200u32;
    let got = sim
        .run(MINUTE, async move {
            let (from, to) = (Socket::bind(1).unwrap(), Socket::bind(2).unwrap());
            sent.for_each(|n| from.send_to(("world", 2), Bytes::from(n.to_le_bytes().to_vec())));
            let mut got = Vec::new();
            while let Some(one) = task::timeout(Duration::from_secs(1), to.receive()).await {
                got.push(one.bytes);
            }
            got
        })
        .unwrap();
    let mut sorted = got.clone();
    sorted.sort();
    assert_ne!(got, sorted);
    sorted.dedup();
    assert!(sorted.len() < 200 && sorted.len() > 150);
    assert!(got.len() > sorted.len());
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(DiskProfile::default(), Rng::new(seed));
    disk.make_dir(Path::new("/d")).unwrap();
    disk
}

#[test]
fn power_loss_spares_what_was_synced_and_any_of_the_rest() {
    let _sim = Sim::new(7, false);
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let disk = disk(seed);
        let path = Path::new("/d/file");
        let file = disk.open(path, Open::Create).unwrap();
        file.write_all_blocking(0, &[IoSlice::new(&[1; 10_000])]).unwrap();
        file.sync_blocking(Flush::All).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_all_blocking(5_000, &[IoSlice::new(&[2; 10_000])]).unwrap();
        drop(disk.open(Path::new("/d/other"), Open::Create).unwrap());
        disk.lose_power();
        let content = disk.open(path, Open::Existing).unwrap().read_blocking(0, 20_000).unwrap();
        assert!(content[..5_000].iter().all(|&byte| byte == 1));
        assert!(content.len() >= 10_000);
        match content.iter().filter(|&&byte| byte == 2).count() {
            0 => lost += 1,
            10_000 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 10 && kept > 10 && torn > 10, "{lost} {kept} {torn}");
}

#[test]
fn a_failed_sync_drops_the_pages_and_is_reported_once_by_each_open_file() {
    let path = Path::new("/d/file");
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let disk = disk(seed);
        let open = || disk.open(path, Open::Create).unwrap();
        let (one, two) = (open(), open());
        disk.sync_dir(Path::new("/d")).unwrap();
        one.write_all_blocking(0, &[IoSlice::new(&[1; 4096])]).unwrap();
        one.sync_blocking(Flush::Data).unwrap();
        one.write_all_blocking(4096, &[IoSlice::new(&[2; 4096])]).unwrap();
        disk.fail_syncs(1);
        assert_eq!(one.sync_blocking(Flush::Data).unwrap_err().raw_os_error(), Some(libc::EIO));
        one.sync_blocking(Flush::Data).expect("nothing is dirty any more");
        two.sync_blocking(Flush::Data).expect_err("it was open and has not heard of it");
        two.sync_blocking(Flush::Data).expect("it has");
        open().sync_blocking(Flush::Data).expect("it came after the report");
        let cached = one.read_blocking(0, 9000).unwrap();
        assert!(cached.len() == 8192 && cached[..4096] == [1; 4096]);
        seen.insert(("cached", cached[4096..] == [2; 4096]));
        disk.lose_power();
        let left = open().read_blocking(0, 9000).unwrap();
        assert!(left[..4096] == [1; 4096], "what was synced before is there");
        seen.insert(("on disk", left[4096..] == [2; 4096]));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn a_failure_of_the_systems_own_writing_is_reported_to_who_opens_later() {
    let path = Path::new("/d/file");
    let disk = disk(1);
    let write = |bytes: &[u8]| {
        let file = disk.open(path, Open::Create).unwrap();
        file.write_all_blocking(0, &[IoSlice::new(bytes)]).unwrap();
    };
    write(&[1; 100]);
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.fail_write_back();
    let later = disk.open(path, Open::Existing).unwrap();
    later.sync_blocking(Flush::Data).expect_err("nobody has reported it yet");
    later.sync_blocking(Flush::Data).unwrap();
    write(&[2; 100]);
    later.sync_blocking(Flush::Data).unwrap();
    disk.lose_power();
    let left = disk.open(path, Open::Existing).unwrap().read_blocking(0, 100).unwrap();
    assert_eq!(left[..], [2; 100], "what is written anew is synced as ever");
}

#[test]
fn a_map_whose_checkpoint_fails_is_back_at_the_last_one() {
    let disk = disk(1);
    let mut map = disk.map(Path::new("/d"));
    map.put(b"a", b"old").unwrap();
    map.checkpoint().unwrap();
    map.put(b"a", b"new").unwrap();
    disk.fail_syncs(1);
    map.checkpoint().unwrap_err();
    assert_eq!(map.value(b"a"), Some(&b"old"[..]));
    map.put(b"a", b"newer").unwrap();
    map.checkpoint().unwrap();
    assert_eq!(disk.map(Path::new("/d")).value(b"a"), Some(&b"newer"[..]));
}

#[test]
fn a_full_map_takes_what_fits_and_lends_from_the_disk() {
    let disk = disk(1);
    disk.set_capacity(100_000);
    let path = Path::new("/d");
    let mut map = disk.map(path);
    assert_eq!((map.space().held, disk.used()), (5000, 5000), "a twentieth is kept ahead");
    disk.limit_map(path, Some(10_000));
    let fill = (0u32..).map(|n| map.put(&n.to_le_bytes(), &[0; 964]));
    let fits = fill.take_while(Result::is_ok).count();
    assert!((15..=20).contains(&fits), "{fits} rows of 1000 bytes fit into twice the limit");
    map.checkpoint().unwrap();
    assert!(disk.used() >= fits as u64 * 1000);
    // What was just written cannot be written beside itself; after a checkpoint it can be replaced.
    map.delete(&1u32.to_le_bytes()).expect_err("all is used or not free yet");
    map.checkpoint().unwrap();
    disk.limit_map(path, None);
    disk.set_capacity(disk.used());
    map.put(b"more", &[0; 50_000]).expect("the map does not know");
    assert_eq!(map.checkpoint().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(map.value(b"more"), None);
}

#[test]
fn names_survive_in_the_order_they_were_made() {
    let _sim = Sim::new(8, false);
    let mut counts = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let disk = disk(seed);
        for n in 0..10 {
            let path = format!("/d/{n}");
            drop(disk.open(Path::new(&path), Open::Create).unwrap());
            if n == 3 {
                disk.sync_dir(Path::new("/d")).unwrap();
            }
        }
        disk.lose_power();
        let mut names = disk.list(Path::new("/d")).unwrap();
        names.sort();
        assert!(names.iter().enumerate().all(|(n, name)| *name == *n.to_string()));
        assert!(names.len() >= 4);
        counts.insert(names.len());
    }
    assert_eq!(counts.len(), 7, "everything between 4 and 10 happens");
}

#[test]
fn a_crash_point_ends_the_process_in_the_middle_of_its_operation() {
    let sim = Sim::new(9, false);
    let node = sim.node("one");
    let disk = disk(1);
    disk.set_crash_point(Some(3));
    let writer = disk.clone();
    sim.boot(node, async move {
        let file = writer.open(Path::new("/d/file"), Open::Create).unwrap();
        for n in 0..100 {
            task::sleep(Duration::from_millis(1)).await;
            file.write_all_blocking(n * 9000, &[IoSlice::new(&[7; 9000])]).unwrap();
        }
    });
    sim.run(MINUTE, task::sleep(Duration::from_secs(1))).unwrap();
    assert!(!sim.is_up(node));
    let bytes = disk.stat(Path::new("/d/file")).unwrap().bytes;
    assert!((18_000..=27_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_full_disk_takes_what_fits() {
    let _sim = Sim::new(10, false);
    let disk = disk(1);
    disk.set_capacity(10_000);
    let file = disk.open(Path::new("/d/file"), Open::Create).unwrap();
    assert_eq!(file.write_all_blocking(0, &[IoSlice::new(&[1; 20_000])]).unwrap(), 10_000);
    let error = file.write_all_blocking(10_000, &[IoSlice::new(&[1])]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(file.write_all_blocking(5_000, &[IoSlice::new(&[2; 5_000])]).unwrap(), 5_000);
    file.set_length(100).unwrap();
    assert_eq!(disk.used(), 100);
}

#[test]
fn a_punched_range_reads_as_zeros_and_goes_with_what_was_done_before_it() {
    let path = Path::new("/d/x");
    let (mut whole, mut punched) = (0, 0);
    for seed in 0..100 {
        let disk = disk(seed);
        let file = disk.open(path, Open::Create).unwrap();
        file.write_all_blocking(0, &[IoSlice::new(&[1; 20_000])]).unwrap();
        file.sync_blocking(Flush::All).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.punch(5000, 10_000).unwrap();
        let read = file.read_blocking(0, 30_000).unwrap();
        assert!(read[..5000].iter().chain(&read[15_000..]).all(|&byte| byte == 1));
        assert!(read[5000..15_000].iter().all(|&byte| byte == 0));
        assert_eq!(read.len(), 20_000);
        assert_eq!(file.extent(0).unwrap(), Some((0, 8192)));
        assert_eq!(file.extent(8192).unwrap(), Some((12_288, 20_000)));
        assert_eq!(file.extent(20_000).unwrap(), None);
        disk.lose_power();
        let read = disk.open(path, Open::Existing).unwrap().read_blocking(0, 30_000).unwrap();
        // Whole pages go together; the ends of the range are data like any other.
        let pages = &read[8192..12_288];
        match pages[0] {
            0 => punched += 1,
            _ => whole += 1,
        }
        assert!(pages.iter().all(|byte| *byte == pages[0]));
        assert!(read[..5000].iter().chain(&read[15_000..]).all(|&byte| byte == 1));
    }
    assert!(whole > 10 && punched > 10, "{whole} {punched}");
}

#[test]
fn allocated_space_makes_a_file_longer_where_there_is_room() {
    let disk = disk(1);
    let file = disk.open(Path::new("/d/x"), Open::Create).unwrap();
    file.allocate(100, 5000).unwrap();
    assert_eq!((file.stat().unwrap().bytes, disk.used()), (5100, 5100));
    file.allocate(0, 10).unwrap();
    assert_eq!((file.stat().unwrap().bytes, disk.used()), (5100, 5100));
    disk.set_capacity(6000);
    assert!(file.allocate(5000, 5000).is_err());
    assert_eq!(file.stat().unwrap().bytes, 5100);
}

#[test]
fn a_port_sends_and_receives_no_faster_than_its_rate() {
    let sim = Sim::new(9, false);
    sim.set_network(Quality::switch(1_000_000));
    let server = sim.node("server");
    sim.boot(server, async {
        let listener = listen();
        loop {
            let mut stream = listener.accept().await;
            drop(task::spawn(async move { stream.write_all(&[7; 1_000_000]).await }));
        }
    });
    let ends: Vec<_> = ["one", "two", "three"]
        .map(|name| sim.node(name))
        .into_iter()
        .map(|node| {
            let (sender, end) = tokio::sync::oneshot::channel();
            sim.boot(node, async move {
                let mut stream = connect("server").await.unwrap();
                stream.read_exact(&mut vec![0; 1_000_000]).await.unwrap();
                let _ = sender.send(());
            });
            end
        })
        .collect();
    for end in ends {
        sim.run(MINUTE, end).unwrap().unwrap();
    }
    let seconds = sim.elapsed().as_secs_f64();
    assert!((3.0..3.1).contains(&seconds), "{seconds}");
    assert_eq!(sim.bytes_sent(server), 3_000_000);
}
