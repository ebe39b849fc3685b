//! Files of the host that its workers map, each under a number.
//!
//! ```text
//!   opened ──► lent under a number ──► handed over to each worker that asks
//!   closed by all ──► taken back from these ──► the number is another file's next
//! ```
//!
//! A worker that does not take in what it is sent is not waited for: it uses files by messages.

use super::disk::Closed;
use covey_io::os::file::DataFile;
use covey_io::os::shm::area::{hand_over, take_back};
use covey_ninep::tree::{Errno, Result};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

/// Those of one host.
#[derive(Default)]
pub(super) struct Mappings {
    /// By number, less one.
    files: RefCell<Vec<Option<Mapping>>>,
    /// The socket of each worker that lives.
    sockets: RefCell<Vec<Option<UnixStream>>>,
}

struct Mapping {
    file: Closed,
    bytes: u64,
    /// Workers that have it.
    given: BTreeSet<u32>,
}

/// A number for a file. Dropped, the file is taken back from the workers.
pub(super) struct Lent {
    mappings: Rc<Mappings>,
    number: u32,
}

impl Mappings {
    /// The socket of the next worker, on which the host never waits from here on.
    pub fn meet(&self, socket: UnixStream) -> std::io::Result<()> {
        socket.set_nonblocking(true)?;
        self.sockets.borrow_mut().push(Some(socket));
        Ok(())
    }

    /// A worker is gone.
    pub fn bury(&self, worker: u32) {
        if let Some(socket) = self.sockets.borrow_mut().get_mut(worker as usize) {
            *socket = None;
        }
    }

    /// A number for a file, of which so many bytes are mapped; None when too many are lent.
    pub fn lend(self: &Rc<Mappings>, file: &DataFile, bytes: u64) -> Option<Lent> {
        let mapping = Mapping { file: Closed::new(file.clone()), bytes, given: BTreeSet::new() };
        let mut files = self.files.borrow_mut();
        let place = files.iter().position(Option::is_none).unwrap_or(files.len());
        match files.get_mut(place) {
            Some(free) => *free = Some(mapping),
            None if place < MAPPINGS_MAX => files.push(Some(mapping)),
            None => return None,
        }
        Some(Lent { mappings: self.clone(), number: place as u32 + 1 })
    }

    /// Hands a file over to a worker, unless it has it.
    pub fn share(&self, number: u32, worker: u32) -> Result<()> {
        let mut files = self.files.borrow_mut();
        let known = files.get_mut((number as usize).wrapping_sub(1)).and_then(Option::as_mut);
        let known = known.ok_or(Errno::EINVAL)?;
        let sockets = self.sockets.borrow();
        let socket = sockets.get(worker as usize).and_then(Option::as_ref).ok_or(Errno::ESTALE)?;
        if !known.given.contains(&worker) {
            hand_over(socket, number, known.bytes, known.file.file())?;
            known.given.insert(worker);
        }
        Ok(())
    }
}

impl Lent {
    /// The number, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mapping = self.mappings.files.borrow_mut()[self.number as usize - 1].take();
        let sockets = self.mappings.sockets.borrow();
        for worker in mapping.into_iter().flat_map(|mapping| mapping.given) {
            if let Some(Some(socket)) = sockets.get(worker as usize) {
                // One that takes nothing in keeps the file until it gets another one under this number.
                let _ = take_back(socket, self.number);
            }
        }
    }
}

/// Files that are mapped at once; further ones are used by messages.
const MAPPINGS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use covey_io::os::shm::area::{Handed, handed};

    fn file() -> DataFile {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("a size");
        DataFile::new(file).expect("a kind")
    }

    #[test]
    fn a_number_is_taken_back_and_is_another_file_s_then() {
        let mappings = Rc::new(Mappings::default());
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        mappings.meet(ours).expect("met");
        for _ in 0..2000 {
            let lent = mappings.lend(&file(), 4096).expect("a number");
            assert_eq!(lent.number(), 1);
            mappings.share(1, 0).expect("handed over");
            mappings.share(1, 0).expect("it has it");
            let Ok(Some(Handed::File(1, Ok(_)))) = handed(&theirs) else { panic!("the file") };
            drop(lent);
            let Ok(Some(Handed::Back(1))) = handed(&theirs) else { panic!("taken back") };
            assert!(matches!(handed(&theirs), Ok(None)), "nothing more");
        }
        let one = file();
        let lend = |_| mappings.lend(&one, 4096).expect("a number");
        let all: Vec<Lent> = (0..MAPPINGS_MAX).map(lend).collect();
        assert!(mappings.lend(&one, 4096).is_none());
        drop(all);
        assert_eq!(mappings.share(1, 0).expect_err("nobody's").code, Errno::EINVAL);
    }

    #[test]
    fn a_worker_that_takes_nothing_in_does_not_keep_its_host() {
        let mappings = Rc::new(Mappings::default());
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        mappings.meet(ours).expect("met");
        let one = file();
        let refused = (0..100_000).find_map(|_| {
            let lent = mappings.lend(&one, 4096).expect("a number");
            mappings.share(lent.number(), 0).err()
        });
        assert!(refused.is_some(), "a socket takes only so much");
        mappings.bury(0);
        let lent = mappings.lend(&one, 4096).expect("a number");
        assert_eq!(mappings.share(lent.number(), 0).expect_err("it is gone").code, Errno::ESTALE);
    }
}
