//! The devices, used by hand, and the world that the tests of workers share.

use super::*;
use crate::Plan;
use crate::header::{Headers, Pause, Ticket, enter};
use crate::memory::{Flat, Shared};
use covey_ninep::namespace::Namespace;
use covey_ninep::tree::{Attach, Bell, Opened, Peer, Read, SetAttr, Tree, Write};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A host whose files are vectors, and whose memory files lie in shared memory.
pub(crate) struct ToyHost {
    pub memory: Rc<Flat>,
    next: Cell<u64>,
    pub logged: Rc<RefCell<Vec<u8>>>,
    pub files: RefCell<BTreeMap<String, Vec<u8>>>,
    /// Other names of files.
    pub links: RefCell<BTreeMap<String, String>>,
    /// Those that were opened.
    parts: RefCell<BTreeMap<String, Part>>,
    /// Files of `#R` are read in while it is open, and how often one was begun.
    pub gate: Rc<Gate>,
    pub read_in: Cell<u32>,
    /// Nothing can be written any more.
    pub is_full: Rc<Cell<bool>>,
    /// Its files may only be read from now on.
    pub is_read_only: Cell<bool>,
    /// What is done beside everything else.
    detached: RefCell<Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>>>,
}

pub(crate) struct Gate {
    pub bell: Bell,
    pub is_open: Cell<bool>,
}

/// Bytes of each file in memory: more than any test writes.
const ROOM: u64 = 1 << 20;

#[derive(Clone)]
struct Part {
    memory: Rc<Flat>,
    at: u64,
    number: u64,
    access: Access,
    size: Rc<Cell<u64>>,
    is_full: Rc<Cell<bool>>,
    /// Reads wait for it: none for those of memory.
    slow: Option<Rc<Gate>>,
}

impl Backing for Part {
    fn number(&self) -> u64 {
        self.number
    }

    fn access(&self) -> Access {
        self.access
    }

    fn size(&self) -> u64 {
        self.size.get()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize> {
        self.memory.read(self.at + at, out);
        Ok(out.len())
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        assert!(at + data.len() as u64 <= self.size.get());
        if self.is_full.get() {
            return Err(Errno::ENOSPC.into());
        }
        self.memory.write(self.at + at, data);
        Ok(())
    }

    fn resize(&self, size: u64) -> Outcome<()> {
        if size > ROOM || (self.is_full.get() && size > self.size.get()) {
            return Errno::ENOSPC.into();
        }
        let (memory, at, kept) = (self.memory.clone(), self.at, self.size.clone());
        let act = move || {
            let cut = kept.replace(size).saturating_sub(size) as usize;
            memory.write(at + size, &vec![0; cut]);
        };
        match self.slow.clone().filter(|gate| !gate.is_open.get()) {
            None => {
                act();
                Ok(()).into()
            }
            Some(gate) => Outcome::later(async move {
                gate.bell.wait(|| gate.is_open.get().then_some(())).await;
                act();
                Ok(())
            }),
        }
    }

    fn place(&self) -> Option<Place> {
        Some(Place { mapping: 0, pointer: self.at, capacity: ROOM })
    }

    fn fetch(&self, at: u64, count: usize) -> Option<Outcome<covey_wire::Bytes>> {
        let (gate, mut out) = (self.slow.clone()?, vec![0; count]);
        let read = self.read(at, &mut out).map(|_| out.into());
        Some(Outcome::later(async move {
            gate.bell.wait(|| gate.is_open.get().then_some(())).await;
            read
        }))
    }

    fn sync(&self) -> Outcome<()> {
        Ok(()).into()
    }
}

impl ToyHost {
    /// Opens the gate, and lets everything go on that waits for it.
    fn open_gate(&self) {
        self.gate.is_open.set(true);
        self.gate.bell.ring();
        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
        self.detached.borrow_mut().retain_mut(|work| work.as_mut().poll(context).is_pending());
    }

