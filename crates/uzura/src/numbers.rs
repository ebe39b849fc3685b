//! Numbers that must not be taken for one another: of a peer, of an operation in our table, of an
//! operation on the wire. A peer is the transport's [`Peer`].

use covey_wire::Peer;

/// An operation's place in our table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpIndex(u32);

impl OpIndex {
    /// No operation: the end of a list.
    pub const NONE: OpIndex = OpIndex(u32::MAX);

    #[inline]
    pub fn new(place: usize) -> OpIndex {
        OpIndex(place as u32)
    }

    #[inline]
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

/// An operation as its owner names it to others: its place, and a generation, so that a name of one that
/// has ended means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wire(pub u32);

impl Wire {
    #[inline]
    pub fn of(index: OpIndex, generation: u16) -> Wire {
        Wire(index.0 | u32::from(generation) << INDEX_BITS)
    }

    #[inline]
    pub fn index(self) -> OpIndex {
        OpIndex(self.0 & INDEX_MASK)
    }

    #[inline]
    pub fn generation(self) -> u16 {
        (self.0 >> INDEX_BITS) as u16
    }

    /// As a transport is told it, which says it back when it has done its part.
    #[inline]
    pub fn token(self) -> u64 {
        self.0.into()
    }

    #[inline]
    pub fn of_token(token: u64) -> Wire {
        Wire(token as u32)
    }

    #[inline]
    pub fn to_le_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    #[inline]
    pub fn from_le_bytes(bytes: [u8; 4]) -> Wire {
        Wire(u32::from_le_bytes(bytes))
    }
}

/// Whoever: a receive from any peer, and whoever has no peer yet.
pub(crate) const ANYBODY: Peer = Peer(u32::MAX);

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// Most operations of a table.
pub(crate) const OPERATIONS_MAX: usize = 1 << INDEX_BITS;
/// The last generation, after which the first one comes again.
pub(crate) const GENERATION_MAX: u16 = (1 << (32 - INDEX_BITS)) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_place_and_generation_and_fits_a_token() {
        let wire = Wire::of(OpIndex::new(OPERATIONS_MAX - 2), GENERATION_MAX);
        assert_eq!(wire.index(), OpIndex::new(OPERATIONS_MAX - 2));
        assert_eq!(wire.generation(), GENERATION_MAX);
        assert_eq!(Wire::of_token(wire.token()), wire);
        assert_eq!(Wire::from_le_bytes(wire.to_le_bytes()), wire);
    }
}
