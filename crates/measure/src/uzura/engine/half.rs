//! One process's half of what is measured with the engine: the same code on both sides, over memory and over TCP.

use super::task::{Side, Task, Work};
use crate::floor::PATIENCE;
use crate::uzura::what::{Move, Shape, matrix_bytes};
use covey_io::os::mixed::Mixed;
use covey_io::os::own::Own;
use covey_layout::{Element, Layout};
use covey_uzura::{Engine, Form, Key, Local, Remote, Rights, Source, Started, Tag};
use covey_wire::{Memory, Peer, Span};
use std::io;
use std::time::Instant;

/// Messages under way in a stream.
pub const OUTSTANDING: u32 = 64;
const TAG: u64 = 7;
/// Polls without effect between two looks at the clock.
const IDLE_POLLS: u32 = 1 << 16;

/// Memory of one kind, for the longest thing that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Memories {
    /// Messages, or a matrix by rows.
    pub first: Span,
    /// Where the other's goes.
    pub second: Span,
}

/// A half.
#[derive(Debug)]
pub struct Half {
    engine: Engine<Mixed, Own>,
    peer: Peer,
    side: Side,
    any: Memories,
    owned: Memories,
    forms: Vec<(u64, Form)>,
    /// What the other has registered for a get.
    key: Option<Key>,
    /// What is got is got without the help of the one that has it.
    is_alone: bool,
    open: u32,
}

impl Half {
    pub fn new(
        engine: Engine<Mixed, Own>,
        peer: Peer,
        side: Side,
        any: Memories,
        owned: Memories,
    ) -> Half {
        let (forms, key, is_alone) = (Vec::new(), None, true);
        Half { engine, peer, side, any, owned, forms, key, is_alone, open: 0 }
    }

    /// Whether the kernel copies memory that is not mapped, so that its owner need not do it.
    pub fn without_help(self, one_copy: bool) -> Half {
        Half { is_alone: one_copy, ..self }
    }

    /// Lets the two find each other.
    pub fn meet(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        while !self.engine.is_alive(self.peer) {
            self.engine.poll();
            is_in_time(begin)?;
        }
        Ok(())
    }

    /// Sets the memory for a task up. The one that answers registers what is got, and says the key.
    pub fn prepare(&mut self, task: Task) -> io::Result<u64> {
        let Task::Matrix(by, shape, side) = task else { return Ok(0) };
        let (from, to) = self.memories(by, shape, side);
        let owner = self.side as u64;
        self.write(from, |bytes| fill(bytes, owner))?;
        self.write(to, |bytes| bytes.fill(0xff))?;
        self.form(side)?;
        if !is_get(by) || self.side == Side::Asks {
            return Ok(0);
        }
        if let Some(key) = self.key.take() {
            self.engine.revoke(key).map_err(fault)?;
        }
        let key = self.engine.register(from, Rights::READ).map_err(fault)?;
        self.key = Some(key);
        Ok(key.0)
    }

    /// What the one that asks was told.
    pub fn set_key(&mut self, key: u64) {
        self.key = Some(Key(key));
    }

    /// Whether every element has come to its place.
    pub fn check(&mut self, task: Task) -> io::Result<bool> {
        let Task::Matrix(by, shape, side) = task else { return Ok(true) };
        if is_get(by) && self.side == Side::Answers {
            return Ok(true);
        }
        let (_, to) = self.memories(by, shape, side);
        let owner = 1 - self.side as u64;
        let checked = self.engine.memory().read(to, |bytes| is_right(bytes, shape, side, owner));
        checked.map_err(|error| io::Error::other(error.to_string()))
    }

