//! Large 9P reads over several kinds of connections to one server, interleaved: what `bench/reads` runs.
//!
//! ```text
//! readbench PID PATH FILE_BYTES READ_BYTES DEPTH ROUNDS ADDRESS...
//! ```
//!
//! PID is the server's process, for the CPU time that it takes. Each round reads through every address in turn, 100
//! ms each, into buffers of the caller. With a READ_BYTES that ends in `p` payloads are passed on as they came, in `c` copied once
//! more to a buffer of the caller's. Prints for each address what one read takes, and CPU time of both sides for one.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use covey_measure::uzura::reads::{Reader, Reads, Take, cpu_time_of};
use std::time::Duration;

struct Figure {
    address: String,
    reader: Reader,
    /// Nanoseconds that each read took, with others in flight.
    batches: Vec<f64>,
    reads: u64,
    own: Duration,
    server: Duration,
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
    let reads = Reads {
        file_bytes: file_bytes.parse().context("FILE_BYTES")?,
        bytes: bytes.trim_end_matches(['p', 'c']).parse().context("READ_BYTES")?,
        depth: depth.parse().context("DEPTH")?,
        take: match bytes.chars().last() {
            Some('p') => Take::AsCame,
            Some('c') => Take::Copied,
            _ => Take::Into,
        },
    };
    let mut figures = Vec::new();
    for address in addresses {
        let to = address.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        let opened = Reader::open(&to, path, reads).await;
        figures.push(Figure {
            address: address.to_string(),
            reader: opened.map_err(|error| anyhow::anyhow!("{error}"))?,
            batches: Vec::new(),
            reads: 0,
            own: Duration::ZERO,
            server: Duration::ZERO,
        });
    }
    for round in 0..rounds.parse::<usize>().context("ROUNDS")? + 1 {
        for figure in &mut figures {
            batch(figure, pid, round > 0).await?;
        }
    }
    for figure in &mut figures {
        report(figure, reads.bytes);
    }
    Ok(())
}

/// Reads for a while.
async fn batch(figure: &mut Figure, pid: &str, counts: bool) -> Result<()> {
    let (own, server) = (cpu_time_of("self")?, cpu_time_of(pid)?);
    let read = figure.reader.batch(BATCH).await;
    let (reads, took) = read.map_err(|error| anyhow::anyhow!("{error}"))?;
    if counts {
        figure.batches.push(took.as_nanos() as f64 / reads as f64);
        figure.reads += reads;
        figure.own += cpu_time_of("self")?.saturating_sub(own);
        figure.server += cpu_time_of(pid)?.saturating_sub(server);
    }
    Ok(())
}

fn report(figure: &mut Figure, bytes: u32) {
    figure.batches.sort_by(f64::total_cmp);
    let at = |share: f64| figure.batches[(figure.batches.len() as f64 * share) as usize] / 1000.0;
    let each = |time: Duration| time.as_nanos() as f64 / figure.reads as f64 / 1000.0;
    println!(
        "{:<40} median {:8.1} us  p10 {:8.1} us  {:6.2} GB/s  CPU client {:7.1} us  server {:7.1} us  reads {}",
        figure.address,
        at(0.5),
        at(0.1),
        f64::from(bytes) / at(0.5) / 1000.0,
        each(figure.own),
        each(figure.server),
        figure.reads
    );
}

const BATCH: Duration = Duration::from_millis(100);
