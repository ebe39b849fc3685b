//! What strangers without a key cost a server and its clients. To be run as root, so that the strangers
//! can be another user.
//!
//! ```text
//! strangers COVEY SECONDS
//! ```
//!
//! COVEY is the program to try. A server that wants the key serves one client, which asks for one small
//! answer after the other, in three phases of SECONDS each: alone; while strangers attack the server;
//! and while as many threads burn as much CPU time as the strangers have taken, each as often asleep as
//! one of them was, without a word to the server. Markdown on stdout.

#![forbid(unsafe_code)]

// The suite uses more of it.
#[allow(dead_code)]
#[path = "../tests/hostile/attack.rs"]
mod attack;

use anyhow::{Context, Result, bail, ensure};
use covey_io::os::credentials::{Identity, act_as};
use covey_ninep::message::Message;
use rustix::time::{ClockId, clock_gettime};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Threads that attack, and that burn.
const THREADS: u64 = 4;
/// Who attacks.
const MALLORY: u32 = 61_003;
/// The unit of CPU time in /proc: USER_HZ, the same on all Linux machines.
const TICK: Duration = Duration::from_millis(10);

/// What one phase showed.
struct Phase {
    p50: Duration,
    p99: Duration,
    max: Duration,
    answers: usize,
    memory: u64,
    burned: Duration,
    /// What the others have printed.
    said: String,
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--attack", address, seconds] => strangers(address.parse()?, seconds.parse()?),
        ["--burn", seconds, ref burdens @ ..] => {
            let burden = |words: &[&str]| -> Result<Burden> {
                let time = |word: &str| anyhow::Ok(Duration::from_micros(word.parse()?));
                let (busy, waited) = (time(words[0])?, time(words[1])?);
                Ok(Burden { busy, waited, sleeps: words[2].parse()? })
            };
            let burdens: Result<_> = burdens.chunks_exact(3).map(burden).collect();
            burners(seconds.parse()?, burdens?);
            Ok(())
        }
        [program, seconds] => compare(program, seconds.parse()?),
        _ => bail!("usage: strangers COVEY SECONDS"),
    }
}

fn strangers(address: SocketAddr, seconds: u64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let attack = move |seed| {
        let mallory = Identity { uid: MALLORY, gid: MALLORY, groups: &[] };
        act_as(&mallory, || attack::attack(address, end, seed))
    };
    let attack = move |seed| Ok::<_, std::io::Error>((attack(seed)?, Burden::of_this_thread()?));
    let threads: Vec<_> =
        (0..THREADS).map(|seed| std::thread::spawn(move || attack(seed))).collect();
    for thread in threads {
        let done = thread.join().expect("it does not panic");
        let (tally, burden) = done.context("become another user")?;
        eprintln!("{tally:?} {burden:?}");
        let Burden { busy, waited, sleeps } = burden;
        println!("{} {} {sleeps}", busy.as_micros(), waited.as_micros());
    }
    Ok(())
}

/// What a thread has asked of the CPUs.
#[derive(Clone, Copy, Debug)]
struct Burden {
    busy: Duration,
    /// For a CPU.
    waited: Duration,
    /// How often it slept: between two of them it runs for as long as it is let.
    sleeps: u64,
}

impl Burden {
    fn of_this_thread() -> std::io::Result<Burden> {
        let odd = || std::io::Error::other("/proc/thread-self tells something else");
        let times = std::fs::read_to_string("/proc/thread-self/schedstat")?;
        let mut times = times.split(' ').map_while(|word| word.parse().ok());
        let mut time = || times.next().map(Duration::from_nanos).ok_or_else(odd);
        let (busy, waited) = (time()?, time()?);
        let status = std::fs::read_to_string("/proc/thread-self/status")?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let sleeps = sleeps.and_then(|word| word.trim().parse().ok()).ok_or_else(odd)?;
        Ok(Burden { busy, waited, sleeps })
    }
}

/// One thread for each burden: it runs and sleeps by turns, so that after `seconds` it has been as busy,
/// in as many pieces.
fn burners(seconds: u64, burdens: Vec<Burden>) {
    let burn = move |Burden { busy, waited, sleeps }: Burden| {
        let (begun, time) = (Instant::now(), Duration::from_secs(seconds));
        let turns = sleeps.max(1) as u32;
        let pause = time.saturating_sub(busy + waited) / turns;
        for turn in 1..=turns {
            // Others may keep it from the CPU: its own time counts.
            while own_time() < busy / turns * turn && begun.elapsed() < time {}
            std::thread::sleep(pause.min(time.saturating_sub(begun.elapsed())));
        }
    };
    let spawn = |burden| std::thread::spawn(move || burn(burden));
    let threads: Vec<_> = burdens.into_iter().map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
}

fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().expect("it counts from 0")
}

fn compare(program: &str, seconds: u64) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("covey-strangers-{}", std::process::id()));
    let outcome = compare_in(&dir, program, seconds);
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

fn compare_in(dir: &Path, program: &str, seconds: u64) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (file, at) = (dir.join("covey.toml"), dir.display());
    let text = format!(
        "version = 1\n[cluster]\nname = \"k\"\nid = \"{:032x}\"\nkey_file = \"{at}/key\"\n[[node]]\nname = \"one\"\n\
         roles = [\"meta\", \"data\"]\nlisten = [\"tcp!127.1!{port}\"]\nstore = \"{at}/store\"\n",
        std::process::id()
    );
    std::fs::write(&file, text)?;
    let covey = || {
        let mut command = Command::new(program);
        command.arg("--config").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    for arguments in [&["keygen"][..], &["init", "--all"]] {
        ensure!(covey().args(arguments).status()?.success(), "covey {} fails", arguments.join(" "));
    }
    let log = std::fs::File::create(dir.join("log"))?;
    let server = Server(covey().args(["serve", "--node", "one"]).stderr(log).spawn()?);
    std::thread::sleep(Duration::from_secs(2));
    let own = std::env::current_exe()?;
    let with = |arguments: &[String]| -> Result<Child> {
        let mut command = Command::new(&own);
        Ok(command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
    };
    let time = seconds.to_string();
    let alone = phase(&file, &server, seconds, None)?;
    let address = format!("127.0.0.1:{port}");
    let attackers = with(&["--attack".into(), address, time.clone()])?;
    let attacked = phase(&file, &server, seconds, Some(attackers))?;
    let mut arguments = vec!["--burn".to_owned(), time];
    arguments.extend(attacked.said.split_whitespace().map(str::to_owned));
    let burned = phase(&file, &server, seconds, Some(with(&arguments)?))?;
    println!("| phase | answers | p50 us | p99 us | max us | CPU of the others s | server MiB |");
    println!("|---|---|---|---|---|---|---|");
    for (name, phase) in [("alone", &alone), ("attacked", &attacked), ("CPU burned", &burned)] {
        println!(
            "| {name} | {} | {} | {} | {} | {:.1} | {} |",
            phase.answers,
            phase.p50.as_micros(),
            phase.p99.as_micros(),
            phase.max.as_micros(),
            phase.burned.as_secs_f64(),
            phase.memory >> 20
        );
    }
    let ratio = attacked.p99.as_secs_f64() / burned.p99.as_secs_f64();
    println!("\np99 under attack is {ratio:.2} of that beside burners");
    let lines = std::fs::read_to_string(dir.join("log"))?.lines().count();
    println!("the server's log has {lines} lines");
    Ok(())
}

/// One client asks for as long as the phase is.
fn phase(config: &Path, server: &Server, seconds: u64, others: Option<Child>) -> Result<Phase> {
    let config = covey_cluster::config::load(config)?;
    let key = covey_cluster::key::read(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let before = children_cpu()?;
    let (mut times, mut memory) = (Vec::new(), 0);
    runtime.block_on(async {
        // It comes while the others are at work.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let conn = covey_cluster::net::dial_node(&config, "one", "/", key).await?;
        let end = Instant::now() + Duration::from_secs(seconds.saturating_sub(1));
        while Instant::now() < end {
            let begun = Instant::now();
            conn.call(Message::Tstatfs { fid: 0 }).await?;
            times.push(begun.elapsed());
            if times.len() % 256 == 0 {
                memory = memory.max(resident(server.0.id())?);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        anyhow::Ok(())
    })?;
    let mut said = String::new();
    if let Some(others) = others {
        let others = others.wait_with_output()?;
        ensure!(others.status.success(), "the others have failed");
        said = String::from_utf8(others.stdout)?;
    }
    memory = memory.max(resident(server.0.id())?);
    times.sort_unstable();
    ensure!(!times.is_empty(), "there was no answer");
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let burned = children_cpu()?.saturating_sub(before);
    let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
    Ok(Phase { p50, p99, max, answers: times.len(), memory, burned, said })
}

fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().next().context("no number")?.parse::<u64>()? << 10)
}

/// CPU time of this process's children that have ended.
fn children_cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("no command")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u32 = fields[13].parse::<u32>()? + fields[14].parse::<u32>()?;
    Ok(TICK * ticks)
}
