//! Objects that were lost with a disk. The server has an empty disk in its place, and a mark for each object that it should
//! have: `ID.EPOCH.lost`, beside the objects. Zeros in place of written bytes would be a loss that nobody notices, so
//! reads and writes of a marked object fail with EIO until its file is emptied, removed or installed again, or the loss
//! is accepted.
//!
//! If a mark and an object of one file both exist, the object wins: marks are made only where there is no object, and
//! are removed after the object that replaces them was made.

use super::{Cutting, DataTree, Object};
use covey_io::disk::Open;
use covey_io::task;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::objects::{DataReply, Doomed, Kept, LOST_WITH_DISK};
use covey_stripe::ops::Id;
use covey_wire::Name;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

impl DataTree {
    pub(super) fn is_lost(&self, id: Id) -> bool {
        let lost = self.lost.borrow();
        !lost.is_empty() && lost.contains(&id)
    }

    /// Objects that are marked as lost, on all chains.
    pub fn objects_lost(&self) -> usize {
        let others = self.others();
        self.lost.borrow().len() + others.iter().map(|tree| tree.lost.borrow().len()).sum::<usize>()
    }

    fn lost_path(&self, id: Id, epoch: u32) -> PathBuf {
        self.path_of(id, epoch, Kept::Lost)
    }

    /// EIO for an object that is lost.
    pub(super) fn must_not_be_lost(&self, id: Id) -> Result<()> {
        if !self.is_lost(id) {
            return Ok(());
        }
        let text = format!("what the I/O server held of the file {LOST_WITH_DISK}");
        Err(Errno::because(Errno::EIO, text))
    }

    /// Before the store is admitted: marks these objects as lost. Those that exist stay.
    pub(super) async fn lose(
        self: Rc<Self>,
        store: Name,
        objects: Vec<Doomed>,
        end: bool,
    ) -> Result<DataReply> {
        self.standing.must_be_new(&store)?;
        for Doomed { id, epoch } in objects {
            self.lose_one(id, epoch)?;
        }
        if end {
            self.sync_dirs(0..self.fanout).await?;
        }
        Ok(DataReply::Done {})
    }

    /// Brings the names in these of the objects' directories to stable storage.
    async fn sync_dirs(&self, lows: impl IntoIterator<Item = u64>) -> Result<()> {
        let dirs: Vec<PathBuf> = lows.into_iter().map(|low| self.dir(low)).collect();
        let disk = self.disk.clone();
        Ok(task::blocking(move || dirs.iter().try_for_each(|dir| disk.sync_dir(dir))).await?)
    }

