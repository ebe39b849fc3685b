//! Two FUSE mounts that remember under leases: nobody sees an old state after somebody has changed it.

use crate::support::two_mounts;
use rustix::fs::fstat;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Barrier;

fn is_there(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

#[test]
fn a_directory_moved_on_one_mount_is_elsewhere_on_the_other_at_once() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    fs::create_dir_all(one.join("a/b/c")).unwrap();
    fs::write(one.join("a/b/c/file"), "x").unwrap();
    for round in 0..20 {
        let (from, to) = if round % 2 == 0 { ("a/b", "a/z") } else { ("a/z", "a/b") };
        let (mover, looker) = if round % 4 < 2 { (&one, &two) } else { (&two, &one) };
        // The looker's kernel knows the way from here on.
        assert_eq!(fs::read_to_string(looker.join(from).join("c/file")).unwrap(), "x");
        assert!(is_there(&looker.join(from).join("c")));
        fs::rename(mover.join(from), mover.join(to)).unwrap();
        assert!(!is_there(&looker.join(from).join("c/file")), "round {round}");
        assert!(!is_there(&looker.join(from)), "round {round}");
        assert_eq!(fs::read_to_string(looker.join(to).join("c/file")).unwrap(), "x");
    }
}

#[test]
fn a_name_made_or_removed_on_one_mount_is_so_on_the_other_at_once() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    fs::create_dir(one.join("d")).unwrap();
    for round in 0..60 {
        let (maker, looker) = if round % 3 < 2 { (&one, &two) } else { (&two, &one) };
        let name = format!("d/f{}", round % 4);
        // Both its being there and its not being there may be remembered.
        assert!(!is_there(&looker.join(&name)));
        assert!(!is_there(&maker.join(&name)));
        fs::write(maker.join(&name), "x").unwrap();
        assert!(is_there(&looker.join(&name)), "round {round}");
        fs::remove_file(looker.join(&name)).unwrap();
        assert!(!is_there(&maker.join(&name)), "round {round}");
    }
}

#[test]
fn attributes_of_an_open_file_changed_on_one_mount_are_seen_on_the_other_at_once() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    fs::write(one.join("f"), "x").unwrap();
    let here = File::options().read(true).write(true).open(one.join("f")).unwrap();
    let there = File::options().read(true).write(true).open(two.join("f")).unwrap();
    for round in 1..40_u64 {
        let (changer, looker) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        looker.metadata().unwrap();
        match round % 3 {
            0 => changer.set_len(round * 100).unwrap(),
            1 => changer.set_permissions(PermissionsExt::from_mode(0o600 + round as u32)).unwrap(),
            _ => fs::hard_link(one.join("f"), one.join(format!("link{round}"))).unwrap(),
        }
        let (seen, is) = (looker.metadata().unwrap(), changer.metadata().unwrap());
        assert_eq!(
            (seen.len(), seen.mode(), seen.nlink(), seen.ctime_nsec()),
            (is.len(), is.mode(), is.nlink(), is.ctime_nsec()),
            "round {round}"
        );
    }
}

#[test]
fn mounts_that_make_and_move_in_one_directory_at_once_do_not_wait_for_one_another_for_ever() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    const WORKERS: usize = 4;
    const ROUNDS: usize = 25;
    fs::create_dir(one.join("d")).unwrap();
    let start = Barrier::new(WORKERS);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let dir = if worker % 2 == 0 { &one } else { &two }.join("d");
            let start = &start;
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    let name = |what: &str| dir.join(format!("{what}{worker}-{round}"));
                    fs::write(name("file"), "x").unwrap();
                    fs::create_dir(name("dir")).unwrap();
                    fs::write(name("dir").join("inner"), "x").unwrap();
                    fs::rename(name("dir"), name("moved")).unwrap();
                    assert!(is_there(&name("moved").join("inner")));
                    fs::remove_file(name("file")).unwrap();
                }
            });
        }
    });
    for mount in [&one, &two] {
        let count = fs::read_dir(mount.join("d")).unwrap().count();
        assert_eq!(count, WORKERS * ROUNDS, "{}", mount.display());
    }
}

