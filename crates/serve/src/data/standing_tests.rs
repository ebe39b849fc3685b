use super::*;
use covey_io::sim::{DiskProfile, Rng, SimDisk};
use covey_wire::Bytes;
use std::sync::Arc;

const DIR: &str = "/store";

fn disk() -> SimDisk {
    SimDisk::new(DiskProfile::default(), Rng::new(1))
}

fn open(disk: &SimDisk) -> Rc<DataTree> {
    Rc::new(DataTree::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap())
}

fn met(tree: &DataTree) -> (Name, Name, bool) {
    match tree.meet() {
        DataReply::Met { store, meta, is_empty, .. } => (store, meta, is_empty),
        other => panic!("{other:?}"),
    }
}

async fn admit(tree: &Rc<DataTree>, meta: &str) -> Result<DataReply> {
    tree.clone().admit_store(met(tree).0, meta.into()).await
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn a_store_keeps_its_identity_and_another_disk_has_another() {
    let first = disk();
    let store = met(&open(&first)).0;
    assert_eq!(store.as_bytes().len(), 32);
    assert_eq!(met(&open(&first)).0, store);
    let other = SimDisk::new(DiskProfile::default(), Rng::new(2));
    assert_ne!(met(&open(&other)).0, store);
}

#[test]
fn a_store_without_its_objects_directory_is_another() {
    let directory = tempfile::tempdir().unwrap();
    let open = || DataTree::open(Arc::new(covey_io::os::disk::OsDisk), directory.path()).unwrap();
    let store = met(&open()).0;
    assert_eq!(met(&open()).0, store);
    std::fs::remove_dir_all(directory.path().join("objects")).unwrap();
    assert_ne!(met(&open()).0, store);
}

#[test]
fn a_store_whose_objects_are_wiped_is_another_and_is_itself_when_they_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let open = || DataTree::open(Arc::new(covey_io::os::disk::OsDisk), directory.path()).unwrap();
    let (objects, aside) = (directory.path().join("objects"), directory.path().join("aside"));
    let store = met(&open()).0;
    // As a disk that is not mounted there.
    std::fs::rename(&objects, &aside).unwrap();
    std::fs::create_dir(&objects).unwrap();
    let other = met(&open()).0;
    assert_ne!(other, store);
    assert_eq!(met(&open()).0, other);
    std::fs::remove_dir_all(&objects).unwrap();
    std::fs::rename(&aside, &objects).unwrap();
    assert_eq!(met(&open()).0, store);
}

#[test]
fn a_store_whose_directories_are_gone_is_another_although_its_identity_is_left() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (dir, objects) = (directory.path(), directory.path().join("objects"));
        let open = || Rc::new(DataTree::open(Arc::new(covey_io::os::disk::OsDisk), dir).unwrap());
        let tree = open();
        let store = met(&tree).0;
        // Before anybody had files here a start may have ended in the middle.
        std::fs::remove_dir(objects.join("17")).unwrap();
        assert_eq!(met(&open()).0, store);
        admit(&tree, "m").await.unwrap();
        std::fs::remove_dir(objects.join("17")).unwrap();
        let (other, meta, _) = met(&open());
        assert!(other != store && meta.is_empty(), "it is nobody's");
        assert_eq!(met(&open()).0, other);
    });
}

#[test]
fn objects_that_are_taken_from_a_running_server_are_not_read_as_zeros() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(covey_io::os::disk::OsDisk);
        let tree = Rc::new(DataTree::open(disk, directory.path()).unwrap());
        admit(&tree, "m").await.unwrap();
        assert!(tree.file_there(&tree.object(7)).unwrap().is_none(), "it was never written");
        std::fs::remove_dir_all(directory.path().join("objects")).unwrap();
        let refused = tree.file_there(&tree.object(8)).map(drop).unwrap_err();
        assert_eq!(refused.code, Errno::EIO);
        let refused = tree.file_made(&tree.object(8)).map(drop).unwrap_err();
        assert_eq!(refused.code, Errno::EIO);
        assert!(tree.standing.check().is_err(), "until it is restarted");
    });
}

#[test]
fn a_store_is_adopted_by_whoever_says_whose_it_was() {
    run(async {
        let disk = disk();
        admit(&open(&disk), "first").await.unwrap();
        let tree = open(&disk);
        let adopt =
            |before: &str| tree.clone().adopt_store(met(&tree).0, "second".into(), before.into());
        assert_eq!(adopt("third").await.unwrap_err().code, Errno::EINVAL);
        adopt("first").await.unwrap();
        assert!(tree.standing.check().is_err(), "it is admitted after that");
        admit(&tree, "second").await.unwrap();
        assert_eq!(met(&open(&disk)).1, "second".into());
    });
}

/// Makes the store what an older version has left: its identity lies beside the objects.
fn put_beside(store: &Path) {
    std::fs::rename(store.join("objects/identity"), store.join("objects.identity")).unwrap();
}

