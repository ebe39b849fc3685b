//! The message table of 9P: 9P2000, 9P2000.u, 9P2000.L and Covey's own extension.
//!
//! Numbers, names and field order are the specification's (Plan 9 manual section 5; the .u RFC
//! draft; diod's protocol.md for .L). A field that only some dialects carry has a type that knows
//! so.
//!
//! `size[4] number[1] tag[2] fields...`, integers little-endian.

mod entry;
mod stat;

pub use entry::DirEntry;
pub use stat::{Extension, Stat, dm};

use covey_wire::{Blame, Field, List, Name, Payload, Reader, Segments, messages, record};

/// What a Tag field holds when there is none (Tversion).
pub const NOTAG: u16 = 0xffff;
/// What a fid field holds when there is none (afid of Tattach).
pub const NOFID: u32 = 0xffff_ffff;
/// What n_uname holds when only the name counts.
pub const NONUNAME: u32 = 0xffff_ffff;
/// Bytes of a Twrite or Rread that are not payload, rounded up: payload is at most msize less this.
pub const IOHDRSZ: u32 = 24;
/// Most names in one Twalk (Plan 9 intro(5), MAXWELEM).
pub const WALK_NAMES_MAX: usize = 16;
/// Longest name in bytes that is accepted in a walk or a create.
pub const NAME_BYTES_MAX: usize = 255;
/// The header: size, number, tag.
pub const HEADER_BYTES: usize = 7;
/// The message size offered by default: 1 MiB of payload is one message.
pub const MSIZE_DEFAULT: u32 = (1 << 20) + 4096;
/// The least message size that is accepted.
pub const MSIZE_MIN: u32 = 4096;

/// Which 9P is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `9P2000`, Plan 9's.
    Plan9,
    /// `9P2000.u`, with Unix ids and error numbers.
    Unix,
    /// `9P2000.L`, Linux's.
    Linux,
    /// `9P2000.L.covey2`: .L and the extension messages of this table.
    Covey,
}

impl covey_wire::Context for Dialect {
    const ORDER: covey_wire::Order = covey_wire::Order::Little;
}

impl Dialect {
    /// The version string.
    pub fn version(self) -> &'static str {
        match self {
            Dialect::Plan9 => "9P2000",
            Dialect::Unix => "9P2000.u",
            Dialect::Linux => "9P2000.L",
            Dialect::Covey => "9P2000.L.covey2",
        }
    }

    /// The dialect of a version string this side knows.
    pub fn parse(version: &[u8]) -> Option<Dialect> {
        [Dialect::Covey, Dialect::Linux, Dialect::Unix, Dialect::Plan9]
            .into_iter()
            .find(|dialect| dialect.version().as_bytes() == version)
    }

    /// What a server answers to a client's version string: the dialect itself, or the one that is left
    /// when unknown suffixes after a period are taken off, or 9P2000 for a later number (version(5)).
    pub fn settle(version: &[u8]) -> Option<Dialect> {
        let mut rest = version;
        loop {
            if let Some(dialect) = Dialect::parse(rest) {
                return Some(dialect);
            }
            match rest.iter().rposition(|byte| *byte == b'.') {
                Some(period) => rest = &rest[..period],
                None => break,
            }
        }
        let digits = std::str::from_utf8(rest.strip_prefix(b"9P")?).ok()?;
        let number = digits.parse::<u32>().ok().filter(|_| !digits.starts_with('+'))?;
        (number >= 2000).then_some(Dialect::Plan9)
    }

    /// Whether the dialect has the message with this number.
    pub fn speaks(self, number: u8) -> bool {
        const ERROR: u8 = 107;
        match (self, number) {
            (Dialect::Plan9 | Dialect::Unix, 100..=127) => true,
            (Dialect::Linux | Dialect::Covey, 0..=99) => true,
            (Dialect::Linux | Dialect::Covey, ERROR | 112..=115 | 124..=127) => false,
            (Dialect::Linux | Dialect::Covey, 100..=127) => true,
            (Dialect::Covey, 200..) => true,
            _ => false,
        }
    }

    /// Whether this is .L or made of it: files are asked about with Linux's own calls.
    pub fn is_linux(self) -> bool {
        matches!(self, Dialect::Linux | Dialect::Covey)
    }

    /// Whether messages carry Unix numbers (.u and later).
    pub fn has_numbers(self) -> bool {
        self != Dialect::Plan9
    }
}

/// A 32-bit field that 9P2000 does not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(pub u32);

impl Field<Dialect> for Number {
    fn size(&self, dialect: Dialect) -> usize {
        if dialect.has_numbers() { 4 } else { 0 }
    }
    fn put(&self, dialect: Dialect, out: &mut Vec<u8>) {
        if dialect.has_numbers() {
            Field::<Dialect>::put(&self.0, dialect, out);
        }
    }
    fn get(dialect: Dialect, from: &mut Reader) -> Result<Self, Blame> {
        Ok(Number(if dialect.has_numbers() { from.u32()? } else { NONUNAME }))
    }
}

