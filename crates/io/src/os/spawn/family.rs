//! All processes that came of this one.

use crate::os::process::stat;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashMap;
use std::fs;

/// Kills all descendants that there are now. What they start meanwhile is met by the next call: orphans come
/// to this process, which is their subreaper. Answers one that the kernel refuses to kill, if there is any.
pub(super) fn kill() -> Option<u32> {
    let processes = processes();
    let own = std::process::id();
    let mut refused = None;
    for (pid, seen) in &processes {
        if is_below(*pid, own, &processes) && kill_one(*pid, *seen) == Err(Errno::PERM) {
            refused = Some(*pid);
        }
    }
    refused
}

/// Kills a process, if it is still the one that was seen: the descriptor is taken before the check.
fn kill_one(pid: u32, seen: Seen) -> Result<(), Errno> {
    let Some(number) = Pid::from_raw(pid.cast_signed()) else { return Ok(()) };
    let Ok(descriptor) = pidfd_open(number, PidfdFlags::empty()) else { return Ok(()) };
    match look(pid) {
        Some(now) if now.started == seen.started => pidfd_send_signal(&descriptor, Signal::KILL),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
struct Seen {
    parent: u32,
    /// Clock ticks from boot.
    started: u64,
}

fn processes() -> HashMap<u32, Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|pid| Some((pid, look(pid)?))).collect()
}

fn look(pid: u32) -> Option<Seen> {
    let stat = stat(pid)?;
    Some(Seen { parent: stat.ppid.cast_unsigned(), started: stat.starttime })
}

fn is_below(pid: u32, above: u32, processes: &HashMap<u32, Seen>) -> bool {
    let mut at = pid;
    // Numbers may be given anew while they are looked at: no more steps than there are processes.
    for _ in 0..processes.len() {
        match processes.get(&at) {
            Some(seen) if seen.parent == above => return true,
            Some(seen) if seen.parent > 1 => at = seen.parent,
            _ => return false,
        }
    }
    false
}
