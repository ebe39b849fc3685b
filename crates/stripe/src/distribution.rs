//! Distributions: which byte of a file lies where. Pure functions, as in PVFS2.
//!
//! A file's logical bytes are dealt to *slots*, one per I/O server of its striping; each slot has an
//! object of *physical* bytes. A distribution is a bijection between logical offsets and
//! (slot, physical offset), fixed when the file is created: a file grows without moving a byte.
//!
//! ```text
//!   logical   |A A A A|B B B B|C C C C|D D D D|E E E E|F F         strip_bytes = 4, 3 slots
//!   slot 0    |A A A A|D D D D|
//!   slot 1    |B B B B|E E E E|
//!   slot 2    |C C C C|F F
//! ```
//!
//! | kind | parameters | |
//! |---|---|---|
//! | [`SIMPLE_STRIPE`] | | strips dealt round robin |
//! | [`BASIC`] | | the whole file on one server |
//! | [`VARSTRIP`] | slot, bytes, slot, bytes, ... | strips of one round, each with its size |
//! | [`TWOD_STRIPE`] | groups, factor | `factor` stripes over each group of servers in turn |
//! | [`PROGRESSIVE`] | inline bytes, single bytes | first with the metadata, then on one server, then striped |
//!
//! The beginning of a progressive file is in no object: it lies with the inode on the metadata
//! server. There `locate` answers the slot [`INLINE`].

mod check;
mod parts;
mod progressive;
mod simple_stripe;
mod twod_stripe;
mod varstrip;
pub mod wish;

#[cfg(test)]
mod tests;

pub(crate) use check::check_fewer;
pub use check::{check, server_count};
pub use parts::{Part, parts};
pub use progressive::Progressive;
pub use simple_stripe::SimpleStripe;
pub use twod_stripe::TwodStripe;
pub use varstrip::Varstrip;

use crate::ops::{Striping, StripingHint};
use covey_ninep::tree::Errno;
use covey_wire::List;

/// Smallest strip that is accepted, in bytes.
pub const STRIP_BYTES_MIN: u32 = 4 << 10;
/// Largest strip that is accepted, in bytes.
pub const STRIP_BYTES_MAX: u32 = 64 << 20;
/// The strip used when nobody says otherwise: PVFS2's 64 KiB.
pub const STRIP_BYTES_DEFAULT: u32 = 64 << 10;
/// Strips that one round of varstrip may have.
pub const STRIPS_MAX: usize = 1024;

/// How much of a progressive file lies with its metadata when nobody says otherwise.
pub const INLINE_BYTES_DEFAULT: u32 = 64 << 10;
/// The most that may lie with the metadata.
pub const INLINE_BYTES_MAX: u32 = 64 << 10;
/// Where a progressive file begins to be striped when nobody says otherwise.
pub const SINGLE_BYTES_DEFAULT: u32 = 4 << 20;
/// The furthest that the first server's part may reach.
pub const SINGLE_BYTES_MAX: u32 = 1 << 30;

/// Strips of one size dealt round robin.
pub const SIMPLE_STRIPE: u8 = 1;
/// The whole file on one server.
pub const BASIC: u8 = 2;
/// Strips of different sizes, in rounds.
pub const VARSTRIP: u8 = 3;
/// Stripes over groups of servers in turn.
pub const TWOD_STRIPE: u8 = 4;
/// First with the metadata, then on one server, then striped over all.
pub const PROGRESSIVE: u8 = 5;

/// The slot of bytes that are in no object but with the file's metadata.
pub const INLINE: usize = usize::MAX;

/// The kinds by number, with the names that people use.
pub const KINDS: [(u8, &str); 5] = [
    (SIMPLE_STRIPE, "simple_stripe"),
    (BASIC, "basic"),
    (VARSTRIP, "varstrip"),
    (TWOD_STRIPE, "twod_stripe"),
    (PROGRESSIVE, "progressive"),
];

/// A kind's name; `unknown` for one that this version does not know.
pub fn kind_name(kind: u8) -> &'static str {
    KINDS.iter().find(|(number, _)| *number == kind).map_or("unknown", |(_, name)| name)
}

/// The kind of a name.
pub fn kind_named(name: &str) -> Option<u8> {
    KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
}

/// Where a logical byte lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Index into the striping's servers, or [`INLINE`].
    pub slot: usize,
    /// Offset in the slot's object.
    pub physical: u64,
    /// How many bytes from here on lie one after another on that slot and in the file, at least 1.
    pub run: u64,
}

/// The mapping of one file.
pub trait Distribution {
    /// How many slots there are.
    fn slots(&self) -> usize;

    /// Where the byte at `logical` lies.
    fn locate(&self, logical: u64) -> Spot;