record! {
    /// The server's name of a file: unique for its life, with a version that changes with its
    /// content.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Qid for Dialect {
        /// What it is: QTDIR and the like.
        pub kind: u8,
        /// Changes when the content changes.
        pub version: u32,
        /// Unique among all files of the tree.
        pub path: u64,
    }
}

impl Qid {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 13;
    /// A directory.
    pub const DIR: u8 = 0x80;
    /// An authentication file.
    pub const AUTH: u8 = 0x08;
    /// A symbolic link.
    pub const SYMLINK: u8 = 0x02;
    /// A plain file.
    pub const FILE: u8 = 0x00;
}

messages! {
    /// Every message of 9P, by its name in the specification.
    pub enum Message for Dialect {
        /// .L: an error as a Linux errno
        7 Rlerror { ecode: u32 },
        /// .L: state of the file system
        8 Tstatfs { fid: u32 },
        9 Rstatfs { kind: u32, bsize: u32, blocks: u64, bfree: u64, bavail: u64,
                    files: u64, ffree: u64, fsid: u64, namelen: u32 },
        /// .L: open with Linux flags
        12 Tlopen { fid: u32, flags: u32 },
        13 Rlopen { qid: Qid, iounit: u32 },
        /// .L: create and open; the fid becomes the new file
        14 Tlcreate { fid: u32, name: Name, flags: u32, mode: u32, gid: u32 },
        15 Rlcreate { qid: Qid, iounit: u32 },
        /// .L: make a symbolic link
        16 Tsymlink { dfid: u32, name: Name, target: Name, gid: u32 },
        17 Rsymlink { qid: Qid },
        /// .L: make a device, FIFO or socket
        18 Tmknod { dfid: u32, name: Name, mode: u32, major: u32, minor: u32, gid: u32 },
        19 Rmknod { qid: Qid },
        /// .L: rename a file by its fid (superseded by Trenameat)
        20 Trename { fid: u32, dfid: u32, name: Name },
        21 Rrename {},
        /// .L: read a symbolic link
        22 Treadlink { fid: u32 },
        23 Rreadlink { target: Name },
        /// .L: attributes
        24 Tgetattr { fid: u32, request_mask: u64 },
        25 Rgetattr { valid: u64, qid: Qid, mode: u32, uid: u32, gid: u32, nlink: u64, rdev: u64,
                      size: u64, blksize: u64, blocks: u64,
                      atime_sec: u64, atime_nsec: u64, mtime_sec: u64, mtime_nsec: u64,
                      ctime_sec: u64, ctime_nsec: u64, btime_sec: u64, btime_nsec: u64,
                      generation: u64, data_version: u64 },
        /// .L: change attributes
        26 Tsetattr { fid: u32, valid: u32, mode: u32, uid: u32, gid: u32, size: u64,
                      atime_sec: u64, atime_nsec: u64, mtime_sec: u64, mtime_nsec: u64 },
        27 Rsetattr {},
        /// .L: a new fid on an extended attribute, or on their list when the name is empty
        30 Txattrwalk { fid: u32, newfid: u32, name: Name },
        31 Rxattrwalk { size: u64 },
        /// .L: the fid becomes an extended attribute to be written
        32 Txattrcreate { fid: u32, name: Name, attr_size: u64, flags: u32 },
        33 Rxattrcreate {},
        /// .L: directory entries
        40 Treaddir { fid: u32, offset: u64, count: u32 },
        41 Rreaddir { data: Payload },
        /// .L: to stable storage
        50 Tfsync { fid: u32, datasync: u32 },
        51 Rfsync {},
        /// .L: byte-range lock
        52 Tlock { fid: u32, kind: u8, flags: u32, start: u64, length: u64, proc_id: u32,
                   client_id: Name },
        53 Rlock { status: u8 },
        /// .L: test for a lock
        54 Tgetlock { fid: u32, kind: u8, start: u64, length: u64, proc_id: u32, client_id: Name },
        55 Rgetlock { kind: u8, start: u64, length: u64, proc_id: u32, client_id: Name },
        /// .L: hard link
        70 Tlink { dfid: u32, fid: u32, name: Name },
        71 Rlink {},
        /// .L: make a directory
        72 Tmkdir { dfid: u32, name: Name, mode: u32, gid: u32 },
        73 Rmkdir { qid: Qid },
        /// .L: rename by directory and name
        74 Trenameat { olddirfid: u32, oldname: Name, newdirfid: u32, newname: Name },
        75 Rrenameat {},
        /// .L: remove by directory and name
        76 Tunlinkat { dirfid: u32, name: Name, flags: u32 },
        77 Runlinkat {},
        /// settles dialect and message size
        100 Tversion { msize: u32, version: Name },
        101 Rversion { msize: u32, version: Name },
        /// opens an authentication file
        102 Tauth { afid: u32, uname: Name, aname: Name, n_uname: Number },
        103 Rauth { aqid: Qid },
        /// a new fid at the root of a tree
        104 Tattach { fid: u32, afid: u32, uname: Name, aname: Name, n_uname: Number },
        105 Rattach { qid: Qid },
        /// 9P2000: an error as text
        107 Rerror { ename: Name, errno: Number },
        /// forget a request
        108 Tflush { oldtag: u16 },
        109 Rflush {},
        /// a new fid down a path
        110 Twalk { fid: u32, newfid: u32, names: List<Name> },
        111 Rwalk { qids: List<Qid> },
        /// 9P2000: open
        112 Topen { fid: u32, mode: u8 },
        113 Ropen { qid: Qid, iounit: u32 },
        /// 9P2000: create and open
        114 Tcreate { fid: u32, name: Name, perm: u32, mode: u8, extension: Extension },
        115 Rcreate { qid: Qid, iounit: u32 },
        /// data out of an open fid
        116 Tread { fid: u32, offset: u64, count: u32 },
        117 Rread { data: Payload },
        /// data into an open fid
        118 Twrite { fid: u32, offset: u64, data: Payload },
        119 Rwrite { count: u32 },
        /// the fid is no longer wanted
        120 Tclunk { fid: u32 },
        121 Rclunk {},
        /// removes the file and clunks the fid
        122 Tremove { fid: u32 },
        123 Rremove {},
        /// 9P2000: attributes
        124 Tstat { fid: u32 },
        125 Rstat { stat: Box<Stat> },
        /// 9P2000: change attributes
        126 Twstat { fid: u32, stat: Box<Stat> },
        127 Rwstat {},
        /// Covey: an operation of the tree's own, carried as bytes both ways
        200 Tcall { fid: u32, body: Payload },
        201 Rcall { body: Payload },
        /// Covey: scattered data out of an open fid: `count` bytes, all of them between `start` and `end`
        206 Treadview { fid: u32, start: u64, end: u64, count: u32, view: Payload },
        207 Rreadview { data: Payload },
        /// Covey: scattered data into an open fid
        208 Twriteview { fid: u32, start: u64, end: u64, view: Payload, data: Payload },
        209 Rwriteview { count: u32 },
    }
}

