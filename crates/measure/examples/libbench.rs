//! One figure of the file system per run, through the client library: what `bench/fsbench.c` measures
//! through a mount, without one.
//!
//! ```text
//! libbench CONFIG write|overwrite|read NAME BYTES              1 MiB at a time, four in flight
//! libbench CONFIG randread|randwrite NAME BYTES SECONDS DEPTH  4 KiB each
//! libbench CONFIG readlist|readloop NAME BYTES SECONDS STRIDE  8 bytes of each STRIDE, 1024 at a time
//! libbench CONFIG writelist|writeloop NAME BYTES SECONDS STRIDE
//! libbench CONFIG create|stat|unlink DIR COUNT                 empty files of one directory
//! libbench CONFIG smallwrite|smallread DIR COUNT               files of 4 KiB
//! ```
//!
//! Names are of the root directory. Prints `OPERATIONS BYTES SECONDS CPU_SECONDS`.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use covey_ninep::tree::Removal;
use covey_stripe::client::{Caching, File, Fs, Options, Taken};
use covey_stripe::ops::{Caller, Id, ROOT};
use covey_stripe::view::View;
use covey_wire::{Bytes, Name, Payload, Rng};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::path::Path;
use std::time::{Duration, Instant};

const CHUNK: usize = 1 << 20;
const PAGE: usize = 4096;
/// Requests in flight when streaming: one is on the wire while the next is prepared.
const WINDOW: usize = 4;
const READ: u8 = 4;
const WRITE: u8 = 2;
/// Bytes of an element, and elements of a column.
const ELEMENT: u64 = 8;
const ROWS: u64 = 1024;
const S_IFDIR: u32 = 0o040_000;

struct Bench {
    fs: Fs,
    who: Caller,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, measure())
}

async fn measure() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [config, test, name, count, rest @ ..] = &words[..] else {
        bail!("usage: libbench CONFIG TEST NAME COUNT: the head of libbench.rs tells more");
    };
    let config = covey_cluster::config::load(Path::new(config)).map_err(anyhow::Error::from)?;
    let options = Options { caching: Caching::Leases, ..Options::default() };
    let fs = covey_cluster::connect_fs(&config, options).await?;
    let bench = Bench { fs, who: Caller::default() };
    let count: u64 = count.parse().context("the count")?;
    let begun = Instant::now();
    let (operations, bytes) = match (*test, rest) {
        ("write", []) => bench.stream(&bench.create(ROOT, name).await?, count, true).await?,
        ("overwrite", []) => bench.stream(&bench.open(ROOT, name).await?, count, true).await?,
        ("read", []) => bench.stream(&bench.open(ROOT, name).await?, count, false).await?,
        ("randread" | "randwrite", [seconds, depth]) => {
            let file = bench.open(ROOT, name).await?;
            let limit = Duration::from_secs_f64(seconds.parse()?);
            random(&file, count, limit, depth.parse()?, *test == "randwrite").await?
        }
        ("readlist" | "readloop" | "writelist" | "writeloop", [seconds, stride]) => {
            let file = bench.open(ROOT, name).await?;
            let limit = Duration::from_secs_f64(seconds.parse()?);
            columns(&file, count, limit, stride.parse()?, test).await?
        }
        (test, []) => bench.each(test, name, count).await?,
        _ => bail!("cannot run {test}: wrong number of arguments"),
    };
    let seconds = begun.elapsed().as_secs_f64();
    bench.fs.bye().await;
    println!("{operations} {bytes} {seconds:.6} {:.6}", cpu_seconds()?);
    Ok(())
}

impl Bench {
    async fn create(&self, dir: Id, name: &str) -> Result<File> {
        Ok(self
            .fs
            .create(&self.who, dir, &Name::from(name), 0o644, Taken::Open, READ | WRITE)
            .await?
            .1)
    }

    async fn open(&self, dir: Id, name: &str) -> Result<File> {
        let inode = self.fs.lookup(&self.who, dir, &Name::from(name)).await?;
        Ok(self.fs.open(&self.who, inode.id, READ | WRITE).await?)
    }

    async fn stream(&self, file: &File, bytes: u64, writes: bool) -> Result<(u64, u64)> {
        let data = noise(CHUNK);
        let chunks = stream::iter((0..bytes / CHUNK as u64).map(|index| index * CHUNK as u64));
        let transfer = |offset| {
            let data = data.clone();
            async move {
                if writes {
                    file.write_at(offset, Payload::from(data)).await?
                } else {
                    whole(file.read_at(offset, CHUNK).await?, CHUNK)?
                }
                anyhow::Ok(())
            }
        };
        chunks.map(transfer).buffer_unordered(WINDOW).try_collect::<Vec<()>>().await?;
        if writes {
            file.fsync().await?;
        }
        Ok((bytes / CHUNK as u64, bytes))
    }

