//! The devices, used by hand, and the world that the tests of workers share.

use super::*;
use crate::Plan;
use crate::header::Headers;
use crate::memory::{Flat, Shared};
use covey_ninep::namespace::Namespace;
use covey_ninep::tree::{Attach, Bell, Opened, Peer, Tree};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A host whose files are vectors, and whose memory files lie in shared memory.
pub(crate) struct ToyHost {
    pub memory: Rc<Flat>,
    next: Cell<u64>,
    pub logged: RefCell<Vec<u8>>,
    pub files: RefCell<BTreeMap<String, Vec<u8>>>,
    /// Files of `#R` are read in while it is open, and how often one was begun.
    pub gate: Rc<Gate>,
    pub read_in: Cell<u32>,
}

pub(crate) struct Gate {
    pub bell: Bell,
    pub is_open: Cell<bool>,
}

/// Bytes of each file in memory: more than any test writes.
const ROOM: u64 = 64 << 10;

struct Part {
    memory: Rc<Flat>,
    at: u64,
    size: Cell<u64>,
}

impl Backing for Part {
    fn size(&self) -> u64 {
        self.size.get()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize> {
        self.memory.read(self.at + at, out);
        Ok(out.len())
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let end = at + data.len() as u64;
        if end > ROOM {
            return Err(Errno::ENOSPC.into());
        }
        self.resize(end.max(self.size.get()))?;
        self.memory.write(self.at + at, data);
        Ok(())
    }

    fn resize(&self, size: u64) -> Result<()> {
        if size > ROOM {
            return Err(Errno::ENOSPC.into());
        }
        let old = self.size.replace(size);
        let cut = old.saturating_sub(size) as usize;
        self.memory.write(self.at + size, &vec![0; cut]);
        Ok(())
    }

    fn place(&self) -> Option<Place> {
        Some(Place { mapping: 0, pointer: self.at, capacity: ROOM })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl Host for ToyHost {
    fn now(&self) -> Time {
        Time::default()
    }

    fn owner(&self) -> (u32, u32) {
        (7, 7)
    }

    fn memory(&self) -> Result<Rc<dyn Backing>> {
        let at = self.next.replace(self.next.get() + ROOM);
        Ok(Rc::new(Part { memory: self.memory.clone(), at, size: Cell::new(0) }))
    }

    fn open(&self, path: &str, _: bool) -> Result<Rc<dyn Backing>> {
        let part = self.memory()?;
        part.write(0, self.files.borrow().get(path).ok_or(Errno::ENOENT)?)?;
        Ok(part)
    }

    fn private(&self, path: &str) -> Outcome<Rc<dyn Backing>> {
        self.read_in.set(self.read_in.get() + 1);
        let (part, gate) = (self.open(path, false), self.gate.clone());
        Outcome::later(async move {
            gate.bell.wait(|| gate.is_open.get().then_some(())).await;
            part
        })
    }

    fn attr(&self, path: &str) -> Result<Attr> {
        if path.is_empty() {
            return Ok(Attr::new(1, covey_ninep::tree::S_IFDIR | 0o755, 7, 7, Time::default()));
        }
        let files = self.files.borrow();
        let index = files.keys().position(|name| name == path).ok_or(Errno::ENOENT)?;
        let mode = covey_ninep::tree::S_IFREG | 0o644;
        let attr = Attr::new(index as u64 + 2, mode, 7, 7, Time::default());
        Ok(Attr { size: files[path].len() as u64, ..attr })
    }

    fn list(&self, _: &str) -> Result<Vec<Name>> {
        Ok(self.files.borrow().keys().map(|path| Name::from(&path[1..])).collect())
    }

    fn make(&self, path: &str, _: u32) -> Result<()> {
        match self.files.borrow_mut().insert(path.into(), Vec::new()) {
            Some(_) => Err(Errno::EEXIST.into()),
            None => Ok(()),
        }
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.files.borrow_mut().remove(path).map(drop).ok_or(Errno::ENOENT.into())
    }

    fn share(&self, _: u32, _: u32) -> Result<()> {
        Ok(())
    }

    fn log(&self, text: &[u8]) {
        self.logged.borrow_mut().extend_from_slice(text);
    }
}

/// A host with its devices, and the namespace that workers attach.
pub(crate) struct Toy {
    pub host: Rc<ToyHost>,
    pub pipes: Rc<Pipes>,
    pub names: Rc<Namespace>,
    pub headers: Rc<Headers<Flat>>,
}

/// So many workers and 8 MiB of memory.
pub(crate) fn toy(workers: u32) -> Toy {
    let plan = Plan { workers, heap_bytes: 8 << 20 };
    let memory = Rc::new(Flat::new(plan.bytes()));
    plan.sign(&*memory);
    let next = Cell::new(plan.heap_at());
    let (logged, files) = (RefCell::default(), RefCell::default());
    let gate = Rc::new(Gate { bell: Bell::default(), is_open: Cell::new(true) });
    let (memory_, read_in) = (memory.clone(), Cell::new(0));
    let host = Rc::new(ToyHost { memory: memory_, next, logged, files, gate, read_in });
    let headers = Rc::new(Headers::new(memory, workers, |rounds| rounds < 3));
    let pipes = Rc::new(Pipes::new(host.clone()));
    let names = Namespace::folder();
    let bind = |name: &str, part| names.bind(&format!("cell/{name}"), part).expect("a free name");
    bind("r", Rc::new(Memory::new(host.clone(), headers.clone())));
    bind("U", Rc::new(HostFiles::new(host.clone(), headers.clone(), Kind::Mapped)));
    bind("R", Rc::new(HostFiles::new(host.clone(), headers.clone(), Kind::Private)));
    bind("p", pipes.clone());
    bind("l", Rc::new(Log::new(host.clone())));
    Toy { host, pipes, names: Rc::new(names), headers }
}

#[test]
fn only_the_owner_s_rights_let_others_in() {
    let attr = Attr::new(1, 0o640, 7, 70, Time::default());
    let user = |uid, groups: &[u32]| User { uid, gid: 0, groups: groups.to_vec() };
    assert!(check_access(&user(7, &[]), &attr, 6).is_ok());
    assert!(check_access(&user(8, &[70]), &attr, 4).is_ok());
    assert_eq!(check_access(&user(8, &[70]), &attr, 2).unwrap_err().code, Errno::EACCES);
    assert_eq!(check_access(&user(8, &[]), &attr, 4).unwrap_err().code, Errno::EACCES);
    assert!(check_access(&user(0, &[]), &attr, 6).is_ok());
}

/// Opens `name` of the device: what comes when the host is done.
fn opening(
    files: &HostFiles,
    name: &str,
) -> std::pin::Pin<Box<dyn Future<Output = Result<Opened<host::Node>>>>> {
    let (peer, root) = (Peer::default(), Name::from("/"));
    let attach = Attach { peer, uname: root.clone(), n_uname: Some(7), aname: root };
    let user = User { uid: 7, gid: 7, groups: vec![7] };
    let now = |outcome| match outcome {
        Outcome::Now(Ok(value)) => value,
        _ => panic!("it is answered at once"),
    };
    let (user, _, root) = now(files.enter(&user, attach));
    let user = Rc::new(user);
    let Outcome::Now(Ok(walked)) = files.walk(&user, &root, &[Name::from(name)]) else { panic!() };
    Box::pin(files.open(&user, &walked[0].1, 2).wait())
}

#[test]
fn a_private_file_is_read_in_once_and_whoever_waits_for_it_may_give_up() {
    use std::task::{Context, Poll, Waker};
    let Toy { host, headers, .. } = toy(1);
    host.files.borrow_mut().insert("/data".into(), b"as it was".to_vec());
    let files = HostFiles::new(host.clone(), headers, Kind::Private);
    let context = &mut Context::from_waker(Waker::noop());
    host.gate.is_open.set(false);
    let (mut first, mut second) = (opening(&files, "data"), opening(&files, "data"));
    assert!(
        first.as_mut().poll(context).is_pending() && second.as_mut().poll(context).is_pending()
    );
    assert_eq!(host.read_in.get(), 1);
    // The one who reads it in is gone: the other does.
    drop(first);
    assert!(second.as_mut().poll(context).is_pending());
    assert_eq!(host.read_in.get(), 2);
    let mut third = opening(&files, "data");
    assert!(third.as_mut().poll(context).is_pending());
    host.gate.is_open.set(true);
    host.gate.bell.ring();
    let Poll::Ready(Ok(_)) = second.as_mut().poll(context) else { panic!("it is there") };
    let Poll::Ready(Ok(_)) = third.as_mut().poll(context) else { panic!("the same is there") };
    assert_eq!(host.read_in.get(), 2);
}
