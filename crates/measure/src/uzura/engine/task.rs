//! What one process asks the other for, as two numbers.

use crate::uzura::what::{Move, Shape, What};

/// Which half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It asks and measures.
    Asks = 0,
    /// It answers.
    Answers = 1,
}

/// What the engine is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Messages to and fro.
    PingPong(u64),
    /// Many messages one after the other.
    Stream(u64),
    /// The same, sent together.
    Together(u64),
    /// A matrix.
    Matrix(Move, Shape, u64),
}

/// An operation and its number of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The operation.
    pub task: Task,
    /// Operations in one batch.
    pub rounds: u32,
}

/// What the one that answers is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Meet over memory, at a socket that both know, with copies by the kernel or without.
    MeetMemory(bool),
    /// Meet over TCP at this port.
    MeetTcp(u64),
    /// Set memory up.
    Prepare(Task),
    /// Do this.
    Run(Work),
    /// Compare what has come.
    Check(Task),
}

const MOVES: [Move; 4] = [Move::Send, Move::Get, Move::OwnedSend, Move::OwnedGet];
const SHAPES: [Shape; 3] = [Shape::Gather, Shape::Scatter, Shape::Plain];

impl Task {
    /// The task of a thing, if it is one of the engine's.
    pub fn of(what: What) -> Option<Task> {
        match what {
            What::PingPong(bytes) => Some(Task::PingPong(bytes)),
            What::Stream(bytes) => Some(Task::Stream(bytes)),
            What::Together(bytes) => Some(Task::Together(bytes)),
            What::Matrix(by, shape, side) => Some(Task::Matrix(by, shape, side)),
            _ => None,
        }
    }

    /// Kind in the highest byte but one, size in the lowest four.
    fn number(self) -> u64 {
        let (kind, size) = match self {
            Task::PingPong(bytes) => (0, bytes),
            Task::Stream(bytes) => (1, bytes),
            Task::Together(bytes) => (2, bytes),
            Task::Matrix(by, shape, side) => (16 + 4 * by as u64 + shape as u64, side),
        };
        kind << 48 | size & 0xffff_ffff
    }

    fn of_number(number: u64) -> Option<Task> {
        let (kind, size) = (number >> 48 & 0xff, number & 0xffff_ffff);
        match kind {
            0 => Some(Task::PingPong(size)),
            1 => Some(Task::Stream(size)),
            2 => Some(Task::Together(size)),
            16.. => {
                let by = MOVES.get((kind as usize - 16) / 4)?;
                Some(Task::Matrix(*by, *SHAPES.get((kind as usize - 16) % 4)?, size))
            }
            _ => None,
        }
    }
}

impl Request {
    /// Two numbers: what in the highest byte of the first.
    pub fn numbers(self) -> [u64; 2] {
        match self {
            Request::MeetMemory(one_copy) => [1 << 56, one_copy.into()],
            Request::MeetTcp(port) => [2 << 56, port],
            Request::Prepare(task) => [3 << 56 | task.number(), 0],
            Request::Run(work) => [4 << 56 | work.task.number(), work.rounds.into()],
            Request::Check(task) => [5 << 56 | task.number(), 0],
        }
    }

    /// What two numbers mean, if anything.
    pub fn of_numbers(first: u64, second: u64) -> Option<Request> {
        match first >> 56 {
            1 => Some(Request::MeetMemory(second != 0)),
            2 => Some(Request::MeetTcp(second)),
            3 => Some(Request::Prepare(Task::of_number(first)?)),
            4 => {
                let (task, rounds) = (Task::of_number(first)?, u32::try_from(second).ok()?);
                Some(Request::Run(Work { task, rounds }))
            }
            5 => Some(Request::Check(Task::of_number(first)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_understood_as_they_were_meant() {
        let mut tasks = vec![Task::PingPong(8), Task::Stream(1 << 20), Task::Together(64)];
        for by in MOVES {
            tasks.extend(SHAPES.map(|shape| Task::Matrix(by, shape, 1000)));
        }
        let of = |task| {
            [Request::Prepare(task), Request::Run(Work { task, rounds: 20 }), Request::Check(task)]
        };
        let mut all: Vec<Request> = tasks.into_iter().flat_map(of).collect();
        let met = [false, true].map(Request::MeetMemory);
        all.extend(met.into_iter().chain([Request::MeetTcp(40_000)]));
        for request in all {
            let [first, second] = request.numbers();
            assert_eq!(Request::of_numbers(first, second), Some(request));
        }
        for first in [0, 9 << 56, 3 << 56 | 3 << 48, 3 << 56 | 19 << 48, 3 << 56 | 0xff << 48] {
            assert_eq!(Request::of_numbers(first, 0), None, "{first:x}");
        }
    }
}
