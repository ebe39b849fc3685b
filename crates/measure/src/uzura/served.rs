//! 9P reads of 1 MiB from a server of this machine: through shared memory, and beside it by a unix socket.

use super::bars::ENGINE;
use super::figures::{Figures, Samples};
use super::meter::Plan;
use super::reads::{Reader, Reads, Take, cpu_time_of};
use super::what::{Over, READ_BYTES, What};
use crate::error::{Cannot, Error, Result};
use crate::scratch::Scratch;
use crate::stop::Stop;
use covey_io::os::net::Address;
use covey_lab::enter::ourselves;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the socket is called among those that are measured.
pub const SOCKET: &str = "a unix socket";
/// Files that are read: one stays near a CPU, the other does not.
const FILES: [u64; 2] = [1 << 20, 64 << 20];
/// How long a batch takes: some twenty reads.
const BATCH: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// Where files are in memory.
const MEMORY: &str = "/dev/shm";

/// One round.
pub fn measure(plan: &Plan, stop: &Stop, figures: &mut Figures) -> Result<()> {
    // Both go where the system puts them, as users' do: servers choose their CPUs themselves.
    let server = Server::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.cannot(|| "start a runtime")?;
    let measured = async {
        for file_bytes in FILES {
            for address in [Address::Unix(server.socket()), Address::Shared(server.socket())] {
                if stop.is_asked() {
                    return Ok(());
                }
                let who = if matches!(address, Address::Shared(_)) { ENGINE } else { SOCKET };
                let samples = slice(plan, &server, file_bytes, &address).await;
                let samples = samples.map_err(|error| {
                    Error::work(format!("cannot measure 9P reads at {address}: {error}"))
                })?;
                figures.add(Over::Memory, What::Served(file_bytes), who, samples);
            }
        }
        Ok(())
    };
    tokio::task::LocalSet::new().block_on(&runtime, measured)
}

async fn slice(
    plan: &Plan,
    server: &Server,
    file_bytes: u64,
    address: &Address,
) -> covey_ninep::tree::Result<Samples> {
    let reads = Reads { file_bytes, bytes: READ_BYTES as u32, depth: 1, take: Take::Into };
    let mut reader = Reader::open(address, &name(file_bytes), reads).await?;
    reader.batch(BATCH).await?;
    let mut samples = Samples::default();
    let cpu = || cpu_time_of("self").unwrap_or_default() + server.cpu_time();
    let (begun, before) = (Instant::now(), cpu());
    while begun.elapsed() < plan.slice {
        let (reads, took) = reader.batch(BATCH).await?;
        samples.times_ns.push(took.as_nanos() as f64 / reads as f64);
        samples.operations += reads;
    }
    samples.cpu_ns = cpu().saturating_sub(before).as_nanos() as f64;
    Ok(samples)
}

fn name(file_bytes: u64) -> String {
    format!("file-{file_bytes}")
}

/// `covey export` of files in memory.
struct Server {
    child: Child,
    scratch: Scratch,
}

impl Server {
    /// Starts it.
    fn start() -> Result<Server> {
        let scratch = Scratch::within(Path::new(MEMORY))?;
        let files = scratch.file("files");
        std::fs::create_dir(&files).cannot(|| format!("make {}", files.display()))?;
        for file_bytes in FILES {
            let path = files.join(name(file_bytes));
            fill(&path, file_bytes).cannot(|| format!("write {}", path.display()))?;
        }
        let listen = Address::Unix(scratch.file("socket"));
        let mut command = Command::new(ourselves());
        command.arg("export").arg(&files).arg("--listen").arg(listen.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().cannot(|| "start `covey export`")?;
        let mut server = Server { child, scratch };
        let begun = Instant::now();
        // A socket has its name before anybody listens there.
        while UnixStream::connect(server.socket()).is_err() {
            let ended = server.child.try_wait().cannot(|| "wait for `covey export`")?;
            if ended.is_some() || begun.elapsed() > PATIENCE {
                return Err(Error::work("cannot measure 9P reads: `covey export` does not listen"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    fn socket(&self) -> std::path::PathBuf {
        self.scratch.file("socket")
    }

    fn cpu_time(&self) -> Duration {
        cpu_time_of(&self.child.id().to_string()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that are no two pages' alike.
fn fill(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    for block in 0..bytes >> 20 {
        let block: Vec<u8> = (0..1_u64 << 17)
            .flat_map(|at| ((block << 32) | (at * 0x9e37_79b9)).to_le_bytes())
            .collect();
        file.write_all(&block)?;
    }
    Ok(())
}
