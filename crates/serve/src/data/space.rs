//! Space within objects: what fallocate(2) does to them, and where their data is.

use super::{DataTree, Line, Object, Writing};
use covey_io::disk::DiskFile;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::objects::{At, DataReply, Reshape};
use covey_stripe::ops::Id;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

impl DataTree {
    /// Allocates, frees or zeroes a range. It waits for the writes there and holds up later ones. One
    /// that its client has given up and said again on a newer connection comes too late: it would
    /// zero what was written since.
    pub(super) fn reshape(
        self: &Rc<Self>,
        line: &Rc<Line>,
        id: Id,
        at: At,
        how: u8,
        offset: u64,
        length: u64,
    ) -> Outcome<DataReply> {
        let Some(how) = Reshape::of(how) else { return Errno::EOPNOTSUPP.into() };
        let Some(end) = offset.checked_add(length).filter(|&end| end <= i64::MAX as u64) else {
            return Errno::EFBIG.into();
        };
        let (tree, object, line) = (self.clone(), self.object(id), line.clone());
        Outcome::later(async move {
            while object.is_writing(offset, end) {
                object.ended.notified().await;
            }
            line.admit()?;
            let Some((file, writing)) = tree.begin_reshape(&object, at, how, offset, end)? else {
                return Ok(DataReply::Done {});
            };
            // Goes on, and keeps its range, when nobody waits for it any more.
            let work = task::spawn(async move {
                let done = task::blocking(move || carry_out(&*file, how, offset, length)).await;
                drop(writing);
                done
            });
            work.await??;
            Ok(DataReply::Done {})
        })
    }

    fn begin_reshape(
        &self,
        object: &Rc<Object>,
        at: At,
        how: Reshape,
        offset: u64,
        end: u64,
    ) -> Result<Option<(Arc<dyn DiskFile>, Writing)>> {
        self.admit(object, at)?;
        let file = if how.allocates() {
            self.check_reserve(end - offset)?;
            Some(self.file_made(object)?)
        } else {
            self.file_there(object)?
        };
        let Some(file) = file else { return Ok(None) };
        object.version.set(object.version.get().wrapping_add(1));
        Ok(Some((file, self.begin_writing(object, offset, end))))
    }

    /// The first run of data at or after `offset`.
    pub(super) fn extent(self: &Rc<Self>, id: Id, at: At, offset: u64) -> Outcome<DataReply> {
        const NONE: DataReply = DataReply::Extent { data: u64::MAX, hole: u64::MAX };
        let object = self.object(id);
        let file = match self.to_read(&object, at) {
            Ok(Some(file)) if offset <= i64::MAX as u64 => file,
            Ok(_) => return Outcome::Now(Ok(NONE)),
            Err(error) => return Outcome::Now(Err(error)),
        };
        Outcome::later(async move {
            let found = task::blocking(move || file.extent(offset)).await?;
            Ok(found.map_or(NONE, |(data, hole)| DataReply::Extent { data, hole }))
        })
    }
}

fn carry_out(file: &dyn DiskFile, how: Reshape, offset: u64, length: u64) -> io::Result<()> {
    match how {
        Reshape::Allocate => file.allocate(offset, length),
        Reshape::AllocateKeep => file.reserve(offset, length),
        Reshape::Punch => punch(file, offset, length),
        // Not in one step: few file systems zero a range (tmpfs does not), all that punch allocate.
        // Nobody reads between the two what was never there: zeros either way.
        Reshape::Zero => punch(file, offset, length).and_then(|()| file.allocate(offset, length)),
        Reshape::ZeroKeep => {
            punch(file, offset, length).and_then(|()| file.reserve(offset, length))
        }
    }
}

/// A range may reach beyond what the local file system takes for a file: there is nothing there.
fn punch(file: &dyn DiskFile, offset: u64, length: u64) -> io::Result<()> {
    match file.punch(offset, length) {
        Err(error) if error.raw_os_error() == Some(Errno::EFBIG as i32) => {
            match file.stat()?.bytes.saturating_sub(offset) {
                0 => Ok(()),
                rest => file.punch(offset, rest.min(length)),
            }
        }
        outcome => outcome,
    }
}