    async fn each(&self, test: &str, dir: &str, count: u64) -> Result<(u64, u64)> {
        let dir = self.directory(dir, matches!(test, "create" | "smallwrite")).await?;
        let data = noise(PAGE);
        for index in 0..count {
            let name = format!("f{index:07}");
            match test {
                "create" => drop(self.create(dir, &name).await?),
                "stat" => {
                    let inode = self.fs.lookup(&self.who, dir, &Name::from(&name[..])).await?;
                    self.fs.with_blocks(inode).await;
                }
                "unlink" => {
                    self.fs.unlink(&self.who, dir, &Name::from(&name[..]), Removal::File).await?;
                }
                "smallwrite" => {
                    let (name, data) = (Name::from(&name[..]), Payload::from(data.clone()));
                    let access = READ | WRITE;
                    let made = self.fs.create_write(
                        &self.who,
                        dir,
                        &name,
                        0o644,
                        Taken::Open,
                        access,
                        data,
                    );
                    made.await?.file.flush().await?;
                }
                "smallread" => {
                    let names = [Name::from(&name[..])];
                    let opened = self.fs.open_read(&self.who, dir, &names, READ, PAGE as u32);
                    let opened = opened.await?;
                    if opened.is_whole() {
                        whole(opened.data.into(), PAGE)?
                    } else {
                        whole(opened.file.read_at(0, PAGE).await?, PAGE)?
                    }
                }
                other => bail!("cannot run {other}: there is no such test"),
            }
        }
        Ok((count, if test.starts_with("small") { count * PAGE as u64 } else { 0 }))
    }

    async fn directory(&self, name: &str, make: bool) -> Result<Id> {
        let name = Name::from(name);
        if make {
            let mode = S_IFDIR | 0o755;
            let made = self.fs.make(&self.who, ROOT, &name, mode, 0, Name::EMPTY).await?;
            return Ok(made.id);
        }
        Ok(self.fs.lookup(&self.who, ROOT, &name).await?.id)
    }
}

async fn random(
    file: &File,
    bytes: u64,
    limit: Duration,
    depth: usize,
    writes: bool,
) -> Result<(u64, u64)> {
    let (begun, pages, data) = (Instant::now(), bytes / PAGE as u64, noise(PAGE));
    let worker = |seed: usize| {
        let data = data.clone();
        async move {
            let (mut rng, mut operations) = (Rng::new(seed as u64), 0);
            while begun.elapsed() < limit {
                let offset = rng.below(pages) * PAGE as u64;
                if writes {
                    file.write_at(offset, Payload::from(data.clone())).await?
                } else {
                    whole(file.read_at(offset, PAGE).await?, PAGE)?
                }
                operations += 1;
            }
            anyhow::Ok(operations)
        }
    };
    let workers = futures_util::future::try_join_all((0..depth).map(worker)).await?;
    let operations: u64 = workers.into_iter().sum();
    Ok((operations, operations * PAGE as u64))
}

/// Columns of a matrix with rows of `stride` bytes, as one list each or element by element.
async fn columns(
    file: &File,
    bytes: u64,
    limit: Duration,
    stride: u64,
    test: &str,
) -> Result<(u64, u64)> {
    let (begun, mut at, mut operations) = (Instant::now(), 0, 0);
    let data = noise((ELEMENT * ROWS) as usize);
    while begun.elapsed() < limit {
        let offset = at % (bytes - ROWS * stride);
        let column = View::column(offset, ELEMENT, stride, ROWS).context("a column")?;
        let rows = (0..ROWS).map(|row| offset + row * stride);
        match test {
            "readlist" => drop(file.read_view(&column).await?),
            "writelist" => file.write_view(&column, data.clone()).await?,
            "readloop" => {
                let reads = rows.map(|offset| file.read_at(offset, ELEMENT as usize));
                futures_util::future::try_join_all(reads).await?;
            }
            _ => {
                let piece = data.slice(..ELEMENT as usize);
                let writes = rows.map(|offset| file.write_at(offset, piece.clone().into()));
                futures_util::future::try_join_all(writes).await?;
            }
        }
        (at, operations) = (at + 8 * ELEMENT + ROWS * stride, operations + ROWS);
    }
    Ok((operations, operations * ELEMENT))
}

fn whole(payload: Payload, wanted: usize) -> Result<()> {
    match payload.into_bytes().len() {
        length if length == wanted => Ok(()),
        length => bail!("{length} bytes came, {wanted} were asked for"),
    }
}

fn noise(bytes: usize) -> Bytes {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// What this process has used, from /proc/self/stat in ticks of 10 ms.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(") ").context("a stat line")?.1;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}
