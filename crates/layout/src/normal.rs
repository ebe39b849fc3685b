//! From a description to its normal form.
//!
//! Built from the inside out. A loop whose rounds touch is joined into its block, one that goes on with
//! the stride of the loop inside it into that loop; blocks of a list that touch are joined, and
//! those of one size at equal distances become a loop again, level by level. Time and memory are linear in
//! the entries of the description, whatever its counts are.
//!
//! The same is done for the packed bytes of a layout, where offsets are packed offsets and blocks of different
//! elements stay apart: that is a signature.

use crate::layout::{Block, Form, Layout, Member};
use crate::program::{Body, Dim, Part, Span};
use crate::{Element, Error, bounds::fits};

/// What offsets mean in the part that is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Where bytes lie; elements do not matter.
    Memory,
    /// Where they are packed; elements matter.
    Packed,
}

/// The normal form of `count` copies in a row; None when there is no byte in them.
pub(crate) fn normal(space: Space, layout: &Layout, count: u64) -> Result<Option<Part>, Error> {
    let reach = i128::from(layout.bounds().extent()) * i128::from(count.saturating_sub(1));
    for bound in [layout.bounds().true_lower, layout.bounds().true_upper] {
        fits("count", reach.saturating_add(bound.into()))?;
    }
    fits("count", i128::from(layout.size()).saturating_mul(count.into()))?;
    let part = space.part(layout);
    Ok(part.filter(|_| count > 0).map(|part| space.repeat(part, count, layout.bounds().extent())))
}

impl Space {
    fn part(self, layout: &Layout) -> Option<Part> {
        let extent = |inner: &Layout| inner.bounds().extent();
        match layout.form() {
            Form::Element(element) => Some(self.element(*element)),
            Form::Resized { inner, .. } => self.part(inner),
            Form::Strided { count, block, .. } if *count == 0 || *block == 0 => None,
            Form::Strided { count, block, stride, inner } => {
                let row = self.repeat(self.part(inner)?, *block, extent(inner));
                Some(self.repeat(row, *count, *stride))
            }
            Form::Blocks { blocks, inner } => {
                let part = self.part(inner)?;
                let listed = blocks.iter().filter(|block| block.count > 0);
                let place = |block: &Block| self.place(part.clone(), *block, extent(inner));
                self.sequence(listed.map(place).collect())
            }
            Form::Struct { members } => {
                let listed = members.iter().filter(|member| member.count > 0);
                let place = |Member { count, displacement, layout }: &Member| {
                    let block = Block { count: *count, displacement: *displacement };
                    Some(self.place(self.part(layout)?, block, extent(layout)))
                };
                self.sequence(listed.filter_map(place).collect())
            }
        }
    }

    fn element(self, element: Element) -> Part {
        match self {
            Space::Memory => Part::block(0, element.bytes(), Element::Byte),
            Space::Packed => Part::block(0, element.bytes(), element),
        }
    }

    fn place(self, part: Part, block: Block, extent: i64) -> Part {
        let mut placed = self.repeat(part, block.count, extent);
        placed.offset += block.displacement;
        placed
    }

    /// `count` rounds, at least one.
    fn repeat(self, mut part: Part, count: u64, stride: i64) -> Part {
        let each = part.size();
        let stride = if self == Space::Packed { each as i64 } else { stride };
        if count == 1 {
            return part;
        }
        match part.dims.first_mut() {
            None if stride == each as i64 && matches!(part.body, Body::Block(_)) => {
                part.each *= count;
            }
            Some(dim) if dim.stride.checked_mul(dim.count as i64) == Some(stride) => {
                dim.count *= count;
            }
            _ => part.dims.insert(0, Dim { count, stride, each }),
        }
        part
    }

    /// Parts one after another.
    fn sequence(self, parts: Vec<Part>) -> Option<Part> {
        let mut listed = Vec::with_capacity(parts.len());
        let mut packed = 0;
        for mut part in parts {
            if self == Space::Packed {
                part.offset = packed as i64;
            }
            packed += part.size();
            flatten(part, &mut listed);
        }
        let listed = self.fold(listed);
        match listed.len() {
            0 | 1 => listed.into_iter().next(),
            _ => Some(list(listed)),
        }
    }

    /// Makes loops of like parts at equal distances, where that makes the list much shorter.
    fn fold(self, listed: Vec<Part>) -> Vec<Part> {
        if listed.len() < 2 {
            return listed;
        }
        let mut folded = self.fold_once(&listed);
        loop {
            let again = self.fold_once(&folded);
            if again.len() == folded.len() {
                break;
            }
            folded = again;
        }
        let is_worth_it = folded.len() == 1 || folded.len() * 4 <= listed.len();
        if is_worth_it { folded } else { listed }
    }

    fn fold_once(self, listed: &[Part]) -> Vec<Part> {
        let mut folded = Vec::new();
        let mut rest = listed;
        while let Some((first, others)) = rest.split_first() {
            let stride = others.first().map_or(0, |next| next.offset - first.offset);
            let follows = |(at, part): (i64, &Part)| {
                stride.checked_mul(at) == Some(part.offset - first.offset) && part.is_like(first)
            };
            let more = (1..).zip(others).take_while(|&(at, part)| follows((at, part))).count();
            folded.push(self.repeat(first.clone(), more as u64 + 1, stride));
            rest = &others[more..];
        }
        folded
    }
}

/// Appends a part to a list: what is a list itself piece by piece, a block that touches the last one to
/// that.
fn flatten(part: Part, into: &mut Vec<Part>) {
    if !part.dims.is_empty() {
        return into.push(part);
    }
    match part.body {
        Body::Block(element) => push_block(part.offset, part.each, element, into),
        Body::Spans(spans) => spans.into_iter().for_each(|span| {
            push_block(part.offset + span.offset, span.bytes, span.element, into);
        }),
        Body::Parts(parts) => parts.into_iter().for_each(|(_, mut inner)| {
            inner.offset += part.offset;
            flatten(inner, into);
        }),
    }
}

fn push_block(offset: i64, bytes: u64, element: Element, into: &mut Vec<Part>) {
    if let Some(Part { offset: at, dims, body: Body::Block(last), each }) = into.last_mut()
        && dims.is_empty()
        && *last == element
        && *at + *each as i64 == offset
    {
        *each += bytes;
        return;
    }
    into.push(Part::block(offset, bytes, element));
}

/// One part of at least two, with the first one's offset.
fn list(mut listed: Vec<Part>) -> Part {
    let offset = listed[0].offset;
    let mut start = 0;
    let mut starts = Vec::with_capacity(listed.len());
    for part in &mut listed {
        part.offset -= offset;
        starts.push(start);
        start += part.size();
    }
    let plain = |part: &Part| match part.body {
        Body::Block(element) if part.dims.is_empty() => Some(element),
        _ => None,
    };
    let span = |(&start, part): (&u64, &Part)| {
        let element = plain(part)?;
        Some(Span { offset: part.offset, bytes: part.each, start, element })
    };
    let spans: Option<Vec<Span>> = starts.iter().zip(&listed).map(span).collect();
    let body = spans.map(Body::Spans);
    let body = body.unwrap_or_else(|| Body::Parts(starts.into_iter().zip(listed).collect()));
    Part { offset, dims: Vec::new(), body, each: start }
}
