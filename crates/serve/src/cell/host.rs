//! The host: it serves the boxes of its workers.

use super::ending::{Ending, HostControl};
use super::log::LogQueue;
use super::part::Pool;
use super::rounds::serve;
use super::start::{Running, start};
use super::world::World;
use crate::identity::Users;
use crate::{accept, lobby};
use anyhow::{Context as _, bail};
use covey_cell::devices::{HostFiles, Kind, Lanes, Lines, Log, Memory, Pipes, worker_name};
use covey_cell::header::{Headers, Pause};
use covey_cell::mailbox::{HostBox, Wake};
use covey_cell::{Plan, SLOTS};
use covey_io::os::net::{Address, Listener};
use covey_io::os::program::cpus;
use covey_io::os::shm::Bell;
use covey_io::os::shm::area::{Area, AreaHeap, Card, greet};
use covey_ninep::client::Conn;
use covey_ninep::control::Control;
use covey_ninep::import::{Import, root_of};
use covey_ninep::namespace::{self, Namespace};
use covey_ninep::server::{self, Alone, Session};
use covey_ninep::tree::{Attach, Peer, Result as TreeResult, User};
use covey_wire::{BytesMut, Machine, Piece, Segments};
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Workers.
    pub workers: u32,
    /// The program: a shared object.
    pub program: PathBuf,
    /// Its arguments.
    pub words: Vec<OsString>,
    /// Threads of the host instead of processes.
    pub is_threads: bool,
    /// Each worker keeps to one CPU.
    pub is_pinned: bool,
    /// Bytes of each worker's local store.
    pub store_bytes: u64,
    /// Bytes for files in memory; those that are not used cost nothing.
    pub heap_bytes: u64,
    /// Ask for huge pages.
    pub is_huge: bool,
    /// Record traces in this file, with the worker's number behind it.
    pub trace: Option<PathBuf>,
    /// Compare with the traces there.
    pub replay: Option<PathBuf>,
}

impl Wish {
    /// What worker processes find in their environment.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let trace = self.trace.as_deref().map(|path| ("COVEY_CELL_TRACE", path));
        let replay = self.replay.as_deref().map(|path| ("COVEY_CELL_REPLAY", path));
        trace.into_iter().chain(replay)
    }
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its number.
    pub worker: u32,
    /// Why it did not end by itself.
    pub failure: Option<String>,
}

/// A host whose workers are not started yet.
pub struct Host {
    wish: Wish,
    area: Rc<Area>,
    file: OwnedFd,
    bell: Rc<Bell>,
    world: Rc<World>,
    headers: Rc<Headers<Area>>,
    ending: Ending,
    names: Rc<Namespace>,
}

pub(super) type Workers = Rc<RefCell<Vec<Option<Worker>>>>;

/// Why a worker is turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It has sent something.
    News,
    /// What it waits for may have come from elsewhere: its machine is turned in any case.
    Nudge,
}

/// A worker as its host sees it.
pub(super) struct Worker {
    pub mailbox: HostBox<Area>,
    session: Session<Namespace>,
    bell: Bell,
    input: BytesMut,
    out: Segments,
    message: Vec<u8>,
    /// Replies on their way to their slots.
    bytes: Vec<u8>,
    /// What was wrong with what it wrote.
    failure: Option<String>,
}

