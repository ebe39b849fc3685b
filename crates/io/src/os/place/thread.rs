//! Where threads run: their CPUs, their policy, and what they were given at the start.

use crate::os::process::stat;
use rustix::fs::{Mode, OFlags, RawDir, open};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// The CPU where a thread of any process on this machine ran last.
pub fn cpu_of(tid: u32) -> Option<usize> {
    stat(tid)?.processor?.try_into().ok()
}

/// A thread of a process that is a front and has joined its caller.
pub fn front_of(pid: u32) -> Option<i32> {
    first_threads(pid).into_iter().find(|tid| cpu_of_front(*tid).is_some())
}

/// The first threads of a process. It may have thousands, and the kernel makes an entry for each that the buffer has room
/// for, so that is small.
fn first_threads(pid: u32) -> Vec<i32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = open(format!("/proc/{pid}/task"), flags, Mode::empty()) else {
        return Vec::new();
    };
    let mut buffer = [MaybeUninit::uninit(); LIST_BYTES];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut ids = Vec::new();
    while ids.len() < THREADS_MAX
        && let Some(Ok(entry)) = entries.next()
    {
        ids.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
    }
    ids
}

/// The CPU that a front has joined its caller on; None while it has not.
pub fn cpu_of_front(tid: i32) -> Option<usize> {
    if policy(tid)? != libc::SCHED_IDLE {
        return None;
    }
    only(&sched_getaffinity(Pid::from_raw(tid)).ok()?)
}

/// The policy of a thread, without flags; 0 is the one that calls.
fn policy(tid: i32) -> Option<i32> {
    // SAFETY: it takes no pointers.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    (policy >= 0).then_some(policy & !libc::SCHED_RESET_ON_FORK)
}

/// The only CPU of a set that has one.
fn only(set: &CpuSet) -> Option<usize> {
    if set.count() != 1 {
        return None;
    }
    (0..CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu))
}

/// Where a thread may run.
pub fn allowed(tid: Option<Pid>) -> io::Result<CpuSet> {
    Ok(sched_getaffinity(tid)?)
}

/// Whether a CPU is one of a set.
pub fn has(set: &CpuSet, cpu: usize) -> bool {
    cpu < CpuSet::MAX_CPU && set.is_set(cpu)
}

/// A set of one CPU.
pub fn just(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// A thread that was bound to one CPU, and where it may run else.
#[derive(Debug)]
pub struct Bound {
    before: CpuSet,
    cpu: usize,
}

impl Bound {
    /// Binds the calling thread to `cpu`, if that is one of several of its own.
    pub fn to(cpu: usize) -> io::Result<Bound> {
        let before = allowed(None)?;
        if !has(&before, cpu) || before.count() < 2 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        allow(None, &just(cpu))?;
        Ok(Bound { before, cpu })
    }

    /// Where it is bound.
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Goes to another of its CPUs; whether it has moved.
    pub fn follow(&mut self, cpu: usize) -> bool {
        let moves = cpu != self.cpu && has(&self.before, cpu) && allow(None, &just(cpu)).is_ok();
        if moves {
            self.cpu = cpu;
        }
        moves
    }

    /// As it was before. Who has set other CPUs meanwhile has the last word.
    pub fn release(self, tid: Option<Pid>) {
        if allowed(tid).is_ok_and(|set| set == just(self.cpu)) {
            let _ = allow(tid, &self.before);
        }
    }
}

/// Lets a thread run in these places only.
pub fn allow(tid: Option<Pid>, set: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(tid, set)?)
}

/// The CPU that the calling thread runs on.
pub(crate) fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// Moves the calling thread to another of its CPUs than `cpu`, if it has one; it may come back.
pub(crate) fn apart_from(cpu: usize) {
    let Ok(all) = allowed(None) else { return };
    if super::at_start().is_none() || !has(&all, cpu) || all.count() < 2 {
        return;
    }
    let mut others = all;
    others.unset(cpu);
    // What fails leaves the thread where it is.
    let _ = allow(None, &others).and_then(|()| allow(None, &all));
}

