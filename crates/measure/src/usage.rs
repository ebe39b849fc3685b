//! Who used the CPUs between two moments: the measurement, programs of the same node, others.
//!
//! What the CPUs did at all is what they did not idle. Of that, the processes that can be seen account for
//! their parts; the rest is others, the kernel among them. In a lab the processes that can be seen are the lab's:
//! its keeper, the measuring programs, and whatever else runs on a node, which is known by its network
//! namespace. Outside, all processes are this host's.

use covey_io::os::process::stat;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

/// A moment.
#[derive(Debug)]
pub struct Snapshot {
    at: Instant,
    cpus: Cpus,
    /// Processor time by process, in ticks.
    processes: HashMap<u32, Process>,
    /// How long this thread was ready without a CPU, in nanoseconds.
    waited_ns: u64,
}

/// All CPUs since boot, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cpus {
    count: u64,
    idle: u64,
    /// Interrupts, which are nobody's: some kernels count them to who was running as well.
    interrupts: u64,
    steal: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    name: String,
    parent: u32,
    ticks: u64,
    /// Of children that have ended.
    of_children: u64,
}

/// What was used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPUs used by other programs of this node.
    pub here: f64,
    /// Which of them used most, with how many CPUs.
    pub busiest: Vec<String>,
    /// CPUs used by what has no part in this: neither the measurement, nor this node, nor, in a
    /// lab, any other.
    pub outside: f64,
    /// Share of the CPUs' time that a hypervisor gave to others.
    pub steal: f64,
    /// Share of the time in which this program was ready and had no CPU.
    pub waited: f64,
}

/// A program with less is not named.
const NAMED_CPUS: f64 = 0.05;
/// So many are named.
const NAMED_MAX: usize = 3;

impl Snapshot {
    /// Now. None where the kernel does not tell.
    pub fn now() -> Option<Snapshot> {
        let cpus = cpus(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let waited = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited_ns = waited.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Some(Snapshot { at: Instant::now(), cpus, processes: processes(), waited_ns })
    }

    /// What was used from this moment until now.
    pub fn usage(&self) -> Option<Usage> {
        let now = Snapshot::now()?;
        let seconds = now.at.duration_since(self.at).as_secs_f64().max(1e-3);
        let per_s = rustix::param::clock_ticks_per_second() as f64;
        let cpus_used = |ticks: u64| ticks as f64 / per_s / seconds;
        let steal = cpus_used(now.cpus.steal.saturating_sub(self.cpus.steal));
        let idle = cpus_used(now.cpus.idle.saturating_sub(self.cpus.idle));
        let interrupts = cpus_used(now.cpus.interrupts.saturating_sub(self.cpus.interrupts));
        let busy = (now.cpus.count as f64 - idle - interrupts - steal).max(0.0);
        let used: HashMap<u32, f64> = now
            .processes
            .iter()
            .map(|(pid, process)| (*pid, cpus_used(self.since(*pid, process))))
            .collect();
        // In a lab the other nodes' programs are no part of this node, but of the lab.
        let seen: f64 = used.values().sum();
        let mut theirs: Vec<(&str, f64)> = used
            .iter()
            .filter(|(pid, cpus)| **cpus > 0.0 && is_other_here(**pid, &now.processes))
            .map(|(pid, cpus)| (now.processes[pid].name.as_str(), *cpus))
            .collect();
        theirs.sort_by(|one, other| other.1.total_cmp(&one.1));
        let named = theirs.iter().take(NAMED_MAX).filter(|(_, cpus)| *cpus >= NAMED_CPUS);
        Some(Usage {
            here: theirs.iter().fold(0.0, |sum, (_, cpus)| sum + cpus),
            busiest: named.map(|(name, cpus)| format!("{name} {cpus:.1}")).collect(),
            outside: (busy - seen).max(0.0),
            steal: steal / now.cpus.count.max(1) as f64,
            waited: now.waited_ns.saturating_sub(self.waited_ns) as f64 / 1e9 / seconds,
        })
    }

    /// What a process has used since this moment, in ticks; one that was started later, from its start.
    fn since(&self, pid: u32, now: &Process) -> u64 {
        let then = self.processes.get(&pid);
        let own = now.ticks.saturating_sub(then.map_or(0, |then| then.ticks));
        // Children of ours that have ended meanwhile were ours; those of others may have been waited for
        // long after they ran.
        let is_ours = pid == std::process::id();
        let ended = now.of_children.saturating_sub(then.map_or(0, |then| then.of_children));
        own + if is_ours { ended } else { 0 }
    }
}

fn cpus(stat: &str) -> Option<Cpus> {
    let all = stat.lines().find(|line| line.starts_with("cpu "))?;
    let words: Vec<u64> =
        all.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let is_one = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    let count = stat.lines().filter(is_one).count() as u64;
    Some(Cpus {
        count,
        idle: words.get(3)? + words.get(4)?,
        interrupts: words.get(5)? + words.get(6)?,
        steal: words.get(7).copied().unwrap_or(0),
    })
}

fn processes() -> HashMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = stat(pid)?;
        let of_children = (stat.cutime + stat.cstime).max(0).cast_unsigned();
        let (parent, ticks) = (stat.ppid.cast_unsigned(), stat.utime + stat.stime);
        Some((pid, Process { name: stat.comm, parent, ticks, of_children }))
    })
    .collect()
}

