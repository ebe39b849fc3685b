//! A session that outlives its program: after execve the process is the same, and so are its locks and
//! open files, but nothing of the memory that knew of them is left. What the next program needs is written
//! down before, and the session is resumed from it as after a lost connection.
//!
//! The same way it passes to another process, while the first one looks on: it lends the session, and takes
//! it back should the other one fail before it is the other one's for good.

use super::memory::{Memory, Standing};
use super::{Opened, Session};
use crate::client::{Net, Options};
use crate::ops::{Caller, Id, Op, RangeLock};
use covey_wire::{Blame, Bytes, Field, Reader, record};
use futures_util::future::select;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

record! {
    /// A lock of the session on a file.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Held for () {
        /// The file.
        pub id: Id,
        /// What is locked, and for whom.
        pub lock: RangeLock,
    }
}

record! {
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Head for () {
        session: u64,
        boot: u64,
        seq_next: u64,
        opens: u32,
        held: u32,
        owed: u32,
    }
}

/// What one program tells the next of their session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handover {
    pub(super) session: u64,
    /// The server's start counter: one that has started since must be told the locks again.
    pub(super) boot: u64,
    pub(super) seq_next: u64,
    /// Files that stay open, as often as they are.
    pub opens: Vec<Id>,
    /// Locks that stay.
    pub held: Vec<Held>,
    /// Locks that the next program gives back first of all.
    pub owed: Vec<Held>,
}

impl Handover {
    /// Lets go of all locks but those that `stays` names.
    pub fn keep(&mut self, stays: impl Fn(&Held) -> bool) {
        let (held, gone) = std::mem::take(&mut self.held).into_iter().partition(stays);
        self.held = held;
        self.owed.extend(gone);
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let head = Head {
            session: self.session,
            boot: self.boot,
            seq_next: self.seq_next,
            opens: count(self.opens.len()),
            held: count(self.held.len()),
            owed: count(self.owed.len()),
        };
        head.put((), &mut out);
        self.opens.iter().for_each(|id| id.put((), &mut out));
        self.held.iter().chain(&self.owed).for_each(|held| held.put((), &mut out));
        out
    }

    /// From bytes.
    pub fn decode(bytes: Bytes) -> Result<Handover, Blame> {
        let mut from = Reader::new(bytes);
        let head = Head::get((), &mut from)?;
        Ok(Handover {
            session: head.session,
            boot: head.boot,
            seq_next: head.seq_next,
            opens: several(head.opens, &mut from)?,
            held: several(head.held, &mut from)?,
            owed: several(head.owed, &mut from)?,
        })
    }
}

impl Session {
    /// A session that the process had before it became another program.
    pub fn resumed(
        net: Arc<dyn Net>,
        server: &str,
        options: Options,
        before: &Handover,
    ) -> Session {
        let memory = Memory::resumed(&options.name, before);
        Session::with(net, server, options, memory)
    }

    /// What the next program must know to go on with the session. All that was said before has been
    /// heard by then, unless the server is away; the session goes on here as well if there is no other
    /// program after all.
    pub async fn hand_over(self: &Arc<Self>) -> Handover {
        self.late.settle_all().await;
        if let Some(conn) = self.wire.link.conn_now() {
            self.wire.memory.say_opens(&conn);
            let nobody = Caller::default();
            let heard = self.ask(&nobody, Op::Cluster {});
            select(pin!(heard), self.wire.net.sleep(self.dead_after)).await;
        }
        self.wire.memory.hand_over()
    }

    /// Mutations that are not answered yet: with them a session cannot be handed over.
    pub fn under_way(&self) -> usize {
        self.wire.memory.under_way()
    }

    /// The session is another process's: nothing is said in it, nothing is believed to be under a lease, and a lost
    /// connection is not made anew.
    pub fn lend(&self) {
        self.wire.memory.stand(Standing::Lent);
        self.wire.cache.forget_all();
    }

    /// The session is not this process's yet: it greets the server, and says nothing else.
    pub fn borrow(&self) {
        self.wire.memory.stand(Standing::Borrowed);
    }

    /// The session that was borrowed is this process's.
    pub fn own(&self) {
        self.wire.memory.stand(Standing::Own);
        if let Some(conn) = self.wire.link.conn_now() {
            self.wire.memory.pay(&conn);
        }
    }

    /// The session that was lent is this process's again: greets the server anew, or goes on to try where that is away.
    pub async fn take_back(&self) {
        self.wire.memory.stand(Standing::Own);
        if let Some(conn) = self.wire.link.conn_now() {
            conn.close("the session was lent to another process");
        }
        let begun = self.wire.net.now();
        while self.wire.link.conn(self.wire.net.now()).await.is_err()
            && self.wire.net.now().duration_since(begun) < self.dead_after
        {
            self.wire.net.sleep(AGAIN_PAUSE).await;
        }
    }

    /// The opens that a resumed session was begun with.
    pub fn still_open(self: &Arc<Self>, before: &Handover) -> Vec<Opened> {
        let opened = |&id: &Id| Opened::told(self, id);
        before.opens.iter().map(opened).collect()
    }
}

/// How often a server is asked for that has to hear whose session it is.
const AGAIN_PAUSE: Duration = Duration::from_millis(20);

/// Grows as items arrive, whatever their number is said to be.
fn several<T: Field<()>>(count: u32, from: &mut Reader) -> Result<Vec<T>, Blame> {
    (0..count).map(|_| T::get((), from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(id: Id, owner: u64) -> Held {
        let lock =
            RangeLock { exclusive: true, whole: false, start: 3, end: u64::MAX, owner, pid: 9 };
        Held { id, lock }
    }

    #[test]
    fn a_handover_comes_back_as_it_went_and_its_parts_do_not() {
        let mut before = Handover { session: 7, boot: 2, seq_next: 99, ..Handover::default() };
        before.opens = vec![4, 4, 5];
        before.held = vec![held(4, 0), held(5, 3), held(6, 0)];
        before.keep(|held| held.id != 5);
        assert_eq!((before.held.len(), before.owed.as_slice()), (2, &[held(5, 3)][..]));
        let bytes = before.encode();
        assert_eq!(Handover::decode(Bytes::from(bytes.clone())).as_ref(), Ok(&before));
        for end in 0..bytes.len() {
            assert!(Handover::decode(Bytes::from(bytes[..end].to_vec())).is_err());
        }
    }
}