    fn part(&self) -> Part {
        let at = self.next.replace(self.next.get() + ROOM);
        let (memory, is_full) = (self.memory.clone(), self.is_full.clone());
        let access = Access::Both;
        Part { memory, at, number: 0, access, size: Rc::default(), is_full, slow: None }
    }

    fn copy(&self, path: &str) -> Result<Part> {
        let part = Part { number: self.attr(path)?.qid.path, ..self.part() };
        let links = self.links.borrow();
        let path = links.get(path).map_or(path, String::as_str);
        let files = self.files.borrow();
        let bytes = files.get(path).ok_or(Errno::ENOENT)?;
        part.size.set(bytes.len() as u64);
        part.write(0, bytes)?;
        Ok(part)
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
        Ok(Rc::new(self.part()))
    }

    fn open(&self, path: &str, access: Access) -> Outcome<Rc<dyn Backing>> {
        Outcome::now(|| {
            if access != Access::Read && self.is_read_only.get() {
                return Err(Errno::EACCES.into());
            }
            if let Some(part) = self.parts.borrow().get(path) {
                return Ok(Rc::new(Part { access, ..part.clone() }) as Rc<dyn Backing>);
            }
            let slow = path.contains("slow").then(|| self.gate.clone());
            let part = Part { slow, access, ..self.copy(path)? };
            self.parts.borrow_mut().insert(path.into(), part.clone());
            Ok(Rc::new(part))
        })
    }

    fn private(&self, path: &str) -> Outcome<Rc<dyn Backing>> {
        self.read_in.set(self.read_in.get() + 1);
        let (part, gate) = (self.copy(path), self.gate.clone());
        Outcome::later(async move {
            gate.bell.wait(|| gate.is_open.get().then_some(())).await;
            part.map(|part| -> Rc<dyn Backing> { Rc::new(part) })
        })
    }

    fn attrs(&self, paths: Vec<String>) -> Outcome<Vec<Result<Attr>>> {
        Ok(paths.iter().map(|path| self.attr(path)).collect()).into()
    }

    fn list(&self, _: &str) -> Outcome<Vec<Name>> {
        Ok(self.files.borrow().keys().map(|path| Name::from(&path[1..])).collect()).into()
    }

    fn make(&self, path: &str, _: u32) -> Outcome<()> {
        Outcome::now(|| match self.files.borrow_mut().insert(path.into(), Vec::new()) {
            Some(_) => Err(Errno::EEXIST.into()),
            None => Ok(()),
        })
    }

    fn remove(&self, path: &str) -> Outcome<()> {
        self.parts.borrow_mut().remove(path);
        self.files.borrow_mut().remove(path).map(drop).ok_or(Errno::ENOENT.into()).into()
    }

    fn share(&self, _: u32, _: u32) -> Result<()> {
        Ok(())
    }

    fn detach(&self, work: std::pin::Pin<Box<dyn Future<Output = ()>>>) {
        self.detached.borrow_mut().push(work);
    }

