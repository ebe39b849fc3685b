//! Who waits for answers: whether it is one program alone, whose CPU the thread may then share.

use crate::abi::{Header, Request};
use covey_io::os::place::{Front, SMALL_BYTES, cpu_of};
use std::rc::Rc;

/// The callers of one thread of the mount.
pub struct Callers {
    front: Option<Front>,
    /// One more than there are callers that wait.
    waiting: Rc<()>,
}

/// A caller that waits, until this is dropped.
pub type Waits = Rc<()>;

impl Callers {
    /// Nobody waits.
    pub fn new(front: Option<Front>) -> Callers {
        Callers { front, waiting: Rc::default() }
    }

    /// A request was read. Nobody waits for what the kernel says for itself, such as RELEASE.
    pub fn note(&mut self, header: &Header, request: &Request) -> Option<Waits> {
        let front = self.front.as_mut()?;
        if header.pid == 0 {
            return None;
        }
        let is_alone = Rc::strong_count(&self.waiting) == 1;
        if is_alone && is_small(header, request) {
            front.alone(header.pid.into(), || cpu_of(header.pid))
        } else {
            front.crowd()
        }
        Some(self.waiting.clone())
    }
}

fn is_small(header: &Header, request: &Request) -> bool {
    let answer = match request {
        Request::Read { size, .. } => *size,
        _ => 0,
    };
    header.len.max(answer) as usize <= SMALL_BYTES
}