    /// How long the object of `slot` is when the file is `logical_size` bytes and has no holes.
    fn physical_size(&self, slot: usize, logical_size: u64) -> u64;

    /// The logical offset of a byte of an object: the inverse of `locate`. A byte of a slot that
    /// never has any lies nowhere: `u64::MAX`.
    fn logical(&self, slot: usize, physical: u64) -> u64;

    /// Bytes at the beginning of the file that lie with its metadata.
    fn inline_bytes(&self) -> u64 {
        0
    }
}

/// The distribution of any kind that a striping names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Map {
    /// Of simple_stripe, and of basic: one slot.
    Simple(SimpleStripe),
    /// Of varstrip.
    Var(Varstrip),
    /// Of twod_stripe.
    Twod(TwodStripe),
    /// Of the progressive striping.
    Progressive(Progressive),
}

macro_rules! each {
    ($self:ident, $map:ident => $answer:expr) => {
        match $self {
            Map::Simple($map) => $answer,
            Map::Var($map) => $answer,
            Map::Twod($map) => $answer,
            Map::Progressive($map) => $answer,
        }
    };
}

impl Distribution for Map {
    fn slots(&self) -> usize {
        each!(self, map => map.slots())
    }
    fn locate(&self, logical: u64) -> Spot {
        each!(self, map => map.locate(logical))
    }
    fn physical_size(&self, slot: usize, logical_size: u64) -> u64 {
        each!(self, map => map.physical_size(slot, logical_size))
    }
    fn logical(&self, slot: usize, physical: u64) -> u64 {
        each!(self, map => map.logical(slot, physical))
    }
    fn inline_bytes(&self) -> u64 {
        each!(self, map => map.inline_bytes())
    }
}

/// The distribution that a striping names.
///
/// Fails with EIO on a kind this version does not know and on impossible numbers, which only a
/// newer or damaged metadata store can hold.
pub fn of(striping: &Striping) -> Result<Map, Errno> {
    let slots = striping.servers.0.len();
    of_numbers(striping.kind, striping.strip_bytes, &striping.params.0, slots)
        .map_err(|what| Errno::because(Errno::EIO, format!("damaged striping: {what}")))
}

/// The distribution of a kind over `slots` servers, or why there is none.
pub(crate) fn of_numbers(
    kind: u8,
    strip: u32,
    params: &[u32],
    slots: usize,
) -> Result<Map, String> {
    check::check_numbers(kind, strip, params, slots)?;
    Ok(match (kind, params) {
        (VARSTRIP, strips) => {
            let strips = strips.as_chunks::<2>().0;
            Map::Var(Varstrip::new(strips.iter().map(|&[slot, bytes]| (slot, bytes)), slots))
        }
        (TWOD_STRIPE, &[groups, factor]) => {
            Map::Twod(TwodStripe::new(strip, slots, groups as usize, factor))
        }
        (PROGRESSIVE, &[inline, single]) => {
            Map::Progressive(Progressive::new(inline, single, SimpleStripe::new(strip, slots)))
        }
        (BASIC, _) => Map::Simple(SimpleStripe::new(STRIP_BYTES_MAX, 1)),
        _ => Map::Simple(SimpleStripe::new(strip, slots)),
    })
}

/// How many bytes of a file with this striping lie with its metadata.
pub fn inline_bytes(striping: &Striping) -> u64 {
    match (striping.kind, &striping.params.0[..]) {
        (PROGRESSIVE, &[inline, _]) => u64::from(inline),
        _ => 0,
    }
}

impl StripingHint {
    /// Strips of `strip_bytes` round robin over `server_count` servers (0: all).
    pub fn simple_stripe(strip_bytes: u32, server_count: u16) -> StripingHint {
        StripingHint { kind: SIMPLE_STRIPE, strip_bytes, server_count, params: List(Vec::new()) }
    }

    /// The default: the first 64 KiB with the metadata, up to 4 MiB on one server, from there on
    /// strips of `strip_bytes` over `server_count` servers (0: all).
    pub fn progressive(strip_bytes: u32, server_count: u16) -> StripingHint {
        let params = List(vec![INLINE_BYTES_DEFAULT, SINGLE_BYTES_DEFAULT]);
        StripingHint { kind: PROGRESSIVE, strip_bytes, server_count, params }
    }

    /// With which a file is laid out as this one is.
    pub fn of_file(striping: &Striping) -> StripingHint {
        StripingHint {
            kind: striping.kind,
            strip_bytes: striping.strip_bytes,
            server_count: u16::try_from(striping.servers.0.len()).unwrap_or(0),
            params: striping.params.clone(),
        }
    }
}
