//! Commands at a node that reaches no metadata server: what they refuse without one, and volumes in its own files.

use super::super::record::parse as parse_list;
use super::super::turns::PATIENCE;
use super::super::{LIST, sample};
use super::*;
use std::path::Path;
use tokio::task::LocalSet;

/// Runs within a runtime, with the volumes of a list, none of which is open.
fn with_volumes<T>(list: &str, test: impl AsyncFnOnce(Rc<Volumes>, &Path) -> T) -> T {
    let dir = tempfile::tempdir().unwrap();
    let config = sample::config(dir.path());
    let list = list.replace("DIR", &dir.path().display().to_string());
    std::fs::write(dir.path().join(LIST), list).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ports = crate::net::TargetPorts::default();
    LocalSet::new().block_on(&runtime, async {
        let volumes = Volumes::load(config, "gw1", dir.path(), None, ports).unwrap();
        test(volumes, dir.path()).await
    })
}

async fn run(volumes: &Rc<Volumes>, words: &[&str]) -> Result<()> {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    volumes.clone().run_command(words).await
}

fn kept(dir: &Path) -> String {
    std::fs::read_to_string(dir.join(LIST)).unwrap()
}

#[test]
fn a_list_is_never_written_that_could_not_be_read_back() {
    with_volumes("", async |volumes, dir| {
        let file = |name: &str| dir.join(name).display().to_string();
        let (image, copy) = (file("image"), file("copy"));
        run(&volumes, &["create", "disk", "file", &image, "size", "1048576"]).await.unwrap();
        let refused = run(&volumes, &["clone", "disk", "copy", "copy"]).await.unwrap_err();
        assert!(refused.to_string().contains("begin it with a slash"), "{refused}");
        run(&volumes, &["clone", "disk", "copy", &copy]).await.unwrap();
        let before = kept(dir);
        assert_eq!(parse_list(&before).unwrap().len(), 2);
        // Whatever it is that makes a list unreadable.
        let volume = volumes.find("disk").unwrap();
        let refused = volumes.keep(&volume, |record| record.path = "image".to_owned());
        assert!(refused.unwrap_err().to_string().contains("could not be read back"));
        assert_eq!(volume.record.borrow().path, image);
        assert_eq!(kept(dir), before);
    });
}

/// The file is that of the node which serves it: this one would unlink it there, or copy half of what is written.
#[test]
fn what_another_node_serves_is_neither_removed_nor_copied_here() {
    with_volumes("create disk striped /disk block 512 serial 1\n", async |volumes, dir| {
        volumes.find("disk").unwrap().stands_by.set(true);
        for words in [&["rm", "disk"][..], &["clone", "disk", "copy", "/copy"]] {
            let refused = run(&volumes, words).await.unwrap_err();
            assert_eq!(refused.code, Errno::EBUSY, "{words:?}: {refused}");
            assert!(kept(dir).contains("create disk"), "{words:?}");
        }
        run(&volumes, &["rm", "disk", "keep"]).await.unwrap();
        assert_eq!(kept(dir), "");
    });
}

/// The node was killed between the list's last line of a volume and what was saved of its reservations.
#[test]
fn a_new_volume_has_no_reservations_of_an_earlier_one_of_its_name() {
    with_volumes("", async |volumes, dir| {
        let file = |name: &str| dir.join(name).display().to_string();
        let left = |name: &str| std::fs::write(dir.join(name), "not of this volume").unwrap();
        let words = ["create", "disk", "file", &file("image"), "size", "1048576"];
        left("disk.state");
        run(&volumes, &words).await.unwrap();
        left("copy.state");
        run(&volumes, &["clone", "disk", "copy", &file("copy")]).await.unwrap();
        assert!(!dir.join("disk.state").exists() && !dir.join("copy.state").exists());
        // One that is there keeps its own.
        left("disk.state");
        run(&volumes, &words).await.unwrap_err();
        assert!(dir.join("disk.state").exists());
    });
}

