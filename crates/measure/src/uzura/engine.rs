//! The engine, measured between this process and another, over memory and over TCP.

mod half;
mod task;

use super::bars::ENGINE;
use super::figures::Figures;
use super::floors::Beside;
use super::meter::{self, Meter, Thing};
use super::what::{Move, Over, Shape, What, matrix_bytes};
use crate::error::Result;
use crate::floor::{Asker, PATIENCE, Part};
use crate::stop::Stop;
use covey_io::os::own::Own;
use covey_io::os::packets::{Options, Tcp};
use covey_io::os::shm::{Settings, Shm};
use covey_uzura::{Config, Engine};
use covey_wire::Peer;
use half::{Half, Memories, OUTSTANDING};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use task::{Request, Side, Task, Work};

/// Memory that peers map: two matrices, and room.
const HEAP_BYTES: u64 = 32 << 20;
/// The longest thing that is measured.
const BUFFER_BYTES: u64 = matrix_bytes(1000);

/// A half over either transport.
enum Ours {
    Memory(Half<Shm, Own>),
    Tcp(Half<Tcp, Own>),
}

/// Calls the same method of a half, whichever it is.
macro_rules! each {
    ($half:expr, $name:ident($($argument:expr),*)) => {
        match $half {
            Ours::Memory(half) => half.$name($($argument),*),
            Ours::Tcp(half) => half.$name($($argument),*),
        }
    };
}

/// Everything that the engine is measured with.
pub fn whats(over: Over, sides: &[u64], is_matrices: bool) -> Vec<What> {
    let mut all = super::peers::whats(over, sides, is_matrices);
    if over == Over::Tcp && !is_matrices {
        all.push(What::Together(64));
    }
    if is_matrices {
        let shapes = [Shape::Gather, Shape::Scatter, Shape::Plain];
        let owned = |side: &u64| shapes.map(|shape| What::Matrix(Move::OwnedSend, shape, *side));
        all.extend(sides.iter().flat_map(owned));
    }
    all
}

/// One round.
pub fn measure(
    over: Over,
    whats: &[What],
    plan: &meter::Plan,
    stop: &Stop,
    figures: &mut Figures,
) -> Result<()> {
    let mut meter = Meter::new(plan, stop, figures)?;
    let socket = meter.socket();
    let mut ours = None;
    meter.prepare(|asker| {
        ours = Some(meet(asker, over, plan.one_copy, &socket)?);
        Ok(())
    })?;
    let Some(mut ours) = ours else { return Ok(()) };
    for what in whats {
        if let Some(task) = Task::of(*what) {
            one(&mut meter, &mut ours, over, *what, task)?;
        }
    }
    Ok(())
}

fn one(meter: &mut Meter<'_>, ours: &mut Ours, over: Over, what: What, task: Task) -> Result<()> {
    meter.prepare(|asker| {
        prepare(asker, ours, task)?;
        batch(asker, ours, task, 1)?;
        check(asker, ours, task)
    })?;
    let operations = match task {
        Task::PingPong(_) => 2,
        Task::Stream(_) | Task::Together(_) => OUTSTANDING,
        Task::Matrix(Move::Send | Move::OwnedSend, ..) => 2,
        Task::Matrix(..) => 1,
    };
    let thing = Thing { over, what, who: ENGINE, operations, takes_two: true };
    match Beside::of(over, what) {
        None => meter.slice(thing, |asker, rounds| batch(asker, ours, task, rounds))?,
        Some(mut floor) => {
            meter.prepare(|asker| floor.prepare(asker))?;
            meter.slices([floor.thing(), thing], |asker, which, rounds| match which {
                0 => floor.batch(asker, rounds),
                _ => batch(asker, ours, task, rounds),
            })?;
        }
    }
    meter.prepare(|asker| check(asker, ours, task))
}

fn batch(asker: &mut Asker, ours: &mut Ours, task: Task, rounds: u32) -> io::Result<Duration> {
    let work = Work { task, rounds };
    ask(asker, Request::Run(work))?;
    let begin = Instant::now();
    each!(ours, run(work))?;
    Ok(begin.elapsed())
}

fn ask(asker: &mut Asker, request: Request) -> io::Result<u64> {
    let [first, second] = request.numbers();
    asker.part(first, second)
}

fn prepare(asker: &mut Asker, ours: &mut Ours, task: Task) -> io::Result<()> {
    let key = ask(asker, Request::Prepare(task))?;
    each!(ours, prepare(task))?;
    each!(ours, set_key(key));
    Ok(())
}

