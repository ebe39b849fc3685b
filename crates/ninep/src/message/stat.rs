//! The attributes of a file as 9P2000 and 9P2000.u write them: in Rstat, in Twstat, and one after the
//! other in a directory that is read (Plan 9 manual stat(5)).
//!
//! `size[2] type[2] dev[4] qid[13] mode[4] atime[4] mtime[4] length[8] name[s] uid[s] gid[s] muid[s]`,
//! and in .u `extension[s] n_uid[4] n_gid[4] n_muid[4]`. In Rstat and Twstat a second length goes before.

use super::{Dialect, NONUNAME, Number, Qid};
use crate::tree::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use covey_wire::{Blame, Bytes, Field, Name, Reader, record};

/// Text that only 9P2000.u carries.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Extension(pub Name);

impl Field<Dialect> for Extension {
    fn size(&self, dialect: Dialect) -> usize {
        if dialect == Dialect::Unix { Field::<Dialect>::size(&self.0, dialect) } else { 0 }
    }
    fn put(&self, dialect: Dialect, out: &mut Vec<u8>) {
        if dialect == Dialect::Unix {
            self.0.put(dialect, out);
        }
    }
    fn get(dialect: Dialect, from: &mut Reader) -> Result<Self, Blame> {
        Ok(Extension(if dialect == Dialect::Unix {
            Field::get(dialect, from)?
        } else {
            Name::EMPTY
        }))
    }
}

record! {
    /// A file's attributes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Stat for Dialect {
        /// For the kernel's use.
        pub kind: u16,
        /// For the kernel's use.
        pub dev: u32,
        /// The server's name of the file.
        pub qid: Qid,
        /// Permissions and the bits of [`dm`].
        pub mode: u32,
        /// Last read, in seconds since 1970.
        pub atime: u32,
        /// Last change, in seconds since 1970.
        pub mtime: u32,
        /// Length in bytes; 0 of a directory.
        pub length: u64,
        /// The file's name in its directory; `/` of the root.
        pub name: Name,
        /// Owner.
        pub uid: Name,
        /// Group.
        pub gid: Name,
        /// Who changed it last, if that is known.
        pub muid: Name,
        /// .u: target of a symbolic link, or the numbers of a device.
        pub extension: Extension,
        /// .u: owner.
        pub n_uid: Number,
        /// .u: group.
        pub n_gid: Number,
        /// .u: who changed it last.
        pub n_muid: Number,
    }
}

impl Stat {
    /// The one that changes nothing when it is written: all ones, and empty names.
    pub fn dont_touch() -> Stat {
        Stat {
            kind: u16::MAX,
            dev: u32::MAX,
            qid: Qid { kind: u8::MAX, version: u32::MAX, path: u64::MAX },
            mode: u32::MAX,
            atime: u32::MAX,
            mtime: u32::MAX,
            length: u64::MAX,
            name: Name::EMPTY,
            uid: Name::EMPTY,
            gid: Name::EMPTY,
            muid: Name::EMPTY,
            extension: Extension::default(),
            n_uid: Number(NONUNAME),
            n_gid: Number(NONUNAME),
            n_muid: Number(NONUNAME),
        }
    }

    /// The mode as Linux has it. A device is a block device when its extension says so.
    pub fn linux_mode(&self) -> u32 {
        let kinds = [
            (dm::DIR, S_IFDIR),
            (dm::SYMLINK, S_IFLNK),
            (dm::NAMEDPIPE, S_IFIFO),
            (dm::SOCKET, S_IFSOCK),
            (
                dm::DEVICE,
                if self.extension.0.as_bytes().starts_with(b"b") { S_IFBLK } else { S_IFCHR },
            ),
        ];
        let kind = kinds.iter().find(|(bit, _)| self.mode & bit != 0);
        let bits = [(dm::SETUID, 0o4000), (dm::SETGID, 0o2000), (dm::SETVTX, 0o1000)];
        let bits = bits.iter().filter(|(bit, _)| self.mode & bit != 0);
        let kind = kind.map_or(S_IFREG, |(_, kind)| *kind);
        bits.fold(kind | self.mode & 0o777, |mode, (_, bit)| mode | bit)
    }

    /// Whether its length fits the two bytes that the wire has for it.
    pub fn fits(&self, dialect: Dialect) -> bool {
        // Two more for the length that goes before it in Rstat.
        self.size(dialect) + 2 <= usize::from(u16::MAX)
    }

    /// Appends it with its length, as it stands in a directory. It must [fit](Stat::fits).
    pub fn put_entry(&self, dialect: Dialect, out: &mut Vec<u8>) {
        let length = u16::try_from(self.size(dialect)).expect("checked with fits");
        out.extend_from_slice(&length.to_le_bytes());
        self.put(dialect, out);
    }

    /// Takes the next one off what was read from a directory.
    pub fn take_entry(dialect: Dialect, from: &mut Reader) -> Result<Stat, Blame> {
        let length = from.u16()?;
        let mut inner = Reader::new(from.bytes(usize::from(length))?);
        let stat = <Stat as Field<Dialect>>::get(dialect, &mut inner)?;
        inner.finish()?;
        Ok(stat)
    }

    /// All that were read from a directory at once.
    pub fn take_entries(dialect: Dialect, data: Bytes) -> Result<Vec<Stat>, Blame> {
        let (mut from, mut found) = (Reader::new(data), Vec::new());
        while from.remaining() > 0 {
            found.push(Stat::take_entry(dialect, &mut from)?);
        }
        Ok(found)
    }
}

impl Field<Dialect> for Box<Stat> {
    fn size(&self, dialect: Dialect) -> usize {
        4 + (**self).size(dialect)
    }
    fn put(&self, dialect: Dialect, out: &mut Vec<u8>) {
        let length = u16::try_from(2 + (**self).size(dialect)).expect("checked with fits");
        out.extend_from_slice(&length.to_le_bytes());
        self.put_entry(dialect, out);
    }
    fn get(dialect: Dialect, from: &mut Reader) -> Result<Self, Blame> {
        let length = from.u16()?;
        let mut inner = Reader::new(from.bytes(usize::from(length))?);
        let stat = Stat::take_entry(dialect, &mut inner)?;
        inner.finish()?;
        Ok(Box::new(stat))
    }
}

/// The bits of a mode beside the permissions.
#[allow(missing_docs)]
pub mod dm {
    pub const DIR: u32 = 0x8000_0000;
    pub const APPEND: u32 = 0x4000_0000;
    pub const EXCL: u32 = 0x2000_0000;
    pub const MOUNT: u32 = 0x1000_0000;
    pub const AUTH: u32 = 0x0800_0000;
    pub const TMP: u32 = 0x0400_0000;
    /// From here on of 9P2000.u only.
    pub const SYMLINK: u32 = 0x0200_0000;
    pub const LINK: u32 = 0x0100_0000;
    pub const DEVICE: u32 = 0x0080_0000;
    pub const NAMEDPIPE: u32 = 0x0020_0000;
    pub const SOCKET: u32 = 0x0010_0000;
    pub const SETUID: u32 = 0x0008_0000;
    pub const SETGID: u32 = 0x0004_0000;
    pub const SETVTX: u32 = 0x0001_0000;
}