impl Host {
    /// Makes the memory and the devices. `log` is given what workers write to the log, on a thread of its own: it may block.
    pub fn new(wish: Wish, log: impl FnMut(&[u8]) + Send + 'static) -> anyhow::Result<Host> {
        if wish.is_threads && (wish.trace.is_some() || wish.replay.is_some()) {
            bail!("traces are those of processes: leave out --threads");
        }
        let plan = Plan { workers: wish.workers, heap_bytes: wish.heap_bytes };
        let (area, file) = Area::make(plan.bytes()).context("cannot make shared memory")?;
        plan.sign(&area);
        let heap = AreaHeap::new(&area, plan.heap_at(), file.try_clone()?);
        let heap = heap.context("the heap lies in the area")?;
        let (area, bell) = (Rc::new(area), Rc::new(Bell::new()?));
        let process = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let heap = Rc::new(RefCell::new(heap));
        let content = Arc::new(File::from(file.try_clone()?));
        let leaving = Arc::default();
        let pool = Pool { area: area.clone(), heap, file: content, is_huge: wish.is_huge, leaving };
        let log = LogQueue::new(log).context("cannot start a thread for the log")?;
        let world = Rc::new(World::new(pool, process, log));
        let headers = Rc::new(Headers::new(area.clone(), wish.workers, wait_for_copy));
        let names = Namespace::new(Door(Users::of_this_process()));
        let lines: Rc<dyn Lines> = headers.clone();
        names.bind("cell/r", Rc::new(Memory::new(world.clone(), lines.clone())))?;
        let lanes = Rc::<Lanes>::default();
        let files =
            |kind| Rc::new(HostFiles::new(world.clone(), lines.clone(), kind, lanes.clone()));
        names.bind("cell/U", files(Kind::Mapped))?;
        names.bind("cell/R", files(Kind::Private))?;
        names.bind("cell/p", Rc::new(Pipes::new(world.clone())))?;
        names.bind("cell/l", Rc::new(Log::new(world.clone())))?;
        let ending = Ending::default();
        let control = HostControl { ending: ending.clone(), owner: process.0 };
        names.bind("cell/ctl", Rc::new(Control::new(control)))?;
        let names = Rc::new(names);
        Ok(Host { wish, area, file, bell, world, headers, ending, names })
    }

    /// What ends it before its workers have ended by themselves.
    pub fn ending(&self) -> Ending {
        self.ending.clone()
    }

    /// All other paths of the workers are those of this tree, which a connection leads to: the one that there is whenever a
    /// path is walked.
    pub fn bind_node(&self, conn: impl Fn() -> Conn + 'static) -> anyhow::Result<()> {
        let connect = move |_: &User| {
            let conn = conn();
            let root = async move { root_of(&conn).await };
            Box::pin(root) as Pin<Box<dyn Future<Output = _>>>
        };
        Ok(self.names.bind("node", Rc::new(Import::new(Box::new(connect))))?)
    }

    /// Serves the devices at a socket, for the node to show them, until the future is dropped.
    pub async fn serve_at(&self, path: &Path) -> anyhow::Result<()> {
        let address: Address = format!("unix!{}", path.display()).parse()?;
        // Only its own user and root, as which nodes run.
        let listener = Listener::bind(&address, 0o600).await?;
        let config = accept::Config::default();
        let lobby = lobby::Lobby::new(covey_io::os::limits::open_files());
        tokio::task::spawn_local(accept::serve_tree(listener, self.names.clone(), config, lobby));
        Ok(())
    }

    /// Starts the workers and serves them until the last has ended. Runs inside a `LocalSet`. Dropped, it kills them.
    pub async fn run(self) -> anyhow::Result<Vec<Outcome>> {
        let workers: Workers = Rc::default();
        let cpus = cpus();
        let mut running = Vec::new();
        for number in 0..self.wish.workers {
            let (ours, theirs) = UnixStream::pair()?;
            let bell = Bell::new()?;
            let card = Card {
                worker: number,
                workers: self.wish.workers,
                store_bytes: self.wish.store_bytes,
                uid: rustix::process::geteuid().as_raw(),
                is_huge: self.wish.is_huge,
            };
            greet(&ours, card, self.file.as_fd(), &self.bell, &bell)?;
            self.world.mappings.meet(ours)?;
            workers.borrow_mut().push(Some(self.worker(number, bell)));
            let cpu = self.wish.is_pinned.then(|| cpus[number as usize % cpus.len()]);
            running.push(start(&self.wish, cpu, theirs)?);
        }
        let ends = running
            .into_iter()
            .zip(0..)
            .map(|(running, number)| self.end(running, number, &workers));
        let served = serve(self.bell.clone(), self.area.clone(), workers.clone());
        let outcomes = tokio::select! {
            outcomes = futures_util::future::join_all(ends) => outcomes,
            failed = served => return Err(failed),
        };
        self.finish_log().await?;
        Ok(outcomes)
    }

