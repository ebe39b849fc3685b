//! What a mount process knows that its successor cannot ask anybody for.
//!
//! The numbers that the kernel knows files by are file ids, so there is no table of them. Whatever is told to the kernel by
//! INIT is not told again: the successor must be content with it.

use crate::abi::Rest;
use covey_stripe::client::Unsynced;
use covey_stripe::ops::{Caller, Id};
use covey_wire::{Blame, Bytes, Field, Name, Reader, record};

/// A list with a 32-bit count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Many<T>(pub Vec<T>);

/// Bytes with a 32-bit length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob(pub Bytes);

record! {
    /// All of it.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct State for () {
        /// What was settled with the kernel; none if it has not asked yet.
        pub kernel: Option<Settled>,
        /// The kernel was ever told to keep attributes other than under a lease.
        pub has_kept: bool,
        /// The last number of an open file, and of an open directory.
        pub file_last: u64,
        /// See above.
        pub dir_last: u64,
        /// Open files and directories: the session's opens are theirs, in this order.
        pub files: Many<File>,
        /// See above.
        pub dirs: Many<Dir>,
        /// What fsync owes for the open files.
        pub unsynced: Many<Unsynced>,
        /// Who has asked for fcntl locks.
        pub askers: Many<Asker>,
        /// Directories with a consistency mode of their own.
        pub dir_modes: Many<DirMode>,
        /// Files that had set-user-id or set-group-id.
        pub privileged: Many<Id>,
        /// Where the kernel believes directories to be.
        pub places: Many<Place>,
        /// Errors that no program has heard of yet.
        pub untold: Many<Untold>,
        /// The requests that each device has left.
        pub left: Many<Many<Blob>>,
        /// The session, as [`covey_stripe::client::Handover`] writes it.
        pub session: Blob,
    }
}

record! {
    /// What INIT has settled.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Settled for () {
        /// The minor version of the protocol.
        pub minor: u32,
        /// The flags that were taken.
        pub flags: u64,
        /// The longest WRITE in bytes.
        pub write_bytes_max: u32,
    }
}

record! {
    /// An open file.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct File for () {
        /// Its handle.
        pub fh: u64,
        /// Which file.
        pub id: Id,
        /// It may be written through the handle.
        pub is_writable: bool,
        /// The mode that it was opened in, by number.
        pub mode: u8,
        /// Around the page cache.
        pub is_direct: bool,
        /// Who opened it.
        pub who: Caller,
    }
}

record! {
    /// An open directory.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Dir for () {
        /// Its handle.
        pub fh: u64,
        /// Which directory.
        pub id: Id,
        /// Where the listing ends that is being read.
        pub limit: u64,
        /// Who opened it.
        pub who: Caller,
    }
}

record! {
    /// An owner that has asked for fcntl locks on a file by a handle.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Asker for () {
        /// The file.
        pub id: Id,
        /// The owner.
        pub owner: u64,
        /// The handle.
        pub fh: u64,
    }
}

record! {
    /// A directory with a mode of its own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirMode for () {
        /// The directory.
        pub id: Id,
        /// By number.
        pub mode: u8,
    }
}

record! {
    /// A name that the kernel keeps of a directory.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Place for () {
        /// The directory.
        pub id: Id,
        /// Where it lies.
        pub parent: Id,
        /// Its name there.
        pub name: Name,
        /// How long ago the kernel was told.
        pub age_ms: u64,
    }
}

record! {
    /// An error of a file that its next fsync or close tells.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Untold for () {
        /// The file.
        pub id: Id,
        /// Its number.
        pub code: u32,
    }
}

impl State {
    /// As bytes.
    pub fn encode(&self) -> Rest {
        let mut out = Vec::with_capacity(self.size(()));
        self.put((), &mut out);
        Rest(out.into())
    }

    /// From bytes, of which nothing is left over.
    pub fn decode(bytes: Bytes) -> Result<State, Blame> {
        let mut from = Reader::new(bytes);
        let state = State::get((), &mut from)?;
        from.finish()?;
        Ok(state)
    }
}

impl<T> Default for Many<T> {
    fn default() -> Self {
        Many(Vec::new())
    }
}

impl<T> FromIterator<T> for Many<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Many(items.into_iter().collect())
    }
}

impl<T: Field<()>> Field<()> for Many<T> {
    fn size(&self, (): ()) -> usize {
        4 + self.0.iter().map(|item| item.size(())).sum::<usize>()
    }
    fn put(&self, (): (), out: &mut Vec<u8>) {
        let count = u32::try_from(self.0.len()).expect("no process has so much open");
        count.put((), out);
        self.0.iter().for_each(|item| item.put((), out));
    }
    /// Grows as items arrive, whatever their number is said to be.
    fn get((): (), from: &mut Reader) -> Result<Self, Blame> {
        let count = u32::get((), from)?;
        (0..count).map(|_| T::get((), from)).collect::<Result<_, _>>().map(Many)
    }
}

impl Field<()> for Blob {
    fn size(&self, (): ()) -> usize {
        4 + self.0.len()
    }
    fn put(&self, (): (), out: &mut Vec<u8>) {
        let length = u32::try_from(self.0.len()).expect("a message is shorter");
        length.put((), out);
        out.extend_from_slice(&self.0);
    }
    fn get((): (), from: &mut Reader) -> Result<Self, Blame> {
        let length = u32::get((), from)?;
        from.bytes(length as usize).map(Blob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_stripe::client::UnsyncedSlot;
    use covey_wire::List;

    fn some() -> State {
        let who = Caller { uid: 7, gid: 8, groups: List(vec![8, 9]) };
        let slot = UnsyncedSlot { is_dirty: true, machine: Some(4), is_lost: false };
        let slots = List(vec![slot]);
        State {
            kernel: Some(Settled { minor: 40, flags: 1 << 40, write_bytes_max: 1 << 20 }),
            has_kept: true,
            file_last: 9,
            dir_last: 3,
            files: Many(vec![File {
                fh: 9,
                id: 100,
                is_writable: true,
                mode: 1,
                is_direct: false,
                who: who.clone(),
            }]),
            dirs: Many(vec![Dir { fh: 3, id: 1, limit: 77, who }]),
            unsynced: Many(vec![Unsynced {
                id: 100,
                server_start: 1,
                machine_start: 2,
                is_lost: true,
                slots,
            }]),
            askers: Many(vec![Asker { id: 100, owner: 5, fh: 9 }]),
            dir_modes: Many(vec![DirMode { id: 1, mode: 2 }]),
            privileged: Many(vec![100]),
            places: Many(vec![Place { id: 1, parent: 1, name: "d".into(), age_ms: 12 }]),
            untold: Many(vec![Untold { id: 100, code: 28 }]),
            left: Many(vec![Many(vec![Blob(Bytes::from_static(b"request"))]), Many(vec![])]),
            session: Blob(Bytes::from_static(b"session")),
        }
    }

    #[test]
    fn a_state_comes_back_as_it_went_and_its_parts_do_not() {
        let state = some();
        let bytes = state.encode().0;
        assert_eq!(State::decode(bytes.clone()).as_ref(), Ok(&state));
        for end in 0..bytes.len() {
            assert!(State::decode(bytes.slice(..end)).is_err(), "{end} bytes");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(State::decode(longer.into()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic_or_take_more_memory_than_they_are() {
        let bytes = some().encode().0;
        let mut rng = covey_wire::Rng::new(19);
        for _ in 0..20_000 {
            let mut broken = bytes.to_vec();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(broken.len() as u64) as usize;
                broken[at] = rng.below(256) as u8;
            }
            let _ = State::decode(broken.into());
        }
    }
}