    fn log(&self, text: covey_wire::Bytes) -> Outcome<()> {
        let (gate, logged) = (self.gate.clone(), self.logged.clone());
        if gate.is_open.get() {
            logged.borrow_mut().extend_from_slice(&text);
            return Ok(()).into();
        }
        Outcome::later(async move {
            gate.bell.wait(|| gate.is_open.get().then_some(())).await;
            logged.borrow_mut().extend_from_slice(&text);
            Ok(())
        })
    }
}

impl ToyHost {
    fn attr(&self, path: &str) -> Result<Attr> {
        if path.is_empty() {
            return Ok(Attr::new(1, covey_ninep::tree::S_IFDIR | 0o755, 7, 7, Time::default()));
        }
        let links = self.links.borrow();
        let path = links.get(path).map_or(path, String::as_str);
        let files = self.files.borrow();
        let index = files.keys().position(|name| name == path).ok_or(Errno::ENOENT)?;
        let mode = covey_ninep::tree::S_IFREG | 0o644;
        let attr = Attr::new(index as u64 + 2, mode, 7, 7, Time::default());
        Ok(Attr { size: files[path].len() as u64, ..attr })
    }
}

/// A host with its devices, and the namespace that workers attach.
pub(crate) struct Toy {
    pub host: Rc<ToyHost>,
    pub pipes: Rc<Pipes>,
    pub names: Rc<Namespace>,
    pub headers: Rc<Headers<Flat>>,
}

/// So many workers and 64 MiB of memory.
pub(crate) fn toy(workers: u32) -> Toy {
    let plan = Plan { workers, heap_bytes: 64 << 20 };
    let memory = Rc::new(Flat::new(plan.bytes()));
    plan.sign(&*memory);
    let next = Cell::new(plan.heap_at());
    let (logged, files) = (Rc::default(), RefCell::default());
    let gate = Rc::new(Gate { bell: Bell::default(), is_open: Cell::new(true) });
    let (memory_, read_in, parts) = (memory.clone(), Cell::new(0), RefCell::default());
    let (is_full, is_read_only) = (Rc::default(), Cell::new(false));
    let host = ToyHost {
        memory: memory_,
        next,
        logged,
        files,
        parts,
        gate,
        read_in,
        is_full,
        is_read_only,
        detached: RefCell::default(),
        links: RefCell::default(),
    };
    let host = Rc::new(host);
    let wait = |rounds| if rounds < 3 { Pause::Passed } else { Pause::Over };
    let headers = Rc::new(Headers::new(memory, workers, wait));
    let pipes = Rc::new(Pipes::new(host.clone()));
    let names = Namespace::folder();
    let bind = |name: &str, part| names.bind(&format!("cell/{name}"), part).expect("a free name");
    bind("r", Rc::new(Memory::new(host.clone(), headers.clone())));
    let lanes = Rc::<Lanes>::default();
    let files = |kind| {
        let (host, headers) = (host.clone(), headers.clone());
        Rc::new(HostFiles::new(host, headers, kind, lanes.clone()))
    };
    bind("U", files(Kind::Mapped));
    bind("R", files(Kind::Private));
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

/// What is there without a wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    use std::task::{Context, Poll, Waker};
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it is answered at once"),
    }
}

/// Opens `name` of the device: what comes when the host is done.
fn opening(
    files: &HostFiles,
    name: &str,
    flags: u32,
) -> std::pin::Pin<Box<dyn Future<Output = Result<Opened<host::Node>>>>> {
    opening_as("unix", files, name, flags)
}

fn opening_as(
    visitor: &str,
    files: &HostFiles,
    name: &str,
    flags: u32,
) -> std::pin::Pin<Box<dyn Future<Output = Result<Opened<host::Node>>>>> {
    let (peer, root) = (Peer { name: visitor.into(), ..Peer::default() }, Name::from("/"));
    let attach = Attach { peer, uname: root.clone(), n_uname: Some(7), aname: root };
    let user = User { uid: 7, gid: 7, groups: vec![7] };
    let (user, _, root) = at_once(files.enter(&user, attach).wait()).unwrap();
    let user = Rc::new(user);
    let walked = at_once(files.walk(&user, &root, &[Name::from(name)]).wait()).unwrap();
    Box::pin(files.open(&user, &walked[0].1, flags).wait())
}