/// A program of this node that does not measure.
fn is_other_here(pid: u32, all: &HashMap<u32, Process>) -> bool {
    !is_measuring(pid, all) && is_on_this_node(pid)
}

/// This program, those that it was started by or has started, and others of the same kind.
fn is_measuring(pid: u32, all: &HashMap<u32, Process>) -> bool {
    let ours = std::process::id();
    let name = all.get(&pid).map_or("", |process| &process.name);
    is_above(pid, ours, all) || is_above(ours, pid, all) || is_tuner(name, || line_of(pid))
}

/// Whether `above` started `pid`, or started who did, or is it.
fn is_above(above: u32, pid: u32, all: &HashMap<u32, Process>) -> bool {
    let mut at = pid;
    // No family is deeper; a name that is used again must not make a circle.
    for _ in 0..64 {
        if at == above {
            return true;
        }
        match all.get(&at) {
            // The first process has started everything.
            Some(process) if process.parent > 1 => at = process.parent,
            _ => return false,
        }
    }
    false
}

/// A process's words, each with a zero behind it. It is read from its memory, and waits as long as that is locked: for a
/// process that is frozen, or touches a file of a server that does not answer.
fn line_of(pid: u32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Whether a process of this name is one of ours that measures. Others are not asked for their words.
fn is_tuner(name: &str, line: impl FnOnce() -> Vec<u8>) -> bool {
    if name != "covey" {
        return false;
    }
    let line = line();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let is_covey = words.first().is_some_and(|word| word.ends_with(b"covey"));
    let is_verb = |word: &&[u8]| *word == b"tune" || *word == b"lab";
    is_covey && words.iter().any(is_verb)
}

fn is_on_this_node(pid: u32) -> bool {
    // Without a lab, every process is this host's.
    if std::env::var_os(covey_lab::state::INSIDE).is_none() {
        return true;
    }
    let network =
        |pid: &str| -> Option<PathBuf> { std::fs::read_link(format!("/proc/{pid}/ns/net")).ok() };
    let ours = network("self");
    ours.is_some() && network(&pid.to_string()) == ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let stat = "cpu  10 20 30 400 5 0 7 3 0 0\ncpu0 5 10 15 200 2 0 3 1 0 0\ncpu1 1 1 1 1 1 1 1 1\n\
                    intr 5\n";
        assert_eq!(cpus(stat), Some(Cpus { count: 2, idle: 405, interrupts: 7, steal: 3 }));
        assert_eq!(cpus("nothing"), None);
        let all = processes();
        let me = &all[&std::process::id()];
        assert_eq!(me.parent, std::os::unix::process::parent_id());
    }

    #[test]
    fn only_programs_of_ours_are_asked_for_their_words() {
        let words = |words: &'static [u8]| move || words.to_vec();
        assert!(is_tuner("covey", words(b"/usr/bin/covey\0tune\0")));
        assert!(!is_tuner("covey", words(b"/usr/bin/covey\0serve\0")));
        assert!(!is_tuner("rustc", || unreachable!("its memory may be locked")));
    }

    #[test]
    fn what_this_program_uses_is_not_anothers() {
        let before = Snapshot::now().unwrap();
        let begin = Instant::now();
        let mut sum = 0u64;
        while begin.elapsed().as_millis() < 50 {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        assert_ne!(sum, 1);
        let all = processes();
        assert!(is_measuring(std::process::id(), &all));
        let used = before.usage().unwrap();
        assert!(used.outside >= 0.0 && used.here >= 0.0 && used.steal >= 0.0, "{used:?}");
    }
}
