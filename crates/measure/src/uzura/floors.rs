//! What the machine itself does: nothing that moves the same bytes can be faster.

use super::figures::Figures;
use super::meter::{self, Meter, Thing};
use super::what::{Over, What, matrix_bytes};
use crate::error::Result;
use crate::floor::Asker;
use crate::stop::Stop;
use covey_layout::{Element, Layout, Level, Plan, Target, ViewMut, transpose};
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

/// Sizes that are copied within one process.
const COPIES: [u64; 3] = [64 << 10, 1 << 20, 4 << 20];
/// Sizes that the kernel reads from the other process; and those that are read beside the messages held against them.
const READS: [u64; 4] = [64, 4 << 10, 256 << 10, 4 << 20];
const READS_BESIDE: [u64; 2] = [64 << 10, 1 << 20];
/// Sides of the matrices that are transposed.
pub const SIDES: [u64; 2] = [100, 1000];
/// Rows that are read at once where a matrix is read in strips.
const STRIP_ROWS: usize = 64;
/// Sizes of messages over a bare socket, measured beside the engine's.
const ECHOES: [u64; 4] = [8, 64, 4 << 10, 64 << 10];

/// Between this process and another, by memory.
pub fn memory(plan: &meter::Plan, stop: &Stop, figures: &mut Figures) -> Result<()> {
    let mut meter = Meter::new(plan, stop, figures)?;
    line(&mut meter)?;
    COPIES.into_iter().try_for_each(|bytes| copy(&mut meter, bytes))?;
    READS.into_iter().try_for_each(|bytes| read(&mut meter, bytes))
}

/// A matrix of the other process, transposed.
pub fn matrices(plan: &meter::Plan, stop: &Stop, figures: &mut Figures) -> Result<()> {
    let mut meter = Meter::new(plan, stop, figures)?;
    SIDES.into_iter().try_for_each(|side| {
        mapped(&mut meter, side)?;
        through_kernel(&mut meter, side)?;
        in_strips(&mut meter, side)
    })
}

/// A socket on loopback without anything around it, by which both wait in the kernel.
pub fn sockets(plan: &meter::Plan, stop: &Stop, figures: &mut Figures) -> Result<()> {
    let mut meter = Meter::new(plan, stop, figures)?;
    meter.slice(socket(What::PingPongBlocking(64)), |asker, rounds| asker.echo(64, rounds, false))
}

fn socket(what: What) -> Thing<'static> {
    Thing { over: Over::Tcp, what, who: "a bare socket", operations: 2, takes_two: true }
}

/// The floor of a message that is measured in turn with it.
pub enum Beside {
    /// So many bytes over a bare socket that both poll.
    Echo(u64),
    /// The kernel's copy of the same bytes.
    Read(Vec<u8>),
}

impl Beside {
    /// That of a thing, if it has one.
    pub fn of(over: Over, what: What) -> Option<Beside> {
        match (over, what) {
            (Over::Tcp, What::PingPong(bytes)) if ECHOES.contains(&bytes) => {
                Some(Beside::Echo(bytes))
            }
            (Over::Memory, What::PingPong(bytes)) if READS_BESIDE.contains(&bytes) => {
                Some(Beside::Read(vec![0; bytes as usize]))
            }
            _ => None,
        }
    }

    /// What is measured.
    pub fn thing(&self) -> Thing<'static> {
        match self {
            Beside::Echo(bytes) => socket(What::PingPong(*bytes)),
            Beside::Read(into) => alone(What::Read(into.len() as u64), "process_vm_readv"),
        }
    }

    /// Has the other make ready.
    pub fn prepare(&self, asker: &mut Asker) -> io::Result<()> {
        match self {
            Beside::Echo(_) => Ok(()),
            Beside::Read(into) => asker.fill_heap(into.len()),
        }
    }

    /// Some round trips.
    pub fn batch(&mut self, asker: &mut Asker, rounds: u32) -> io::Result<Duration> {
        match self {
            Beside::Echo(bytes) => asker.echo(*bytes as usize, rounds, true),
            Beside::Read(into) => timed(rounds, || asker.read_heap(0, into)),
        }
    }
}

fn line(meter: &mut Meter<'_>) -> Result<()> {
    let what = What::Line;
    let thing =
        Thing { over: Over::Memory, what, who: "the machine", operations: 2, takes_two: true };
    meter.slice(thing, |asker, rounds| asker.line(rounds))
}