/// Whether the calling thread yields to all.
pub fn is_yielding() -> bool {
    policy(0) == Some(libc::SCHED_IDLE)
}

/// Whether the calling thread has the usual policy.
pub fn is_normal() -> bool {
    policy(0) == Some(libc::SCHED_OTHER)
}

/// Has a thread (0 is the one that calls) run only where no other one wants to, and makes way at once
/// for whoever it wakes.
pub fn yield_to_all(tid: i32) -> io::Result<()> {
    set_policy(tid, libc::SCHED_IDLE, 0)
}

/// Has the calling thread run before all ordinary ones, where that is permitted.
pub fn run_first() -> io::Result<()> {
    set_policy(0, libc::SCHED_FIFO, 1)
}

/// Takes [`yield_to_all`] back.
pub fn be_normal(tid: i32) -> io::Result<()> {
    set_policy(tid, libc::SCHED_OTHER, 0)
}

/// Gives a thread (0 is the one that calls) a policy.
fn set_policy(tid: i32, policy: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the pointer is to a live value of the type that the call reads.
    match unsafe { libc::sched_setscheduler(tid, policy, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether [`yield_to_all`] can be taken back here: that needs CAP_SYS_NICE, or the limit of nice
/// values raised. It is tried on a thread of its own.
pub fn can_yield() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let attempt = || yield_to_all(0).and_then(|()| be_normal(0)).is_ok();
        std::thread::spawn(attempt).join().unwrap_or(false)
    })
}

/// Whether [`run_first`] is permitted here. It is tried on a thread of its own.
pub fn can_run_first() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| std::thread::spawn(|| run_first().is_ok()).join().unwrap_or(false))
}

/// Whether this machine has a CPU with nothing to do, as far as can be told.
pub fn has_idle_cpu() -> bool {
    // It reads the control group's files, which takes longer than many requests: a busy machine is asked again and again.
    static CPUS: OnceLock<usize> = OnceLock::new();
    let cpus =
        CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, |count| count.get()));
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    runnable(&text).is_some_and(|count| count < *cpus)
}

/// How many threads run or want to, in the text of /proc/loadavg: `0.20 0.18 0.12 1/80 11206`.
fn runnable(loadavg: &str) -> Option<usize> {
    loadavg.split_ascii_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

/// Threads of a process that are looked at.
const THREADS_MAX: usize = 64;
/// Room for their entries, of 24 or 32 bytes, and for `.` and `..`.
const LIST_BYTES: usize = (THREADS_MAX + 2) * 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_want_to_run_are_counted() {
        assert_eq!(runnable("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable(""), None);
    }

    /// Once for each: the ones behind them are not asked for.
    #[test]
    fn of_a_process_with_many_threads_the_first_are_listed() {
        let gate = std::sync::RwLock::new(());
        let closed = gate.write().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 * THREADS_MAX {
                scope.spawn(|| drop(gate.read()));
            }
            let mut listed = first_threads(std::process::id());
            assert_eq!(listed.len(), THREADS_MAX);
            listed.dedup();
            assert_eq!(listed.len(), THREADS_MAX);
            drop(closed);
        });
        assert_eq!(first_threads(u32::MAX), [0; 0]);
    }

    #[test]
    fn a_thread_is_seen_where_it_is_bound() {
        std::thread::spawn(|| {
            let all = allowed(None).unwrap();
            let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| all.is_set(*cpu)).unwrap();
            allow(None, &just(last)).unwrap();
            assert_eq!(cpu_of(rustix::thread::gettid().as_raw_nonzero().get() as u32), Some(last));
            if can_yield() {
                yield_to_all(0).unwrap();
                assert!(front_of(std::process::id()).is_some());
                be_normal(0).unwrap();
            }
            allow(None, &all).unwrap();
        })
        .join()
        .unwrap();
    }
}
