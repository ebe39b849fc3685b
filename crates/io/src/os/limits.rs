//! Limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the number of files that may be open to what the system allows at most; answers it. A server
/// holds one per fid and per connection, and the usual 1024 is soon gone.
pub fn raise_open_files() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, wanted)?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// How many files may be open now.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How much memory the machine has, or the process may have where its control group says less. A gigabyte where nobody
/// says.
pub fn memory_bytes() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = total(&read("/proc/meminfo")).unwrap_or(1 << 30);
    // Version 2, of a container that has a namespace of its own; "max" is no number.
    let group = read("/sys/fs/cgroup/memory.max").trim().parse().unwrap_or(u64::MAX);
    machine.min(group)
}

fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_open_files().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn the_machine_has_some_memory() {
        assert_eq!(total("MemTotal:       24689920 kB\nMemFree: 1 kB\n"), Some(24_689_920 * 1024));
        assert_eq!(total("MemTotal: much"), None);
        assert!(memory_bytes() > 16 << 20);
    }
}