#[test]
fn an_identity_beside_the_objects_moves_among_them_if_they_are_there() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (dir, objects) = (directory.path(), directory.path().join("objects"));
        let open = || Rc::new(DataTree::open(Arc::new(covey_io::os::disk::OsDisk), dir).unwrap());
        let tree = open();
        let store = met(&tree).0;
        admit(&tree, "m").await.unwrap();
        put_beside(dir);
        let (found, meta, _) = met(&open());
        assert_eq!((&found, meta), (&store, "m".into()), "it holds nothing, and is the same");
        assert!(!dir.join("objects.identity").exists() && objects.join("identity").exists());

        put_beside(dir);
        let aside = dir.join("aside");
        std::fs::rename(&objects, &aside).unwrap();
        std::fs::create_dir(&objects).unwrap();
        for _ in 0..2 {
            assert_ne!(met(&open()).0, store);
        }
        std::fs::remove_dir_all(&objects).unwrap();
        std::fs::rename(&aside, &objects).unwrap();
        assert_eq!(met(&open()).0, store, "the disk is mounted again");
    });
}

#[test]
fn a_disk_that_fails_at_the_start_costs_neither_the_identity_nor_the_losses() {
    run(async {
        for is_older in [false, true] {
            let mut has_ended = false;
            for after in (0..4).chain((4..2000).step_by(61)) {
                let (disk, dir) = (disk(), Path::new(DIR));
                let tree = open(&disk);
                admit(&tree, "m").await.unwrap();
                let store = met(&tree);
                if is_older {
                    let inside = dir.join("objects/identity");
                    disk.rename(&inside, &dir.join("objects.identity")).unwrap();
                }
                let losses = disk.open(&dir.join("objects.losses"), Open::Create).unwrap();
                losses.write_all_blocking(0, &[IoSlice::new(&3u64.to_le_bytes())]).unwrap();
                disk.fail_look(Some(after));
                let opened = DataTree::open(Arc::new(disk.clone()), dir).map(Rc::new);
                disk.fail_look(None);
                has_ended |= opened.is_err();
                for tree in opened.into_iter().chain([open(&disk)]) {
                    assert_eq!(met(&tree), store, "after {after}");
                    assert_eq!(tree.losses.borrow().before, 3, "after {after}");
                }
            }
            assert!(has_ended, "a failure is told");
        }
    });
}

#[test]
fn who_comes_before_the_metadata_server_waits_for_its_word() {
    run(async {
        let tree = open(&disk());
        let line = Rc::<Line>::default();
        let (greeted, word) = futures_util::join!(tree.greet(7, &line).wait(), async {
            task::sleep(Duration::from_millis(20)).await;
            admit(&tree, "m").await
        });
        greeted.unwrap();
        word.unwrap();
    });
}

#[test]
fn a_store_that_is_not_known_serves_nothing_and_says_why() {
    run(async {
        let tree = open(&disk());
        tree.refuse_store(&"it was replaced".into());
        let refused = tree.greet(7, &Rc::default()).wait().await.unwrap_err();
        assert_eq!((refused.code, &refused.reason[..]), (Errno::EIO, "it was replaced"));
        assert!(tree.standing.text().starts_with("state unknown\n"));
        let object = tree.object(1);
        assert_eq!(tree.to_read(&object, Some(0).into()).unwrap_err().code, Errno::EIO);
        // The loss is accepted.
        admit(&tree, "m").await.unwrap();
        tree.greet(7, &Rc::default()).wait().await.unwrap();
        tree.to_read(&object, Some(0).into()).unwrap();
    });
}

#[test]
fn objects_are_not_given_to_another_metadata_server() {
    run(async {
        let disk = disk();
        admit(&open(&disk), "first").await.unwrap();
        let again = open(&disk);
        assert_eq!(met(&again).1, "first".into());
        assert_eq!(admit(&again, "second").await.unwrap_err().code, Errno::EINVAL);
        assert!(again.standing.check().is_err());
        admit(&again, "first").await.unwrap();
    });
}

#[test]
fn a_store_is_empty_until_an_object_is_made() {
    run(async {
        for is_cut in [false, true] {
            let tree = open(&disk());
            // An older metadata server has let it serve; a newer one meets it later.
            let line = Rc::<Line>::default();
            tree.greet(0, &line).wait().await.unwrap();
            assert!(tree.to_read(&tree.object(1), Some(0).into()).unwrap().is_none());
            assert!(met(&tree).2);
            if is_cut {
                tree.cut(1, 1, 0).await.unwrap();
            } else {
                let (object, data) = (tree.object(1), Bytes::from_static(b"data"));
                tree.write_object(&object, Some(0).into(), &line, 0, data).wait().await.unwrap();
            }
            assert!(!met(&tree).2, "cut: {is_cut}");
        }
    });
}

#[test]
fn a_metadata_server_of_an_older_version_is_taken_at_its_word_until_a_newer_one_came() {
    run(async {
        let disk = disk();
        let tree = open(&disk);
        tree.greet(0, &Rc::default()).wait().await.unwrap();
        assert!(tree.standing.check().is_ok());
        admit(&open(&disk), "new").await.unwrap();
        let after = open(&disk);
        let (_, word) = (after.greet(0, &Rc::default()), after.standing.check());
        assert!(word.is_err());
    });
}
