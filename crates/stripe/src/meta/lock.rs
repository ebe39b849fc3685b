//! Locks: fcntl's byte ranges and flock's whole files, two spaces that never meet.
//!
//! All of it is volatile. A client that comes back after a restart takes its locks again with
//! ordinary Lock operations; a session's locks end with the session.

mod table;

use super::fault::{Fault, refuse};
use super::permission::mode;
use super::{Applied, Awaited, Store, WaitId, done};
use crate::kv::Kv;
use crate::ops::{Id, RangeLock, Reply, Request};
use covey_ninep::tree::Errno;
pub(super) use table::Locks;
use table::{Refusal, Who};

impl<K: Kv> Store<K> {
    pub(super) fn lock(
        &mut self,
        request: &Request,
        id: Id,
        lock: &RangeLock,
        wait: bool,
    ) -> Result<Applied, Fault> {
        self.check_lock(request, id, lock)?;
        let who = Who { session: request.session, owner: lock.owner };
        if !wait {
            return match self.locks.take(id, who, lock) {
                Ok(granted) => Ok(self.granted(granted)),
                Err(refusal) => refuse_lock(&refusal, id),
            };
        }
        let taken = match self.locks.take_or_wait(id, who, lock, WaitId(self.wait_next)) {
            Ok(taken) => taken,
            Err(refusal) => return refuse_lock(&refusal, id),
        };
        self.grant(taken.ended);
        if taken.held {
            Ok(done())
        } else {
            Ok(Applied::Wait(self.wait_for(request.session, id, Awaited::Lock)))
        }
    }

    pub(super) fn unlock(
        &mut self,
        request: &Request,
        id: Id,
        lock: &RangeLock,
    ) -> Result<Applied, Fault> {
        if lock.start > lock.end {
            return refuse(Errno::EINVAL, "the range ends before it starts");
        }
        let who = Who { session: request.session, owner: lock.owner };
        let granted = self.locks.release(id, who, lock);
        Ok(self.granted(granted))
    }

    pub(super) fn getlock(
        &self,
        request: &Request,
        id: Id,
        lock: &RangeLock,
    ) -> Result<Applied, Fault> {
        self.check_lock(request, id, lock)?;
        let who = Who { session: request.session, owner: lock.owner };
        let lock = self.locks.obstacle(id, who, lock);
        Ok(Applied::Reply(Reply::Locked { lock }))
    }

    fn check_lock(&self, request: &Request, id: Id, lock: &RangeLock) -> Result<(), Fault> {
        self.must_be_live(request.session)?;
        if lock.start > lock.end {
            return refuse(Errno::EINVAL, "the range ends before it starts");
        }
        let inode = self.stored(id)?.inode;
        match inode.type_bits() {
            mode::REGULAR => Ok(()),
            mode::DIRECTORY if lock.whole => Ok(()),
            _ => refuse(Errno::EBADF, format!("file {id} cannot be locked so")),
        }
    }

    /// The file is gone: those who wait for its locks wait in vain.
    pub(super) fn forget_locks(&mut self, id: Id) {
        for wait in self.locks.forget(id) {
            let error = Errno::because(Errno::ESTALE, format!("file {id} is gone"));
            self.answer(wait, super::error_reply(&error));
        }
    }

    /// Tells those who waited that they have their locks.
    pub(super) fn grant(&mut self, waits: Vec<WaitId>) {
        waits.into_iter().for_each(|wait| self.answer(wait, Reply::Done {}));
    }

    fn granted(&mut self, waits: Vec<WaitId>) -> Applied {
        self.grant(waits);
        done()
    }
}

fn refuse_lock(refusal: &Refusal, id: Id) -> Result<Applied, Fault> {
    match refusal {
        Refusal::Busy => refuse(Errno::EAGAIN, format!("file {id} is locked by another")),
        Refusal::Deadlock => refuse(Errno::EDEADLK, "they wait for each other"),
        Refusal::TooMany => refuse(Errno::ENOLCK, format!("file {id} has too many locks")),
    }
}