/// How many LOOKUPs this user has sent to a mount.
fn lookups(mount: &Path) -> u64 {
    let mut value = vec![0; 65536];
    let length = rustix::fs::getxattr(mount, "user.covey.stats", &mut value[..]).unwrap();
    let text = String::from_utf8(value[..length].to_vec()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("op lookup count "));
    line.map_or(0, |rest| rest.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn a_walk_asks_for_the_directory_and_not_for_each_file() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    const FILES: u64 = 100;
    fs::create_dir(one.join("d")).unwrap();
    for at in 0..FILES {
        fs::write(one.join(format!("d/f{at}")), vec![0; at as usize]).unwrap();
    }
    let walk = || {
        let before = lookups(&two);
        let listed = fs::read_dir(two.join("d")).unwrap();
        let sizes: u64 = listed.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(sizes, FILES * (FILES - 1) / 2);
        lookups(&two) - before
    };
    // One walk may be held up for longer than the kernel remembers.
    let asked: Vec<u64> = (0..10).map(|_| walk()).collect();
    assert!(asked.iter().any(|&asked| asked < FILES / 10), "{asked:?}");
}

#[test]
fn what_a_walk_has_told_the_kernel_is_forgotten_before_it_changes_elsewhere() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    let names = ["removed/f", "made/f", "written/f", "guarded/f", "half-listed/f"];
    for name in names {
        fs::create_dir(one.join(name).parent().unwrap()).unwrap();
        if name != "made/f" {
            fs::write(one.join(name), "x").unwrap();
        }
    }
    let start = Barrier::new(names.len());
    let change = |name: &str, change: &dyn Fn(&Path)| {
        let there = two.join(name);
        for entry in fs::read_dir(there.parent().unwrap()).unwrap() {
            entry.unwrap().metadata().unwrap();
        }
        assert_eq!(is_there(&there), name != "made/f");
        start.wait();
        change(&one.join(name));
        there
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let there = change(names[0], &|here| fs::remove_file(here).unwrap());
            assert!(!is_there(&there));
        });
        scope.spawn(|| {
            let there = change(names[1], &|here| fs::write(here, "x").unwrap());
            assert!(is_there(&there));
        });
        scope.spawn(|| {
            let there = change(names[2], &|here| fs::write(here, "longer").unwrap());
            assert_eq!(fs::metadata(there).unwrap().len(), 6);
        });
        scope.spawn(|| {
            let guard = |here: &Path| {
                fs::set_permissions(here, PermissionsExt::from_mode(0o600)).unwrap();
            };
            let there = change(names[3], &guard);
            assert_eq!(fs::metadata(there).unwrap().mode() & 0o7777, 0o600);
        });
        scope.spawn(|| {
            // Nothing more is asked of the listing, and it stays open.
            let mut listing = fs::read_dir(two.join("half-listed")).unwrap();
            assert!(listing.next().is_some());
            assert!(is_there(&two.join(names[4])));
            start.wait();
            fs::remove_file(one.join(names[4])).unwrap();
            assert!(!is_there(&two.join(names[4])));
            drop(listing);
        });
    });
}

#[test]
fn a_file_opened_from_memory_outlives_its_name() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    for round in 0..10 {
        let name = format!("f{round}");
        fs::write(one.join(&name), "still here").unwrap();
        // Looked at first, so that the open need not ask.
        fs::metadata(two.join(&name)).unwrap();
        let open = File::open(two.join(&name)).unwrap();
        fs::remove_file(one.join(&name)).unwrap();
        assert_eq!(io::read_to_string(open).unwrap(), "still here", "round {round}");
    }
}

#[test]
fn what_is_done_to_a_new_file_is_seen_on_the_other_mount_before_it_is_closed() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    for round in 0..40_usize {
        let (maker, looker) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let (name, bytes) = (format!("new{round}"), vec![round as u8; 100 + 300 * round]);
        let mut file = File::create_new(maker.join(&name)).unwrap();
        io::Write::write_all(&mut file, &bytes).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o601)).unwrap();
        let there = looker.join(&name);
        match round % 4 {
            0 | 1 => assert_eq!(fs::metadata(&there).unwrap().len(), bytes.len() as u64),
            _ => assert!(fs::read(&there).unwrap() == bytes, "round {round}"),
        }
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, 0o601);
        // Here it is so, too, and goes on so.
        io::Write::write_all(&mut file, b"more").unwrap();
        assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64 + 4);
        assert_eq!(fs::metadata(&there).unwrap().len(), bytes.len() as u64 + 4);
    }
}

#[test]
fn what_was_closed_outlives_the_mount_that_is_killed_right_after() {
    let Some((cluster, one, two)) = two_mounts(2) else { return };
    for at in 0..200_usize {
        fs::write(one.join(format!("closed{at}")), vec![at as u8; 50 * at]).unwrap();
    }
    cluster.kill_mount(&one);
    for at in 0..200_usize {
        let found = fs::read(two.join(format!("closed{at}"))).unwrap();
        assert!(found == vec![at as u8; 50 * at], "file {at} has {} bytes", found.len());
    }
}

