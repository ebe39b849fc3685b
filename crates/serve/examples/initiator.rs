//! Covey's own initiator, kept busy, for `bench/volumes`: `initiator URL BLOCK_BYTES DEPTH SECONDS` reads at random.
//!
//! Says what `bench/volbench.c` says: `OPERATIONS BYTES SECONDS CPU_SECONDS P50_US P99_US`.

use covey_serve::iscsi::disk::{Config, Disk, Parameters, parse_portal};
use covey_wire::Rng;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{LocalSet, spawn_local};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, bytes, depth, seconds] = &words[..] else {
        eprintln!("initiator URL BLOCK_BYTES DEPTH SECONDS");
        std::process::exit(2);
    };
    let number = |word: &String| word.parse::<usize>().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let work = run(url, number(bytes), number(depth), number(seconds) as u64);
    let done = LocalSet::new().block_on(&runtime.expect("a runtime"), work);
    done.expect("the target answers");
}

async fn run(url: &str, bytes: usize, depth: usize, seconds: u64) -> std::io::Result<()> {
    let rest = url.strip_prefix("iscsi://").expect("a URL");
    let mut parts = rest.split('/');
    let portal = parts.next().and_then(parse_portal).expect("HOST:PORT");
    let config = Config {
        initiator: "iqn.2026-01.org.example:own".into(),
        target: parts.next().map(str::to_owned),
        isid: [0x80, 0, 0, 0, 0, 7],
        chap: None,
        mutual: None,
        parameters: Parameters::INITIATOR,
    };
    let disk = Disk::connect(config, vec![portal], 0, Duration::from_secs(5)).await?;
    let (disk, count) = (Rc::new(disk), Rc::new(Cell::new(0u64)));
    let latencies = Rc::new(RefCell::new(Vec::new()));
    let (begun, before) = (Instant::now(), cpu());
    let end = begun + Duration::from_secs(seconds);
    let workers = (0..depth as u64).map(|worker| {
        let (disk, count, latencies) = (disk.clone(), count.clone(), latencies.clone());
        spawn_local(async move {
            let blocks = disk.bytes() / bytes as u64;
            let mut rng = Rng::new(worker);
            loop {
                let begun = Instant::now();
                let data = disk.read(rng.below(blocks) * bytes as u64, bytes).await?;
                assert_eq!(data.len(), bytes);
                let now = Instant::now();
                latencies.borrow_mut().push((now - begun).as_micros() as u64);
                count.set(count.get() + 1);
                if now > end {
                    return Ok::<(), std::io::Error>(());
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("it does not panic")?;
    }
    let (took, used) = (begun.elapsed().as_secs_f64(), cpu() - before);
    let mut latencies = latencies.take();
    latencies.sort_unstable();
    let (p50, p99) = (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100]);
    println!("{} {} {took:.3} {used:.3} {p50} {p99}", count.get(), count.get() * bytes as u64);
    Ok(())
}

/// Seconds of CPU time that this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
