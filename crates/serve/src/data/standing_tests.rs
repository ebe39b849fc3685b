use super::*;
use covey_io::sim::{DiskProfile, Rng, SimDisk};
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
        assert_eq!(tree.to_read(&object, Some(0)).unwrap_err().code, Errno::EIO);
        // The loss is accepted.
        admit(&tree, "m").await.unwrap();
        tree.greet(7, &Rc::default()).wait().await.unwrap();
        tree.to_read(&object, Some(0)).unwrap();
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
