//! Locks on one file that all clients want: what is exclusive is held by one.

use super::{Role, Run, repeat};
use crate::sim::lab::Lab;
use covey_stripe::client::Fs;
use covey_stripe::ops::{Id, RangeLock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The file and who holds what of it.
pub struct Table {
    pub id: Id,
    held: RefCell<Vec<Held>>,
}

struct Held {
    client: usize,
    lock: RangeLock,
    /// The session that it belongs to may be over: it proves nothing any more.
    is_in_doubt: bool,
}

/// One who locks.
pub struct Locks {
    pub client: usize,
    pub table: Rc<Table>,
    pub owner: u64,
    pub left: Cell<u64>,
    doubts: Cell<u64>,
}

impl Table {
    pub fn new(id: Id) -> Rc<Table> {
        Rc::new(Table { id, held: RefCell::default() })
    }

    fn take(&self, client: usize, lock: &RangeLock) -> Result<(), String> {
        let mut held = self.held.borrow_mut();
        let conflicts = |other: &&Held| {
            let mine = other.client == client && other.lock.owner == lock.owner;
            let overlaps = other.lock.start <= lock.end && lock.start <= other.lock.end;
            !other.is_in_doubt && !mine && overlaps && (other.lock.exclusive || lock.exclusive)
        };
        if let Some(other) = held.iter().find(conflicts) {
            return Err(format!(
                "client{client} got {lock:?} while client{} holds {:?}",
                other.client, other.lock
            ));
        }
        held.push(Held { client, lock: lock.clone(), is_in_doubt: false });
        Ok(())
    }

    fn release(&self, client: usize, owner: u64) {
        self.held.borrow_mut().retain(|h| h.client != client || h.lock.owner != owner);
    }
}

impl Locks {
    pub fn new(client: usize, table: Rc<Table>, owner: u64, left: u64) -> Rc<Locks> {
        Rc::new(Locks { client, table, owner, left: Cell::new(left), doubts: Cell::new(0) })
    }

    async fn step(&self, lab: &Lab, fs: &Fs) {
        const EAGAIN: u32 = 11;
        let start = lab.below(3) * 10;
        let lock = RangeLock {
            exclusive: lab.chance(600),
            whole: false,
            start,
            end: start + lab.below(20),
            owner: self.owner,
            pid: 1,
        };
        let wait = lab.chance(700);
        let what = format!("lock {lock:?} wait {wait}");
        let doubts = self.doubts.get();
        let taken = fs.lock(self.table.id, lock.clone(), wait);
        let taken = lab.expect(what.clone(), &[EAGAIN], taken).await;
        if let Ok((_, Some(()))) = taken {
            if doubts == self.doubts.get() {
                lab.check(&what, self.table.take(self.client, &lock));
            }
            lab.pause(Duration::from_millis(1500)).await;
            self.table.release(self.client, self.owner);
        }
        let all = RangeLock { start: 0, end: u64::MAX, ..lock };
        // Until it is given back others wait for it.
        while lab.attempt("unlock".into(), fs.unlock(self.table.id, all.clone())).await.1.is_none()
        {
            lab.pause(Duration::from_millis(500)).await;
        }
    }
}

impl Role for Locks {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let most = Duration::from_millis(800);
            repeat(&lab, &self.left, most, async || self.step(&lab, &fs).await).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    fn power_lost(&self, is_meta: bool) {
        if is_meta {
            // Its session may be younger than what the disk holds.
            self.session_in_doubt();
        }
    }

    fn client_lost(&self) {
        self.table.release(self.client, self.owner);
    }

    fn session_in_doubt(&self) {
        self.doubts.set(self.doubts.get() + 1);
        let mut held = self.table.held.borrow_mut();
        let mine = |h: &&mut Held| h.client == self.client && h.lock.owner == self.owner;
        held.iter_mut().filter(mine).for_each(|held| held.is_in_doubt = true);
    }
}
