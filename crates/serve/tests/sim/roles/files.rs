//! Reads, writes, truncations, fallocates and fsyncs of files that all clients share; of single ranges and
//! of lists.

use super::{Role, Run, repeat, root};
use crate::sim::history::{History, Kind};
use crate::sim::lab::Lab;
use covey_ninep::tree::SetAttr;
use covey_stripe::client::{File, Fs, Seek};
use covey_stripe::ops::Id;
use covey_stripe::view::View;
use covey_wire::Payload;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A file that everybody works on.
pub struct Shared {
    pub id: Id,
    pub name: String,
    pub history: History,
    /// Where writes go: the larger, the more strips and servers.
    pub span: u64,
    pub is_truncated: bool,
    /// Holes are punched into it, ranges zeroed and allocated.
    pub is_reshaped: bool,
}

/// One worker.
pub struct Files {
    pub client: usize,
    pub files: Rc<Vec<Shared>>,
    pub left: Cell<u64>,
}

impl Role for Files {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let mut open = BTreeMap::new();
            let most = Duration::from_millis(600);
            let step = async || {
                self.step(&lab, &fs, &mut open).await;
                // Only what nobody has open moves.
                if lab.has_moves.get() && lab.chance(800) {
                    open.clear();
                }
            };
            repeat(&lab, &self.left, most, step).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    fn power_lost(&self, _: bool) {
        self.files.iter().for_each(|file| file.history.lost_power());
    }

    fn settle(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            for file in self.files.iter() {
                let (_, open) = lab.attempt("open".into(), fs.open(&root(), file.id, 6)).await;
                if let Some(open) = open {
                    self.size(&lab, &fs, file).await;
                    self.read(&lab, file, &open, 0, file.span * 3).await;
                }
            }
        })
    }
}

/// First byte and length.
type Ranges = Vec<(u64, u64)>;

/// Some ranges, of `length` bytes together, with gaps between them.
fn pieces(lab: &Lab, offset: u64, length: u64) -> Ranges {
    let count = 1 + lab.below(6);
    let bytes = length.div_ceil(count);
    let stride = bytes + lab.below(if lab.chance(500) { 100 } else { 10_000 });
    (0..count).map(|at| (offset + at * stride, bytes)).collect()
}

fn view(ranges: &[(u64, u64)]) -> View {
    View::of_ranges(ranges.iter().copied()).expect("it is small")
}

impl Files {
    async fn step(&self, lab: &Lab, fs: &Fs, open: &mut BTreeMap<usize, File>) {
        let at = lab.below(self.files.len() as u64) as usize;
        let file = &self.files[at];
        if let std::collections::btree_map::Entry::Vacant(entry) = open.entry(at) {
            let what = format!("open {}", file.name);
            let (_, opened) = lab.attempt(what, fs.open(&root(), file.id, 6)).await;
            let Some(opened) = opened else { return };
            file.history.forfeit(self.client);
            entry.insert(opened);
        }
        let handle = open[&at].clone();
        let offset = lab.below(file.span);
        let length = 1 + lab.below(if lab.chance(800) { file.span / 4 } else { file.span });
        match lab.below(100) {
            0..12 if file.is_reshaped => self.reshape(lab, file, &handle, offset, length).await,
            67..71 if file.is_reshaped => self.seek(lab, file, &handle, offset).await,
            0..32 => self.write(lab, file, &handle, offset, length).await,
            32..40 => self.write_view(lab, file, &handle, pieces(lab, offset, length)).await,
            40..50 => {
                // One that nothing was written through, unless another worker of this client has it open.
                drop(handle);
                open.remove(&at);
                let what = format!("open {} to read", file.name);
                let (_, opened) = lab.attempt(what, fs.open(&root(), file.id, 4)).await;
                if let Some(opened) = opened {
                    self.read_in_order(lab, file, &opened, offset).await;
                }
            }
            50..67 => self.read(lab, file, &handle, offset, length).await,
            67..75 => self.read_view(lab, file, &handle, pieces(lab, offset, length)).await,
            75..82 => self.size(lab, fs, file).await,
            82..88 if file.is_truncated => self.truncate(lab, fs, file, offset).await,
            82..94 => self.fsync(lab, file, &handle).await,
            94..97 => drop(lab.attempt("flush".into(), handle.flush()).await),
            _ => drop(open.remove(&at)),
        }
    }

    async fn write(&self, lab: &Lab, file: &Shared, open: &File, offset: u64, length: u64) {
        let begun = file.history.begin(self.client, Kind::Write { offset, length });
        let data = Payload::from(file.history.bytes(begun));
        let what = format!("{} write {begun:?} {offset}+{length}", file.name);
        if let (_, Some(())) = lab.attempt(what, open.write_at(offset, data)).await {
            file.history.done(begun);
        }
    }

    async fn read(&self, lab: &Lab, file: &Shared, open: &File, offset: u64, length: u64) {
        let what = format!("{} read {offset}+{length}", file.name);
        let (span, read) = lab.attempt(what.clone(), open.read_at(offset, length as usize)).await;
        if let Some(read) = read {
            let bytes = read.into_bytes();
            lab.check(&what, file.history.check_read(offset, length, &bytes, span));
        }
    }

