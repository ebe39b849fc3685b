//! A worker whose host is in the same thread and serves a log, which is all that a worker needs to begin.

use covey_cell::Plan;
use covey_cell::devices::{Access, Backing, Host, Log};
use covey_cell::mailbox::{HostBox, WorkerBox};
use covey_cell::memory::Flat;
use covey_cell::store::LocalStore;
use covey_cell::trace::Trace;
use covey_cell::worker::{Copied, Ground, Worker};
use covey_ninep::namespace::Namespace;
use covey_ninep::server::{self, Session};
use covey_ninep::tree::{Attr, Errno, Outcome, Peer, Result, Time};
use covey_wire::{Bytes, BytesMut, Machine, Name, Segments, Span};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

pub fn worker() -> Worker<Toy> {
    let plan = Plan { workers: 1, heap_bytes: 0 };
    let memory = Rc::new(Flat::new(plan.bytes()));
    plan.sign(&*memory);
    let names = Namespace::folder();
    names.bind("cell/l", Rc::new(Log::new(Rc::new(Nothing)))).expect("a free name");
    let peer = Peer { name: "worker".into(), uid: Some(7), has_key: false };
    let session = Session::new(Rc::new(names), peer, server::Config::default());
    let toy = Toy { memory: memory.clone(), mailbox: HostBox::new(memory, 0), session };
    Worker::new(toy, 0, 7, LocalStore::new(1 << 20), Trace::off()).expect("its host answers")
}

pub struct Toy {
    memory: Rc<Flat>,
    mailbox: HostBox<Flat>,
    session: Session<Namespace>,
}

impl Ground for Toy {
    type Memory = Flat;

    fn memory(&self) -> &Rc<Flat> {
        &self.memory
    }

    fn wait(&mut self, _: &WorkerBox<Flat>) -> std::result::Result<(), String> {
        let mut message = Vec::new();
        while self.mailbox.take(&mut message).map_err(|broken| broken.to_string())? {
            let mut input = BytesMut::from(&message[..]);
            self.session.handle_input(Instant::now(), &mut input).expect("9P");
        }
        let _ = self.session.poll_user(&mut Context::from_waker(Waker::noop()));
        let mut out = Segments::new();
        while self.session.poll_output(&mut out, 1 << 20) {}
        let bytes: Vec<u8> = out.runs().flatten().copied().collect();
        let mut rest = &bytes[..];
        while let Some(size) = rest.first_chunk::<4>() {
            let (reply, after) = rest.split_at(u32::from_le_bytes(*size) as usize);
            let _ = self.mailbox.reply(reply).expect("a slot for each reply");
            rest = after;
        }
        Ok(())
    }

    fn reset(&mut self) {}

    fn ring(&mut self) {}

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn adopt(&mut self, _: u32) -> Result<()> {
        nothing()
    }

    fn fetch(&self, _: u32, _: u64, _: Span) -> Copied {
        Copied::Refused
    }

    fn put(&self, _: Span, _: u32, _: u64) -> Copied {
        Copied::Refused
    }

    fn prefetch(&self, _: u32, _: u64, _: u64) {}

    fn take(&self, _: Span) -> Bytes {
        Bytes::new()
    }

    fn give(&self, _: Span, _: &[u8]) {}

    fn allocate(&mut self, _: u64) -> Option<Span> {
        None
    }

    fn release(&mut self, _: Span) {}
}

/// The world of a host that has no files.
struct Nothing;

fn nothing<T>() -> Result<T> {
    Err(Errno::ENOENT.into())
}

impl Host for Nothing {
    fn now(&self) -> Time {
        Time::default()
    }

    fn owner(&self) -> (u32, u32) {
        (7, 7)
    }

    fn memory(&self) -> Result<Rc<dyn Backing>> {
        nothing()
    }

    fn open(&self, _: &str, _: Access) -> Outcome<Rc<dyn Backing>> {
        nothing().into()
    }

    fn private(&self, _: &str) -> Outcome<Rc<dyn Backing>> {
        nothing().into()
    }

    fn attrs(&self, _: Vec<String>) -> Outcome<Vec<Result<Attr>>> {
        nothing().into()
    }

    fn list(&self, _: &str) -> Outcome<Vec<Name>> {
        nothing().into()
    }

    fn make(&self, _: &str, _: u32) -> Outcome<()> {
        nothing().into()
    }

    fn remove(&self, _: &str) -> Outcome<()> {
        nothing().into()
    }

    fn share(&self, _: u32, _: u32) -> Result<()> {
        nothing()
    }

    fn detach(&self, _: std::pin::Pin<Box<dyn Future<Output = ()>>>) {}

    fn log(&self, _: Bytes) -> Outcome<()> {
        Ok(()).into()
    }
}
