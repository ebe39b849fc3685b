//! Syncs of an object: one at a time, each for all who asked before it began.
//!
//! The system tells of a failure once. So a sync is a task of its own, which notes what has failed although
//! whoever asked for it has gone, and nobody else is answered before that is known.

use super::{DataTree, Line, Object};
use covey_io::disk::{DiskFile, Flush};
use covey_io::task;
use covey_ninep::tree::Result;
use covey_stripe::ops::Id;
use std::cell::Cell;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use tokio::sync::Notify;

/// Who has asked for a sync of an object, by number.
#[derive(Default)]
pub(super) struct Syncs {
    asked: Cell<u64>,
    /// The last one that was asked for before a sync began that is over.
    done: Cell<u64>,
    /// Which file that sync was of: a file that has been moved here may have taken its place.
    done_of: Cell<usize>,
    is_running: Cell<bool>,
    ended: Notify,
}

impl Syncs {
    fn ask(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        self.asked.get()
    }
}

/// A sync under way.
struct Running(Rc<Object>);

impl Running {
    fn begin(object: &Rc<Object>) -> Running {
        object.syncs.is_running.set(true);
        Running(object.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.syncs.is_running.set(false);
        self.0.syncs.ended.notify_waiters();
    }
}

impl DataTree {
    /// Brings an object to the disk, for the client of `line`: it hears of each loss once.
    pub(super) async fn sync(
        self: &Rc<Self>,
        object: &Rc<Object>,
        file: Arc<dyn DiskFile>,
        line: &Line,
    ) -> Result<()> {
        let syncs = &object.syncs;
        let mut number = syncs.ask();
        loop {
            if syncs.done.get() >= number {
                if syncs.done_of.get() == address(&file) {
                    break;
                }
                number = syncs.ask();
            }
            if !syncs.is_running.get() {
                let running = Running::begin(object);
                task::spawn(run(self.clone(), running, file.clone())).await?;
                break;
            }
            syncs.ended.notified().await;
        }
        self.tell_loss(object.id, line)
    }

    /// Whether the system has failed to write back anything of what is open here is known after this, and noted as after a sync.
    pub(super) async fn look_for_losses(self: &Rc<Self>) -> Result<()> {
        let held: Vec<Rc<Object>> = self.held.borrow().values().filter_map(Weak::upgrade).collect();
        let is_open = |object: &Rc<Object>| object.file.borrow().is_some();
        let (busy, free): (Vec<_>, Vec<_>) =
            held.into_iter().filter(is_open).partition(|object| object.syncs.is_running.get());
        // Nobody syncs these meanwhile: the system tells of a failure once.
        let turns = free.iter().map(Running::begin).collect();
        task::spawn(look(self.clone(), turns)).await?;
        // What is being synced tells of itself when that is over.
        for object in busy {
            let (syncs, before) = (&object.syncs, object.syncs.done.get());
            while syncs.is_running.get() && syncs.done.get() == before {
                syncs.ended.notified().await;
            }
        }
        Ok(())
    }
}

async fn look(tree: Rc<DataTree>, turns: Vec<Running>) {
    let file = |Running(object): &Running| Some((object.id, object.file.borrow().clone()?));
    let files: Vec<(Id, Arc<dyn DiskFile>)> = turns.iter().filter_map(file).collect();
    let look = move || {
        let failed = |(id, file): (Id, Arc<dyn DiskFile>)| {
            file.check_written_back().err().map(|error| (id, error))
        };
        Ok::<Vec<_>, io::Error>(files.into_iter().filter_map(failed).collect())
    };
    for (id, error) in task::blocking(look).await.unwrap_or_default() {
        tree.note_loss(id, &error).await;
    }
}

fn is_file_of(object: &Object, synced_of: usize) -> bool {
    object.file.borrow().as_ref().is_some_and(|file| address(file) == synced_of)
}

/// No two files have the same as long as one waits for its sync.
fn address(file: &Arc<dyn DiskFile>) -> usize {
    Arc::as_ptr(file).addr()
}

async fn run(tree: Rc<DataTree>, running: Running, file: Arc<dyn DiskFile>) {
    let object = &running.0;
    let (covered, synced_of) = (object.syncs.asked.get(), address(&file));
    let epoch = object.epoch.get();
    let directory = object.is_name_dirty.get().then(|| {
        let path = tree.path(object.id, epoch);
        path.parent().expect("objects lie in directories").to_owned()
    });
    let disk = tree.disk.clone();
    let synced = task::blocking(move || {
        file.sync_blocking(Flush::All)?;
        directory.map_or(Ok(()), |path| disk.sync_dir(&path))
    })
    .await;
    match synced {
        // A cut meanwhile has given it another name, or another file has it.
        Ok(()) if object.epoch.get() == epoch && is_file_of(object, synced_of) => {
            object.is_name_dirty.set(false)
        }
        Ok(()) => {}
        Err(error) => tree.note_loss(object.id, &error).await,
    }
    object.syncs.done.set(covered);
    object.syncs.done_of.set(synced_of);
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_io::disk::FileStat;
    use covey_io::sim::{DiskProfile, Rng, SimDisk};
    use covey_wire::Bytes;
    use std::io::{self, IoSlice};
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Counts its syncs and has nothing else.
    #[derive(Debug, Default)]
    struct Counted(AtomicU32);

    impl DiskFile for Counted {
        fn sync_blocking(&self, _: Flush) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn read_now(&self, _: u64, _: usize) -> io::Result<Option<Bytes>> {
            unreachable!()
        }
        fn write_now(&self, _: u64, _: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
            unreachable!()
        }
        fn read_blocking(&self, _: u64, _: usize) -> io::Result<Bytes> {
            unreachable!()
        }
        fn write_all_blocking(&self, _: u64, _: &[IoSlice<'_>]) -> io::Result<usize> {
            unreachable!()
        }
        fn set_length(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn reserve(&self, _: u64, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn stat(&self) -> io::Result<FileStat> {
            unreachable!()
        }
    }

    /// Two wait for a third; each has its own file, since one was moved here in between.
    #[test]
    fn a_sync_of_the_file_before_is_none_of_the_file_that_took_its_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let disk = SimDisk::new(DiskProfile::default(), Rng::new(1));
        let tree = Rc::new(DataTree::open(Arc::new(disk), Path::new("/store")).unwrap());
        let object = tree.object(7);
        let files = [(); 3].map(|()| Arc::new(Counted::default()));
        let line = Line::default();
        let syncs = files.iter().chain(&files[1..]).map(|file| {
            let file: Arc<dyn DiskFile> = file.clone();
            tree.sync(&object, file, &line)
        });
        let all = futures_util::future::join_all(syncs);
        let done = tokio::task::LocalSet::new().block_on(&runtime, all);
        assert!(done.iter().all(|done| done.is_ok()), "{done:?}");
        for file in &files {
            assert!(file.0.load(Ordering::Relaxed) > 0, "a file was not synced");
        }
    }
}