#[test]
fn a_name_that_was_just_made_is_there_on_the_other_mount_whoever_asks_how() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    for round in 0..60_usize {
        let (maker, looker) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let (dir, there) = (maker.join(format!("d{round}")), looker.join(format!("d{round}")));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("closed"), "x").unwrap();
        let before = fs::metadata(&dir).unwrap().mtime_nsec();
        let mut file = File::create_new(dir.join("new")).unwrap();
        io::Write::write_all(&mut file, b"content").unwrap();
        let there_new = there.join("new");
        match round / 2 % 6 {
            0 => {
                let mut names: Vec<_> =
                    fs::read_dir(&there).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                assert_eq!(names, ["closed", "new"], "round {round}");
            }
            1 => assert_ne!(fs::metadata(&there).unwrap().mtime_nsec(), before, "round {round}"),
            2 => {
                let taken = File::create_new(&there_new).unwrap_err();
                assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists, "round {round}");
            }
            3 => {
                let kept = fs::remove_dir(&there).unwrap_err();
                assert_eq!(kept.kind(), io::ErrorKind::DirectoryNotEmpty, "round {round}");
            }
            4 => assert_eq!(fs::read(&there_new).unwrap(), b"content", "round {round}"),
            _ => {
                // What the other does to it is seen here.
                fs::set_permissions(&there_new, fs::Permissions::from_mode(0o604)).unwrap();
                assert_eq!(fstat(&file).unwrap().st_mode & 0o7777, 0o604, "round {round}");
            }
        }
        let (here, there) = (fstat(&file).unwrap().st_ino, fs::metadata(&there_new).unwrap().ino());
        assert_eq!(here, there, "round {round}");
        drop(file);
        assert_eq!(fs::read(&there_new).unwrap(), b"content", "round {round}");
    }
}

#[test]
fn what_fstat_says_of_a_file_that_was_just_made_stays_so() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    fs::create_dir(one.join("d")).unwrap();
    for round in 0..50_usize {
        let path = one.join(format!("d/f{round}"));
        let file = File::create_new(&path).unwrap();
        // Not statx(2), which asks for what the kernel does not keep.
        let made = fstat(&file).unwrap();
        drop(file);
        let later = rustix::fs::stat(&path).unwrap();
        let times = |found: &rustix::fs::Stat| {
            [
                (found.st_atime, found.st_atime_nsec),
                (found.st_mtime, found.st_mtime_nsec),
                (found.st_ctime, found.st_ctime_nsec),
            ]
        };
        assert_eq!(times(&made), times(&later), "round {round}");
        assert_eq!(made.st_ino, later.st_ino);
        assert_eq!(made.st_mode, later.st_mode);
    }
    assert_eq!(fs::read_dir(two.join("d")).unwrap().count(), 50);
}

#[test]
fn names_that_are_removed_on_one_mount_are_gone_on_the_other_whoever_asks_how() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    for round in 0..24_usize {
        let (remover, looker) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let dir = looker.join(format!("d{round}"));
        fs::create_dir(&dir).unwrap();
        for at in 0..30 {
            fs::write(dir.join(format!("f{at:02}")), "x").unwrap();
        }
        fs::hard_link(dir.join("f29"), looker.join(format!("link{round}"))).unwrap();
        let open = File::open(dir.join("f29")).unwrap();
        let from = remover.join(format!("d{round}"));
        // As `rm -r` walks.
        let mut names: Vec<_> =
            fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in &names {
            assert!(fs::symlink_metadata(path).unwrap().is_file());
        }
        names.iter().for_each(|path| fs::remove_file(path).unwrap());
        match round / 2 % 6 {
            0 => assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "round {round}"),
            1 => assert!(!is_there(&dir.join("f29")), "round {round}"),
            2 => assert_eq!(fstat(&open).unwrap().st_nlink, 1, "round {round}"),
            3 => {
                let link = fs::metadata(looker.join(format!("link{round}"))).unwrap();
                assert_eq!(link.nlink(), 1, "round {round}");
            }
            4 => drop(File::create_new(dir.join("f29")).unwrap()),
            _ => fs::remove_dir(&dir).unwrap(),
        }
        assert_eq!(io::read_to_string(open).unwrap(), "x", "round {round}");
        assert_eq!(is_there(&from.join("f29")), round / 2 % 6 == 4, "round {round}");
    }
}
