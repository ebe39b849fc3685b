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
use covey_io::os::mixed::{Mixed, Place, Settings};
use covey_io::os::own::Own;
use covey_io::os::shm;
use covey_uzura::{Config, Engine};
use covey_wire::Peer;
use half::{Half, Memories, OUTSTANDING};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use task::{Request, Side, Task, Work};

/// Memory that peers map: two matrices, and room.
const HEAP_BYTES: u64 = 32 << 20;
/// The longest thing that is measured.
const BUFFER_BYTES: u64 = matrix_bytes(1000);

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

fn one(meter: &mut Meter<'_>, ours: &mut Half, over: Over, what: What, task: Task) -> Result<()> {
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

fn batch(asker: &mut Asker, ours: &mut Half, task: Task, rounds: u32) -> io::Result<Duration> {
    let work = Work { task, rounds };
    ask(asker, Request::Run(work))?;
    let begin = Instant::now();
    ours.run(work)?;
    Ok(begin.elapsed())
}

fn ask(asker: &mut Asker, request: Request) -> io::Result<u64> {
    let [first, second] = request.numbers();
    asker.part(first, second)
}

fn prepare(asker: &mut Asker, ours: &mut Half, task: Task) -> io::Result<()> {
    let key = ask(asker, Request::Prepare(task))?;
    ours.prepare(task)?;
    ours.set_key(key);
    Ok(())
}

fn check(asker: &mut Asker, ours: &mut Half, task: Task) -> io::Result<()> {
    let theirs = ask(asker, Request::Check(task))? == 1;
    if theirs && ours.check(task)? {
        Ok(())
    } else {
        Err(io::Error::other("an element of a transposed matrix is wrong"))
    }
}

/// The asking half meets the other.
fn meet(asker: &mut Asker, over: Over, one_copy: bool, socket: &Path) -> io::Result<Half> {
    let mut mixed = mixed(one_copy)?;
    match over {
        Over::Memory => {
            mixed.listen_at(Place::Path(socket))?;
            ask(asker, Request::MeetMemory(one_copy))?;
        }
        Over::Tcp => {
            mixed.listen_at(Place::Tcp((Ipv4Addr::LOCALHOST, 0).into()))?;
            let address = mixed.tcp_address().ok_or(io::ErrorKind::NotConnected)?;
            ask(asker, Request::MeetTcp(address.port().into()))?;
        }
    }
    let begin = Instant::now();
    let peer = loop {
        match mixed.accept()? {
            Some(peer) => break peer,
            None if begin.elapsed() > PATIENCE => return Err(io::ErrorKind::TimedOut.into()),
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    };
    half(mixed, over, peer, Side::Asks, one_copy)
}

fn mixed(one_copy: bool) -> io::Result<Mixed> {
    let (heap_bytes, peers_max) = (HEAP_BYTES, 4);
    let shm = shm::Settings { heap_bytes, peers_max, one_copy, ..shm::Settings::default() };
    Mixed::new(&Settings { shm, ..Settings::default() })
}

fn half(mut mixed: Mixed, over: Over, peer: Peer, side: Side, one_copy: bool) -> io::Result<Half> {
    let mut own =
        mixed.memory().ok_or_else(|| io::Error::other("its memory was given out before"))?;
    let any = memories(&mut own);
    let mut shared = || mixed.allocate(matrix_bytes(1000)).ok_or(io::ErrorKind::OutOfMemory);
    let owned = match over {
        Over::Memory => Memories { first: shared()?, second: shared()? },
        // Nobody maps it.
        Over::Tcp => any,
    };
    let engine = Engine::new(mixed, own, Config::default());
    let is_alone = one_copy || over == Over::Tcp;
    let mut half = Half::new(engine, peer, side, any, owned).without_help(is_alone);
    half.meet()?;
    Ok(half)
}

fn memories(own: &mut Own) -> Memories {
    let mut add = || own.block(BUFFER_BYTES as usize);
    Memories { first: add(), second: add() }
}

/// The half that answers.
pub struct Answers {
    socket: PathBuf,
    ours: Option<Half>,
}

impl Answers {
    /// It meets the other at a socket.
    pub fn at(socket: &Path) -> Answers {
        Answers { socket: socket.to_path_buf(), ours: None }
    }

    fn meet(&mut self, over: Over, place: Place<'_>, one_copy: bool) -> io::Result<()> {
        let mut mixed = mixed(one_copy)?;
        let peer = mixed.connect_to(place)?;
        self.ours = Some(half(mixed, over, peer, Side::Answers, one_copy)?);
        Ok(())
    }

    fn ours(&mut self) -> io::Result<&mut Half> {
        self.ours.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Part for Answers {
    fn prepare(&mut self, first: u64, second: u64) -> io::Result<u64> {
        let request = Request::of_numbers(first, second).ok_or(io::ErrorKind::InvalidData)?;
        match request {
            Request::Prepare(task) => self.ours()?.prepare(task),
            Request::Check(task) => Ok(self.ours()?.check(task)?.into()),
            Request::MeetMemory(_) | Request::MeetTcp(_) | Request::Run(_) => Ok(0),
        }
    }

    fn run(&mut self, first: u64, second: u64) -> io::Result<()> {
        match Request::of_numbers(first, second) {
            Some(Request::MeetMemory(one_copy)) => {
                self.meet(Over::Memory, Place::Path(&self.socket.clone()), one_copy)
            }
            Some(Request::MeetTcp(port)) => {
                let place = Place::Tcp((Ipv4Addr::LOCALHOST, port as u16).into());
                self.meet(Over::Tcp, place, true)
            }
            Some(Request::Run(work)) => self.ours()?.run(work),
            _ => Ok(()),
        }
    }
}