    /// Waits until all of the log is written; not for long where the host was told to end.
    async fn finish_log(&self) -> anyhow::Result<()> {
        let late = async {
            let why = self.ending.told().await;
            tokio::time::sleep(LOG_PATIENCE).await;
            why
        };
        tokio::select! {
            biased;
            () = self.world.log.written() => Ok(()),
            why = late => bail!("{why}, and nobody reads the log: the last of it is lost"),
        }
    }

    fn worker(&self, number: u32, bell: Bell) -> Worker {
        let uid = rustix::process::geteuid().as_raw();
        let peer = Peer { name: worker_name(number), uid: Some(uid), has_key: false };
        Worker {
            mailbox: HostBox::new(self.area.clone(), number),
            session: Session::new(self.names.clone(), peer, server::Config::default()),
            bell,
            input: BytesMut::new(),
            out: Segments::new(),
            message: Vec::new(),
            bytes: Vec::new(),
            failure: None,
        }
    }

    /// Waits for a worker's end, and frees what it held.
    async fn end(&self, mut running: Running, number: u32, workers: &Workers) -> Outcome {
        let (failure, mut has_ended) = self.watch(&mut running, number, workers).await;
        // Nobody waits for a copy that it died in.
        if has_ended {
            self.headers.bury(number);
        }
        // What it has sent before its end is done first.
        let worker = workers.borrow_mut()[number as usize].take();
        if let Some(mut worker) = worker {
            worker.turn(Cause::Nudge, &mut Context::from_waker(std::task::Waker::noop()));
            match failure {
                None => worker.session.end(),
                // What it had open is cut.
                Some(_) => drop(worker),
            }
        }
        // Its last copy goes where its files lie: they are nobody else's before it is gone.
        has_ended = has_ended || running.gone().await;
        if has_ended {
            self.headers.bury(number);
        }
        self.world.mappings.bury(number);
        Outcome { worker: number, failure }
    }

    /// Waits until a worker has ended or is ended: why, if that was not by itself, and whether it is gone.
    async fn watch(
        &self,
        running: &mut Running,
        number: u32,
        workers: &Workers,
    ) -> (Option<String>, bool) {
        let broken = poll_fn(|_| {
            let workers = workers.borrow();
            let worker = workers[number as usize].as_ref();
            let failure = worker.and_then(|worker| worker.failure.clone());
            failure.map_or(Poll::Pending, Poll::Ready)
        });
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let mut broken = std::pin::pin!(broken);
        let mut told = std::pin::pin!(self.ending.told());
        loop {
            let why = tokio::select! {
                biased;
                why = &mut broken => why,
                failure = running.ended() => return (failure, true),
                why = &mut told => why.to_owned(),
                // What is wrong with a box is noticed by who serves it, or now.
                _ = ticks.tick() => {
                    workers.borrow_mut()[number as usize].iter_mut().for_each(Worker::check);
                    continue;
                }
            };
            running.kill();
            return (Some(why), false);
        }
    }
}

impl Worker {
    /// Serves what it has sent, and sends what is answered; whether there was anything.
    #[inline]
    pub fn turn(&mut self, cause: Cause, context: &mut Context<'_>) -> bool {
        if self.failure.is_some() {
            return false;
        }
        match self.try_turn(cause, context) {
            Ok(has_moved) => has_moved,
            Err(why) => {
                self.failure = Some(why);
                true
            }
        }
    }

    /// Ends it where an answer has been overwritten: it would wait for that for ever.
    fn check(&mut self) {
        if let Err(broken) = self.mailbox.check() {
            self.failure.get_or_insert_with(|| broken.to_string());
        }
    }

