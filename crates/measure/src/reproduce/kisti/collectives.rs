//! Figure 3: MPI's collectives on three networks.

use super::networks::{NODES, PAIRS, everywhere, is_ahead};
use super::part;
use crate::calls::{Calls, Ran};
use crate::error::Result;
use crate::hosts::Hosts;
use crate::mpi::Mpi;
use crate::reproduce::bench::Bench;
use crate::reproduce::told::Part;
use crate::stop::Stop;
use covey_tune::Estimate;
use covey_tune::split::mean;

/// Sizes of messages: short, middle, and so long that only the rate matters.
const SIZES: [u64; 6] = [8, 256, 4 << 10, 32 << 10, 256 << 10, 1 << 20];
const SIZES_QUICK: [u64; 3] = [8, 4 << 10, 128 << 10];
/// Seconds of each.
const SECONDS: f64 = 0.3;
const SECONDS_QUICK: f64 = 0.06;

/// Measures and judges.
pub async fn networks(bench: &mut Bench) -> Part {
    let mut part = part("fig3", "MPI collectives on three networks; the figure's values are lost");
    let found = everywhere(bench, &mut part, measure).await;
    if found.is_empty() {
        return part;
    }
    found.tell(&mut part, Some("all of them, on average"));
    let doubt = found.doubt(bench);
    let factors: Vec<Estimate> = found
        .wire(PAIRS[0])
        .into_iter()
        .filter(|(one, _)| one.ranks as usize == NODES)
        .map(|(_, factor)| factor)
        .collect();
    if !factors.is_empty() {
        let what = format!("the wire's part of all collectives of {NODES} processes, on average");
        let answer = is_ahead(&what, PAIRS[0], mean(&factors));
        part.judge("follow the wire", answer.unless(doubt.as_deref()));
    }
    part.differs("a program of our own that times calls as PMB and its successor IMB do: the bytes are one process's, the time is the slowest process's");
    if bench.wish.is_quick {
        part.differs("three sizes of messages, and one start of the program on each network");
    }
    part
}

fn measure(mpi: &Mpi, hosts: &Hosts, is_quick: bool, stop: &Stop) -> Result<Ran> {
    let (teams, sizes, seconds) = if is_quick {
        (vec![NODES], SIZES_QUICK.to_vec(), SECONDS_QUICK)
    } else {
        (vec![2, NODES], SIZES.to_vec(), SECONDS)
    };
    Calls::Collectives { teams, sizes }.time(mpi, (hosts, NODES), seconds, stop)
}
