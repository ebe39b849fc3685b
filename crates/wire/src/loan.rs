//! Bytes that lie in a file and are lent to the output until they are sent.

use crate::Blame;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A file that lends its bytes, of the kind that the loop knows.
pub trait Lender: Any + Send + Sync {
    /// Appends exactly `length` bytes from `offset`, as they are now. Zeros stand for what is gone:
    /// the length was told to the peer before.
    fn copy(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Blame>;
}

/// A range of a file that is copied to the peer straight from where the file lies, at the moment of the
/// sending. Unlike a [`crate::FileRange`] it is settled then: no later change shows in it. Whoever is
/// about to change a file settles what is not sent yet before ([`crate::Segments::settle`]).
#[derive(Clone)]
pub struct Loan {
    /// The file.
    pub lender: Arc<dyn Lender>,
    /// Its first byte.
    pub offset: u64,
    /// How many bytes it has.
    pub length: usize,
}

impl Loan {
    /// Appends its bytes, as they are now.
    pub fn copy(&self, out: &mut Vec<u8>) -> Result<(), Blame> {
        let before = out.len();
        let copied = self.lender.copy(self.offset, self.length, out);
        match copied {
            Ok(()) => assert_eq!(out.len() - before, self.length, "a loan is copied whole"),
            // A message that is cut off ends the connection; one that looks whole would be believed.
            Err(_) => out.truncate(before),
        }
        copied
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes from {} of a file that lends them>", self.length, self.offset)
    }
}
