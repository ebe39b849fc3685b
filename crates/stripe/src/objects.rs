//! What a data server is asked beyond plain 9P, and how its objects are named.
//!
//! A data server is a 9P server with one flat directory of objects. An object's name is the file's
//! id in 16 hexadecimal digits; walking `ID.EPOCH` gives a fid that is good for that epoch only:
//! after a truncation has raised the epoch, its reads and writes answer ESTALE. A name with an epoch
//! can be walked before the object exists; the first write makes it. `ID.EPOCH@CHAIN.GENERATION` is good
//! as long as the server also serves that chain at that generation (see [`crate::chain`]): after that it
//! answers EREMCHG.

use crate::chain::Served;
use crate::ops::Id;
use covey_wire::{Field, List, Name, Payload, Reader, messages, record};
use std::time::Duration;

/// The name of the object of `id` at `epoch`.
pub fn name(id: Id, epoch: u32) -> Name {
    Name::from(format!("{id:016x}.{epoch}"))
}

/// The same, reached by a chain.
pub fn name_in(id: Id, epoch: u32, served: Served) -> Name {
    Name::from(format!("{id:016x}.{epoch}@{}", served.text()))
}

/// What a request on an object is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// The epoch; none for whoever reads an object by hand.
    pub epoch: Option<u32>,
    /// The chain by which it is reached; none for clients that do not know of chains.
    pub chain: Option<Served>,
}

impl From<Option<u32>> for At {
    fn from(epoch: Option<u32>) -> At {
        At { epoch, chain: None }
    }
}

/// Takes apart a name that a client walks to: id, and what it is good for.
pub fn parse_at(name: &[u8]) -> Option<(Id, At)> {
    let Some(at) = name.iter().position(|&byte| byte == b'@') else {
        return parse(name).map(|(id, epoch)| (id, epoch.into()));
    };
    let (id, epoch) = parse(&name[..at])?;
    let chain = Some(Served::parse(std::str::from_utf8(&name[at + 1..]).ok()?)?);
    epoch.is_some().then_some((id, At { epoch, chain }))
}

/// Takes a name apart: id, and the epoch when it has one.
pub fn parse(name: &[u8]) -> Option<(Id, Option<u32>)> {
    let text = std::str::from_utf8(name).ok()?;
    let (id, epoch) = match text.split_once('.') {
        Some((id, epoch)) => (id, Some(epoch.parse().ok()?)),
        None => (text, None),
    };
    if id.len() != 16 {
        return None;
    }
    Some((Id::from_str_radix(id, 16).ok()?, epoch))
}

/// What a file in the directory of the objects is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// `ID.EPOCH.lost`, without bytes: what the object held was lost with the server's disk, and nobody has accepted that.
    Lost,
    /// An object: `ID` at epoch 0, `ID.EPOCH` later.
    Object,
    /// `ID.EPOCH.part`: what is to be the object at that epoch.
    Staged,
}

impl Kept {
    /// By its number.
    pub fn of(number: u8) -> Option<Kept> {
        [Kept::Lost, Kept::Object, Kept::Staged].into_iter().find(|kept| *kept as u8 == number)
    }

    /// What is added to the name of the object at its epoch.
    pub fn suffix(self) -> &'static str {
        match self {
            Kept::Object => "",
            Kept::Staged => ".part",
            Kept::Lost => ".lost",
        }
    }
}

/// What is kept under a name in the directory of the objects: for which file, at which epoch.
pub fn kept(name: &[u8]) -> Option<(Id, u32, Kept)> {
    let beside = [Kept::Staged, Kept::Lost]
        .into_iter()
        .find_map(|kept| Some((name.strip_suffix(kept.suffix().as_bytes())?, kept)));
    match beside {
        Some((name, kept)) => match parse(name)? {
            (id, Some(epoch)) => Some((id, epoch, kept)),
            (_, None) => None,
        },
        None => parse(name).map(|(id, epoch)| (id, epoch.unwrap_or(0), Kept::Object)),
    }
}

/// The length, in a listing, of an object that was lost with the server's disk: see [`Kept::Lost`].
pub const LOST: u64 = u64::MAX;

