//! A chain that is copied to another server while it serves: what has changed since, and what there is to be copied.
//!
//! The mover copies everything, then what has changed meanwhile, again and again until that is little; then the metadata
//! server takes the chain from this server, and the mover copies what is left. What changes is noted by blocks, in memory
//! that is bounded: where it does not suffice, everything counts as changed.

use super::{DataTree, Line};
use covey_io::disk::{DiskFile, Open};
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::objects::{CHANGES_MAX, COPY_BLOCK, Changed, DataReply, FileOf, Kept, WHOLE};
use covey_stripe::ops::Id;
use covey_wire::{List, Payload};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Blocks of one write that are noted one by one.
const BLOCKS_MAX: u64 = 64;

/// What has changed since it was asked last.
#[derive(Default)]
pub(super) struct Changes {
    parts: HashSet<(Id, u32)>,
    /// More than can be noted.
    is_all: bool,
}

impl Changes {
    fn add(&mut self, id: Id, blocks: Range<u64>) {
        if self.is_all || self.parts.contains(&(id, WHOLE)) {
            return;
        }
        if blocks.end >= u64::from(WHOLE) || blocks.end - blocks.start > BLOCKS_MAX {
            self.parts.insert((id, WHOLE));
        } else {
            self.parts.extend(blocks.map(|block| (id, block as u32)));
        }
        if self.parts.len() > CHANGES_MAX {
            (self.parts, self.is_all) = (HashSet::new(), true);
        }
    }
}

/// What is noted of a chain, as long as somebody wants to know.
#[derive(Default)]
pub(super) struct Noted {
    is_on: Cell<bool>,
    /// The connection of who wants to know.
    line: RefCell<Weak<Line>>,
    changes: RefCell<Changes>,
}

impl Noted {
    fn is_for(&self, line: &Rc<Line>) -> bool {
        self.line.borrow().upgrade().is_some_and(|own| Rc::ptr_eq(&own, line))
    }

    /// A range of an object changes, or has changed: said before and after what takes time.
    pub fn touch_range(&self, id: Id, range: Range<u64>) {
        if !self.is_on.get() {
            return;
        }
        if self.line.borrow().strong_count() == 0 {
            // Nobody asks any more.
            self.is_on.set(false);
            self.changes.take();
            return;
        }
        let blocks = range.start / COPY_BLOCK..range.end.div_ceil(COPY_BLOCK);
        self.changes.borrow_mut().add(id, blocks);
    }
}

impl DataTree {
    /// An object changes, or what is beside it.
    pub(super) fn touch(&self, id: Id) {
        self.noted.touch_range(id, 0..u64::MAX);
    }

    /// Begins to note what changes, or ends that.
    pub(super) fn watch_changes(&self, line: &Rc<Line>, is_on: bool) -> Result<DataReply> {
        if !is_on && !self.noted.is_for(line) {
            return Ok(DataReply::Done {});
        }
        self.noted.changes.take();
        self.noted.line.replace(Rc::downgrade(line));
        self.noted.is_on.set(is_on);
        Ok(DataReply::Done {})
    }

    /// What has changed since this was asked last. ESTALE where nobody has noted it, and for whoever asks on another connection
    /// than before: what was told on that one may not have arrived.
    pub(super) fn take_changes(&self, line: &Rc<Line>) -> Result<DataReply> {
        if !self.noted.is_on.get() || !self.noted.is_for(line) {
            let what = "what has changed is not known: the server has started anew since, or the connection is another";
            return Err(Errno::because(Errno::ESTALE, what));
        }
        let Changes { parts, is_all } = self.noted.changes.take();
        let mut parts: Vec<Changed> =
            parts.into_iter().map(|(id, block)| Changed { id, block }).collect();
        parts.sort_unstable();
        Ok(DataReply::Changes { is_all, parts: List(parts) })
    }