    /// As programs do that go through a file: what is read ahead is in use, while others write.
    async fn read_in_order(&self, lab: &Lab, file: &Shared, open: &File, mut offset: u64) {
        let length = 1 + lab.below(if lab.chance(500) { 1 << 10 } else { 16 << 10 });
        for _ in 0..2 + lab.below(6) {
            self.read(lab, file, open, offset, length).await;
            offset += length;
            lab.pause(Duration::from_millis(15)).await;
        }
    }

    /// A view is many writes, which are all done when the call returns. In file order it is a column,
    /// else a list.
    async fn write_view(&self, lab: &Lab, file: &Shared, open: &File, mut ranges: Ranges) {
        let history = &file.history;
        let turned = if lab.chance(500) { 0 } else { lab.below(ranges.len() as u64) as usize };
        ranges.rotate_left(turned);
        let begin =
            |&(offset, length): &_| history.begin(self.client, Kind::Write { offset, length });
        let begun: Vec<_> = ranges.iter().map(begin).collect();
        let data: Vec<u8> = begun.iter().flat_map(|&begun| history.bytes(begun)).collect();
        let what = format!("{} write view {begun:?} {ranges:?}", file.name);
        let view = view(&ranges);
        if let (_, Some(())) = lab.attempt(what, open.write_view(&view, data.into())).await {
            begun.into_iter().for_each(|begun| history.done(begun));
        }
    }

    async fn read_view(&self, lab: &Lab, file: &Shared, open: &File, ranges: Ranges) {
        let what = format!("{} read view {ranges:?}", file.name);
        let view = view(&ranges);
        let (span, read) = lab.attempt(what.clone(), open.read_view(&view)).await;
        let Some(mut bytes) = read else { return };
        for (offset, length) in ranges {
            let piece = bytes.split_to(bytes.len().min(length as usize));
            lab.check(&what, file.history.check_read(offset, length, &piece, span));
        }
    }

    async fn size(&self, lab: &Lab, fs: &Fs, file: &Shared) {
        let what = format!("{} stat", file.name);
        let (span, inode) = lab.attempt(what.clone(), fs.inode(file.id)).await;
        if let Some(inode) = inode {
            lab.check(&what, file.history.check_size(inode.size, span));
        }
    }

    async fn truncate(&self, lab: &Lab, fs: &Fs, file: &Shared, size: u64) {
        let begun = file.history.begin(self.client, Kind::Truncate { size });
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        let what = format!("{} truncate {begun:?} {size}", file.name);
        let who = root();
        let set = fs.setattr(&who, file.id, change);
        if let (_, Some(_)) = lab.attempt(what, set).await {
            file.history.done(begun);
        }
    }

    async fn reshape(&self, lab: &Lab, file: &Shared, open: &File, offset: u64, length: u64) {
        use covey_stripe::client::fallocate::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
        let zero = |grows| Kind::Zero { offset, length, grows };
        // What takes space beyond the end and keeps the size changes nothing that can be seen.
        let (mode, kind) = match lab.below(5) {
            0 => (0, Some(Kind::Allocate { end: offset + length })),
            1 => (KEEP_SIZE, None),
            2 => (ZERO_RANGE, Some(zero(true))),
            3 => (ZERO_RANGE | KEEP_SIZE, Some(zero(false))),
            _ => (PUNCH_HOLE | KEEP_SIZE, Some(zero(false))),
        };
        let begun = kind.map(|kind| file.history.begin(self.client, kind));
        let what = format!("{} fallocate {mode:#x} {begun:?} {offset}+{length}", file.name);
        let who = root();
        let done = lab.attempt(what, open.fallocate(&who, mode, offset, length)).await;
        if let ((_, Some(())), Some(begun)) = (done, begun) {
            file.history.done(begun);
        }
    }

    /// Looks for data or a hole.
    async fn seek(&self, lab: &Lab, file: &Shared, open: &File, offset: u64) {
        const ENXIO: u32 = 6;
        let for_hole = lab.chance(500);
        let wanted = if for_hole { Seek::Hole } else { Seek::Data };
        let what = format!("{} seek {offset}, for a hole: {for_hole}", file.name);
        let found = lab.expect(what.clone(), &[ENXIO], open.seek(offset, wanted)).await;
        let (span, found) = match found {
            Ok((_, None)) => return,
            Ok((span, found)) => (span, found),
            Err((span, _)) => (span, None),
        };
        let checked = if for_hole {
            file.history.check_hole(offset, found, span)
        } else {
            file.history.check_data(offset, found, span)
        };
        lab.check(&what, checked);
    }

    async fn fsync(&self, lab: &Lab, file: &Shared, open: &File) {
        let what = format!("{} fsync", file.name);
        if let (span, Some(())) = lab.attempt(what, open.fsync()).await {
            file.history.synced(self.client, span.began);
        } else {
            file.history.forfeit(self.client);
        }
    }
}