    /// Some rounds.
    pub fn run(&mut self, work: Work) -> io::Result<()> {
        let Work { task, rounds } = work;
        match task {
            Task::PingPong(bytes) => {
                let [from, to] = [self.any.first, self.any.second].map(|all| part(all, bytes));
                self.exchange(Local::bytes(from), Local::bytes(to), rounds)
            }
            Task::Stream(bytes) => self.stream(bytes, rounds, false),
            Task::Together(bytes) => self.stream(bytes, rounds, true),
            Task::Matrix(by, shape, side) => {
                let (from, to) = self.locals(by, shape, side)?;
                match (is_get(by), self.side) {
                    (false, _) => self.exchange(from, to, rounds),
                    (true, Side::Asks) => {
                        self.fetch(to, shape, side, rounds)?;
                        self.say_done(by)
                    }
                    // The transport reaches into this process by itself, or needs it until all is there.
                    (true, Side::Answers) => self.say_done(by),
                }
            }
        }
    }

    fn exchange(&mut self, from: Local, to: Local, rounds: u32) -> io::Result<()> {
        for _ in 0..rounds {
            if self.side == Side::Answers {
                self.receive(to)?;
                self.finish()?;
                self.send(from)?;
            } else {
                self.receive(to)?;
                self.send(from)?;
            }
            self.finish()?;
        }
        Ok(())
    }

    fn stream(&mut self, bytes: u64, windows: u32, is_together: bool) -> io::Result<()> {
        let nothing = Local::bytes(part(self.any.second, 0));
        for _ in 0..windows {
            // All from and to one place, as others measure streams: what is told is the way, not the cache.
            match self.side {
                Side::Asks if is_together => self.send_together(bytes)?,
                Side::Asks => (0..OUTSTANDING)
                    .try_for_each(|_| self.send(Local::bytes(part(self.any.first, bytes))))?,
                Side::Answers => (0..OUTSTANDING)
                    .try_for_each(|_| self.receive(Local::bytes(part(self.any.second, bytes))))?,
            }
            self.finish()?;
        }
        match self.side {
            Side::Asks => self.receive(nothing)?,
            Side::Answers => self.send(nothing)?,
        }
        self.finish()
    }

    fn send_together(&mut self, bytes: u64) -> io::Result<()> {
        let (peer, what) = (self.peer, Local::bytes(part(self.any.first, bytes)));
        let open = self.engine.together(|engine| {
            let mut open = 0;
            for _ in 0..OUTSTANDING {
                match engine.send(peer, TAG, what, 0)? {
                    Started::Done(done) => done.result?,
                    Started::Pending(_) => open += 1,
                }
            }
            Ok(open)
        });
        self.open += open.map_err(fault)?;
        Ok(())
    }

    fn fetch(&mut self, to: Local, shape: Shape, side: u64, rounds: u32) -> io::Result<()> {
        let key = self.key.ok_or_else(|| io::Error::other("nothing is registered"))?;
        let form = if shape == Shape::Gather { Some(self.form(side)?) } else { None };
        let remote = Remote { peer: self.peer, key, at: 0, form };
        for _ in 0..rounds {
            let started = self.engine.get(to, remote, 0);
            self.begun(started)?;
            self.finish()?;
        }
        Ok(())
    }

    /// After memory was got whose owner has to answer: until then it polls.
    fn say_done(&mut self, by: Move) -> io::Result<()> {
        if self.is_alone || by != Move::Get {
            return Ok(());
        }
        let nothing = Local::bytes(part(self.any.second, 0));
        match self.side {
            Side::Asks => self.send(nothing)?,
            Side::Answers => self.receive(nothing)?,
        }
        self.finish()
    }

    fn send(&mut self, what: Local) -> io::Result<()> {
        let started = self.engine.send(self.peer, TAG, what, 0);
        self.begun(started)
    }

    fn receive(&mut self, into: Local) -> io::Result<()> {
        let started = self.engine.receive(Source::From(self.peer), Tag::exact(TAG), into, 0);
        self.begun(started)
    }

    fn begun(&mut self, started: Result<Started, covey_uzura::Fault>) -> io::Result<()> {
        match started.map_err(fault)? {
            Started::Done(done) => done.result.map_err(fault),
            Started::Pending(_) => {
                self.open += 1;
                Ok(())
            }
        }
    }