fn check(asker: &mut Asker, ours: &mut Ours, task: Task) -> io::Result<()> {
    let theirs = ask(asker, Request::Check(task))? == 1;
    if theirs && each!(ours, check(task))? {
        Ok(())
    } else {
        Err(io::Error::other("an element of a transposed matrix is wrong"))
    }
}

/// The asking half meets the other.
fn meet(asker: &mut Asker, over: Over, one_copy: bool, socket: &Path) -> io::Result<Ours> {
    let mut ours = match over {
        Over::Memory => {
            let mut shm = shm(one_copy)?;
            shm.listen(socket)?;
            ask(asker, Request::MeetMemory(one_copy))?;
            let begin = Instant::now();
            let peer = loop {
                match shm.accept()? {
                    Some(peer) => break peer,
                    None if begin.elapsed() > PATIENCE => {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    None => std::thread::sleep(Duration::from_micros(100)),
                }
            };
            Ours::Memory(over_memory(shm, peer, Side::Asks, one_copy)?)
        }
        Over::Tcp => {
            let mut tcp = Tcp::new(Options::default())?;
            let port = tcp.listen()?.port();
            ask(asker, Request::MeetTcp(port.into()))?;
            Ours::Tcp(over_tcp(tcp, Peer(0), Side::Asks))
        }
    };
    each!(&mut ours, meet())?;
    Ok(ours)
}

fn shm(one_copy: bool) -> io::Result<Shm> {
    let (heap_bytes, peers_max) = (HEAP_BYTES, 4);
    Shm::new(Settings { heap_bytes, peers_max, one_copy, ..Settings::default() })
}

fn over_memory(mut shm: Shm, peer: Peer, side: Side, one_copy: bool) -> io::Result<Half<Shm, Own>> {
    let mut own =
        shm.memory().ok_or_else(|| io::Error::other("its memory was given out before"))?;
    let any = memories(&mut own);
    let mut shared = || shm.allocate(matrix_bytes(1000)).ok_or(io::ErrorKind::OutOfMemory);
    let shared = Memories { first: shared()?, second: shared()? };
    let engine = Engine::new(shm, own, Config::default());
    Ok(Half::new(engine, peer, side, any, shared).without_help(one_copy))
}

fn over_tcp(tcp: Tcp, peer: Peer, side: Side) -> Half<Tcp, Own> {
    let mut own = Own::default();
    let any = memories(&mut own);
    Half::new(Engine::new(tcp, own, Config::default()), peer, side, any, any)
}

fn memories(own: &mut Own) -> Memories {
    let mut add = || own.block(BUFFER_BYTES as usize);
    Memories { first: add(), second: add() }
}

/// The half that answers.
pub struct Answers {
    socket: PathBuf,
    ours: Option<Ours>,
}

impl Answers {
    /// It meets the other at a socket.
    pub fn at(socket: &Path) -> Answers {
        Answers { socket: socket.to_path_buf(), ours: None }
    }

    fn ours(&mut self) -> io::Result<&mut Ours> {
        self.ours.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Part for Answers {
    fn prepare(&mut self, first: u64, second: u64) -> io::Result<u64> {
        let request = Request::of_numbers(first, second).ok_or(io::ErrorKind::InvalidData)?;
        match request {
            Request::Prepare(task) => each!(self.ours()?, prepare(task)),
            Request::Check(task) => Ok(each!(self.ours()?, check(task))?.into()),
            Request::MeetMemory(_) | Request::MeetTcp(_) | Request::Run(_) => Ok(0),
        }
    }

    fn run(&mut self, first: u64, second: u64) -> io::Result<()> {
        match Request::of_numbers(first, second) {
            Some(Request::MeetMemory(one_copy)) => {
                let mut shm = shm(one_copy)?;
                let peer = shm.connect(&self.socket)?;
                let half = over_memory(shm, peer, Side::Answers, one_copy)?;
                self.ours = Some(Ours::Memory(half));
            }
            Some(Request::MeetTcp(port)) => {
                let mut tcp = Tcp::new(Options::default())?;
                let peer = tcp.connect((std::net::Ipv4Addr::LOCALHOST, port as u16).into())?;
                self.ours = Some(Ours::Tcp(over_tcp(tcp, peer, Side::Answers)));
            }
            Some(Request::Run(work)) => return each!(self.ours()?, run(work)),
            _ => return Ok(()),
        }
        each!(self.ours()?, meet())
    }
}
