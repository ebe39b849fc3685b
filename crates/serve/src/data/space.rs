//! Space within objects: what fallocate(2) does to them, and where their data is.

use super::{DataTree, Line, Object, Writing};
use covey_io::disk::DiskFile;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::objects::{At, DataReply, Reshape};
use covey_stripe::ops::Id;
use std::io;
use std::ops::Range;
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
            tree.becomes_free(&object, &line, offset, end).await;
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
        self.noted.touch_range(object.id, offset..end);
        object.version.set(object.version.get().wrapping_add(1));
        Ok(Some((file, self.begin_writing(object, offset, end))))
    }

    /// The object's file, where all of a range is data.
    pub(super) fn file_of_data(
        &self,
        object: &Object,
        range: Range<u64>,
    ) -> Result<Option<Arc<dyn DiskFile>>> {
        let Some(file) = self.file_there(object)? else { return Ok(None) };
        let first = file.extent(range.start)?;
        let is_data = first.is_some_and(|(data, hole)| data <= range.start && range.end <= hole);
        Ok(is_data.then_some(file))
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

#[cfg(test)]
mod tests {
    use super::*;
    use covey_io::sim::{DiskProfile, Rng, SimDisk};
    use covey_wire::Bytes;
    use std::path::Path;

    const MIB: u64 = 1 << 20;

    /// A file system on a volume has its journal where it always was.
    #[test]
    fn what_has_its_space_can_be_written_when_nothing_new_can() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let disk = SimDisk::new(DiskProfile::default(), Rng::new(1));
            let tree = DataTree::open(Arc::new(disk.clone()), Path::new("/store")).unwrap();
            let (tree, line) = (Rc::new(tree), Rc::default());
            tree.standing.admit_for_test();
            let object = tree.object(7);
            let write = async |offset| {
                let data = Bytes::from(vec![1; MIB as usize]);
                tree.write_object(&object, Some(0).into(), &line, offset, data).wait().await
            };
            for offset in 0..4 {
                write(offset * MIB).await.unwrap();
            }
            disk.set_capacity(disk.used() + MIB / 2);
            // It is looked at now and then only.
            let write_now = async |offset| {
                tree.unchecked_bytes.set(super::super::RESERVE_CHECK_BYTES);
                write(offset).await.map_err(|error| error.code)
            };
            for (offset, is_there) in [
                (0, true),
                (3 * MIB, true),
                (MIB / 2, true),
                (4 * MIB - 1, false),
                (4 * MIB, false),
                (9 * MIB, false),
            ] {
                let written = if is_there { Ok(MIB as u32) } else { Err(Errno::ENOSPC) };
                assert_eq!(write_now(offset).await, written, "{offset}");
            }
        });
    }
}
