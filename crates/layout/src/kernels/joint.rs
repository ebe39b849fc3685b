//! Loops over two memories at once, and the choice of the kernel.

use super::view::{View, ViewMut};
use super::{blocks, transpose};

/// Loops around one block, with a stride for each side. They may run in any order: no byte of the
/// target is named twice.
#[derive(Clone, Debug)]
pub(crate) struct Joint {
    bytes: usize,
    dims: Vec<Pace>,
}

/// A loop with the stride of either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    pub count: usize,
    pub from: isize,
    pub to: isize,
}

impl Joint {
    /// A block without loops.
    pub fn new(bytes: u64) -> Joint {
        Joint { bytes: bytes as usize, dims: Vec::new() }
    }

    /// Adds a loop inside of those that are there, joined with the last one where it goes on with it.
    pub fn push(&mut self, count: u64, from: i64, to: i64) {
        if count == 1 {
            return;
        }
        let (from, to, count) = (from as isize, to as isize, count as usize);
        if let Some(last) = self.dims.last_mut()
            && from.checked_mul(count as isize) == Some(last.from)
            && to.checked_mul(count as isize) == Some(last.to)
        {
            *last = Pace { count: last.count * count, from, to };
            return;
        }
        self.dims.push(Pace { count, from, to });
    }

    /// Makes the loop with the longest steps in the source the outermost one, and says how long they are. `None` without
    /// a loop.
    pub fn cut(&mut self) -> Option<isize> {
        let longest = (0..self.dims.len()).max_by_key(|&at| self.dims[at].from.unsigned_abs())?;
        self.dims[..=longest].rotate_right(1);
        Some(self.dims[0].from)
    }

    /// Rounds of the outermost loop.
    pub fn rounds(&self) -> usize {
        self.dims.first().map_or(1, |pace| pace.count)
    }

    /// So many first rounds of it.
    pub fn first(&self, rounds: usize) -> Joint {
        let mut joint = self.clone();
        match rounds {
            1 => drop(joint.dims.drain(..1)),
            _ => joint.dims[0].count = rounds,
        }
        joint
    }

    /// Where a round of it begins, on either side.
    pub fn begin(&self, round: usize) -> (i64, i64) {
        let pace = self.dims.first().copied().unwrap_or_default();
        let at = |step: isize| step as i64 * round as i64;
        (at(pace.from), at(pace.to))
    }

    /// First byte of the source and the one behind the last, from where the loops begin.
    pub fn reads(&self) -> (i64, i64) {
        self.reach(|pace| pace.from)
    }

    /// The same of the target.
    pub fn writes(&self) -> (i64, i64) {
        self.reach(|pace| pace.to)
    }

    fn reach(&self, step: impl Fn(&Pace) -> isize) -> (i64, i64) {
        let last = |pace: &Pace| (pace.count as i64 - 1) * step(pace) as i64;
        let reach = self.dims.iter().map(last);
        reach.fold((0, self.bytes as i64), |(begin, end), last| {
            (begin + last.min(0), end + last.max(0))
        })
    }
}

/// Copies what the loops name, from `from` in `source` to `to` in `target`.
///
/// The callers have checked that every byte lies within its view.
pub(crate) fn copy(joint: Joint, source: &View<'_>, from: i64, target: &ViewMut<'_>, to: i64) {
    let Joint { mut bytes, mut dims } = joint;
    // A loop whose rounds touch on both sides makes the block larger.
    while let Some(at) = dims.iter().position(|pace| pace.is_along(bytes)) {
        bytes *= dims.remove(at).count;
    }
    let kernel = choose(&mut dims, bytes);
    let (dims, inner) = match kernel {
        Kernel::Block => (&dims[..], [Pace::ONE; 2]),
        Kernel::Row => split_last::<1>(&dims),
        Kernel::Matrix => split_last::<2>(&dims),
    };
    let run = |from: *const u8, to: *mut u8| {
        let [outer, row] = inner;
        // SAFETY: the callers checked that every byte of the loops lies within its view, and the
        // views do not overlap.
        unsafe {
            match kernel {
                Kernel::Block => std::ptr::copy_nonoverlapping(from, to, bytes),
                Kernel::Row => blocks::copy(bytes, outer, from, to),
                Kernel::Matrix => transpose::run(bytes, outer, row, from, to),
            }
        }
    };
    odometer(dims, source.pointer(from), target.pointer(to), &run);
}

#[derive(Clone, Copy)]
enum Kernel {
    /// One block.
    Block,
    /// Blocks along one loop.
    Row,
    /// Elements along two loops, adjacent on one side in one, on the other side in the other.
    Matrix,
}

/// Picks the kernel and moves its loops to the end.
fn choose(dims: &mut Vec<Pace>, bytes: usize) -> Kernel {
    let adjacent = |stride: isize| stride == bytes as isize;
    let along_source = dims.iter().position(|pace| adjacent(pace.from));
    let along_target = dims.iter().position(|pace| adjacent(pace.to));
    if let (Some(a), Some(b)) = (along_source, along_target)
        && a != b
        && transpose::is_element(bytes)
    {
        let (column, row) = (dims[a], dims[b]);
        dims.remove(a.max(b));
        dims.remove(a.min(b));
        dims.extend([column, row]);
        return Kernel::Matrix;
    }
    // The longest of those that stay closest together.
    let nearest = (0..dims.len()).min_by_key(|&at| dims[at].to.unsigned_abs().max(1));
    let Some(nearest) = nearest else { return Kernel::Block };
    dims[nearest..].rotate_left(1);
    Kernel::Row
}

fn split_last<const N: usize>(dims: &[Pace]) -> (&[Pace], [Pace; 2]) {
    let (outer, last) = dims.split_at(dims.len() - N);
    let mut inner = [Pace::ONE; 2];
    inner[..N].copy_from_slice(last);
    (outer, inner)
}

/// Runs the loops around a kernel.
fn odometer(dims: &[Pace], from: *const u8, to: *mut u8, run: &dyn Fn(*const u8, *mut u8)) {
    let Some((pace, inner)) = dims.split_first() else { return run(from, to) };
    for round in 0..pace.count as isize {
        let from = from.wrapping_offset(pace.from * round);
        odometer(inner, from, to.wrapping_offset(pace.to * round), run);
    }
}

impl Pace {
    const ONE: Pace = Pace { count: 1, from: 0, to: 0 };

    fn is_along(&self, bytes: usize) -> bool {
        self.from == bytes as isize && self.to == bytes as isize
    }
}
