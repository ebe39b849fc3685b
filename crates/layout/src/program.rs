//! The normal form: loops around blocks, the same for every description of the same bytes in the same
//! order, as far as that can be found in linear time.

use crate::Element;

/// Loops, the outermost first, around a body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// Of the body's first byte in the packed order, from the layout's origin.
    pub offset: i64,
    pub dims: Vec<Dim>,
    pub body: Body,
    /// Packed bytes of the body.
    pub each: u64,
}

/// A loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dim {
    /// At least 2.
    pub count: u64,
    /// Bytes from one round to the next.
    pub stride: i64,
    /// Packed bytes of a round.
    pub each: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    /// `each` contiguous bytes, of one element where elements matter.
    Block(Element),
    /// Blocks without a pattern, at least 2. Offsets from the part's.
    Spans(Vec<Span>),
    /// Parts without a common pattern, at least 2, with the packed offset of each. Offsets from the
    /// part's.
    Parts(Vec<(u64, Part)>),
}

/// A block of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub offset: i64,
    pub bytes: u64,
    /// Packed offset, from the list's first byte.
    pub start: u64,
    pub element: Element,
}

impl Part {
    pub fn block(offset: i64, bytes: u64, element: Element) -> Part {
        Part { offset, dims: Vec::new(), body: Body::Block(element), each: bytes }
    }

    /// Packed bytes of all rounds.
    pub fn size(&self) -> u64 {
        self.dims.first().map_or(self.each, |dim| dim.count * dim.each)
    }

    /// Blocks of all rounds.
    pub fn runs(&self) -> u64 {
        let body = match &self.body {
            Body::Block(_) => 1,
            Body::Spans(spans) => spans.len() as u64,
            Body::Parts(parts) => parts.iter().map(|(_, part)| part.runs()).sum(),
        };
        // At most one per byte, so it fits.
        self.dims.iter().fold(body, |all, dim| all * dim.count)
    }

    /// First byte and end of the body, from the part's offset.
    pub fn body_hull(&self) -> (i64, i64) {
        let hulls: &mut dyn Iterator<Item = (i64, i64)> = match &self.body {
            Body::Block(_) => return (0, self.each as i64),
            Body::Spans(spans) => {
                &mut spans.iter().map(|span| (span.offset, span.offset + span.bytes as i64))
            }
            Body::Parts(parts) => &mut parts.iter().map(|(_, part)| part.hull()),
        };
        hulls.fold((i64::MAX, i64::MIN), |all, hull| (all.0.min(hull.0), all.1.max(hull.1)))
    }

    /// First byte and end, from the layout's origin.
    pub fn hull(&self) -> (i64, i64) {
        let (low, high) = self.body_hull();
        self.dims.iter().fold((self.offset + low, self.offset + high), |(low, high), dim| {
            let reach = dim.reach();
            (low + reach.min(0), high + reach.max(0))
        })
    }

    /// Whether both are the same apart from where they lie.
    pub fn is_like(&self, other: &Part) -> bool {
        self.each == other.each && self.dims == other.dims && self.body == other.body
    }
}

impl Dim {
    /// From the first round to the last.
    pub fn reach(&self) -> i64 {
        // Within the bounds that the layout was checked for.
        self.stride * (self.count - 1) as i64
    }
}