impl Message {
    /// Appends the whole message: header, fields, payload shared.
    pub fn put(&self, tag: u16, dialect: Dialect, out: &mut Segments) {
        let size = HEADER_BYTES + self.body_size(dialect);
        let size = u32::try_from(size).expect("messages are bounded by msize");
        let header = |out: &mut Vec<u8>| {
            out.extend_from_slice(&size.to_le_bytes());
            out.push(self.number());
            out.extend_from_slice(&tag.to_le_bytes());
        };
        match self {
            Message::Rread { data } | Message::Rreaddir { data } | Message::Rreadview { data } => {
                out.small(header);
                put_payload(data, out);
            }
            Message::Rcall { body } => {
                out.small(header);
                put_payload(body, out);
            }
            Message::Tcall { fid, body } => {
                out.small(|out| {
                    header(out);
                    out.extend_from_slice(&fid.to_le_bytes());
                });
                put_payload(body, out);
            }
            Message::Twrite { fid, offset, data } => {
                out.small(|out| {
                    header(out);
                    out.extend_from_slice(&fid.to_le_bytes());
                    out.extend_from_slice(&offset.to_le_bytes());
                });
                put_payload(data, out);
            }
            Message::Twriteview { fid, start, end, view, data } => {
                out.small(|out| {
                    header(out);
                    out.extend_from_slice(&fid.to_le_bytes());
                    out.extend_from_slice(&start.to_le_bytes());
                    out.extend_from_slice(&end.to_le_bytes());
                    view.put(dialect, out);
                });
                put_payload(data, out);
            }
            small => out.small(|out| {
                header(out);
                small.put_body(dialect, out);
            }),
        }
    }

    /// Reads one whole message, header included, of exactly the size in its header.
    pub fn get(bytes: covey_wire::Bytes, dialect: Dialect) -> Result<(u16, Message), Blame> {
        Message::read_from(Reader::new(bytes), dialect)
    }

    /// The same off a cursor, which ends with the message.
    pub(crate) fn read_from(mut from: Reader, dialect: Dialect) -> Result<(u16, Message), Blame> {
        let (_size, number, tag) = (from.u32()?, from.u8()?, from.u16()?);
        if !dialect.speaks(number) {
            let what = format!("message number {number} in {}", dialect.version());
            return Err(Blame::Unsupported(what));
        }
        let message = Message::take_body(number, dialect, &mut from)?;
        from.finish().map_err(|blame| match blame {
            Blame::Malformed(what) => Blame::Malformed(format!("{}: {what}", message.name())),
            other => other,
        })?;
        Ok((tag, message))
    }
}

fn put_payload(data: &Payload, out: &mut Segments) {
    let length = u32::try_from(data.len()).expect("payloads are bounded by msize");
    out.small(|out| out.extend_from_slice(&length.to_le_bytes()));
    data.send(out);
}
