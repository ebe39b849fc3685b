//! A layout made ready to be read from.

use crate::kernels::{self, Joint, View, ViewMut};
use crate::normal::{Space, normal};
use crate::pieces::{Piece, pieces};
use crate::program::{Body, Part};
use crate::{Error, Layout, Runs, Shape};
use std::ops::Range;

/// Some copies of a layout in their normal form. It can be read from; to write to it takes a
/// [`Target`](crate::Target).
///
/// Packed bytes are the data in the order that the description names it. Every operation takes a range of
/// them, so that a message can be cut anywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    root: Option<Part>,
    size: u64,
    hull: (i64, i64),
    runs: u64,
}

impl Plan {
    /// `count` copies of `layout`, each an extent after the one before.
    ///
    /// Takes time and memory linear in [`Layout::entries`]. Refuses counts that leave the range of
    /// offsets.
    pub fn new(layout: &Layout, count: u64) -> Result<Plan, Error> {
        let root = normal(Space::Memory, layout, count)?;
        Ok(Plan {
            size: root.as_ref().map_or(0, Part::size),
            hull: root.as_ref().map_or((0, 0), Part::hull),
            runs: root.as_ref().map_or(0, Part::runs),
            root,
        })
    }

    /// Packed bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// First byte touched and the one behind the last, from the origin.
    pub fn hull(&self) -> (i64, i64) {
        self.hull
    }

    /// How many blocks of contiguous bytes the normal form has.
    pub fn run_count(&self) -> u64 {
        self.runs
    }

    /// What it was recognised to be.
    pub fn shape(&self) -> Shape {
        Shape::of(self.root.as_ref())
    }

    /// The runs of contiguous bytes of a range of the packed bytes, in order; `rev` goes backwards.
    pub fn runs(&self, range: Range<u64>) -> Result<Runs<'_>, Error> {
        let range = self.checked(range.start, range.end.saturating_sub(range.start))?;
        Ok(Runs::new(self.root.as_ref(), range))
    }

    /// Copies packed bytes from `at` on into all of `into`.
    pub fn pack<'a>(
        &self,
        from: impl Into<View<'a>>,
        at: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let range = self.checked(at, into.len() as u64)?;
        let from = from.into();
        from.check(self.hull)?;
        self.pack_into(&from, range, &ViewMut::from(into), 0);
        Ok(())
    }

    /// Packs a range that was checked to `to` in a view that has room for it.
    pub(crate) fn pack_into(
        &self,
        from: &View<'_>,
        range: Range<u64>,
        into: &ViewMut<'_>,
        to: i64,
    ) {
        let start = range.start;
        self.each_piece(range, |piece| {
            let to = to + (piece.packed - start) as i64;
            kernels::copy(joint(&piece, false), from, piece.offset, into, to);
        });
    }

    pub(crate) fn each_piece(&self, range: Range<u64>, mut emit: impl FnMut(Piece<'_>)) {
        if let Some(root) = &self.root {
            pieces(root, range, &mut emit);
        }
    }

    pub(crate) fn root(&self) -> Option<&Part> {
        self.root.as_ref()
    }

    /// The normal form if it is loops around one block.
    pub(crate) fn nest(&self) -> Option<&Part> {
        self.root.as_ref().filter(|root| matches!(root.body, Body::Block(_)))
    }

    /// A range of the packed bytes.
    pub(crate) fn checked(&self, at: u64, bytes: u64) -> Result<Range<u64>, Error> {
        match at.checked_add(bytes) {
            Some(end) if end <= self.size => Ok(at..end),
            _ => Err(Error::Packed { at, bytes, size: self.size }),
        }
    }
}

/// The loops of a piece and of its packed bytes; `is_target`: it is the packed bytes that are read.
pub(crate) fn joint(piece: &Piece<'_>, is_target: bool) -> Joint {
    let mut joint = Joint::new(piece.bytes);
    for dim in piece.first.iter().chain(piece.rest) {
        let (here, packed) = (dim.stride, dim.each as i64);
        let (from, to) = if is_target { (packed, here) } else { (here, packed) };
        joint.push(dim.count, from, to);
    }
    joint
}
