//! Directory entries as Rreaddir of .L has them, one after the other.

use super::{Dialect, Qid};
use covey_wire::{Blame, Bytes, Field, Name, Reader, record};

record! {
    /// One entry: `qid[13] offset[8] type[1] name[s]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DirEntry for Dialect {
        /// The server's name of the file.
        pub qid: Qid,
        /// Where the next Treaddir goes on after this one.
        pub offset: u64,
        /// DT_DIR and the like, from readdir(3).
        pub kind: u8,
        /// Its name.
        pub name: Name,
    }
}

impl DirEntry {
    /// All that one Rreaddir holds.
    pub fn take_entries(data: Bytes) -> Result<Vec<DirEntry>, Blame> {
        let (mut from, mut found) = (Reader::new(data), Vec::new());
        while from.remaining() > 0 {
            found.push(<DirEntry as Field<Dialect>>::get(Dialect::Linux, &mut from)?);
        }
        Ok(found)
    }
}