/// Stands for all chains of a server. No chain has this index.
pub const EVERY: u16 = u16::MAX;

/// Why what was somewhere is refused.
pub const LOST_WITH_DISK: &str = "was lost with its disk; hint: put the file back from a copy or remove it, or accept the loss \
                                  with `covey server accept-loss`";

/// Set in the epoch of what a file has left on a server: no file's epoch is so high, so whoever knows the file is too old
/// there, and only the same file's installation or its end takes its place.
pub const LEFT: u32 = 1 << 31;

/// The last epoch that a file can have.
pub const EPOCH_MAX: u32 = LEFT - 1;

/// Whether an object of this epoch is what a file has left.
pub fn is_left(epoch: u32) -> bool {
    epoch & LEFT != 0
}

record! {
    /// One object in a listing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Object for () {
        /// The file it belongs to.
        pub id: Id,
        /// The epoch it is at.
        pub epoch: u32,
        /// Length in bytes, or [`LOST`].
        pub bytes: u64,
    }
}

impl Object {
    /// Whether what it held was lost with the server's disk, and nobody has accepted that.
    pub fn is_lost(&self) -> bool {
        self.bytes == LOST
    }
}

record! {
    /// An object to be removed, to be emptied, or that is lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Doomed for () {
        /// The file.
        pub id: Id,
        /// An object of a later epoch stays.
        pub epoch: u32,
    }
}

/// What is done to a range: the modes of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reshape {
    /// Space is allocated; a range beyond the end makes the object longer.
    Allocate = 1,
    /// Space is allocated, beyond the end too; the length stays.
    AllocateKeep = 2,
    /// The range reads as zeros and its space is free; the length stays.
    Punch = 3,
    /// The range reads as zeros and is allocated; beyond the end it makes the object longer.
    Zero = 4,
    /// The same, and the length stays.
    ZeroKeep = 5,
}

impl Reshape {
    /// By its number.
    pub fn of(number: u8) -> Option<Reshape> {
        use Reshape::*;
        [Allocate, AllocateKeep, Punch, Zero, ZeroKeep].into_iter().find(|how| *how as u8 == number)
    }

    /// Whether the length stays.
    pub fn keeps_length(self) -> bool {
        !matches!(self, Reshape::Allocate | Reshape::Zero)
    }

    /// Whether the range reads as zeros afterwards.
    pub fn zeroes(self) -> bool {
        !matches!(self, Reshape::Allocate | Reshape::AllocateKeep)
    }

    /// Whether it takes space.
    pub fn allocates(self) -> bool {
        self != Reshape::Punch
    }
}

record! {
    /// A file of an object that is copied with its chain, or of what is beside it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FileOf for () {
        /// The file it belongs to.
        pub id: Id,
        /// The epoch it is at.
        pub epoch: u32,
        /// A [`Kept`].
        pub kept: u8,
        /// Length in bytes.
        pub bytes: u64,
    }
}

record! {
    /// What has changed of an object while its chain is copied.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Changed for () {
        /// The file it belongs to.
        pub id: Id,
        /// A block of [`COPY_BLOCK`] bytes, or [`WHOLE`].
        pub block: u32,
    }
}

/// What changes in a chain that is copied is noted in blocks of so many bytes.
pub const COPY_BLOCK: u64 = 64 << 10;

/// Stands for all blocks of an object, and all that is beside it.
pub const WHOLE: u32 = u32::MAX;

/// More changes than these are not noted one by one.
pub const CHANGES_MAX: usize = 1 << 15;

/// How long nobody changes an object of which somebody else has asked so: see `ReadHeld`.
pub const HOLD: Duration = Duration::from_millis(20);

/// Most bytes that are read so at once.
pub const HELD_BYTES_MAX: u32 = 128 << 10;

/// What is done to a file of a chain that is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Put {
    /// It is made, without bytes.
    Begin = 1,
    /// It gets these bytes.
    Go = 2,
    /// From `offset` on there are zeros only: so many bytes as the 8 of `data` say, the low one first.
    Empty = 3,
    /// It has `offset` bytes, and is on stable storage when this is answered.
    End = 4,
}

