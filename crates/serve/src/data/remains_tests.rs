//! A chain is taken whole, and what it leaves in a store goes, whatever has failed or was broken off.

use super::*;
use futures_util::poll;

impl Rig {
    fn serve_as(&self, chains: &[(u16, u32)]) -> DataOp {
        let served = |&(chain, generation): &(u16, u32)| Served { chain, generation };
        let chains = List(chains.iter().map(served).collect());
        DataOp::ServeAs { store: self.store(), own: OWN, chains }
    }

    /// A copy of the other chain, on which the file 7 holds this.
    async fn copied(&self, data: &[u8], generation: u32) {
        let stay = self.receive().await;
        self.put_all(stay, data).await;
        self.settle(stay, generation).await.unwrap();
    }
}

async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        task::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it is never so");
}

#[test]
fn a_copy_that_could_not_be_opened_is_the_chain_when_it_is_served_next() {
    run(async {
        for has_been_here in [false, true] {
            let disk = disk();
            let rig = open(&disk);
            if has_been_here {
                rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
                rig.write((OTHER, 1), 0, b"older").await;
            }
            rig.serve(&[(OWN, 1)]).await;
            rig.copied(b"whole", 5).await;
            disk.fail_look(Some(0));
            let serve = rig.serve_as(&[(OWN, 1), (OTHER, 5)]);
            assert_eq!(code(rig.call(serve).await), Errno::EIO);
            assert_eq!(
                rig.tree().of(OTHER).map(|_| ()),
                None,
                "least of all what was there before"
            );
            rig.serve(&[(OWN, 1), (OTHER, 5)]).await;
            assert_eq!(rig.read(OTHER, 5).await.unwrap(), &b"whole"[..]);
        }
    });
}

#[test]
fn a_copy_is_taken_whole_although_nobody_waits_for_it_any_more() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1)]).await;
        rig.copied(b"whole", 5).await;
        {
            let serve = rig.serve_as(&[(OWN, 1), (OTHER, 5)]);
            let mut serving = Box::pin(rig.call(serve));
            assert!(poll!(serving.as_mut()).is_pending());
            until(|| rig.tree().standing.stay_of(OTHER).is_some()).await;
        }
        rig.serve(&[(OWN, 1), (OTHER, 5)]).await;
        assert_eq!(rig.read(OTHER, 5).await.unwrap(), &b"whole"[..]);
    });
}

#[test]
fn a_chain_is_dropped_whole_although_nobody_waits_for_it_any_more() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        rig.serve(&[(OWN, 1)]).await;
        {
            let mut dropping = Box::pin(rig.drop_it(OTHER, 2));
            assert!(poll!(dropping.as_mut()).is_pending());
            until(|| rig.tree().standing.has_left(OTHER)).await;
        }
        assert!(rig.tree().of(OTHER).is_none());
        rig.drop_it(OTHER, 2).await.unwrap();
        until_gone(&directory.path().join("objects/c9.0")).await;
    });
}

#[test]
fn a_copy_whose_directory_is_gone_can_be_discarded() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1)]).await;
        rig.copied(b"whole", 5).await;
        std::fs::remove_dir_all(directory.path().join("objects/c9.1")).unwrap();
        let discard = DataOp::Discard { store: rig.store(), chain: OTHER, stay: 1 };
        rig.call(discard).await.unwrap();
        assert_eq!(rig.tree().standing.copy_of(OTHER), None);
    });
}

#[test]
fn what_somebody_has_put_beside_it_keeps_no_server_from_starting() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1)]).await;
        let stay = directory.path().join("objects/c9.3");
        std::fs::create_dir_all(&stay).unwrap();
        for name in ["unused", ".nfs0001"] {
            std::fs::write(stay.join(name), "").unwrap();
        }
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1)]).await;
        assert!(stay.join(".nfs0001").exists());
    });
}

#[test]
fn a_chain_that_was_named_and_could_not_be_opened_is_opened_the_next_time() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        disk.fail_look(Some(0));
        let serve = rig.serve_as(&[(OWN, 1), (OTHER, 1)]);
        assert_eq!(code(rig.call(serve).await), Errno::EIO);
        rig.tree().made(OTHER).await.unwrap();
    });
}

