//! Truncations and removals of objects.

use super::{DataTree, Object};
use covey_io::disk::Open;
use covey_io::task;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::objects::{self, DataReply, Doomed};
use covey_stripe::ops::Id;
use std::rc::Rc;

impl DataTree {
    pub(super) async fn cut(self: &Rc<Self>, id: Id, epoch: u32, size: u64) -> Result<DataReply> {
        let object = self.object(id);
        while object.is_cutting.get() {
            object.ended.notified().await;
        }
        if objects::is_left(self.epoch_of(id)) {
            let text = format!("file {id} has left this server: the metadata is older than that");
            return Err(Errno::because(Errno::EIO, text));
        }
        if self.epoch_of(id) >= epoch {
            return self.keep_cut(&object).await;
        }
        if self.is_lost(id) && size > 0 {
            self.raise_lost(&object, epoch)?;
        } else {
            let before = self.epoch_of(id);
            self.raise(&object, epoch, size).await?;
            self.remove_mark(id, before);
        }
        self.unstage_up_to(id, epoch)?;
        self.keep_cut(&object).await
    }

    pub(super) async fn raise(&self, object: &Rc<Object>, epoch: u32, size: u64) -> Result<()> {
        let id = object.id;
        let cutting = Cutting::begin(object);
        while !object.writing.borrow().is_empty() {
            object.ended.notified().await;
        }
        // A cut that comes late, or has waited, must not bring back what was removed since.
        if self.gone.borrow().has_at(id, epoch & !objects::LEFT) {
            return Ok(());
        }
        self.touch(id);
        let before = self.path(id, self.epoch_of(id));
        let file = self.disk.open(&before, Open::Create)?;
        self.standing.has_object();
        // Not longer, but what was allocated beyond the end goes too.
        file.set_length(size.min(file.stat()?.bytes))?;
        self.disk.rename(&before, &self.path(id, epoch))?;
        object.epoch.set(epoch);
        object.is_name_dirty.set(true);
        object.version.set(object.version.get().wrapping_add(1));
        self.epochs.borrow_mut().insert(id, epoch);
        // A file that was given another striping lives on here at its new epoch.
        self.gone.borrow_mut().is_back(id);
        drop(cutting);
        Ok(())
    }

    /// A cut is done when it is on the disk: the metadata server forgets it then, and nobody would
    /// cut again what a loss of power brings back.
    pub(super) async fn keep_cut(self: &Rc<Self>, object: &Rc<Object>) -> Result<DataReply> {
        if object.is_name_dirty.get() {
            // The system tells of a failure once: it is noted although whoever asked may have gone.
            let (tree, object) = (self.clone(), object.clone());
            task::spawn(async move { tree.sync_name(&object).await }).await??;
        }
        Ok(DataReply::Done {})
    }

    async fn sync_name(&self, object: &Object) -> Result<()> {
        let epoch = object.epoch.get();
        let path = self.path(object.id, epoch);
        let dir = path.parent().expect("objects lie in directories").to_owned();
        let disk = self.disk.clone();
        if let Err(error) = task::blocking(move || disk.sync_dir(&dir)).await {
            self.note_loss(object.id, &error).await;
            return Err(error.into());
        }
        object.is_name_dirty.set(object.epoch.get() != epoch);
        Ok(())
    }

    /// The same on all chains: what files that are gone have left wherever they lay.
    pub(super) fn remove_everywhere(&self, doomed: &[Doomed]) -> Result<DataReply> {
        self.remove_all(doomed)?;
        self.others().iter().try_for_each(|tree| tree.remove_all(doomed).map(drop))?;
        Ok(DataReply::Done {})
    }

    pub(super) fn remove_all(&self, doomed: &[Doomed]) -> Result<DataReply> {
        for &Doomed { id, epoch } in doomed {
            let current = self.epoch_of(id);
            // What the file has left goes with the file.
            if current & !objects::LEFT > epoch {
                continue;
            }
            self.gone.borrow_mut().add(id, epoch);
            self.touch(id);
            self.unstage_up_to(id, epoch)?;
            match self.disk.remove(&self.path(id, current)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
            self.remove_mark(id, current);
            self.epochs.borrow_mut().remove(&id);
            self.losses.borrow_mut().forget((self.chain, id));
            if let Some(object) = self.held.borrow_mut().remove(&id).and_then(|held| held.upgrade())
            {
                *object.file.borrow_mut() = None;
                // Whoever holds it still reads no zeros in place of what lies elsewhere by now.
                object.epoch.set(u32::MAX);
            }
            self.counters.objects_removed.add(1);
        }
        Ok(DataReply::Done {})
    }
}

/// A cut under way. A cut that is given up leaves the object as it was, or shorter at its old epoch.
pub(super) struct Cutting(Rc<Object>);

impl Cutting {
    pub fn begin(object: &Rc<Object>) -> Cutting {
        object.is_cutting.set(true);
        Cutting(object.clone())
    }
}

impl Drop for Cutting {
    fn drop(&mut self) {
        self.0.is_cutting.set(false);
        self.0.ended.notify_waiters();
    }
}