impl Put {
    /// By its number.
    pub fn of(number: u8) -> Option<Put> {
        [Put::Begin, Put::Go, Put::Empty, Put::End].into_iter().find(|how| *how as u8 == number)
    }
}

/// A piece of what is to be an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Staging {
    /// The first: what was staged before is gone.
    Begin = 1,
    /// Another one.
    Go = 2,
    /// The last.
    End = 3,
}

impl Staging {
    /// By its number.
    pub fn of(number: u8) -> Option<Staging> {
        use Staging::*;
        [Begin, Go, End].into_iter().find(|how| *how as u8 == number)
    }
}

messages! {
    /// An operation on a data server's root, carried by Tcall. Only the cluster itself may ask.
    pub enum DataOp for () {
        /// raises the object's epoch and cuts it to `size` physical bytes; done already is done
        1 Cut { id: u64, epoch: u32, size: u64 },
        /// removes objects up to an epoch; those that are not there are fine
        2 Remove { objects: List<Doomed> },
        /// objects with an id above `after`, in order, at most `count`
        3 Objects { after: u64, count: u32 },
        /// bytes allocated for an object
        4 Allocated { id: u64 },
        /// allocates, frees or zeroes a range of the object; `how`: see [`Reshape`]
        20 Reshape { id: u64, epoch: u32, how: u8, offset: u64, length: u64 },
        /// the first run of data at or after `offset`
        21 Extent { id: u64, epoch: u32, offset: u64 },
        /// reads at most [`HELD_BYTES_MAX`], and asks that nobody else changes the object for [`HOLD`]; from a client that has said
        /// Start. A server of an older version refuses it with EINVAL
        29 ReadHeld { id: u64, epoch: u32, offset: u64, count: u32 },
        /// those of these objects that are there
        30 Look { ids: List<u64> },
        /// the first on a connection: from now on `client` (0: somebody else) writes on this one only.
        /// Asks which start of its machine the server runs in.
        40 Start { client: u64 },
        /// from the metadata server alone, and answered at once: which store the objects are in
        41 Meet {},
        /// the metadata server `meta` keeps its files in this store: it serves from now on
        42 Admit { store: Name, meta: Name },
        /// the metadata server does not know this store: it serves nothing, and says why
        43 Refuse { reason: Name },
        /// the store, which was another metadata server's, belongs to `meta` from now on; Admit follows
        44 Adopt { store: Name, meta: Name, before: Name },
        /// a piece of what is to be the object at a later epoch, beside it; `how`: see [`Staging`]. The last piece of it has no
        /// bytes, and says by its offset how long the object will be: what was written is on the disk then
        22 Stage { id: u64, epoch: u32, how: u8, offset: u64, data: Payload },
        /// what was staged, `bytes` long, is the object from now on; done already is done
        23 Install { id: u64, epoch: u32, bytes: u64 },
        /// what was staged is not wanted
        24 Unstage { id: u64, epoch: u32 },
        /// what is staged for objects with an id above `after`, in order, of at most `count` of them
        25 Staged { after: u64, count: u32 },
        /// files lie here no more: their objects up to an epoch have no bytes, and [`LEFT`], from now on
        26 Leave { objects: List<Doomed> },
        /// to a store that was not admitted yet: it has none of these objects, and their bytes were lost with the disk before.
        /// Those that are there stay; `end`: the last of them, all are on stable storage when this is answered
        27 Lose { store: Name, objects: List<Doomed>, end: bool },
        /// the loss of these objects is accepted: what they held reads as zeros; those that were not lost are fine
        28 Forgive { ids: List<u64> },
        /// the same as Start, from a client that says with each object by which chain it comes. A server of an older version
        /// refuses it with EINVAL
        45 Greet { client: u64 },
        /// from the metadata server: this store serves these chains at these generations and no others from now on. Answered when
        /// nothing that was admitted at another generation is under way any more
        46 Serve { store: Name, chains: List<Served> },
        /// one of the operations above from a client that comes by a chain: EREMCHG where it is not served at this generation
        47 By { served: Served, op: Payload },
        /// one of the operations above on the objects of this chain; what comes without is for the own one. Of [`EVERY`] chain only
        /// Remove
        48 In { chain: u16, op: Payload },
        /// the same as Serve to a server of several chains. The objects of `own` lie where those of a server of one chain do
        49 ServeAs { store: Name, own: u16, chains: List<Served> },
        /// in a chain: begins to note what changes there, or ends that
        50 Watch { is_on: bool },
        /// in a chain: what has changed since it was asked last. More than [`CHANGES_MAX`]: everything
        51 Changes {},
        /// in a chain: the files of about `count` objects after one, and of what is beside them
        52 Files { after: u64, count: u32 },
        /// in a chain: those of these objects
        53 FilesOf { ids: List<u64> },
        /// in a chain: the moves that have brought it to where it is, of which it remembers [`HOPS_MAX`]
        55 Hops {},
        /// in a chain: the first bytes at or after `offset` that are no hole, of `count` bytes from there
        54 Fetch { id: u64, epoch: u32, kept: u8, offset: u64, count: u32 },
        /// a chain that this store does not serve is put together there, beginning with nothing
        60 Receive { store: Name, chain: u16 },
        /// a piece of a file of it; `how`: see [`Put`]
        61 Put { chain: u16, stay: u32, id: u64, epoch: u32, kept: u8, how: u8, offset: u64, data: Payload },
        /// nothing is there of an object any more
        62 Clear { chain: u16, stay: u32, id: u64 },
        /// what was put together is whole, and on stable storage: a copy, which is the chain in this store when the metadata
        /// server says that it serves it. With the moves that have brought the chain here, this one last: the last [`HOPS_MAX`] count
        63 Settle { store: Name, chain: u16, stay: u32, generation: u32, hops: List<Hop> },
        /// what was put together is not wanted
        64 Spare { chain: u16, stay: u32 },
        /// a chain was moved to another server at this generation: what is here of it goes
        65 Drop { store: Name, chain: u16, generation: u32 },
        /// the copies of chains that were settled and never served
        66 Copies {},
        /// nobody will serve this copy: it goes. One that was served, or is another stay, is left alone
        67 Discard { store: Name, chain: u16, stay: u32 },
        /// a piece of a copy of the metadata, which is whole with `end`
        31 Keep { offset: u64, data: Payload, end: bool },
    }
}

