//! Syncs of an object: one at a time, each for all who asked before it began.
//!
//! The system tells of a failure once. So a sync is a task of its own, which notes what has failed although
//! whoever asked for it has gone, and nobody else is answered before that is known.

use super::{DataTree, Line, Object};
use covey_io::disk::{DiskFile, Flush};
use covey_io::task;
use covey_ninep::tree::Result;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// Who has asked for a sync of an object, by number.
#[derive(Default)]
pub(super) struct Syncs {
    asked: Cell<u64>,
    /// The last one that was asked for before a sync began that is over.
    done: Cell<u64>,
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
        let number = syncs.ask();
        while syncs.done.get() < number {
            if syncs.is_running.get() {
                syncs.ended.notified().await;
            } else {
                let running = Running::begin(object);
                task::spawn(run(self.clone(), running, file.clone())).await?;
            }
        }
        self.tell_loss(object.id, line)
    }
}

async fn run(tree: Rc<DataTree>, running: Running, file: Arc<dyn DiskFile>) {
    let object = &running.0;
    let (covered, epoch) = (object.syncs.asked.get(), object.epoch.get());
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
        // A cut meanwhile has given it another name.
        Ok(()) if object.epoch.get() == epoch => object.is_name_dirty.set(false),
        Ok(()) => {}
        Err(error) => tree.note_loss(object.id, &error).await,
    }
    object.syncs.done.set(covered);
}