    fn lose_one(&self, id: Id, epoch: u32) -> Result<()> {
        let before = self.epoch_of(id);
        let was_lost = self.is_lost(id);
        if was_lost && before >= epoch {
            return Ok(());
        }
        if !was_lost {
            match self.disk.stat(&self.path(id, before)) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.touch(id);
        self.disk.open(&self.lost_path(id, epoch), Open::Create)?;
        if was_lost {
            self.disk.remove(&self.lost_path(id, before))?;
        }
        self.note_lost(id, epoch);
        Ok(())
    }

    /// Takes a mark into the index.
    pub(super) fn note_lost(&self, id: Id, epoch: u32) {
        self.lost.borrow_mut().insert(id);
        self.epochs.borrow_mut().remove(&id);
        self.note_epoch(id, epoch);
    }

    /// The loss of these objects is accepted: they are empty from now on.
    pub(super) async fn forgive(self: Rc<Self>, ids: Vec<Id>) -> Result<DataReply> {
        let mut changed = BTreeSet::new();
        for id in ids {
            let object = self.object(id);
            while object.is_cutting.get() {
                object.ended.notified().await;
            }
            if !self.is_lost(id) {
                continue;
            }
            self.touch(id);
            self.disk.open(&self.path(id, self.epoch_of(id)), Open::Create)?;
            changed.insert(id % self.fanout);
            object.version.set(object.version.get().wrapping_add(1));
            self.remove_mark(id, self.epoch_of(id));
        }
        self.sync_dirs(changed).await?;
        Ok(DataReply::Done {})
    }

    /// An object has taken the place of the one lost at this epoch, or its file is gone.
    pub(super) fn remove_mark(&self, id: Id, epoch: u32) {
        self.touch(id);
        if self.lost.borrow_mut().remove(&id)
            && let Err(error) = self.disk.remove(&self.lost_path(id, epoch))
        {
            // The next start removes it, since the object wins; or the metadata server does, with the file.
            tracing::warn!("the mark that object {id:016x} was lost is left: {error}");
        }
    }

    /// A lost object that is not emptied stays lost, at the next epoch.
    pub(super) fn raise_lost(&self, object: &Rc<Object>, epoch: u32) -> Result<()> {
        let id = object.id;
        let cutting = Cutting::begin(object);
        self.touch(id);
        let before = self.lost_path(id, self.epoch_of(id));
        self.disk.rename(&before, &self.lost_path(id, epoch))?;
        object.epoch.set(epoch);
        object.is_name_dirty.set(true);
        object.version.set(object.version.get().wrapping_add(1));
        self.note_lost(id, epoch);
        drop(cutting);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_io::os::disk::OsDisk;
    use covey_stripe::objects::LOST;
    use std::path::Path;
    use std::sync::Arc;

    fn run(test: impl AsyncFnOnce(&Path)) {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test(directory.path()));
    }

    fn over(dir: &Path) -> Rc<DataTree> {
        Rc::new(DataTree::open(Arc::new(OsDisk), dir).unwrap())
    }

    fn store(tree: &DataTree) -> Name {
        match tree.meet() {
            DataReply::Met { store, .. } => store,
            other => panic!("{other:?}"),
        }
    }

    /// Objects 7 at epoch 0 and 8 at epoch 3 are lost; 9 is there.
    async fn lost(dir: &Path) -> Rc<DataTree> {
        let tree = over(dir);
        std::fs::write(tree.path(9, 2), "there").unwrap();
        let tree = over(dir);
        let objects = [(7, 0), (8, 3), (9, 2)].map(|(id, epoch)| Doomed { id, epoch });
        let other = tree.clone().lose("other".into(), objects.to_vec(), true).await;
        assert_eq!(other.unwrap_err().code, Errno::EINVAL);
        tree.clone().lose(store(&tree), objects.to_vec(), true).await.unwrap();
        // Once more, as after a command that was broken off.
        tree.clone().lose(store(&tree), objects.to_vec(), true).await.unwrap();
        tree.standing.admit_for_test();
        let late = tree.clone().lose(store(&tree), objects.to_vec(), true).await;
        assert_eq!(late.unwrap_err().code, Errno::EINVAL, "it serves");
        tree
    }

    fn is_empty(tree: &DataTree) -> bool {
        matches!(tree.meet(), DataReply::Met { is_empty: true, .. })
    }

    #[test]
    fn a_store_with_nothing_but_marks_has_lost_everything() {
        run(async |dir| {
            let tree = over(dir);
            let objects = vec![Doomed { id: 7, epoch: 0 }];
            tree.clone().lose(store(&tree), objects, false).await.unwrap();
            assert!(is_empty(&tree) && is_empty(&over(dir)));
            std::fs::write(tree.path(9, 2), "there").unwrap();
            assert!(!is_empty(&over(dir)));
        });
    }

    #[test]
    fn a_store_that_has_served_is_not_taken_for_a_new_one() {
        run(async |dir| {
            let tree = over(dir);
            let admitted = tree.clone().admit_store(store(&tree), "meta".into()).await;
            admitted.unwrap();
            let tree = over(dir);
            let refused = tree.clone().lose(store(&tree), Vec::new(), true).await.unwrap_err();
            assert!(refused.to_string().contains("has served before"), "{refused}");
        });
    }

    #[test]
    fn what_was_to_be_installed_and_is_lost_is_not_taken_for_installed() {
        run(async |dir| {
            let tree = lost(dir).await;
            let error = tree.install(8, 3, 5).await.unwrap_err();
            assert!(error.to_string().contains("0 of 5 bytes"), "{error}");
            assert_eq!(read(&tree, 8, 3), Err(5));
            // Staged anew after all.
            std::fs::write(tree.path_of(8, 3, Kept::Staged), "again").unwrap();
            tree.install(8, 3, 5).await.unwrap();
            assert_eq!((read(&tree, 8, 3), tree.is_lost(8)), (Ok(5), false));
            assert_eq!(listed(&over(dir))[1], (8, 3, 5));
        });
    }

    fn listed(tree: &DataTree) -> Vec<(Id, u32, u64)> {
        let DataReply::Objects { objects } = tree.list(0, 100).unwrap() else { panic!() };
        let DataReply::Objects { objects: looked } = tree.look(&[7, 8, 9]).unwrap() else {
            panic!()
        };
        assert_eq!(objects, looked);
        objects.0.iter().map(|one| (one.id, one.epoch, one.bytes)).collect()
    }

    fn read(tree: &DataTree, id: Id, epoch: u32) -> std::result::Result<u64, u32> {
        match tree.to_read(&tree.object(id), Some(epoch).into()) {
            Ok(file) => Ok(file.map_or(0, |file| file.stat().unwrap().bytes)),
            Err(error) => Err(error.code),
        }
    }

    const ALL: [(Id, u32, u64); 3] = [(7, 0, LOST), (8, 3, LOST), (9, 2, 5)];

    #[test]
    fn what_is_lost_is_an_error_after_a_start_too_and_what_is_there_is_not() {
        run(async |dir| {
            let tree = lost(dir).await;
            for tree in [&tree, &over(dir)] {
                tree.standing.admit_for_test();
                assert_eq!(listed(tree), ALL);
                let found = [(7, 0), (8, 3), (9, 2), (8, 2)].map(|(id, at)| read(tree, id, at));
                assert_eq!(found, [Err(5), Err(5), Ok(5), Err(116)]);
                assert_eq!(read(tree, 10, 0), Ok(0), "of that nothing was here");
                let line = Rc::default();
                let written = tree.file_to_write(&tree.object(7), Some(0).into(), &line, 0..1, 1);
                assert_eq!(written.err().unwrap().code, Errno::EIO);
            }
        });
    }

    #[test]
    fn a_cut_leaves_it_lost_unless_nothing_of_it_stays() {
        run(async |dir| {
            let tree = lost(dir).await;
            tree.cut(7, 1, 10).await.unwrap();
            tree.cut(8, 3, 10).await.unwrap();
            assert_eq!((read(&tree, 7, 1), read(&tree, 7, 0)), (Err(5), Err(116)));
            let tree = over(dir);
            tree.standing.admit_for_test();
            assert_eq!(listed(&tree), [(7, 1, LOST), (8, 3, LOST), (9, 2, 5)]);
            tree.cut(7, 2, 0).await.unwrap();
            tree.cut(8, 4, 0).await.unwrap();
            for tree in [&tree, &over(dir)] {
                assert_eq!(listed(tree), [(7, 2, 0), (8, 4, 0), (9, 2, 5)]);
            }
            assert_eq!((read(&tree, 7, 2), read(&tree, 8, 4)), (Ok(0), Ok(0)));
        });
    }

    #[test]
    fn what_is_removed_accepted_or_has_left_is_lost_no_more() {
        run(async |dir| {
            let tree = lost(dir).await;
            tree.remove_all(&[Doomed { id: 7, epoch: 0 }]).unwrap();
            assert_eq!(listed(&tree), [(8, 3, LOST), (9, 2, 5)]);
            tree.clone().forgive(vec![7, 8, 9]).await.unwrap();
            for tree in [&tree, &over(dir)] {
                assert_eq!(listed(tree), [(8, 3, 0), (9, 2, 5)]);
            }
            assert_eq!(read(&tree, 8, 3), Ok(0));
        });
        run(async |dir| {
            let tree = lost(dir).await;
            tree.leave(&[Doomed { id: 8, epoch: 4 }]).await.unwrap();
            assert_eq!(listed(&tree)[1], (8, covey_stripe::objects::LEFT | 4, 0));
        });
    }

    #[test]
    fn of_a_mark_and_an_object_the_object_counts() {
        run(async |dir| {
            let tree = lost(dir).await;
            // The power went before the mark was removed.
            std::fs::write(tree.path(7, 1), "new").unwrap();
            std::fs::write(tree.path(8, 3), "").unwrap();
            let tree = over(dir);
            tree.standing.admit_for_test();
            assert_eq!(listed(&tree), [(7, 1, 3), (8, 3, 0), (9, 2, 5)]);
            assert!(!tree.lost_path(7, 0).exists() && !tree.lost_path(8, 3).exists());
        });
    }
}