/// An operation on the objects of a chain on a server, as the metadata server and a check ask for it. It is said plainly where
/// the chain is the server's own, as to servers that know no others.
pub fn of_chain(server: u16, chain: u16, op: DataOp) -> DataOp {
    if server == chain { op } else { DataOp::In { chain, op: Payload::from(op.encode()) } }
}

record! {
    /// A copy of a chain in a store that does not serve it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChainCopy for () {
        /// The chain.
        pub chain: u16,
        /// The number of its stay in the store.
        pub stay: u32,
    }
}

record! {
    /// A move of a chain. Whatever was written before it, and not lost with the power of the server that had the chain then, is on
    /// stable storage since.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Hop for () {
        /// The chain's generation from then on.
        pub generation: u32,
        /// The start of that server's machine in which it was copied from there.
        pub machine: u64,
    }
}

/// How many moves of a chain are remembered.
pub const HOPS_MAX: usize = 16;

/// The start of the machine of the server that had a chain at a generation in which it left it; None where that is not remembered,
/// or it has not.
pub fn left_in(hops: &[Hop], generation: u32) -> Option<u64> {
    let at = hops.iter().position(|hop| hop.generation > generation)?;
    // What came before the first that is remembered may be forgotten.
    (at > 0 || hops.len() < HOPS_MAX).then(|| hops[at].machine)
}