#[test]
fn a_file_that_is_cut_by_who_writes_it_is_cut_for_who_reads_it_and_not_under_a_copy() {
    let Toy { host, headers, .. } = toy(1);
    host.files.borrow_mut().insert("/data".into(), b"as it was".to_vec());
    let files = HostFiles::new(host.clone(), headers, Kind::Mapped, Rc::default());
    let open = |flags| at_once(opening(&files, "data", flags)).unwrap().node;
    let (reader, writer) = (open(0), open(1));
    let user = Rc::new(User { uid: 7, gid: 7, groups: vec![7] });
    let body: Vec<u8> = [MAP, 0].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let Outcome::Now(Ok(answer)) = files.call(&user, &reader, body.into()) else { panic!() };
    let (ticket, _) = Ticket::decode(&answer).unwrap();
    let seen = || enter(&*host.memory, 0, ticket).unwrap().view.size;
    let cut = |size| {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        at_once(files.setattr(&user, &writer, set).wait())
    };
    assert_eq!(seen(), 9);
    let copying = enter(&*host.memory, 0, ticket).unwrap();
    assert_eq!(cut(3).unwrap_err().code, Errno::EBUSY);
    drop(copying);
    assert_eq!(seen(), 9);
    cut(3).unwrap();
    assert_eq!(seen(), 3);
    let grown = Write::bytes(3, covey_wire::Bytes::from_static(b"longer than it was"));
    at_once(files.write(&user, &writer, grown).into_outcome().wait()).unwrap();
    assert_eq!(seen(), 21);
}

#[test]
fn a_file_that_is_open_is_opened_again_only_by_who_still_may() {
    let Toy { host, headers, .. } = toy(1);
    host.files.borrow_mut().insert("/data".into(), b"as it was".to_vec());
    let files = HostFiles::new(host.clone(), headers, Kind::Mapped, Rc::default());
    let held = at_once(opening(&files, "data", 2)).unwrap();
    host.is_read_only.set(true);
    assert_eq!(at_once(opening(&files, "data", 2)).err().unwrap().code, Errno::EACCES);
    at_once(opening(&files, "data", 0)).unwrap();
    drop(held);
}

#[test]
fn a_slow_file_makes_its_own_worker_wait_and_no_other() {
    use std::task::{Context, Poll, Waker};
    let Toy { host, headers, .. } = toy(2);
    host.files.borrow_mut().insert("/slow".into(), b"at last".to_vec());
    host.files.borrow_mut().insert("/quick".into(), b"at once".to_vec());
    let files = HostFiles::new(host.clone(), headers, Kind::Mapped, Rc::default());
    let user = Rc::new(User { uid: 7, gid: 7, groups: vec![7] });
    let open = |worker, name| {
        let opened = at_once(opening_as(&worker_name(worker), &files, name, 0));
        opened.unwrap().node
    };
    let read = |node: &host::Node| {
        Box::pin(files.read(&user, node, Read::bytes(0, 16)).into_outcome().wait())
    };
    let (slow, quick, other) = (open(0, "slow"), open(0, "quick"), open(1, "quick"));
    host.gate.is_open.set(false);
    let (mut first, mut second, mut third) = (read(&slow), read(&quick), read(&other));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(context).is_pending());
    assert!(second.as_mut().poll(context).is_pending(), "its worker has asked for another first");
    let Poll::Ready(Ok(bytes)) = third.as_mut().poll(context) else { panic!("nobody waits") };
    assert_eq!(&bytes[..], b"at once");
    host.gate.is_open.set(true);
    host.gate.bell.ring();
    let Poll::Ready(Ok(bytes)) = first.as_mut().poll(context) else { panic!("it is there") };
    assert_eq!(&bytes[..], b"at last");
    assert!(matches!(second.as_mut().poll(context), Poll::Ready(Ok(_))));
}

