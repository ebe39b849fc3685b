//! What a fid holds, and which connection a client writes on: what it sent on an earlier one, and gave
//! up, comes too late.

use super::{DataTree, Object};
use crate::watch::Client;
use covey_ninep::message::Qid;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::objects::{At, DataReply};
use covey_stripe::ops::Id;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One attach of a client.
#[derive(Default)]
pub struct Line {
    /// The client has a newer one.
    is_over: Cell<bool>,
    /// The client's number; 0 for one that has not said any.
    pub(super) client: Cell<u64>,
    /// Its own number; 0 as long as it has none.
    pub(super) number: Cell<u64>,
    /// Higher than those of all that were there before.
    pub(super) serial: u64,
    /// Who attached, for the watch.
    pub(super) watched: Option<Rc<Client>>,
}

static SERIALS: AtomicU64 = AtomicU64::new(1);

impl Line {
    pub(super) fn new(watched: Rc<Client>) -> Rc<Line> {
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        Rc::new(Line { serial, watched: Some(watched), ..Line::default() })
    }

    #[cfg(test)]
    pub(super) fn numbered(serial: u64) -> Rc<Line> {
        Rc::new(Line { serial, ..Line::default() })
    }

    /// Refuses what comes late on a connection that its client has given up.
    pub(super) fn admit(&self) -> Result<()> {
        if self.is_over.get() {
            Err(Errno::because(Errno::ESTALE, "its client has a newer connection"))
        } else {
            Ok(())
        }
    }
}

/// What a fid holds.
#[derive(Clone)]
pub enum Node {
    /// The directory of objects.
    Root(Rc<Line>),
    /// An object, good for one epoch or (by hand) for any.
    Object(Rc<Object>, At, Rc<Line>),
}

impl Node {
    pub(super) fn line(&self) -> &Line {
        match self {
            Node::Root(line) | Node::Object(_, _, line) => line,
        }
    }
}

/// The file whose object a fid holds; 0 for the directory.
pub(super) fn id_of(node: &Node) -> Id {
    match node {
        Node::Root(_) => 0,
        Node::Object(object, ..) => object.id,
    }
}

pub(super) fn root_qid() -> Qid {
    Qid { kind: Qid::DIR, version: 0, path: 0 }
}

pub(super) fn qid(object: &Object) -> Qid {
    Qid { kind: Qid::FILE, version: object.version.get(), path: object.id }
}

impl DataTree {
    /// From now on the client speaks on this connection; writes that it sent on earlier ones and gave
    /// up may still arrive, and are refused.
    pub(super) fn start(&self, client: u64, line: &Rc<Line>) -> Result<DataReply> {
        if client != 0 {
            line.client.set(client);
            self.losses.borrow_mut().has_come(client);
            let mut lines = self.lines.borrow_mut();
            lines.retain(|_, line| line.strong_count() > 0);
            if let Some(before) =
                lines.insert(client, Rc::downgrade(line)).and_then(|w| w.upgrade())
            {
                before.is_over.set(!Rc::ptr_eq(&before, line));
            }
        }
        let age = u64::try_from(self.disk.machine_age().as_millis()).unwrap_or(u64::MAX);
        let start = self.disk.machine_start(&self.store);
        // A loss that an earlier process has met is as one of power.
        let machine = start.wrapping_add(self.losses.borrow().before);
        Ok(DataReply::Start { machine, age })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_io::os::disk::OsDisk;
    use covey_stripe::objects::Reshape;
    use covey_wire::Bytes;
    use std::sync::Arc;

    #[test]
    fn a_punch_that_was_given_up_does_not_zero_what_was_written_since() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Rc::new(DataTree::open(Arc::new(OsDisk), directory.path()).unwrap());
        tree.standing.admit_for_test();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (old, new) = (Rc::<Line>::default(), Rc::<Line>::default());
            tree.start(7, &old).unwrap();
            let late = tree.reshape(&old, 1, Some(0).into(), Reshape::Punch as u8, 0, 100);
            tree.start(7, &new).unwrap();
            let (object, data) = (tree.object(1), Bytes::from(vec![1; 100]));
            tree.write_object(&object, Some(0).into(), &new, 0, data.clone()).wait().await.unwrap();
            assert_eq!(late.wait().await.unwrap_err().code, Errno::ESTALE);
            let path = tree.path(1, 0);
            assert_eq!(std::fs::read(path).unwrap(), data);
        });
    }
}