messages! {
    /// The answers.
    pub enum DataReply for () {
        /// it failed
        1 Error { code: u32, reason: Name },
        /// done
        2 Done {},
        /// a listing
        3 Objects { objects: List<Object> },
        /// bytes on disk
        4 Allocated { bytes: u64 },
        /// a number that changes when the machine starts, what was written and not synced may be lost
        /// then; and how many milliseconds ago that was, or fewer
        40 Start { machine: u64, age: u64 },
        /// the store; the metadata server whose objects it holds, if any; whether it holds none; and
        /// when it was formatted, in nanoseconds since 1970, 0 where nobody knows
        41 Met { store: Name, meta: Name, is_empty: bool, formatted: u64 },
        /// what has changed, or that everything counts as changed
        51 Changes { is_all: bool, parts: List<Changed> },
        /// files of objects
        52 Files { files: List<FileOf> },
        /// the bytes from `offset` on; none where there are only zeros
        54 Fetched { offset: u64, data: Payload },
        /// moves of a chain, by generation
        55 Hops { hops: List<Hop> },
        /// the number of the stay that begins
        60 Received { stay: u32 },
        /// copies of chains
        66 Copies { copies: List<ChainCopy> },
        /// data from `data` to before `hole`; both all ones when there is no more
        20 Extent { data: u64, hole: u64 },
        /// what was read, fewer bytes at the end of the object only, and for how long nobody else changes that: `millis`, 0 where
        /// somebody may, from when this was asked for
        29 Held { millis: u32, data: Payload },
    }
}

macro_rules! coded {
    ($type:ident) => {
        impl $type {
            /// The bytes of it, for a Tcall or Rcall.
            pub fn encode(&self) -> Vec<u8> {
                let mut out = vec![self.number()];
                self.put_body((), &mut out);
                out
            }

            /// Reads it back.
            pub fn decode(bytes: covey_wire::Bytes) -> Result<Self, covey_wire::Blame> {
                let mut from = Reader::new(bytes);
                let number = from.u8()?;
                let value = Self::take_body(number, (), &mut from)?;
                from.finish()?;
                Ok(value)
            }
        }
    };
}
coded!(DataOp);
coded!(DataReply);
const _: fn(&Object) -> usize = |object| Field::<()>::size(object, ());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_move_from_where_something_was_written_is_the_first_one_after_that() {
        let hops = |from: u32| -> Vec<Hop> {
            (from..from + HOPS_MAX as u32)
                .map(|at| Hop { generation: 10 * at, machine: at.into() })
                .collect()
        };
        let all = hops(1);
        assert_eq!(left_in(&all[..2], 5), Some(1));
        assert_eq!(left_in(&all[..2], 10), Some(2));
        assert_eq!(left_in(&all[..2], 20), None, "it has not left");
        assert_eq!(left_in(&[], 1), None);
        assert_eq!(left_in(&all, 5), None, "an earlier move may be forgotten");
        assert_eq!(left_in(&all, 10), Some(2));
    }

    #[test]
    fn names_come_back() {
        assert_eq!(parse(name(0x2a, 7).as_bytes()), Some((0x2a, Some(7))));
        assert_eq!(parse(b"000000000000002a"), Some((0x2a, None)));
        let served = Served { chain: 5, generation: 3 };
        let at = At { epoch: Some(7), chain: Some(served) };
        assert_eq!(parse_at(name_in(0x2a, 7, served).as_bytes()), Some((0x2a, at)));
        assert_eq!(parse_at(name(0x2a, 7).as_bytes()), Some((0x2a, Some(7).into())));
        for bad in
            [&b"000000000000002a@5.3"[..], b"000000000000002a.7@5", b"000000000000002a.7@5.3@"]
        {
            assert_eq!((parse_at(bad), kept(bad)), (None, None));
        }
        assert_eq!(kept(name_in(0x2a, 7, served).as_bytes()), None, "no file is called so");
        assert_eq!(kept(b"000000000000002a"), Some((0x2a, 0, Kept::Object)));
        assert_eq!(kept(b"000000000000002a.7"), Some((0x2a, 7, Kept::Object)));
        assert_eq!(kept(b"000000000000002a.7.part"), Some((0x2a, 7, Kept::Staged)));
        assert_eq!(kept(b"000000000000002a.0.lost"), Some((0x2a, 0, Kept::Lost)));
        for bad in
            [&b"000000000000002a.lost"[..], b".part", b"000000000000002a.7.lost.part", b"identity"]
        {
            assert_eq!(kept(bad), None);
        }
        for bad in [&b"2a"[..], b"", b"000000000000002a.x", b"..", b"zzzzzzzzzzzzzzzz"] {
            assert_eq!(parse(bad), None);
        }
    }
}
