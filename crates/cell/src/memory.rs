//! Memory that the host and a worker both reach, named by offsets from its beginning.

pub use covey_wire::Shared;
use std::cell::RefCell;

/// Memory for one thread: for tests and examples.
#[derive(Debug)]
pub struct Flat(RefCell<Vec<u8>>);

impl Flat {
    /// So many zeros.
    pub fn new(bytes: u64) -> Flat {
        Flat(RefCell::new(vec![0; bytes as usize]))
    }

    fn word<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut word = [0; N];
        self.read(at, &mut word);
        word
    }
}

impl Shared for Flat {
    fn load(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.word(at))
    }

    fn store(&self, at: u64, value: u32) {
        self.write(at, &value.to_le_bytes());
    }

    fn load_wide(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.word(at))
    }

    fn store_wide(&self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    fn fence(&self) {}

    fn read(&self, at: u64, into: &mut [u8]) {
        let at = at as usize;
        into.copy_from_slice(&self.0.borrow()[at..at + into.len()]);
    }

    fn write(&self, at: u64, from: &[u8]) {
        let at = at as usize;
        self.0.borrow_mut()[at..at + from.len()].copy_from_slice(from);
    }
}
