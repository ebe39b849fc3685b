//! One I/O server dies under load: what does that cost the files that have nothing on it? Run by
//! `bench/one-dead`.
//!
//! ```text
//! deadbench CONFIG SERVER CLIENTS NORMAL DEAD AFTER 'KILL COMMAND' 'START COMMAND'
//! ```
//!
//! Each of CLIENTS clients has a connection of its own, a file on SERVER and one on another, and reads and
//! writes 4 KiB of each at random, one request at a time: NORMAL seconds, then DEAD seconds after KILL, then
//! AFTER seconds after START. Markdown on stdout.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use covey_stripe::client::{Caching, File, Fs, Options, Taken, access};
use covey_stripe::ops::{Caller, ROOT, StripingHint};
use covey_wire::{Bytes, Name, Payload, Rng};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 8 << 20;
const PAGE: u64 = 4096;
const PHASES: [&str; 3] = ["all servers up", "one dead", "back"];

/// What one kind of file went through in each phase: latencies in microseconds, and errors.
#[derive(Default)]
struct Seen {
    times: [RefCell<Vec<u64>>; 3],
    errors: [Cell<u64>; 3],
    /// When the last error of the last phase was seen, after its begin.
    last_error: Cell<Duration>,
}

struct Stage {
    phase: Cell<usize>,
    begun: Cell<Instant>,
    is_over: Cell<bool>,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, measure())
}

async fn measure() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, server, clients, normal, dead, after, kill, start] = &arguments[..] else {
        bail!("usage: deadbench CONFIG SERVER CLIENTS NORMAL DEAD AFTER KILL START");
    };
    let config = covey_cluster::config::load(Path::new(config)).map_err(anyhow::Error::from)?;
    let clients: usize = clients.parse().context("the number of clients")?;
    let lengths = [normal, dead, after].map(|text| text.parse().map(Duration::from_secs));
    let stage = Rc::new(Stage {
        phase: Cell::new(0),
        begun: Cell::new(Instant::now()),
        is_over: Cell::new(false),
    });
    let (with, without) = (Rc::new(Seen::default()), Rc::new(Seen::default()));
    let mut tasks = Vec::new();
    for client in 0..clients {
        let options = Options { caching: Caching::Leases, ..Options::default() };
        let fs = covey_cluster::connect_fs(&config, options).await?;
        let victim =
            fs.servers().iter().position(|name| name == server).context("no such server")?;
        let (on, off) = files(&fs, client, victim as u16).await?;
        for (file, seen, turn) in [(on, &with, 1), (off, &without, 2)] {
            let (seen, stage) = (seen.clone(), stage.clone());
            let seed = (client as u64 * 2 + turn) << 20;
            tasks.push(tokio::task::spawn_local(work(file, seen, stage, seed)));
        }
    }
    for (phase, length) in lengths.into_iter().enumerate() {
        let command = ["true", kill, start][phase];
        let status = tokio::process::Command::new("sh").arg("-c").arg(command).status().await?;
        if !status.success() {
            bail!("{command}: {status}");
        }
        stage.begun.set(Instant::now());
        stage.phase.set(phase);
        tokio::time::sleep(length?).await;
    }
    stage.is_over.set(true);
    for task in tasks {
        task.await?;
    }
    tell(server, clients, &with, &without);
    Ok(())
}

/// A file that lies on the victim, and one that lies elsewhere, each on one server.
async fn files(fs: &Fs, client: usize, victim: u16) -> Result<(File, File)> {
    let who = Caller::default();
    let name = Name::from(format!("client{client}"));
    let dir = fs.make(&who, ROOT, &name, 0o040_755, 0, Name::EMPTY).await?.id;
    fs.set_striping(&who, dir, StripingHint::simple_stripe(65536, 1)).await?;
    let (mut on, mut off) = (None, None);
    for number in 0.. {
        let name = Name::from(format!("f{number}"));
        let (inode, file) = fs.create(&who, dir, &name, 0o644, Taken::Refuse, access::BOTH).await?;
        let striping = inode.striping.context("a file has a striping")?;
        let place = if striping.servers.0.contains(&victim) { &mut on } else { &mut off };
        if place.is_none() {
            let piece = Bytes::from(vec![7u8; 1 << 20]);
            for at in 0..FILE_BYTES >> 20 {
                file.write_at(at << 20, Payload::from(piece.clone())).await?;
            }
            *place = Some(file);
        }
        if on.is_some() && off.is_some() {
            break;
        }
    }
    on.zip(off).context("there is one server only")
}

async fn work(file: File, seen: Rc<Seen>, stage: Rc<Stage>, seed: u64) {
    let page = Bytes::from(vec![9u8; PAGE as usize]);
    let mut rng = Rng::new(seed);
    while !stage.is_over.get() {
        let offset = rng.below(FILE_BYTES / PAGE) * PAGE;
        let (phase, begun) = (stage.phase.get(), Instant::now());
        let done = match rng.below(4) {
            0 => file.write_at(offset, Payload::from(page.clone())).await,
            _ => file.read_at(offset, PAGE as usize).await.map(drop),
        };
        match done {
            Ok(()) => seen.times[phase].borrow_mut().push(begun.elapsed().as_micros() as u64),
            Err(_) => {
                seen.errors[phase].set(seen.errors[phase].get() + 1);
                if phase == 2 {
                    seen.last_error.set(stage.begun.get().elapsed());
                }
                // As a program would that waits for its server.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn tell(server: &str, clients: usize, with: &Seen, without: &Seen) {
    println!(
        "{clients} clients, each with a file on {server} and one elsewhere, 4 KiB at random, one in four a write:\n"
    );
    println!("| | files | operations | errors | p50 us | p99 us | max us |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    let mut p99 = [0; 3];
    for (phase, name) in PHASES.iter().enumerate() {
        for (files, seen) in [("elsewhere", without), (server, with)] {
            let mut times = seen.times[phase].borrow_mut();
            times.sort_unstable();
            let at = |share: f64| match times.len() {
                0 => 0,
                count => times[((count - 1) as f64 * share) as usize],
            };
            if files == "elsewhere" {
                p99[phase] = at(0.99);
            }
            let (count, errors) = (times.len(), seen.errors[phase].get());
            println!(
                "| {name} | {files} | {count} | {errors} | {} | {} | {} |",
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
    }
    println!(
        "\nFiles elsewhere, p99 while one is dead: {:.2} of normal. Files on {server} are right again {:.1} s after its start.",
        p99[1] as f64 / p99[0].max(1) as f64,
        with.last_error.get().as_secs_f64()
    );
}
