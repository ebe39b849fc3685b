//! A description as bytes: `docs/protocol/layout.md`.
//!
//! The nodes of the description, inner ones before those that use them, so that it is read front to back
//! without recursion; what is used twice is sent once. Every constructor's checks are made again
//! by whoever reads it.

use crate::layout::{Block, Form, Layout, Member, listed, strided};
use crate::{Element, Error, bounds::fits};
use covey_wire::{Blame, Bytes, Field, Reader, messages, record};
use std::collections::HashMap;

/// The version of the encoding.
pub const VERSION: u8 = 1;

/// Most bytes of an encoded description.
pub const WIRE_BYTES_MAX: usize = 1 << 20;

messages! {
    /// One level of a description. `inner` is the index of an earlier node.
    pub(crate) enum Node for () {
        /// one element
        1 Element { element: u8 },
        /// blocks at equal distances
        2 Strided { count: u64, block: u64, stride: Signed, inner: u16 },
        /// blocks of different sizes
        3 Blocks { blocks: Long<Copies>, inner: u16 },
        /// blocks of one size
        4 EqualBlocks { count: u64, displacements: Long<Signed>, inner: u16 },
        /// members
        5 Struct { members: Long<Part> },
        /// other bounds
        6 Resized { lower: Signed, extent: Signed, inner: u16 },
    }
}

record! {
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) struct Copies for () {
        count: u64,
        displacement: Signed,
    }
}

record! {
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) struct Part for () {
        count: u64,
        displacement: Signed,
        inner: u16,
    }
}

impl Layout {
    /// The description as bytes. Refuses one that takes more than [`WIRE_BYTES_MAX`]: its data is
    /// better sent packed.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let too_long = |bytes| Error::TooLong { bytes, limit: WIRE_BYTES_MAX };
        let mut nodes = Nodes::default();
        nodes.visit(self);
        let count = nodes.order.len();
        let count = u16::try_from(count).map_err(|_| too_long(count * NODE_BYTES))?;
        let mut out = vec![VERSION];
        count.put((), &mut out);
        for layout in &nodes.order {
            let node = nodes.node(layout);
            let bytes = out.len() + 1 + node.body_size(());
            if bytes > WIRE_BYTES_MAX {
                return Err(too_long(bytes));
            }
            out.push(node.number());
            node.put_body((), &mut out);
        }
        Ok(out)
    }

    /// The description in all of `bytes`. Takes time linear in them, whatever they are.
    pub fn decode(bytes: Bytes) -> Result<Layout, Error> {
        if bytes.len() > WIRE_BYTES_MAX {
            return Err(Error::TooLong { bytes: bytes.len(), limit: WIRE_BYTES_MAX });
        }
        let mut from = Reader::new(bytes);
        let version = from.u8().map_err(Error::Malformed)?;
        if version != VERSION {
            return Err(Error::Version { version, known: VERSION });
        }
        let count = from.u16().map_err(Error::Malformed)?;
        let mut layouts = Vec::new();
        for _ in 0..count {
            let node = from.u8().and_then(|number| Node::take_body(number, (), &mut from));
            let layout = build(node.map_err(Error::Malformed)?, &layouts)?;
            layouts.push(layout);
        }
        from.finish().map_err(Error::Malformed)?;
        layouts.pop().ok_or_else(|| malformed("no node".to_owned()))
    }
}

/// The distinct nodes of a description, inner ones first.
#[derive(Default)]
struct Nodes<'a> {
    order: Vec<&'a Layout>,
    index: HashMap<Identity, usize>,
}

/// What is sent once.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Element(Element),
    Memory(*const ()),
}

impl Identity {
    fn of(layout: &Layout) -> Identity {
        match layout.form() {
            Form::Element(element) => Identity::Element(*element),
            _ => Identity::Memory(layout.identity()),
        }
    }
}

impl<'a> Nodes<'a> {
    fn visit(&mut self, layout: &'a Layout) {
        if self.index.contains_key(&Identity::of(layout)) {
            return;
        }
        match layout.form() {
            Form::Element(_) => {}
            Form::Strided { inner, .. }
            | Form::Blocks { inner, .. }
            | Form::Resized { inner, .. } => self.visit(inner),
            Form::Struct { members } => members.iter().for_each(|one| self.visit(&one.layout)),
        }
        self.index.insert(Identity::of(layout), self.order.len());
        self.order.push(layout);
    }

    fn index(&self, layout: &Layout) -> u16 {
        // There are no more than that, and every inner layout was visited.
        self.index[&Identity::of(layout)] as u16
    }

