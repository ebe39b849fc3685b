//! Control groups of version 2: one for each program, where this process may make them.

use super::lock;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Below which groups are made.
#[derive(Debug)]
pub struct Cgroups {
    dir: PathBuf,
    /// Locked for as long as the group is in use. The number of a process says nothing of that: in another container, or
    /// another node of a lab, it is another process.
    _lock: File,
}

/// A group. Dropping it removes it, if it is empty.
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
}

impl Cgroups {
    /// Makes a group below this process's own, called `prefix` and numbers, and removes those of that name that nobody uses.
    /// Says why that cannot be done.
    pub fn make(prefix: &str) -> Result<Cgroups, String> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let mount = mount(&mounts).ok_or("no cgroup2 file system is mounted")?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
        let above = Path::new(mount).join(own);
        sweep(&above, prefix);
        let (dir, lock) =
            own_group(&above, prefix).map_err(|error| format!("{}: {error}", above.display()))?;
        if !dir.join("cgroup.kill").exists() {
            let _ = fs::remove_dir(&dir);
            return Err("the kernel has no cgroup.kill (Linux 5.14 has)".to_owned());
        }
        Ok(Cgroups { dir, _lock: lock })
    }

    /// A group in it.
    pub fn group(&self, name: &str) -> io::Result<Cgroup> {
        let dir = self.dir.join(name);
        // All of them may have been removed while they were empty.
        fs::create_dir_all(&dir)?;
        Ok(Cgroup { dir })
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// A group that is nobody else's, locked.
fn own_group(above: &Path, prefix: &str) -> io::Result<(PathBuf, File)> {
    for number in 0..NAMES_MAX {
        let dir = above.join(format!("{prefix}{}-{number}", std::process::id()));
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        // Another process may have swept it away before it was locked.
        match lock::directory(&dir) {
            Ok(Some(lock)) if dir.exists() => return Ok((dir, lock)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Err(io::Error::other(format!("{NAMES_MAX} groups whose names begin with {prefix} are in use")))
}

const NAMES_MAX: u32 = 1000;

/// Removes a group and those in it, as far as no process is there.
fn remove(dir: &Path) {
    let within = fs::read_dir(dir).into_iter().flatten().flatten();
    within.for_each(|group| drop(fs::remove_dir(group.path())));
    let _ = fs::remove_dir(dir);
}

/// Removes the groups that nobody has locked: their processes were killed, and nobody else does.
fn sweep(above: &Path, prefix: &str) {
    for group in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = group.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else { continue };
        let is_ours = rest.bytes().all(|letter| letter.is_ascii_digit() || letter == b'-');
        if is_ours && matches!(lock::directory(&group.path()), Ok(Some(_))) {
            remove(&group.path());
        }
    }
}

impl Cgroup {
    /// What a process writes to so that it is in the group.
    pub fn entrance(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.dir.join("cgroup.procs"), flags, Mode::empty())?)
    }

    /// Kills every process in it at once.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.kill"), "1")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Where cgroup2 is mounted: fields 5 and, after a hyphen, the type; proc_pid_mountinfo(5).
fn mount(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let is_ours = after.split(' ').next() == Some("cgroup2");
        is_ours.then(|| before.split(' ').nth(4)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_nobody_uses_are_removed_and_no_two_have_the_same() {
        let above = tempfile::tempdir().unwrap();
        let names = ["n-1-7-0", "n-1-8-0", "n-1-x", "n-17-7-0", "n-1-9-0", "n-1-5"];
        names.iter().for_each(|name| fs::create_dir(above.path().join(name)).unwrap());
        fs::create_dir(above.path().join("n-1-7-0/session")).unwrap();
        // As one in which a process is: it cannot be removed.
        fs::create_dir_all(above.path().join("n-1-9-0/session/busy")).unwrap();
        let used = lock::directory(&above.path().join("n-1-8-0")).unwrap();
        assert!(used.is_some());
        sweep(above.path(), "n-1-");
        let left = names.map(|name| above.path().join(name).exists());
        assert_eq!(left, [false, true, true, true, true, false]);

        // As the processes of two containers that have one number.
        let (first, _one) = own_group(above.path(), "n-1-").unwrap();
        let (second, other) = own_group(above.path(), "n-1-").unwrap();
        assert_ne!(first, second);
        drop(other);
        sweep(above.path(), "n-1-");
        assert!(first.exists() && !second.exists());
    }

    #[test]
    fn the_mount_is_found_by_its_type() {
        let mounts = "24 1 0:6 / /proc rw - proc proc rw\n\
            31 24 0:27 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount(mounts), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mount("24 1 0:6 / /sys/fs/cgroup rw - cgroup cgroup2 rw\n"), None);
    }
}
