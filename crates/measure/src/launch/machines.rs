//! Simulated machines with sessions on them: real 9P between them, in virtual time. The tests of the launcher use
//! them, too.

use covey_io::sim::net::{connect, listen};
use covey_io::sim::{NodeId, Sim};
use covey_io::{run, task};
use covey_launch::session::{Ended, Host, Job, Limits, Place, Program, Xcpu};
use covey_launch::spawn::flow::{Below, Later, Net};
use covey_launch::spawn::manifest::{Entry, EntryKind};
use covey_launch::spawn::parts;
use covey_ninep::client::{self, Conn, Fid};
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::Message;
use covey_ninep::namespace::{Namespace, Part};
use covey_ninep::server;
use covey_ninep::tree::{Errno, Outcome, Peer, Result, User};
use covey_wire::{Bytes, Name};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Machines `n0`, `n1`, ..., each with sessions.
#[derive(Clone)]
pub struct Machines(Rc<World>);

struct World {
    ids: Vec<NodeId>,
    /// Of each machine.
    xcpus: RefCell<BTreeMap<String, Rc<Xcpu>>>,
    /// By `NODE/SESSION`.
    programs: RefCell<BTreeMap<String, Kept>>,
    /// What is spread, where a thousand machines are to share it instead of a copy each.
    shared: Option<Bytes>,
}

/// What a session has of its program.
enum Kept {
    Copy(Vec<u8>),
    /// So many bytes that are those of the shared one.
    Shared(u64),
}

impl Kept {
    fn bytes(&self) -> u64 {
        match self {
            Kept::Copy(bytes) => bytes.len() as u64,
            Kept::Shared(bytes) => *bytes,
        }
    }
}

impl Machines {
    /// `shared` is the only program that will be spread, if there is one.
    pub fn boot(sim: &Sim, count: usize, shared: Option<Bytes>) -> Machines {
        let control = sim.control();
        let ids = (0..count).map(|at| control.node(&format!("n{at}"))).collect();
        let (xcpus, programs) = Default::default();
        let machines = Machines(Rc::new(World { ids, xcpus, programs, shared }));
        for (at, id) in machines.0.ids.iter().enumerate() {
            control.boot(*id, serve(machines.clone(), format!("n{at}")));
        }
        machines
    }

    /// Ends all of them: what their tasks hold, holds them.
    pub fn end(&self, sim: &Sim) {
        let control = sim.control();
        self.0.ids.iter().for_each(|id| control.kill(*id));
        self.0.xcpus.borrow_mut().clear();
        self.0.programs.borrow_mut().clear();
    }

    pub fn len(&self) -> usize {
        self.0.ids.len()
    }

    pub fn id(&self, at: usize) -> NodeId {
        self.0.ids[at]
    }

    pub fn names(&self) -> Vec<String> {
        (0..self.len()).map(|at| format!("n{at}")).collect()
    }

    /// Whether a session has all of a program, byte for byte.
    pub fn has(&self, session: &str, program: &[u8]) -> bool {
        match (self.0.programs.borrow().get(session), &self.0.shared) {
            (Some(Kept::Copy(bytes)), _) => bytes == program,
            (Some(Kept::Shared(bytes)), Some(shared)) => {
                *bytes == shared.len() as u64 && *shared == program
            }
            _ => false,
        }
    }

    pub fn sessions(&self, node: &str) -> usize {
        self.0.xcpus.borrow()[node].sessions().len()
    }
}

async fn serve(machines: Machines, name: String) {
    let host = Node { machines: machines.clone(), name: name.clone() };
    let (xcpu, tree) = Xcpu::new(Rc::new(host), Limits::default()).unwrap();
    let names = Namespace::folder();
    names.bind("xcpu", tree).unwrap();
    machines.0.xcpus.borrow_mut().insert(name, xcpu);
    let (names, listener) = (Rc::new(names), listen());
    loop {
        let stream = listener.accept().await;
        let peer = Peer { name: "sim".into(), uid: Some(0), has_key: false };
        let session = server::Session::new(names.clone(), peer, server::Config::default());
        drop(task::spawn(async move { drop(run(session, stream).await) }));
    }
}

pub async fn dial(node: &str) -> Result<Conn> {
    let refused = |why: String| Errno::because(Errno::EIO, why);
    let stream = task::timeout(Duration::from_secs(3), connect(node)).await;
    let stream = stream.ok_or_else(|| refused("no answer".into()))?;
    let stream = stream.map_err(|error| refused(error.to_string()))?;
    let config = client::Config { heartbeat_idle: true, ..client::Config::default() };
    let (conn, machine) = client::pair(config, task::now());
    drop(task::spawn(async move { drop(run(machine, stream).await) }));
    conn.version().await?;
    conn.auth_and_attach(0, "root", Some(0), "", None, [0; 32]).await?;
    Ok(conn)
}

pub async fn open(conn: &Conn, path: &str, flags: u32) -> Result<Fid> {
    let names: Vec<Name> = path.split('/').map(Name::from).collect();
    let fid = Fid::walk(conn, 0, &names).await?;
    conn.call(Message::Tlopen { fid: fid.number(), flags }).await?;
    Ok(fid)
}