#[test]
fn a_stay_in_which_something_is_left_says_that_it_is_of_no_use() {
    let directory = tempfile::tempdir().unwrap();
    let stay = directory.path().join("c9.1");
    std::fs::create_dir_all(stay.join("00")).unwrap();
    for name in ["unused", "00/object", "late"] {
        std::fs::write(stay.join(name), "").unwrap();
    }
    let removed = || remove_stay(&covey_io::os::disk::OsDisk, &stay);
    removed().unwrap_err();
    assert!(stay.join("unused").exists());
    std::fs::remove_file(stay.join("late")).unwrap();
    removed().unwrap();
    assert!(!stay.exists());
    removed().unwrap();
}

/// Waits for what is removed beside.
async fn until_gone(path: &Path) {
    for _ in 0..1000 {
        if !path.exists() {
            return;
        }
        task::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{} is left", path.display());
}

#[test]
fn what_a_chain_has_left_goes_although_the_server_ended_before_it_was_removed() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let objects = directory.path().join("objects");
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        rig.write((OWN, 1), 0, b"own").await;
        rig.write((OTHER, 1), 0, b"other").await;
        // The identity says that both have left, and nothing more was done.
        let left = |identity: &mut standing::Identity| {
            identity.held.chains.clear();
            identity.held.left.extend([(OWN, 2), (OTHER, 2)]);
        };
        rig.tree().change_identity(left).await.unwrap();
        let rig = open_dir(directory.path());
        assert!(!objects.join("c9.0").exists());
        assert!(objects.join("07/0000000000000007").exists(), "it may be any server's own");
        rig.serve(&[]).await;
        until_gone(&objects.join("07/0000000000000007")).await;
        assert!(objects.join("07").exists(), "without it this would be another store");
    });
}

#[test]
fn what_is_received_goes_when_its_mover_has_gone() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let objects = directory.path().join("objects");
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1)]).await;
        let receive = async |line: &Rc<Line>, chain| {
            let receive = DataOp::Receive { store: rig.store(), chain };
            rig.call_on(line, receive).await.unwrap();
        };
        let gone = Rc::<Line>::default();
        receive(&gone, 5).await;
        receive(&rig.line, 6).await;
        drop(gone);
        rig.serve(&[(OWN, 1)]).await;
        until_gone(&objects.join("c5.1")).await;
        assert!(objects.join("c6.2").exists(), "its mover is there");
    });
}

#[test]
fn a_chain_that_could_not_be_settled_leaves_nothing() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let objects = directory.path().join("objects");
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1)]).await;
        let stay = rig.receive().await;
        rig.put_all(stay, b"half").await;
        // Its objects and their names are on the disk; that it is the chain cannot be said.
        std::fs::create_dir(objects.join("identity.new")).unwrap();
        rig.settle(stay, 5).await.unwrap_err();
        until_gone(&objects.join("c9.1")).await;
    });
}

#[test]
fn what_could_not_be_received_or_removed_leaves_nothing() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let stay = directory.path().join("objects/c9.1");
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1)]).await;
        // What is there cannot be removed: as if the disk had failed for a while.
        let unremovable = stay.join("unused");
        std::fs::create_dir_all(&unremovable).unwrap();
        let receive = DataOp::Receive { store: rig.store(), chain: OTHER };
        rig.call(receive).await.unwrap_err();
        std::fs::remove_dir(unremovable).unwrap();
        for _ in 0..1000 {
            // As the metadata server does every few seconds; the mover's connection goes on.
            rig.call(DataOp::Copies {}).await.unwrap();
            if !stay.exists() {
                assert_eq!(rig.receive().await, 2);
                return;
            }
            task::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{} is left", stay.display());
    });
}

#[test]
fn a_chain_that_could_not_be_received_leaves_nothing_while_its_mover_is_there() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1)]).await;
        disk.fail_dir_syncs(1);
        let receive = DataOp::Receive { store: rig.store(), chain: OTHER };
        assert_eq!(code(rig.call(receive).await), Errno::EIO);
        task::sleep(std::time::Duration::from_millis(50)).await;
        let left = disk.list(Path::new("/store/objects")).unwrap();
        assert!(!left.iter().any(|name| name == "c9.1"), "{left:?}");
    });
}
