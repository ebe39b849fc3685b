//! Who waits for answers: whether it is one program alone, whose CPU the thread may then share.

use crate::abi::Header;
use covey_io::os::place::{Front, Meeting, SMALL_BYTES, Whereabouts};
use std::cell::Cell;
use std::rc::Rc;

/// The callers of one thread of the mount.
pub struct Callers {
    front: Option<Front>,
    /// Held once more than there are callers that wait.
    waiting: Rc<Answered>,
}

/// What is known of the answers.
#[derive(Default)]
pub struct Answered {
    /// One since the last request was large.
    large: Cell<bool>,
}

/// A caller that waits, until this is dropped.
pub type Waits = Rc<Answered>;

impl Answered {
    /// An answer of so many bytes is sent. What a READ asks for says little: most files are shorter.
    pub fn note(&self, bytes: usize) {
        if bytes > SMALL_BYTES {
            self.large.set(true);
        }
    }
}

impl Callers {
    /// Nobody waits.
    pub fn new(front: Option<Front>) -> Callers {
        Callers { front, waiting: Rc::default() }
    }

    /// A request was read, after the device had been looked at in vain or not: who waits, and how it is to be woken. Nobody
    /// waits for what the kernel says for itself, such as RELEASE.
    pub fn note(&mut self, header: &Header, was_awaited: bool) -> (Option<Waits>, Option<Meeting>) {
        let Some(front) = self.front.as_mut().filter(|_| header.pid != 0) else {
            return (None, None);
        };
        if self.waiting.large.take() || header.len as usize > SMALL_BYTES {
            front.large();
        }
        if Rc::strong_count(&self.waiting) == 1 {
            front.alone(header.pid.into(), was_awaited, || Whereabouts::Waits(header.pid))
        } else {
            front.crowd()
        }
        (Some(self.waiting.clone()), front.meets())
    }
}