/// The copy waits for a disk that does not answer: a pipe that nobody writes to.
#[test]
fn who_may_use_a_volume_is_changed_while_it_is_copied() {
    let list = "create disk file DIR/pipe block 512 serial 1\ncreate other file DIR/x block 512 serial 2\n";
    with_volumes(list, async |volumes, dir| {
        let (pipe, copy) = (dir.join("pipe"), dir.join("copy").display().to_string());
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let words = ["clone", "disk", "copy", &copy].map(str::to_owned).to_vec();
        let copying = tokio::task::spawn_local(volumes.clone().run_command(words));
        while volumes.turns.at_work("disk") != Some("clone") {
            tokio::task::yield_now().await;
        }
        run(&volumes, &["acl", "disk", "allow", "iqn.2026-01.a:b"]).await.unwrap();
        run(&volumes, &["acl", "other", "allow", "iqn.2026-01.a:b"]).await.unwrap();
        assert_eq!(kept(dir).matches("allow iqn.2026-01.a:b").count(), 2);
        // What must wait for it says for what, and not for ever. Both names are the copy's.
        volumes.patience.set(Duration::from_millis(10));
        let image = dir.join("image").display().to_string();
        for words in [
            &["resize", "disk", "4096"][..],
            &["export", "disk", "127.0.0.1:3260"],
            &["rm", "disk", "keep"],
            &["create", "copy", "file", &image, "size", "4096"],
        ] {
            let refused = run(&volumes, words).await.unwrap_err();
            assert_eq!(refused.code, Errno::EBUSY, "{words:?}: {refused}");
            let named = format!("volume {} is in use by `clone`", words[1]);
            assert!(refused.to_string().contains(&named), "{words:?}: {refused}");
        }
        run(&volumes, &["rm", "other", "keep"]).await.unwrap();
        drop(std::fs::File::options().write(true).open(&pipe).unwrap());
        // Whatever it came to: a pipe has no blocks.
        let _ = copying.await.unwrap();
        run(&volumes, &["rm", "disk", "keep"]).await.unwrap();
    });
}

/// Its disk does not answer when it is opened.
#[test]
fn a_command_does_not_wait_for_ever_for_a_volume_that_is_opened() {
    with_volumes("create disk file /x block 512 serial 1\n", async |volumes, dir| {
        volumes.patience.set(Duration::from_millis(10));
        let opening = volumes.find("disk").unwrap().turn.clone().lock_owned().await;
        let words = ["acl", "disk", "allow", "iqn.2026-01.a:b"];
        let refused = run(&volumes, &words).await.unwrap_err();
        assert_eq!(refused.code, Errno::EBUSY, "{refused}");
        assert!(refused.to_string().contains("volume disk is being opened"), "{refused}");
        assert!(!kept(dir).contains("allow"));
        drop(opening);
        run(&volumes, &words).await.unwrap();
    });
}

#[test]
fn a_node_stands_by_for_no_volume_that_has_only_the_name() {
    with_volumes("create disk file /x block 512 serial 1\n", async |volumes, _| {
        let refused = run(&volumes, &["join", "disk", "/disk"]).await.unwrap_err();
        assert_eq!(refused.code, Errno::EEXIST, "{refused}");
        assert!(refused.to_string().contains("kept in file /x"), "{refused}");
    });
}

/// Commands are at work on the blocks that would be cut off, and their disk does not answer.
#[test]
fn a_resize_that_waits_for_blocks_in_use_ends_and_changes_nothing() {
    with_volumes("", async |volumes, dir| {
        let image = dir.join("image").display().to_string();
        run(&volumes, &["create", "disk", "file", &image, "size", "1048576"]).await.unwrap();
        let volume = volumes.find("disk").unwrap();
        let unit = volume.need().unwrap().unit;
        volumes.patience.set(Duration::from_millis(10));
        let at_work = unit.close_from(1024).await;
        let resize = ["resize", "disk", "4096", "shrink"];
        let within = Duration::from_secs(60);
        let refused = tokio::time::timeout(within, run(&volumes, &resize)).await;
        let refused = refused.expect("it does not wait for ever").unwrap_err();
        assert_eq!(refused.code, Errno::ETIMEDOUT, "{refused}");
        assert!(refused.to_string().contains("nothing was changed"), "{refused}");
        // The store had refused what lies behind the new end meanwhile.
        assert_eq!((volume.bytes(), unit.blocks()), (Some(1 << 20), 2048));
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 1 << 20);
        drop(at_work);
        volumes.patience.set(PATIENCE);
        run(&volumes, &resize).await.unwrap();
        assert_eq!((volume.bytes(), unit.blocks()), (Some(4096), 8));
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 4096);
    });
}
