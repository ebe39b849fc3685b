//! Large 9P reads over several kinds of connections to one server, interleaved: what `bench/reads` runs.
//!
//! ```text
//! readbench PID PATH FILE_BYTES READ_BYTES DEPTH ROUNDS ADDRESS...
//! ```
//!
//! PID is the server's process, for the CPU time that it takes. Each round reads through every address in turn, 100
//! ms each, into a buffer of the caller, or, with a READ_BYTES that ends in `p`, takes the payload as it came. Prints for each
//! address what one read takes, and CPU time of both sides for one.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use covey::node::net;
use covey_ninep::client::{Conn, Fid};
use covey_ninep::message::Message;
use covey_wire::{Bytes, List, Name};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::time::{Duration, Instant};

struct Figure {
    address: String,
    conn: Conn,
    fid: Fid,
    /// Nanoseconds that each read took, with others in flight.
    batches: Vec<f64>,
    reads: u64,
    own_ns: u64,
    server_ns: u64,
}

struct Plan {
    file_bytes: u64,
    bytes: u32,
    is_passed_on: bool,
    depth: usize,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, measure())
}

async fn measure() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [pid, path, file_bytes, bytes, depth, rounds, addresses @ ..] = &words[..] else {
        bail!("usage: readbench PID PATH FILE_BYTES READ_BYTES DEPTH ROUNDS ADDRESS...");
    };
    let plan = Plan {
        file_bytes: file_bytes.parse().context("FILE_BYTES")?,
        bytes: bytes.trim_end_matches('p').parse().context("READ_BYTES")?,
        is_passed_on: bytes.ends_with('p'),
        depth: depth.parse().context("DEPTH")?,
    };
    let mut figures = Vec::new();
    for address in addresses {
        figures.push(open(address, path).await.with_context(|| address.to_string())?);
    }
    for round in 0..rounds.parse::<usize>().context("ROUNDS")? + 1 {
        for figure in &mut figures {
            batch(figure, &plan, pid, round > 0).await?;
        }
    }
    for figure in &mut figures {
        report(figure, plan.bytes);
    }
    Ok(())
}

async fn open(address: &str, path: &str) -> Result<Figure> {
    let to = address.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    let conn = net::dial(&to, "/", None, &tokio::runtime::Handle::current()).await?;
    let fid = Fid::new(&conn);
    let names = List(vec![Name::from(path)]);
    conn.call(Message::Twalk { fid: 0, newfid: fid.number(), names }).await?;
    conn.call(Message::Tlopen { fid: fid.number(), flags: 0 }).await?;
    let address = address.to_owned();
    let batches = Vec::new();
    Ok(Figure { address, conn, fid, batches, reads: 0, own_ns: 0, server_ns: 0 })
}

/// Reads for a while.
async fn batch(figure: &mut Figure, plan: &Plan, pid: &str, counts: bool) -> Result<()> {
    let mut buffers = vec![vec![0; plan.bytes as usize]; plan.depth];
    let steps = plan.file_bytes / u64::from(plan.bytes);
    let (own, server, begun) = (cpu_ns("self")?, cpu_ns(pid)?, Instant::now());
    let (mut asked, mut done) = (0_u64, 0_u64);
    let mut flying = FuturesUnordered::new();
    while begun.elapsed() < BATCH || !flying.is_empty() {
        while flying.len() < plan.depth && begun.elapsed() < BATCH {
            let offset = asked % steps * u64::from(plan.bytes);
            let read = Message::Tread { fid: figure.fid.number(), offset, count: plan.bytes };
            flying.push(figure.conn.call(read));
            asked += 1;
        }
        let Some(reply) = flying.next().await else { break };
        match reply? {
            Message::Rread { data } if data.len() == plan.bytes as usize => {
                take(
                    data.into_bytes(),
                    &mut buffers[done as usize % plan.depth],
                    plan.is_passed_on,
                );
            }
            other => bail!("{} of another length", other.name()),
        }
        done += 1;
    }
    let took = begun.elapsed();
    if counts {
        figure.batches.push(took.as_nanos() as f64 / done as f64);
        figure.reads += done;
        figure.own_ns += cpu_ns("self")? - own;
        figure.server_ns += cpu_ns(pid)? - server;
    }
    Ok(())
}

/// What the caller does with a payload: it has it in a buffer of its own, or passes it on.
fn take(data: Bytes, buffer: &mut [u8], is_passed_on: bool) {
    match is_passed_on {
        true => drop(std::hint::black_box(data)),
        false => buffer.copy_from_slice(&data),
    }
    std::hint::black_box(buffer);
}

fn report(figure: &mut Figure, bytes: u32) {
    figure.batches.sort_by(f64::total_cmp);
    let at = |share: f64| figure.batches[(figure.batches.len() as f64 * share) as usize] / 1000.0;
    let each = |ns: u64| ns as f64 / figure.reads as f64 / 1000.0;
    println!(
        "{:<40} median {:8.1} us  p10 {:8.1} us  {:6.2} GB/s  CPU client {:7.1} us  server {:7.1} us  reads {}",
        figure.address,
        at(0.5),
        at(0.1),
        f64::from(bytes) / at(0.5) / 1000.0,
        each(figure.own_ns),
        each(figure.server_ns),
        figure.reads
    );
}

/// What the threads of a process have used.
fn cpu_ns(pid: &str) -> Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(sum)
}

const BATCH: Duration = Duration::from_millis(100);