    fn node(&self, layout: &Layout) -> Node {
        match layout.form() {
            Form::Element(element) => Node::Element { element: element.number() },
            Form::Strided { count, block, stride, inner } => Node::Strided {
                count: *count,
                block: *block,
                stride: Signed(*stride),
                inner: self.index(inner),
            },
            Form::Blocks { blocks, inner } => blocks_node(blocks, self.index(inner)),
            Form::Struct { members } => {
                let part = |Member { count, displacement, layout }: &Member| Part {
                    count: *count,
                    displacement: Signed(*displacement),
                    inner: self.index(layout),
                };
                Node::Struct { members: Long(members.iter().map(part).collect()) }
            }
            Form::Resized { lower, extent, inner } => Node::Resized {
                lower: Signed(*lower),
                extent: Signed(*extent),
                inner: self.index(inner),
            },
        }
    }
}

fn blocks_node(blocks: &[Block], inner: u16) -> Node {
    let first = blocks.first().map_or(0, |block| block.count);
    if blocks.iter().all(|block| block.count == first) {
        let displacements = blocks.iter().map(|block| Signed(block.displacement)).collect();
        return Node::EqualBlocks { count: first, displacements: Long(displacements), inner };
    }
    let copies =
        |block: &Block| Copies { count: block.count, displacement: Signed(block.displacement) };
    Node::Blocks { blocks: Long(blocks.iter().map(copies).collect()), inner }
}

fn build(node: Node, nodes: &[Layout]) -> Result<Layout, Error> {
    let known = |index: u16| {
        let missing = || malformed(format!("inner node {index} of {} before it", nodes.len()));
        nodes.get(usize::from(index)).ok_or_else(missing)
    };
    let block = |count, Signed(displacement)| {
        Ok(Block { count, displacement: fits("hindexed", displacement.into())? })
    };
    match node {
        Node::Element { element } => {
            let found = Element::of_number(element);
            let unknown = || malformed(format!("element {element} is unknown"));
            Ok(Layout::element(found.ok_or_else(unknown)?))
        }
        Node::Strided { count, block, stride: Signed(stride), inner } => {
            strided("vector", count, block, fits("vector", stride.into())?, known(inner)?)
        }
        Node::Blocks { blocks, inner } => {
            let blocks = blocks.0.into_iter().map(|one| block(one.count, one.displacement));
            listed("hindexed", blocks.collect::<Result<_, _>>()?, known(inner)?)
        }
        Node::EqualBlocks { count, displacements, inner } => {
            let blocks = displacements.0.into_iter().map(|at| block(count, at));
            listed("hindexed", blocks.collect::<Result<_, _>>()?, known(inner)?)
        }
        Node::Struct { members } => {
            let member = |Part { count, displacement: Signed(displacement), inner }| {
                Ok(Member { count, displacement, layout: known(inner)?.clone() })
            };
            let members = members.0.into_iter().map(member).collect::<Result<Vec<_>, Error>>()?;
            Layout::structure(&members)
        }
        Node::Resized { lower: Signed(lower), extent: Signed(extent), inner } => {
            Layout::resized(lower, extent, known(inner)?)
        }
    }
}

fn malformed(what: String) -> Error {
    Error::Malformed(Blame::Malformed(what))
}

/// A signed 64-bit number, in two's complement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signed(i64);

impl Field<()> for Signed {
    fn size(&self, _: ()) -> usize {
        size_of::<i64>()
    }
    fn put(&self, _: (), out: &mut Vec<u8>) {
        self.0.cast_unsigned().put((), out);
    }
    fn get(_: (), from: &mut Reader) -> Result<Self, Blame> {
        Ok(Signed(from.u64()?.cast_signed()))
    }
}

/// A list with a 32-bit count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Long<T>(Vec<T>);

impl<T: Field<()>> Field<()> for Long<T> {
    fn size(&self, _: ()) -> usize {
        4 + self.0.iter().map(|item| item.size(())).sum::<usize>()
    }
    fn put(&self, _: (), out: &mut Vec<u8>) {
        (self.0.len() as u32).put((), out);
        self.0.iter().for_each(|item| item.put((), out));
    }
    fn get(_: (), from: &mut Reader) -> Result<Self, Blame> {
        let count = from.u32()?;
        // Grows as items arrive: a hostile count cannot make it allocate.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(T::get((), from)?);
        }
        Ok(Long(items))
    }
}

/// The smallest node that is not an element.
const NODE_BYTES: usize = 5;
