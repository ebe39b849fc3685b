//! What is to be an object at a later epoch: it is put together beside the object, on the disk, and takes its place when
//! the metadata server says so.
//!
//! It lies in a file of its own, `ID.EPOCH.part`, which is no object: a start finds it, and whoever wanted it goes on.

use super::{Cutting, DataTree, Line};
use covey_io::disk::{DiskFile, Flush, Open};
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::objects::{self, DataReply, Doomed, Kept, Object, Staging};
use covey_stripe::ops::Id;
use covey_wire::{Bytes, List};
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// What is being staged for an object.
#[derive(Default)]
pub(super) struct Part {
    /// Writes that have begun.
    busy: Cell<u32>,
    ended: Notify,
}

impl Part {
    async fn is_quiet(&self) {
        while self.busy.get() > 0 {
            self.ended.notified().await;
        }
    }
}

impl DataTree {
    fn part(&self, id: Id, epoch: u32) -> PathBuf {
        self.path_of(id, epoch, Kept::Staged)
    }

    pub(super) fn stage(
        self: &Rc<Self>,
        line: &Line,
        (id, epoch): (Id, u32),
        how: u8,
        offset: u64,
        data: Bytes,
    ) -> Outcome<DataReply> {
        let Some(how) = Staging::of(how) else { return Errno::EINVAL.into() };
        let file = match line.admit().and_then(|()| self.staged(id, epoch, how, data.len() as u64))
        {
            Ok(file) => file,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let (file, part) = file;
        let (tree, path) = (self.clone(), self.part(id, epoch));
        Outcome::later(async move {
            if how == Staging::End {
                part.is_quiet().await;
            }
            part.busy.set(part.busy.get() + 1);
            // In a task of its own: whoever asked may be gone, and what it has begun still counts.
            let turn = tree.chains.turn();
            let writing = task::spawn(async move {
                let disk = tree.disk.clone();
                let written = task::blocking(move || {
                    write(&*file, how, offset, &data)?;
                    match (how, path.parent()) {
                        (Staging::End, Some(dir)) => disk.sync_dir(dir),
                        _ => Ok(()),
                    }
                });
                let written = written.await;
                // The system tells of a failure once: asked again, it would be no failure.
                if written.is_err() {
                    tree.staging.borrow_mut().remove(&(id, epoch));
                }
                tree.touch(id);
                part.busy.set(part.busy.get() - 1);
                part.ended.notify_waiters();
                drop(turn);
                written
            });
            writing.await??;
            Ok(DataReply::Done {})
        })
    }

    fn staged(
        &self,
        id: Id,
        epoch: u32,
        how: Staging,
        bytes: u64,
    ) -> Result<(Arc<dyn DiskFile>, Rc<Part>)> {
        let has = self.epoch_of(id);
        let is_late = !objects::is_left(has) && epoch <= has;
        if is_late || objects::is_left(epoch) || self.gone.borrow().has_at(id, epoch) {
            return Err(Errno::because(
                Errno::ESTALE,
                "the object is at that epoch, or was removed",
            ));
        }
        self.check_reserve(bytes)?;
        let begun = self.staging.borrow().get(&(id, epoch)).cloned();
        let part = match begun {
            Some(part) => part,
            None if how == Staging::Begin => {
                let part = Rc::new(Part::default());
                self.staging.borrow_mut().insert((id, epoch), part.clone());
                part
            }
            None => {
                let what = "what was staged may be lost: the server has started anew since, or its disk has failed";
                return Err(Errno::because(Errno::ESTALE, what));
            }
        };
        self.touch(id);
        self.staged.borrow_mut().entry(id).or_default().insert(epoch);
        let open = if how == Staging::Begin { Open::Truncate } else { Open::Existing };
        Ok((self.disk.open(&self.part(id, epoch), open)?, part))
    }

    /// What was staged takes the object's place, whatever that was.
    pub(super) async fn install(
        self: &Rc<Self>,
        id: Id,
        epoch: u32,
        bytes: u64,
    ) -> Result<DataReply> {
        let begun = self.staging.borrow().get(&(id, epoch)).cloned();
        if let Some(part) = begun {
            part.is_quiet().await;
        }
        let object = self.object(id);
        while object.is_cutting.get() {
            object.ended.notified().await;
        }
        let before = self.epoch_of(id);
        // What is lost at this epoch is not installed: its bytes may still be where the file came from.
        if before >= epoch && !objects::is_left(before) && !self.is_lost(id) {
            return self.keep_cut(&object).await;
        }
        let cutting = Cutting::begin(&object);
        while !object.writing.borrow().is_empty() {
            object.ended.notified().await;
        }
        if self.gone.borrow().has_at(id, epoch) {
            return Ok(DataReply::Done {});
        }
        self.touch(id);
        self.check_part(id, epoch, bytes)?;
        self.take_part(id, epoch, bytes)?;
        self.standing.has_object();
        *object.file.borrow_mut() = None;
        object.epoch.set(epoch);
        object.is_name_dirty.set(true);
        object.version.set(object.version.get().wrapping_add(1));
        self.epochs.borrow_mut().insert(id, epoch);
        self.gone.borrow_mut().is_back(id);
        self.remove_mark(id, before);
        // A start that finds both removes the older: it is in nobody's way until then.
        if before != epoch
            && let Err(error) = remove_if_there(self, &self.path(id, before))
        {
            tracing::warn!("an object that was replaced is left: {error}");
        }
        self.unstage_up_to(id, epoch)?;
        drop(cutting);
        self.keep_cut(&object).await
    }

    /// Objects of files that lie elsewhere now, unless they are of a later epoch: the file has come back.
    pub(super) async fn leave(self: &Rc<Self>, left: &[Doomed]) -> Result<DataReply> {
        let mut answer = Ok(DataReply::Done {});
        for &Doomed { id, epoch } in left {
            // One that cannot is no reason for the others to stay.
            if let Err(error) = self.leave_one(id, epoch).await {
                answer = answer.and(Err(error));
            }
        }
        answer
    }

    async fn leave_one(self: &Rc<Self>, id: Id, epoch: u32) -> Result<()> {
        let object = self.object(id);
        while object.is_cutting.get() {
            object.ended.notified().await;
        }
        let current = self.epoch_of(id);
        if !objects::is_left(current) && current <= epoch {
            self.raise(&object, objects::LEFT | epoch, 0).await?;
            self.remove_mark(id, current);
            self.unstage_up_to(id, epoch)?;
        }
        self.keep_cut(&object).await.map(drop)
    }

    /// Zeros in place of bytes that were staged and are not there would be a loss that nobody sees.
    fn check_part(&self, id: Id, epoch: u32, bytes: u64) -> Result<()> {
        let has = match self.disk.stat(&self.part(id, epoch)) {
            Ok(stat) => stat.bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        };
        if has != bytes {
            let text = format!("{has} of {bytes} bytes are staged for object {id:016x}");
            return Err(Errno::because(Errno::EIO, text));
        }
        Ok(())
    }

    fn take_part(&self, id: Id, epoch: u32, bytes: u64) -> Result<()> {
        let path = self.path(id, epoch);
        if bytes == 0 {
            self.disk.open(&path, Open::Create)?;
            return Ok(());
        }
        Ok(self.disk.rename(&self.part(id, epoch), &path)?)
    }

    /// What is staged, after an object's number and in the order of these.
    pub(super) fn list_staged(&self, after: Id, count: u32) -> Result<DataReply> {
        let staged = self.staged.borrow();
        let mut ids: Vec<&Id> = staged.keys().filter(|id| **id > after).collect();
        ids.sort_unstable();
        let of =
            |id: &Id| staged[id].iter().map(|&epoch| Object { id: *id, epoch, bytes: 0 }).collect();
        let found = ids.into_iter().take(count as usize).flat_map(|id| -> Vec<Object> { of(id) });
        Ok(DataReply::Objects { objects: List(found.collect()) })
    }

    pub(super) fn unstage(&self, id: Id, epoch: u32) -> Result<DataReply> {
        let is_staged = self.staged.borrow().get(&id).is_some_and(|epochs| epochs.contains(&epoch));
        if is_staged {
            self.remove_part(id, epoch)?;
        }
        Ok(DataReply::Done {})
    }

    /// What was staged up to this epoch is not wanted any more: the object is there, or the file is gone.
    pub(super) fn unstage_up_to(&self, id: Id, epoch: u32) -> Result<()> {
        let staged = self.staged.borrow().get(&id).cloned().unwrap_or_default();
        staged.range(..=epoch).try_for_each(|&old| self.remove_part(id, old))
    }

    fn remove_part(&self, id: Id, epoch: u32) -> Result<()> {
        self.touch(id);
        self.staging.borrow_mut().remove(&(id, epoch));
        remove_if_there(self, &self.part(id, epoch))?;
        let mut staged = self.staged.borrow_mut();
        if let Some(epochs) = staged.get_mut(&id) {
            epochs.remove(&epoch);
            if epochs.is_empty() {
                staged.remove(&id);
            }
        }
        Ok(())
    }
}

fn remove_if_there(tree: &DataTree, path: &std::path::Path) -> Result<()> {
    match tree.disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn write(file: &dyn DiskFile, how: Staging, offset: u64, data: &[u8]) -> io::Result<()> {
    if !data.is_empty() && file.write_all_blocking(offset, &[IoSlice::new(data)])? != data.len() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    if how == Staging::End {
        file.set_length(offset)?;
        file.sync_blocking(Flush::All)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::DataTree;
    use super::*;
    use covey_io::os::disk::OsDisk;
    use covey_stripe::objects::LEFT;
    use std::path::Path;

    struct Rig {
        tree: Rc<DataTree>,
        line: Rc<Line>,
    }

    impl Rig {
        fn over(dir: &Path) -> Rig {
            let tree = DataTree::open(Arc::new(OsDisk), dir).unwrap();
            tree.standing.admit_for_test();
            Rig { tree: Rc::new(tree), line: Rc::default() }
        }

        async fn stage(&self, epoch: u32, how: Staging, offset: u64, data: &[u8]) -> Result<()> {
            let data = Bytes::copy_from_slice(data);
            let staged = self.tree.stage(&self.line, (7, epoch), how as u8, offset, data);
            staged.wait().await.map(drop)
        }

        async fn stage_all(&self, epoch: u32, data: &[u8]) {
            self.stage(epoch, Staging::Begin, 0, b"").await.unwrap();
            self.stage(epoch, Staging::Go, 0, data).await.unwrap();
            self.stage(epoch, Staging::End, data.len() as u64, b"").await.unwrap();
        }

        fn content(&self, epoch: u32) -> Option<Vec<u8>> {
            std::fs::read(self.tree.path(7, epoch)).ok()
        }

        fn names(&self) -> usize {
            std::fs::read_dir(self.tree.path(7, 0).parent().unwrap()).unwrap().count()
        }
    }

    fn run(test: impl AsyncFnOnce(&Path)) {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test(directory.path()));
    }

    #[test]
    fn what_was_staged_takes_the_place_of_the_object_and_nothing_is_left_of_that() {
        run(async |dir| {
            let rig = Rig::over(dir);
            std::fs::write(rig.tree.path(7, 0), "old and longer").unwrap();
            let old = rig.tree.object(7);
            rig.stage_all(2, b"new").await;
            assert_eq!(rig.content(0).unwrap(), b"old and longer");
            rig.tree.install(7, 2, 3).await.unwrap();
            assert_eq!((rig.content(2).unwrap(), rig.names()), (b"new".to_vec(), 1));
            assert!(rig.tree.to_read(&old, Some(0).into()).is_err(), "whoever held it is too old");
            // Once more, as after a lost answer, and after a start.
            rig.tree.install(7, 2, 3).await.unwrap();
            let rig = Rig::over(dir);
            rig.tree.install(7, 2, 3).await.unwrap();
            assert_eq!((rig.content(2).unwrap(), rig.names()), (b"new".to_vec(), 1));
        });
    }

    #[test]
    fn what_is_missing_or_not_whole_is_an_error_and_never_zeros() {
        run(async |dir| {
            let rig = Rig::over(dir);
            std::fs::write(rig.tree.path(7, 0), "old").unwrap();
            assert!(rig.tree.install(7, 1, 3).await.is_err());
            rig.stage_all(1, b"12").await;
            let error = rig.tree.install(7, 1, 3).await.unwrap_err();
            assert!(error.to_string().contains("2 of 3 bytes"), "{error}");
            assert_eq!(rig.content(0).unwrap(), b"old");
            rig.stage_all(1, b"123").await;
            rig.tree.install(7, 1, 3).await.unwrap();
            assert_eq!(rig.content(1).unwrap(), b"123");
            // A slot without bytes needs nothing staged.
            rig.tree.install(7, 2, 0).await.unwrap();
            assert_eq!((rig.content(2).unwrap(), rig.names()), (Vec::new(), 1));
        });
    }

    #[test]
    fn a_start_finds_what_is_staged_and_of_two_names_keeps_the_newer() {
        run(async |dir| {
            let rig = Rig::over(dir);
            std::fs::write(rig.tree.path(7, 0), "old").unwrap();
            rig.stage_all(3, b"new").await;
            let rig = Rig::over(dir);
            let late = rig.stage(3, Staging::Go, 0, b"new").await.unwrap_err();
            assert_eq!(late.code, Errno::ESTALE, "what came before it may be lost");
            rig.tree.install(7, 3, 3).await.unwrap();
            assert_eq!(rig.content(3).unwrap(), b"new");
            // The power went between the two steps of an installation.
            std::fs::write(rig.tree.path(7, 0), "old").unwrap();
            std::fs::write(rig.tree.path(7, 2), "older").unwrap();
            let rig = Rig::over(dir);
            assert_eq!((rig.tree.epoch_of(7), rig.names()), (3, 1));
        });
    }

    #[test]
    fn what_nobody_installs_goes_with_the_object_s_next_epoch_or_its_end() {
        run(async |dir| {
            let rig = Rig::over(dir);
            std::fs::write(rig.tree.path(7, 0), "old").unwrap();
            rig.stage_all(2, b"one").await;
            rig.stage_all(4, b"other").await;
            rig.tree.cut(7, 3, 1).await.unwrap();
            assert_eq!(rig.names(), 2, "the later one may still be wanted");
            assert!(rig.stage(3, Staging::Begin, 0, b"").await.is_err(), "that epoch is taken");
            rig.tree.unstage(7, 4).unwrap();
            assert_eq!(rig.names(), 1);
            rig.stage_all(5, b"other").await;
            rig.tree.remove_all(&[Doomed { id: 7, epoch: 9 }]).unwrap();
            assert_eq!(rig.names(), 0);
            assert!(rig.stage(6, Staging::Begin, 0, b"").await.is_err(), "the file is gone");
        });
    }

    #[test]
    fn what_a_file_has_left_is_too_new_for_all_and_only_an_installation_takes_its_place() {
        run(async |dir| {
            let rig = Rig::over(dir);
            std::fs::write(rig.tree.path(7, 0), "old").unwrap();
            let old = rig.tree.object(7);
            let leave = async |epoch| rig.tree.leave(&[Doomed { id: 7, epoch }]).await.unwrap();
            leave(3).await;
            assert_eq!((rig.content(LEFT | 3).unwrap(), rig.names()), (Vec::new(), 1));
            for epoch in [0, 3, 4, 1000] {
                assert!(rig.tree.to_read(&old, Some(epoch).into()).is_err(), "{epoch}");
            }
            // Metadata that is older than the move cannot take it up again, however often it tries.
            for epoch in 1..6 {
                let error = rig.tree.cut(7, epoch, 3).await.unwrap_err();
                assert!(error.to_string().contains("has left this server"), "{error}");
            }
            leave(3).await;
            // The file comes back.
            rig.stage_all(5, b"new").await;
            rig.tree.install(7, 5, 3).await.unwrap();
            assert_eq!((rig.content(5).unwrap(), rig.names()), (b"new".to_vec(), 1));
            leave(4).await;
            assert_eq!(rig.content(5).unwrap(), b"new", "that was late");
            // The power went before what had been left was removed.
            std::fs::write(rig.tree.path(7, LEFT | 3), "").unwrap();
            let rig = Rig::over(dir);
            assert_eq!((rig.tree.epoch_of(7), rig.names()), (5, 1));
            rig.tree.remove_all(&[Doomed { id: 7, epoch: 5 }]).unwrap();
            assert_eq!(rig.names(), 0);
            // What it has left goes with it, unless that was later.
            std::fs::write(rig.tree.path(7, LEFT | 6), "").unwrap();
            let rig = Rig::over(dir);
            rig.tree.remove_all(&[Doomed { id: 7, epoch: 5 }]).unwrap();
            assert_eq!(rig.names(), 1);
            rig.tree.remove_all(&[Doomed { id: 7, epoch: 6 }]).unwrap();
            assert_eq!(rig.names(), 0);
        });
    }

    #[test]
    fn what_is_staged_is_listed_until_it_is_not_wanted() {
        run(async |dir| {
            let rig = Rig::over(dir);
            rig.stage_all(2, b"one").await;
            rig.stage_all(4, b"other").await;
            let listed = |tree: &DataTree, after| match tree.list_staged(after, 10).unwrap() {
                DataReply::Objects { objects } => {
                    objects.0.iter().map(|object| (object.id, object.epoch)).collect::<Vec<_>>()
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(listed(&rig.tree, 0), [(7, 2), (7, 4)]);
            assert_eq!(listed(&rig.tree, 7), []);
            let rig = Rig::over(dir);
            assert_eq!(listed(&rig.tree, 0), [(7, 2), (7, 4)]);
            rig.tree.unstage(7, 2).unwrap();
            rig.tree.unstage(7, 4).unwrap();
            assert_eq!((listed(&rig.tree, 0), rig.names()), (vec![], 0));
            assert!(rig.tree.staged.borrow().is_empty());
        });
    }

    #[test]
    fn an_installation_waits_for_what_is_still_being_written() {
        run(async |dir| {
            let rig = Rig::over(dir);
            rig.stage_all(2, b"new").await;
            let part = rig.tree.staging.borrow()[&(7, 2)].clone();
            part.busy.set(1);
            let install = async { rig.tree.install(7, 2, 3).await.unwrap() };
            let end = async {
                tokio::task::yield_now().await;
                assert_eq!(rig.content(2), None);
                part.busy.set(0);
                part.ended.notify_waiters();
            };
            futures_util::future::join(install, end).await;
            assert_eq!(rig.content(2).unwrap(), b"new");
        });
    }
}