#[test]
fn a_region_is_mapped_by_who_may_write_it_and_by_nobody_else() {
    let Toy { host, headers, .. } = toy(1);
    let memory = Memory::new(host, headers);
    let user = |uid| Rc::new(User { uid, gid: uid, groups: vec![uid] });
    let (root, owner, other) = (user(0), user(7), user(8));
    let now = |outcome| match outcome {
        Outcome::Now(Ok(value)) => value,
        _ => panic!("it is answered at once"),
    };
    let attach = || {
        let root = Name::from("/");
        Attach { peer: Peer::default(), uname: root.clone(), n_uname: None, aname: root }
    };
    let (_, _, dir) = now(memory.enter(&root, attach()));
    let code = |user: &Rc<User>, node: &memory::Node| {
        let body: Vec<u8> = [MAP, 0].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
        at_once(memory.call(user, node, body.into()).wait()).map(drop).map_err(|error| error.code)
    };
    let made = |name: &str, mode| {
        let opened = at_once(memory.create(&root, &dir, Name::from(name), 2, mode, 0).wait());
        opened.unwrap().node
    };
    let (hidden, shown, shared) = (made("a", 0o600), made("b", 0o644), made("c", 0o666));
    for user in [&owner, &other] {
        assert_eq!(code(user, &hidden), Err(Errno::EACCES));
        assert_eq!(code(user, &shown), Err(Errno::EACCES), "it may only be read");
        assert_eq!(code(user, &shared), Ok(()));
    }
    assert_eq!(code(&root, &hidden), Ok(()));
    // What its owner has made read-only the owner can make writable again, and nobody else.
    let set = |user: &Rc<User>, set: SetAttr| {
        at_once(memory.setattr(user, &shared, set).wait()).map_err(|error| error.code)
    };
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let size = SetAttr { size: Some(1), ..SetAttr::default() };
    let own = SetAttr { uid: Some(7), ..mode(0o400) };
    assert_eq!(set(&root, own), Ok(()));
    assert_eq!(set(&owner, size.clone()), Err(Errno::EACCES));
    assert_eq!(set(&other, mode(0o666)), Err(Errno::EPERM));
    assert_eq!(set(&owner, mode(0o600)), Ok(()));
    assert_eq!(set(&owner, size), Ok(()));
}

#[test]
fn a_private_file_is_read_in_once_and_whoever_waits_for_it_may_give_up() {
    use std::task::{Context, Poll, Waker};
    let Toy { host, headers, .. } = toy(1);
    host.files.borrow_mut().insert("/data".into(), b"as it was".to_vec());
    let files = HostFiles::new(host.clone(), headers, Kind::Private, Rc::default());
    let context = &mut Context::from_waker(Waker::noop());
    host.gate.is_open.set(false);
    let (mut first, mut second) = (opening(&files, "data", 2), opening(&files, "data", 2));
    assert!(
        first.as_mut().poll(context).is_pending() && second.as_mut().poll(context).is_pending()
    );
    assert_eq!(host.read_in.get(), 1);
    // The one who reads it in is gone: the other does.
    drop(first);
    assert!(second.as_mut().poll(context).is_pending());
    assert_eq!(host.read_in.get(), 2);
    let mut third = opening(&files, "data", 2);
    assert!(third.as_mut().poll(context).is_pending());
    host.gate.is_open.set(true);
    host.gate.bell.ring();
    let Poll::Ready(Ok(_)) = second.as_mut().poll(context) else { panic!("it is there") };
    let Poll::Ready(Ok(_)) = third.as_mut().poll(context) else { panic!("the same is there") };
    assert_eq!(host.read_in.get(), 2);
}

#[test]
fn a_log_that_nobody_reads_makes_its_writers_wait_in_their_order_and_nobody_else() {
    use std::task::{Context, Poll, Waker};
    let Toy { host, .. } = toy(1);
    let log = Log::new(host.clone());
    let user = Rc::new(User { uid: 7, gid: 7, groups: vec![7] });
    let root = Name::from("/");
    let attach = Attach { peer: Peer::default(), uname: root.clone(), n_uname: None, aname: root };
    let (_, _, root) = at_once(log.enter(&user, attach).wait()).unwrap();
    let node = at_once(log.walk(&user, &root, &[Name::from("log")]).wait()).unwrap()[0].1;
    let write = |text: &'static str| {
        let data = Write::bytes(0, covey_wire::Bytes::from_static(text.as_bytes()));
        Box::pin(log.write(&user, &node, data).into_outcome().wait())
    };
    let context = &mut Context::from_waker(Waker::noop());
    assert!(matches!(write("a").as_mut().poll(context), Poll::Ready(Ok(1))));
    host.gate.is_open.set(false);
    let mut waiting = ["b", "gone", "cc"].map(write);
    for write in &mut waiting {
        assert!(write.as_mut().poll(context).is_pending());
    }
    let [mut first, gone, mut last] = waiting;
    drop(gone);
    host.gate.is_open.set(true);
    host.gate.bell.ring();
    // One that comes when there is room again is behind those that wait.
    let mut new = write("d");
    assert!(new.as_mut().poll(context).is_pending());
    assert!(last.as_mut().poll(context).is_pending());
    assert!(matches!(first.as_mut().poll(context), Poll::Ready(Ok(1))));
    assert!(matches!(last.as_mut().poll(context), Poll::Ready(Ok(2))));
    assert!(matches!(new.as_mut().poll(context), Poll::Ready(Ok(1))));
    assert_eq!(*host.logged.borrow(), b"abccd");
}

