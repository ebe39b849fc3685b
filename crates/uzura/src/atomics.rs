//! Atomic operations on elements in a row: what there is of them, and what the engine that has the memory does. A request is
//! one packet, so each is done as a whole, in the order in which they came.

use crate::Fault;
use crate::api::{Access, Rights};
use crate::core::Core;
use crate::numbers::Wire;
use crate::packet::{Head, PLAIN};
use crate::serve::{Named, number_of, op_of};
use covey_layout::{ByteOrder, Element, Op};
use covey_wire::{Memory, Peer};

macro_rules! compares {
    ($($(#[$doc:meta])* $number:literal $name:ident $test:expr;)*) => {
        /// What a compare-and-swap compares: `expected` with the stored value, element by element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Compare {
            $($(#[$doc])* $name,)*
        }

        impl Compare {
            /// Every comparison, in the order of their numbers.
            pub const ALL: &'static [Compare] = &[$(Compare::$name),*];

            fn number(self) -> u8 {
                match self { $(Compare::$name => $number),* }
            }

            fn passes<T: PartialOrd>(self, expected: &T, stored: &T) -> bool {
                match self {
                    $(Compare::$name => {
                        let test: fn(&T, &T) -> bool = $test;
                        test(expected, stored)
                    })*
                }
            }
        }
    };
}

compares! {
    /// The new value is stored if both are equal.
    0 Equal |expected, stored| expected == stored;
    /// If they differ.
    1 NotEqual |expected, stored| expected != stored;
    /// If what is expected is not greater.
    2 LessOrEqual |expected, stored| expected <= stored;
    /// If it is less.
    3 Less |expected, stored| expected < stored;
    /// If it is not less.
    4 GreaterOrEqual |expected, stored| expected >= stored;
    /// If it is greater.
    5 Greater |expected, stored| expected > stored;
    /// The bits that are set in `expected` are replaced by those of the new value.
    6 Masked |_, _| true;
}

impl Compare {
    /// Whether these elements have it: bits are those of integers and bytes, order that of numbers.
    pub fn is_defined_for(self, element: Element) -> bool {
        let is_float = matches!(element, Element::F32 | Element::F64);
        match self {
            Compare::Equal | Compare::NotEqual => true,
            Compare::Masked => !is_float,
            _ => element != Element::Byte,
        }
    }

    /// Does it to little-endian elements.
    fn swap(self, element: Element, stored: &mut [u8], expected: &[u8], new: &[u8]) {
        macro_rules! each {
            ($type:ty) => {{
                let (expected, _) = expected.as_chunks();
                let (new, _) = new.as_chunks();
                let stored = stored.as_chunks_mut().0.iter_mut();
                for ((stored, expected), new) in stored.zip(expected).zip(new) {
                    let (is, was) =
                        (<$type>::from_le_bytes(*expected), <$type>::from_le_bytes(*stored));
                    if self.passes(&is, &was) {
                        *stored = *new;
                    }
                }
            }};
        }
        if self == Compare::Masked {
            for ((stored, mask), new) in stored.iter_mut().zip(expected).zip(new) {
                *stored = new & mask | *stored & !mask;
            }
            return;
        }
        match element {
            Element::Byte | Element::U8 => each!(u8),
            Element::I8 => each!(i8),
            Element::I16 => each!(i16),
            Element::U16 => each!(u16),
            Element::I32 => each!(i32),
            Element::U32 => each!(u32),
            Element::I64 => each!(i64),
            Element::U64 => each!(u64),
            Element::F32 => each!(f32),
            Element::F64 => each!(f64),
        }
    }
}

/// An atomic operation, and whether what was stored before comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    Update(Op),
    Fetch(Op),
    Compare(Compare),
}

impl Atomic {
    /// The two numbers of a packet.
    pub fn numbers(self) -> (u8, u8) {
        match self {
            Atomic::Update(op) => (0, number_of(op)),
            Atomic::Fetch(op) => (1, number_of(op)),
            Atomic::Compare(compare) => (2, compare.number()),
        }
    }

    fn of_numbers(kind: u8, what: u8) -> Option<Atomic> {
        match kind {
            0 => op_of(what).map(Atomic::Update),
            1 => op_of(what).map(Atomic::Fetch),
            2 => Compare::ALL.get(usize::from(what)).copied().map(Atomic::Compare),
            _ => None,
        }
    }

    /// How many times as long as the memory a request's payload is.
    pub fn operands(self) -> usize {
        if matches!(self, Atomic::Compare(_)) { 2 } else { 1 }
    }

    pub fn is_defined_for(self, element: Element) -> bool {
        match self {
            Atomic::Update(op) | Atomic::Fetch(op) => op.is_defined_for(element),
            Atomic::Compare(compare) => compare.is_defined_for(element),
        }
    }

    /// Does it to elements of the machine's order.
    fn apply(self, element: Element, stored: &mut [u8], operands: &mut [u8]) -> Result<(), Fault> {
        match self {
            Atomic::Update(op) | Atomic::Fetch(op) => Ok(op.apply(element, stored, operands)?),
            Atomic::Compare(compare) => {
                let (native, little) = (ByteOrder::NATIVE, ByteOrder::Little);
                turn(element, (native, little), stored);
                turn(element, (native, little), operands);
                let (expected, new) = operands.split_at(stored.len());
                compare.swap(element, stored, expected, new);
                turn(element, (little, native), stored);
                Ok(())
            }
        }
    }
}

/// What a packet asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub op: Wire,
    pub kind: u8,
    pub what: u8,
    pub element: u8,
    pub key: u64,
    pub at: u64,
}

impl<M: Memory> Core<M> {
    /// A peer's atomic request.
    pub fn serve_atomic(&mut self, peer: Peer, asked: Asked, payload: &[u8]) {
        let Asked { op, key, .. } = asked;
        let done = self.atomic_here(peer, asked, payload);
        if let Ok(before) = &done {
            let access = if before.is_some() { Access::Read } else { Access::Write };
            let bytes = before.as_ref().map_or(payload.len(), Vec::len) as u64;
            self.accessed(peer, key, access, bytes);
        }
        match done {
            Ok(Some(before)) => self.reply(peer, Head::Data { op, at: 0 }, before),
            Ok(None) => self.reply(peer, Head::Ack { op, fault: 0 }, Vec::new()),
            Err(fault) => self.reply(peer, Head::Ack { op, fault: fault.number() }, Vec::new()),
        }
    }

    /// The right that it takes: less than all atomic operations where it only reads, or brings nothing back.
    fn right_for(&mut self, key: u64, atomic: Atomic) -> Rights {
        let rights = self.table.find(key).map_or(Rights(0), |found| Rights(found.rights));
        match atomic {
            _ if rights.permit(Rights::ATOMIC) => Rights::ATOMIC,
            Atomic::Update(_) => Rights::UPDATE,
            Atomic::Fetch(Op::NoOp) => Rights::READ,
            _ => Rights::ATOMIC,
        }
    }

    /// Does it, and answers what was stored before if the peer wants that. Both orders of bytes are the peer's: it knows the
    /// elements, but need not know who else has another order.
    fn atomic_here(
        &mut self,
        peer: Peer,
        asked: Asked,
        payload: &[u8],
    ) -> Result<Option<Vec<u8>>, Fault> {
        let atomic = Atomic::of_numbers(asked.kind, asked.what).ok_or(Fault::Operation)?;
        let element = Element::of_number(asked.element).ok_or(Fault::Operation)?;
        if !atomic.is_defined_for(element) {
            return Err(Fault::Operation);
        }
        let bytes = payload.len() / atomic.operands();
        if bytes * atomic.operands() != payload.len()
            || !(bytes as u64).is_multiple_of(element.bytes())
        {
            return Err(Fault::Sizes);
        }
        let Asked { key, at, .. } = asked;
        let named = Named { slot: PLAIN, types: PLAIN, key, at, total: bytes as u64 };
        let right = self.right_for(key, atomic);
        let place = self.place_of(peer, named, right)?;
        let ours = self.config.order;
        let theirs = if self.is_foreign(peer) { ours.other() } else { ours };
        let mut operands = payload.to_vec();
        turn(element, (theirs, ByteOrder::NATIVE), &mut operands);
        let mut before = vec![0; bytes];
        self.read_place(&place, 0, &mut before)?;
        turn(element, (ours, ByteOrder::NATIVE), &mut before);
        let mut after = before.clone();
        atomic.apply(element, &mut after, &mut operands)?;
        if after != before {
            turn(element, (ByteOrder::NATIVE, ours), &mut after);
            self.stats.bytes_copied += bytes as u64;
            self.write_place(&place, 0, &after)?;
        }
        turn(element, (ByteOrder::NATIVE, theirs), &mut before);
        Ok((!matches!(atomic, Atomic::Update(_))).then_some(before))
    }
}

/// Turns elements from one byte order to another.
fn turn(element: Element, (from, to): (ByteOrder, ByteOrder), bytes: &mut [u8]) {
    if from != to {
        bytes.chunks_exact_mut(element.bytes() as usize).for_each(<[u8]>::reverse);
    }
}