/// What one process does with what the other has.
fn alone(what: What, who: &'static str) -> Thing<'static> {
    Thing { over: Over::Memory, what, who, operations: 1, takes_two: false }
}

fn copy(meter: &mut Meter<'_>, bytes: u64) -> Result<()> {
    let from = vec![1u8; bytes as usize];
    let mut into = vec![0u8; bytes as usize];
    meter.slice(alone(What::Copy(bytes), "memcpy"), |_, rounds| {
        timed(rounds, || {
            into.copy_from_slice(black_box(&from));
            black_box(&mut into);
            Ok(())
        })
    })
}

fn read(meter: &mut Meter<'_>, bytes: u64) -> Result<()> {
    let mut into = vec![0u8; bytes as usize];
    meter.prepare(|asker| asker.fill_heap(bytes as usize))?;
    meter.slice(alone(What::Read(bytes), "process_vm_readv"), |asker, rounds| {
        timed(rounds, || asker.read_heap(0, &mut into))
    })
}

fn mapped(meter: &mut Meter<'_>, side: u64) -> Result<()> {
    let mut into = vec![0u8; matrix_bytes(side) as usize];
    meter.prepare(|asker| asker.fill_mapped(into.len()))?;
    meter.slice(alone(What::TransposeMapped(side), "mapped memory"), |asker, rounds| {
        timed(rounds, || {
            turn(asker.mapped(), &mut into, side);
            Ok(())
        })
    })?;
    meter.prepare(|_| check(&into, side))
}

fn through_kernel(meter: &mut Meter<'_>, side: u64) -> Result<()> {
    let bytes = matrix_bytes(side) as usize;
    let (mut between, mut into) = (vec![0u8; bytes], vec![0u8; bytes]);
    meter.prepare(|asker| asker.fill_heap(bytes))?;
    meter.slice(alone(What::TransposeRead(side), "process_vm_readv"), |asker, rounds| {
        timed(rounds, || {
            asker.read_heap(0, &mut between)?;
            turn(&between, &mut into, side);
            Ok(())
        })
    })?;
    meter.prepare(|_| check(&into, side))
}

/// Some rows after the other: what is read in between stays in a near cache.
fn in_strips(meter: &mut Meter<'_>, side: u64) -> Result<()> {
    let bytes = matrix_bytes(side) as usize;
    let row_bytes = bytes / side as usize;
    let (mut between, mut into) = (vec![0u8; STRIP_ROWS * row_bytes], vec![0u8; bytes]);
    let strips: Vec<Strip> =
        (0..side as usize).step_by(STRIP_ROWS).map(|row| Strip::new(row, side)).collect();
    meter.prepare(|asker| asker.fill_heap(bytes))?;
    meter.slice(alone(What::TransposeStrips(side), "process_vm_readv"), |asker, rounds| {
        timed(rounds, || {
            strips.iter().try_for_each(|strip| {
                let between = &mut between[..strip.rows * row_bytes];
                asker.read_heap(strip.row * row_bytes, between)?;
                strip.turn(between, &mut into);
                Ok(())
            })
        })
    })?;
    meter.prepare(|_| check(&into, side))
}

/// Some rows of a matrix that become columns.
struct Strip {
    row: usize,
    rows: usize,
    from: Plan,
    to: Target,
}

impl Strip {
    fn new(row: usize, side: u64) -> Strip {
        let rows = STRIP_ROWS.min(side as usize - row);
        let (element, pitch) = (Layout::element(Element::F32), side as i64);
        let column = Layout::vector(rows as u64, 1, pitch, &element);
        let columns = column.and_then(|column| Layout::hvector(side, 1, 4, &column));
        let pieces = Layout::vector(side, rows as u64, pitch, &element);
        let from = columns.and_then(|columns| Plan::new(&columns, 1));
        let to = pieces.and_then(|pieces| Target::new(&pieces, 1));
        let (from, to) = (from.expect("it is small"), to.expect("no overlap"));
        Strip { row, rows, from, to }
    }

    fn turn(&self, from: &[u8], into: &mut [u8]) {
        let into = ViewMut::at(into, self.row * 4).expect("within the matrix");
        self.to.copy_from(into, &self.from, from).expect("both have the strip");
    }
}

fn turn(from: &[u8], into: &mut [u8], side: u64) {
    transpose(Level::best(), 4, black_box(from), into, [side as usize; 2]);
    black_box(into);
}

/// Every element is where it belongs.
#[expect(clippy::host_endian_bytes, reason = "both processes are on this machine")]
fn check(into: &[u8], side: u64) -> io::Result<()> {
    let side = side as usize;
    let (elements, _) = into.as_chunks::<4>();
    let is_right =
        |at: usize| f32::from_ne_bytes(elements[at]) == (at % side * side + at / side) as f32;
    match (0..elements.len()).find(|&at| !is_right(at)) {
        None => Ok(()),
        Some(at) => Err(io::Error::other(format!("element {at} of a transposed matrix is wrong"))),
    }
}

fn timed(rounds: u32, mut once: impl FnMut() -> io::Result<()>) -> io::Result<Duration> {
    let begin = Instant::now();
    for _ in 0..rounds {
        once()?;
    }
    Ok(begin.elapsed())
}