struct Node {
    machines: Machines,
    name: String,
}

impl Host for Node {
    fn arch(&self) -> String {
        "Simulated/none".to_owned()
    }

    fn procs(&self) -> Outcome<Bytes> {
        Ok(Bytes::new()).into()
    }

    fn admit(&self, _: &User) -> Result<()> {
        Ok(())
    }

    fn is_manager(&self, _: &User) -> bool {
        true
    }

    fn place(&self, _: &Rc<User>, number: u64) -> Result<Rc<dyn Place>> {
        let key = format!("{}/{number}", self.name);
        Ok(Rc::new(Memory { machines: self.machines.clone(), key }))
    }

    fn about(&self) -> String {
        String::new()
    }

    fn net(&self, _: &Rc<User>) -> Rc<dyn Net> {
        Rc::new(SimNet)
    }
}

/// How one machine reaches sessions on the others.
pub struct SimNet;

impl Net for SimNet {
    fn reach(&self, destination: &str) -> Later<Result<Rc<dyn Below>>> {
        let (node, session) = parts(destination).unwrap();
        let (node, path) = (node.to_owned(), format!("xcpu/{session}/ctl"));
        Box::pin(async move {
            let conn = dial(&node).await?;
            Ok(Rc::new(Ctl(Rc::new(open(&conn, &path, 2).await?))) as Rc<dyn Below>)
        })
    }

    fn sleep(&self, time: Duration) -> Later<()> {
        Box::pin(task::sleep(time))
    }

    fn unique(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}

struct Ctl(Rc<Fid>);

impl Below for Ctl {
    fn ask(&self, question: Bytes) -> Later<Result<Bytes>> {
        let answer = self.0.ask(question);
        Box::pin(async move { Ok(answer.await?) })
    }
}

/// A session that has only a program, and never runs it.
struct Memory {
    machines: Machines,
    key: String,
}

impl Memory {
    fn with<T>(&self, with: impl FnOnce(&mut Kept, Option<&Bytes>) -> T) -> T {
        let World { programs, shared, .. } = &*self.machines.0;
        let none = || match shared {
            Some(_) => Kept::Shared(0),
            None => Kept::Copy(Vec::new()),
        };
        with(programs.borrow_mut().entry(self.key.clone()).or_insert_with(none), shared.as_ref())
    }

    fn put(&self, offset: u64, data: &[u8]) -> Outcome<u32> {
        let at = offset as usize;
        let end = at + data.len();
        let kept = self.with(|kept, shared| match (kept, shared) {
            (Kept::Shared(bytes), Some(shared)) => {
                *bytes += data.len() as u64;
                shared.get(at..end) == Some(data)
            }
            (Kept::Copy(program), _) => {
                program.resize(program.len().max(end), 0);
                program[at..end].copy_from_slice(data);
                true
            }
            (Kept::Shared(_), None) => false,
        });
        if kept {
            Ok(data.len() as u32).into()
        } else {
            Err(Errno::because(Errno::EIO, "these are not the bytes that are spread")).into()
        }
    }
}

impl Place for Memory {
    fn files(&self) -> Rc<dyn Part> {
        Rc::new(MemoryTree::default())
    }

    fn begin_program(&self) -> Result<()> {
        self.with(|kept, _| match kept {
            Kept::Copy(program) => program.clear(),
            Kept::Shared(bytes) => *bytes = 0,
        });
        Ok(())
    }

    fn write_program(&self, offset: u64, data: Bytes) -> Outcome<u32> {
        self.put(offset, &data)
    }

    fn read_program(&self, _: u64, _: u32) -> Outcome<Bytes> {
        Ok(Bytes::new()).into()
    }

    fn program_bytes(&self) -> Option<u64> {
        self.machines.0.programs.borrow().get(&self.key).map(Kept::bytes)
    }

    fn entries(&self) -> Outcome<Vec<Entry>> {
        let bytes = self.program_bytes().unwrap_or(0);
        let kind = EntryKind::Program;
        Ok(vec![Entry { kind, path: Vec::new(), mode: 0o700, bytes }]).into()
    }

    fn make_entries(&self, _: &[Entry]) -> Outcome<()> {
        self.begin_program().into()
    }

    fn read_entry(&self, _: &Entry, offset: u64, count: u32) -> Outcome<Bytes> {
        let part = |length: usize| {
            let at = (offset as usize).min(length);
            at..length.min(at + count as usize)
        };
        let data = self.with(|kept, shared| match (kept, shared) {
            (Kept::Shared(_), Some(shared)) => shared.slice(part(shared.len())),
            (Kept::Copy(program), _) => Bytes::copy_from_slice(&program[part(program.len())]),
            (Kept::Shared(_), None) => Bytes::new(),
        });
        Ok(data).into()
    }

    fn write_entry(&self, _: &Entry, offset: u64, data: Bytes) -> Outcome<u32> {
        self.put(offset, &data)
    }

    fn finish_entries(&self, _: &[Entry]) -> Outcome<()> {
        Ok(()).into()
    }

    fn remove(&self) {}

    fn start(&self, _: Program, _: Ended) -> Outcome<Rc<dyn Job>> {
        Errno::EOPNOTSUPP.into()
    }
}
