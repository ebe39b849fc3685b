//! The message libraries that are installed, measured by a program of ours in C.

use super::bars::PROVIDER;
use super::figures::{Figures, Samples};
use super::meter::Plan;
use super::what::{Move, Over, Shape, What};
use crate::child::{self, Watched};
use crate::error::{Cannot, Error, Result};
use crate::floor::Asker;
use crate::hosts::Hosts;
use crate::mpi::{Library, Mpi, Wait};
use crate::programs::{self, PAIRS_MPI};
use crate::scratch::Scratch;
use crate::stop::Stop;
use std::path::Path;
use std::time::Duration;

/// How long the program may write nothing, besides its slices: it starts, or one operation takes long.
const SILENCE: Duration = Duration::from_secs(40);
/// What takes longer is measured in one round only.
const SLOW_NS: f64 = 0.3e9;
/// Messages over memory.
pub const MESSAGES: [u64; 6] = [8, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// Messages over TCP.
pub const MESSAGES_TCP: [u64; 4] = [8, 64, 4 << 10, 64 << 10];
/// Messages that are streamed, by memory and by TCP.
pub const STREAMED: [u64; 1] = [64];
/// The same over TCP.
pub const STREAMED_TCP: [u64; 2] = [64, 1 << 20];

/// Everything that is measured through a library.
pub fn whats(over: Over, sides: &[u64], is_matrices: bool) -> Vec<What> {
    if is_matrices {
        let moves = [Move::Send, Move::Get, Move::OwnedGet];
        let shapes = [Shape::Gather, Shape::Scatter, Shape::Plain];
        let of = |side: &u64| {
            let side = *side;
            moves.into_iter().flat_map(move |by| shapes.map(|shape| What::Matrix(by, shape, side)))
        };
        return sides.iter().flat_map(of).collect();
    }
    let (messages, streamed) = match over {
        Over::Memory => (&MESSAGES[..], &STREAMED[..]),
        Over::Tcp => (&MESSAGES_TCP[..], &STREAMED_TCP[..]),
    };
    let messages = messages.iter().copied().map(What::PingPong);
    messages.chain(streamed.iter().copied().map(What::Stream)).collect()
}

/// What a library calls the way that its messages take.
fn name(mpi: &Mpi, over: Over, one_copy: bool) -> String {
    let way = match (mpi.library, over) {
        (Library::Openmpi, Over::Memory) => "vader",
        (Library::Openmpi, Over::Tcp) => "tcp BTL",
        (Library::Mpich, Over::Memory) => "memory",
        (Library::Mpich, Over::Tcp) => "tcp",
    };
    let copies = if one_copy || over == Over::Tcp { "" } else { ", copying twice" };
    format!("{}, {way}{copies}", mpi.name)
}

/// A library, and what its messages go through.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// The library.
    pub mpi: &'a Mpi,
    /// The directory of Covey's provider of libfabric; the library's own way without.
    pub provider: Option<&'a Path>,
}

impl Peer<'_> {
    /// As results name it.
    pub fn name(&self, over: Over, one_copy: bool) -> String {
        match self.provider {
            None => name(self.mpi, over, one_copy),
            Some(_) => format!("{PROVIDER} {}", self.mpi.name),
        }
    }
}

/// One round through a library.
pub fn measure(
    peer: Peer<'_>,
    over: Over,
    whats: &[What],
    plan: &Plan,
    stop: &Stop,
    figures: &mut Figures,
) -> Result<()> {
    let (mpi, who) = (peer.mpi, peer.name(over, plan.one_copy));
    let is_known_slow =
        |what: &&What| figures.least_ns(over, **what, &who).is_some_and(|ns| ns > SLOW_NS);
    let whats: Vec<What> = whats.iter().filter(|what| !is_known_slow(what)).copied().collect();
    let program = programs::build(PAIRS_MPI, mpi.compiler, &[])?;
    let scratch = Scratch::new()?;
    // Memory only; nobody answers there.
    let shared = Asker::new().cannot(|| "make memory that two processes share")?;
    let wait = match over {
        Over::Memory => Wait::Poll,
        Over::Tcp => Wait::Block,
    };
    let mut command = match peer.provider {
        None => mpi.launch(&Hosts::Here, 2, wait, &scratch)?,
        Some(provider) => mpi.launch_over_covey(provider, over == Over::Memory, 2, &scratch),
    };
    let (records, talk) = (scratch.file("records"), scratch.file("talk"));
    if !plan.one_copy {
        command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none").env("UCX_TLS", "^cma");
    }
    command.arg(program).arg(&records).arg(shared.path());
    command.args([plan.cpus.first, plan.cpus.second].map(|cpu| cpu.to_string()));
    command.args(["1".to_string(), format!("{:.4}", plan.slice.as_secs_f64())]);
    command.args(whats.iter().map(What::to_string));
    let limit = 2 * SILENCE + 20 * plan.slice * whats.len() as u32;
    let watched = Watched {
        records: &records,
        output: &talk,
        talk: &talk,
        silence: SILENCE + 10 * plan.slice,
        limit,
    };
    let failure = child::run(command, &watched, stop, |new| {
        let used = new.rfind('\n').map_or(0, |end| end + 1);
        for line in new[..used].lines() {
            let (what, samples) = record(line)?;
            figures.add(over, what, &who, samples);
        }
        Ok(used)
    })?;
    match failure {
        None => Ok(()),
        Some(why) => Err(Error::work(format!("cannot measure through {who}: {why}"))),
    }
}

/// A line of the program: what, operations, CPU time, how many times of a cache line, these, the batches.
fn record(line: &str) -> std::result::Result<(What, Samples), String> {
    let wrong = || format!("the program wrote `{}`", line.chars().take(60).collect::<String>());
    let mut words = line.split(' ');
    let what = words.next().unwrap_or_default().parse()?;
    let numbers: std::result::Result<Vec<f64>, _> = words.map(str::parse).collect();
    let numbers = numbers.map_err(|_| wrong())?;
    let [operations, cpu_ns, lines, times @ ..] = &numbers[..] else { return Err(wrong()) };
    let (line_ns, times_ns) = times.split_at_checked(*lines as usize).ok_or_else(wrong)?;
    let (line_ns, times_ns) = (line_ns.to_vec(), times_ns.to_vec());
    Ok((what, Samples { times_ns, line_ns, operations: *operations as u64, cpu_ns: *cpu_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_what_is_none_is_refused() {
        let (what, samples) = record("pingpong-8 80 9000 2 45.1 46 140.5 150 160").unwrap();
        assert_eq!(what, What::PingPong(8));
        assert_eq!((samples.operations, samples.cpu_ns), (80, 9000.0));
        assert_eq!(
            (samples.line_ns, samples.times_ns),
            (vec![45.1, 46.0], vec![140.5, 150.0, 160.0])
        );
        for line in ["", "pingpong-8", "pingpong-8 1 2 5 1", "pingpong-8 1 x 0", "nonsense-1 1 1 0"]
        {
            assert!(record(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_library_is_asked_for_each_matrix_both_ways() {
        assert_eq!(whats(Over::Memory, &[100, 1000], true).len(), 18);
        assert_eq!(whats(Over::Memory, &[100], false).len(), 7);
        assert!(whats(Over::Tcp, &[100], false).contains(&What::Stream(1 << 20)));
    }
}