#[test]
fn a_slow_truncation_makes_who_asks_for_it_wait_and_nobody_copies_meanwhile() {
    use std::task::{Context, Poll, Waker};
    let Toy { host, headers, .. } = toy(2);
    host.files.borrow_mut().insert("/slow".into(), b"as it was".to_vec());
    host.files.borrow_mut().insert("/quick".into(), b"at once".to_vec());
    let files = HostFiles::new(host.clone(), headers, Kind::Mapped, Rc::default());
    let user = Rc::new(User { uid: 7, gid: 7, groups: vec![7] });
    let reader = at_once(opening(&files, "slow", 0)).unwrap().node;
    let body: Vec<u8> = [MAP, 0].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let map = || Box::pin(files.call(&user, &reader, body.clone().into()).wait());
    let (ticket, _) = Ticket::decode(&at_once(map()).unwrap()).unwrap();
    let seen = || enter(&*host.memory, 0, ticket).map(|access| access.view.size);
    assert_eq!(seen(), Some(9));
    host.gate.is_open.set(false);
    let mut emptied = opening(&files, "slow", 1 | covey_ninep::tree::O_TRUNC);
    let context = &mut Context::from_waker(Waker::noop());
    assert!(emptied.as_mut().poll(context).is_pending());
    assert_eq!(seen(), None, "nobody begins to copy");
    assert_eq!(at_once(opening(&files, "quick", 2)).unwrap().node.path(), "/quick");
    // Where the file lies is said when it lies still, and who gives up changes nothing about that.
    let mut mapped = map();
    assert!(mapped.as_mut().poll(context).is_pending());
    drop(emptied);
    assert_eq!(seen(), None);
    // Who opens it meanwhile in another way learns what becomes of it.
    let mut other = opening(&files, "slow", 2);
    assert!(other.as_mut().poll(context).is_pending());
    host.open_gate();
    assert_eq!(seen(), Some(0));
    assert!(matches!(mapped.as_mut().poll(context), Poll::Ready(Ok(_))));
    host.open_gate();
    let Poll::Ready(Ok(opened)) = other.as_mut().poll(context) else { panic!("it lies still") };
    assert_eq!(at_once(files.getattr(&user, &opened.node).wait()).unwrap().size, 0);
}

#[test]
fn a_private_file_is_one_by_whatever_name() {
    let Toy { host, headers, .. } = toy(1);
    host.files.borrow_mut().insert("/data".into(), b"as it was".to_vec());
    host.links.borrow_mut().insert("/link".into(), "/data".into());
    let files = HostFiles::new(host.clone(), headers, Kind::Private, Rc::default());
    let user = Rc::new(User { uid: 7, gid: 7, groups: vec![7] });
    let open = |name| at_once(opening(&files, name, 2)).unwrap().node;
    let (data, link) = (open("data"), open("link"));
    let write = Write::bytes(0, covey_wire::Bytes::from_static(b"changed"));
    at_once(files.write(&user, &data, write).into_outcome().wait()).unwrap();
    let read = files.read(&user, &link, Read::bytes(0, 7)).into_outcome();
    assert_eq!(&at_once(read.wait()).unwrap()[..], b"changed");
    assert_eq!(host.read_in.get(), 1);
}