    /// An answer to a mover, unless the system has failed to write back anything of what is open here: what was read since may be
    /// older than what was written, and whoever syncs it elsewhere would not hear of that.
    pub(super) fn if_kept(self: &Rc<Self>, answer: Result<DataReply>) -> Outcome<DataReply> {
        let tree = self.clone();
        Outcome::later(async move {
            let answer = answer?;
            tree.look_for_losses().await?;
            if tree.losses.borrow().concern(tree.chain) {
                tree.noted.is_on.set(false);
                let what =
                    "the disk has failed to keep what was written: move the files, not the chain";
                return Err(Errno::because(Errno::EIO, what));
            }
            Ok(answer)
        })
    }

    /// The files of the chain's objects, and of what is beside them: those of about `count` ids, after one.
    pub(super) fn list_files(&self, after: Id, count: u32) -> Result<DataReply> {
        let (mut files, mut ids, fanout) = (Vec::new(), 0, self.fanout);
        for low in after % fanout..fanout {
            let mut last = None;
            for found in self.scan(low)? {
                if low == after % fanout && found.id <= after {
                    continue;
                }
                if last != Some(found.id) {
                    if ids >= count {
                        return Ok(DataReply::Files { files: List(files) });
                    }
                    (last, ids) = (Some(found.id), ids + 1);
                }
                let bytes = match self.disk.stat(&found.path) {
                    Ok(stat) => stat.bytes,
                    // It has changed since, and is copied once more.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                    Err(error) => return Err(error.into()),
                };
                let kept = found.kept as u8;
                files.push(FileOf { id: found.id, epoch: found.epoch, kept, bytes });
            }
        }
        Ok(DataReply::Files { files: List(files) })
    }

    /// The same of some ids.
    pub(super) fn files_of(&self, ids: &[Id]) -> Result<DataReply> {
        let mut files = Vec::new();
        for &id in ids {
            let epoch = self.epoch_of(id);
            let staged = self.staged.borrow().get(&id).cloned().unwrap_or_default();
            let beside = staged.into_iter().map(|epoch| (epoch, Kept::Staged));
            for (epoch, kept) in
                [(epoch, Kept::Object), (epoch, Kept::Lost)].into_iter().chain(beside)
            {
                match self.disk.stat(&self.path_of(id, epoch, kept)) {
                    Ok(stat) => {
                        files.push(FileOf { id, epoch, kept: kept as u8, bytes: stat.bytes });
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(DataReply::Files { files: List(files) })
    }

    /// The first bytes of a file at or after `offset`, of `count` bytes from there; none where there are only zeros, up to
    /// where the answer's offset says.
    pub(super) fn fetch(
        self: &Rc<Self>,
        (id, epoch, kept): (Id, u32, u8),
        offset: u64,
        count: u32,
    ) -> Outcome<DataReply> {
        let Some(kept) = Kept::of(kept).filter(|_| count <= FETCH_MAX) else {
            return Errno::EINVAL.into();
        };
        let (disk, path) = (self.disk.clone(), self.path_of(id, epoch, kept));
        Outcome::later(async move {
            let read = task::blocking(move || {
                let file = disk.open(&path, Open::Existing)?;
                fetch(&file, offset, offset.saturating_add(count.into()))
            });
            let (offset, data) = read.await?;
            Ok(DataReply::Fetched { offset, data })
        })
    }
}

fn fetch(file: &Arc<dyn DiskFile>, offset: u64, end: u64) -> io::Result<(u64, Payload)> {
    let end = end.min(file.stat()?.bytes);
    let run = match file.extent(offset) {
        _ if offset >= end => None,
        // Where nobody can say, all is data.
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Some((offset, end)),
        run => run?,
    };
    let (data, hole) = run.unwrap_or((u64::MAX, u64::MAX));
    // A hole may be long: whoever asks goes on behind it.
    if data >= hole.min(end) {
        return Ok((data, Payload::from(Vec::new())));
    }
    let bytes = file.read_blocking(data, (hole.min(end) - data) as usize)?;
    Ok((data, Payload::from(bytes)))
}

/// Most bytes fetched with one request.
const FETCH_MAX: u32 = 1 << 20;
