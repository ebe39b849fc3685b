//! A copy of the metadata beside the objects, so that storage directories can be read without the
//! metadata store: see `docs/design` on salvage.
//!
//! It comes in pieces and takes the place of the copy before when it is whole.

use super::DataTree;
use covey_io::disk::{DiskFile, Flush, Open};
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::objects::DataReply;
use covey_wire::Bytes;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

/// The copy, in the storage directory.
pub const FILE: &str = "metadata.copy";
const FILE_NEW: &str = "metadata.copy.new";

impl DataTree {
    /// Takes the piece at `offset`; with `end` the copy is whole.
    pub(super) fn keep(self: &Rc<Self>, offset: u64, data: Bytes, end: bool) -> Outcome<DataReply> {
        let open = || -> Result<Arc<dyn DiskFile>> {
            let how = if offset == 0 { Open::Truncate } else { Open::Existing };
            let file = self.disk.open(&self.store.join(FILE_NEW), how)?;
            if file.stat()?.bytes != offset {
                return Err(Errno::because(Errno::EINVAL, "the copy was begun by somebody else"));
            }
            Ok(file)
        };
        let file = match open() {
            Ok(file) => file,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let (disk, store) = (self.disk.clone(), self.store.clone());
        Outcome::later(async move {
            task::blocking(move || {
                let count = file.write_all_blocking(offset, &[IoSlice::new(&data)])?;
                if count != data.len() {
                    return Err(std::io::ErrorKind::StorageFull.into());
                }
                if end {
                    file.sync_blocking(Flush::All)?;
                    disk.rename(&store.join(FILE_NEW), &store.join(FILE))?;
                    disk.sync_dir(&store)?;
                }
                Ok(())
            })
            .await?;
            Ok(DataReply::Done {})
        })
    }
}