    /// Waits for all that was begun.
    fn finish(&mut self) -> io::Result<()> {
        let (mut idle, mut begin) = (0u32, None);
        while self.open > 0 {
            if self.engine.poll() == 0 {
                idle = idle.wrapping_add(1);
                if idle.is_multiple_of(IDLE_POLLS) {
                    is_in_time(*begin.get_or_insert_with(Instant::now))?;
                }
            }
            while let Some(done) = self.engine.completion() {
                done.result.map_err(fault)?;
                self.open -= 1;
            }
        }
        Ok(())
    }

    /// Where a matrix comes from and goes to.
    fn memories(&self, by: Move, _: Shape, side: u64) -> (Span, Span) {
        let buffers = match by {
            Move::Send | Move::Get => self.any,
            Move::OwnedSend | Move::OwnedGet => self.owned,
        };
        (part(buffers.first, matrix_bytes(side)), part(buffers.second, matrix_bytes(side)))
    }

    fn locals(&mut self, by: Move, shape: Shape, side: u64) -> io::Result<(Local, Local)> {
        let (from, to) = self.memories(by, shape, side);
        let form = self.form(side)?;
        Ok(match shape {
            Shape::Gather => (Local::laid(from, form), Local::bytes(to)),
            Shape::Scatter => (Local::bytes(from), Local::laid(to, form)),
            Shape::Plain => (Local::bytes(from), Local::bytes(to)),
        })
    }

    /// A matrix by columns: a vector of vectors.
    fn form(&mut self, side: u64) -> io::Result<Form> {
        if let Some((_, form)) = self.forms.iter().find(|(of, _)| *of == side) {
            return Ok(*form);
        }
        let column = Layout::vector(side, 1, side as i64, &Layout::element(Element::F32));
        let columns = column.and_then(|column| Layout::hvector(side, 1, 4, &column));
        let form = columns.and_then(|columns| self.engine.commit(&columns, 1));
        let form = form.map_err(|error| io::Error::other(error.to_string()))?;
        self.forms.push((side, form));
        Ok(form)
    }

    fn write(&mut self, span: Span, with: impl FnOnce(&mut [u8])) -> io::Result<()> {
        let done = self.engine.memory().write(span, with);
        done.map_err(|error| io::Error::other(error.to_string()))
    }
}

fn is_get(by: Move) -> bool {
    matches!(by, Move::Get | Move::OwnedGet)
}

fn part(all: Span, bytes: u64) -> Span {
    all.part(0, bytes).unwrap_or(all)
}

fn fault(fault: covey_uzura::Fault) -> io::Error {
    io::Error::other(format!("the engine says: {fault}"))
}

fn is_in_time(begin: Instant) -> io::Result<()> {
    std::thread::yield_now();
    if begin.elapsed() < PATIENCE { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// Element `index` of the matrix that `owner` has.
fn element(index: u64, owner: u64) -> f32 {
    index as f32 + if owner == 1 { 0.5 } else { 0.0 }
}

#[expect(clippy::host_endian_bytes, reason = "both processes are on this machine")]
fn fill(bytes: &mut [u8], owner: u64) {
    for (index, four) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *four = element(index as u64, owner).to_ne_bytes();
    }
}

#[expect(clippy::host_endian_bytes, reason = "both processes are on this machine")]
fn is_right(bytes: &[u8], shape: Shape, side: u64, owner: u64) -> bool {
    let from = |at: u64| if shape == Shape::Plain { at } else { at % side * side + at / side };
    let mut elements = bytes.as_chunks::<4>().0.iter().enumerate();
    elements.all(|(at, four)| f32::from_ne_bytes(*four) == element(from(at as u64), owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_out_of_place_is_noticed() {
        let mut bytes = vec![0; 36];
        fill(&mut bytes, 1);
        assert!(is_right(&bytes, Shape::Plain, 3, 1));
        assert!(!is_right(&bytes, Shape::Plain, 3, 0), "it is another's");
        assert!(!is_right(&bytes, Shape::Gather, 3, 1));
        let by_columns: Vec<u8> = [0, 3, 6, 1, 4, 7, 2, 5, 8]
            .iter()
            .flat_map(|at| bytes[4 * at..][..4].to_vec())
            .collect();
        assert!(is_right(&by_columns, Shape::Scatter, 3, 1));
    }
}