    fn try_turn(&mut self, cause: Cause, context: &mut Context<'_>) -> Result<bool, String> {
        let (mut has_moved, mut is_over) = (false, cause == Cause::News);
        // As many as there are slots: one that asks on and on does not keep the others waiting.
        for _ in 0..SLOTS {
            if !self.mailbox.take(&mut self.message).map_err(|broken| broken.to_string())? {
                break;
            }
            has_moved = true;
            match self.begin() {
                Alone::Answered => drop(self.reply()?),
                Alone::Waits => is_over = false,
                Alone::Not => {
                    self.input.extend_from_slice(&self.message);
                    is_over = false;
                }
            }
        }
        Ok(is_over || self.turn_machine(context)? || has_moved)
    }

    /// Begins the message that has been taken, if that can be done at once.
    fn begin(&mut self) -> Alone {
        if !self.input.is_empty() {
            // It is behind one that could not.
            return Alone::Not;
        }
        self.session.begin_alone(&self.message)
    }

    fn turn_machine(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        if !self.input.is_empty() {
            let handled = self.session.handle_input(Instant::now(), &mut self.input);
            handled.map_err(|blame| blame.to_string())?;
        }
        let polled = self.session.poll_user(context);
        if let Poll::Ready(Err(blame)) = polled {
            return Err(blame.to_string());
        }
        Ok(self.reply()? || polled.is_ready())
    }

    /// Puts replies into their slots; whether there were any.
    fn reply(&mut self) -> Result<bool, String> {
        let mut wake = Wake::No;
        let mut has_replied = false;
        while self.session.poll_output(&mut self.out, OUTPUT_BYTES) {
            has_replied = true;
            if self.put_replies()? == Wake::Ring {
                wake = Wake::Ring;
            }
        }
        if wake == Wake::Ring {
            self.bell.ring();
        }
        Ok(has_replied)
    }

    fn put_replies(&mut self) -> Result<Wake, String> {
        self.out.settle().map_err(|blame| blame.to_string())?;
        self.bytes.clear();
        for piece in self.out.pieces() {
            match piece {
                Piece::Memory(run) => self.bytes.extend_from_slice(run),
                // Payloads of these are longer than any slot.
                Piece::File(_) | Piece::Loan(_) => return Err("a reply fits no slot".into()),
            }
        }
        self.out.advance(self.bytes.len());
        let (mut rest, mut wake) = (&self.bytes[..], Wake::No);
        while let Some(size) = rest.first_chunk::<4>() {
            let size = (u32::from_le_bytes(*size) as usize).clamp(4, rest.len());
            let (reply, after) = rest.split_at(size);
            match self.mailbox.reply(reply) {
                Ok(Wake::Ring) => wake = Wake::Ring,
                Ok(Wake::No) => {}
                Err(refused) => return Err(format!("a reply has no slot: {refused:?}")),
            }
            rest = after;
        }
        Ok(wake)
    }
}

/// A host that was told to end waits so long for whoever reads its log.
const LOG_PATIENCE: Duration = Duration::from_secs(1);
/// Output of one turn.
const OUTPUT_BYTES: usize = 256 << 10;
/// A worker copies some kilobytes while somebody shortens the file: it is given time, even one that has no CPU.
fn wait_for_copy(rounds: u32) -> Pause {
    match rounds {
        0..1000 => std::hint::spin_loop(),
        1000..1200 => std::thread::yield_now(),
        1200..2200 => {
            return Pause::Passes(Box::pin(tokio::time::sleep(Duration::from_millis(1))));
        }
        _ => return Pause::Over,
    }
    Pause::Passed
}

/// Who may come in from outside: as to a node.
struct Door(Users);

impl namespace::Host for Door {
    fn admit(&self, attach: &mut Attach) -> TreeResult<User> {
        let user = self.0.admit(attach)?;
        (attach.peer.uid, attach.peer.has_key) = (Some(user.uid), false);
        Ok(user)
    }

    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
        tokio::task::spawn_local(work);
    }
}
