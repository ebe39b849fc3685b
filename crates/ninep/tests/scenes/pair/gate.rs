//! A tree whose answers wait until a test lets them go, and that writes down what it is told.

use covey_ninep::message::Qid;
use covey_ninep::tree::Removal;
use covey_ninep::tree::*;
use covey_wire::{Bytes, Name};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Nodes are paths. `blocking/...` opens as blocking; `missing` is not there.
#[derive(Clone, Default)]
pub struct Gate(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    log: Vec<String>,
    closed: BTreeSet<String>,
    wakers: Vec<Waker>,
}

impl Gate {
    /// What is called `what` waits from now on.
    pub fn close(&self, what: &str) {
        self.0.borrow_mut().closed.insert(what.into());
    }

    /// What is called `what` goes on.
    pub fn open(&self, what: &str) {
        let mut state = self.0.borrow_mut();
        assert!(state.closed.remove(what), "{what} was not closed");
        state.wakers.drain(..).for_each(Waker::wake);
    }

    /// What happened since the last look.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }

    fn note(&self, what: impl Into<String>) {
        self.0.borrow_mut().log.push(what.into());
    }

    fn pass<T: Unpin + 'static>(&self, what: String, result: Result<T>) -> Outcome<T> {
        self.note(&what);
        if !self.0.borrow().closed.contains(&what) {
            return Outcome::Now(result);
        }
        Outcome::later(Wait { gate: self.clone(), what, result: Some(result) })
    }
}

struct Wait<T> {
    gate: Gate,
    what: String,
    result: Option<Result<T>>,
}

impl<T: Unpin> Future for Wait<T> {
    type Output = Result<T>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let gate = self.gate.clone();
        let state = &mut *gate.0.borrow_mut();
        if state.closed.contains(&self.what) {
            state.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(self.result.take().expect("polled after its end"))
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        if self.result.is_some() {
            self.gate.note(format!("drop {}", self.what));
        }
    }
}

fn qid(path: &str) -> Qid {
    let path = path.bytes().fold(7, |hash: u64, byte| hash.rotate_left(7) ^ u64::from(byte));
    Qid { kind: Qid::FILE, version: 0, path }
}

impl Tree for Gate {
    type Node = String;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, String)> {
        let path = attach.aname.lossy().into_owned();
        self.note(format!("key {}", attach.peer.has_key));
        self.pass(
            format!("attach {path}"),
            Ok((User { uid: 0, gid: 0, groups: vec![] }, qid(&path), path)),
        )
    }

    fn walk(&self, _: &Rc<User>, from: &String, names: &[Name]) -> Outcome<Vec<(Qid, String)>> {
        let mut steps: Vec<(Qid, String)> = Vec::new();
        for name in names.iter().take_while(|name| name.as_bytes() != b"missing") {
            let above = steps.last().map_or(from, |step| &step.1);
            let path = format!("{above}/{name}");
            steps.push((qid(&path), path));
        }
        let what = names.iter().map(|name| name.to_string()).collect::<Vec<_>>().join("/");
        let result = if steps.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(steps) };
        self.pass(format!("walk {what}"), result)
    }

    fn open(&self, _: &Rc<User>, node: &String, _: u32) -> Outcome<Opened<String>> {
        let blocking = node.contains("blocking");
        let result = if node.contains("secret") {
            Err(Errno::EACCES.into())
        } else {
            Ok(Opened { qid: qid(node), node: format!("{node}:open"), blocking })
        };
        self.pass("open".into(), result)
    }

    fn create(
        &self,
        _: &Rc<User>,
        dir: &String,
        name: Name,
        _: u32,
        _: u32,
        _: u32,
    ) -> Outcome<Opened<String>> {
        let node = format!("{dir}/{name}:open");
        self.pass("create".into(), Ok(Opened { qid: qid(&node), node, blocking: false }))
    }

    fn make(&self, _: &Rc<User>, _: &String, name: Name, _: Make, _: u32) -> Outcome<Qid> {
        self.pass(format!("make {name}"), Ok(qid("made")))
    }

    fn getattr(&self, _: &Rc<User>, node: &String) -> Outcome<Attr> {
        self.pass("getattr".into(), Ok(Attr { qid: qid(node), ..Attr::default() }))
    }

    fn setattr(&self, _: &Rc<User>, _: &String, _: SetAttr) -> Outcome<()> {
        self.pass("setattr".into(), Ok(()))
    }

    fn read(&self, _: &Rc<User>, _: &String, read: Read<'_>) -> Data {
        self.pass(format!("read {}", read.offset), Ok(vec![b'x'; read.count as usize].into()))
            .into()
    }

    fn write(&self, _: &Rc<User>, _: &String, write: Write) -> Written {
        write.received(|offset, data| self.pass(format!("write {offset}"), Ok(data.len() as u32)))
    }

    fn fsync(&self, _: &Rc<User>, _: &String, _: bool) -> Outcome<()> {
        self.pass("fsync".into(), Ok(()))
    }

    fn unlink(&self, _: &Rc<User>, _: &String, name: Name, _: Removal) -> Outcome<()> {
        self.pass(format!("unlink {name}"), Ok(()))
    }

    fn link(&self, _: &Rc<User>, node: &String, dir: &String, name: Name) -> Outcome<()> {
        self.pass(format!("link {node} to {dir}/{name}"), Ok(()))
    }

    fn remove(&self, _: &Rc<User>, _: &String) -> Outcome<()> {
        self.pass("remove".into(), Ok(()))
    }

    fn lock(&self, _: &Rc<User>, _: &String, lock: Lock) -> Outcome<LockStatus> {
        let wait = if lock.wait { " wait" } else { "" };
        self.pass(format!("lock {}{wait}", lock.kind), Ok(LockStatus::Success))
    }

    fn call(&self, _: &Rc<User>, _: &String, body: Bytes) -> Outcome<Bytes> {
        self.pass("call".into(), Ok(body))
    }

    fn clunk(&self, _: &Rc<User>, node: String) {
        self.note(format!("clunk {node}"));
    }

    fn cut(&self, _: &Rc<User>, node: String) {
        self.note(format!("cut {node}"));
    }
}
