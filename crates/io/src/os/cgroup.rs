//! Control groups of version 2: one for each program, where this process may make them.

use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Below which groups are made.
#[derive(Debug)]
pub struct Cgroups {
    dir: PathBuf,
}

/// A group. Dropping it removes it, if it is empty.
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
}

impl Cgroups {
    /// Makes a group below this process's own, called `prefix` and the process's number, and removes those of that name
    /// whose processes have ended. Says why that cannot be done.
    pub fn make(prefix: &str) -> Result<Cgroups, String> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let mount = mount(&mounts).ok_or("no cgroup2 file system is mounted")?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
        let above = Path::new(mount).join(own);
        sweep(&above, prefix, |pid| Path::new("/proc").join(pid).exists());
        let dir = above.join(format!("{prefix}{}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{}: {error}", dir.display())),
        }
        if !dir.join("cgroup.kill").exists() {
            let _ = fs::remove_dir(&dir);
            return Err("the kernel has no cgroup.kill (Linux 5.14 has)".to_owned());
        }
        Ok(Cgroups { dir })
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

/// Removes a group and those in it, as far as no process is there.
fn remove(dir: &Path) {
    let within = fs::read_dir(dir).into_iter().flatten().flatten();
    within.for_each(|group| drop(fs::remove_dir(group.path())));
    let _ = fs::remove_dir(dir);
}

/// Removes the groups of processes that were killed: nobody else does.
fn sweep(above: &Path, prefix: &str, is_alive: impl Fn(&str) -> bool) {
    for group in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = group.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else { continue };
        if pid.bytes().all(|letter| letter.is_ascii_digit()) && !is_alive(pid) {
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
    fn the_groups_of_processes_that_have_ended_are_removed() {
        let above = tempfile::tempdir().unwrap();
        let names = ["n-1-7", "n-1-8", "n-1-x", "n-17-7", "n-1-9"];
        names.iter().for_each(|name| fs::create_dir(above.path().join(name)).unwrap());
        fs::create_dir(above.path().join("n-1-7/session")).unwrap();
        // As one in which a process is: it cannot be removed.
        fs::create_dir_all(above.path().join("n-1-9/session/busy")).unwrap();
        sweep(above.path(), "n-1-", |pid| pid == "8");
        let left = names.map(|name| above.path().join(name).exists());
        assert_eq!(left, [false, true, true, true, true]);
    }

    #[test]
    fn the_mount_is_found_by_its_type() {
        let mounts = "24 1 0:6 / /proc rw - proc proc rw\n\
            31 24 0:27 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount(mounts), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mount("24 1 0:6 / /sys/fs/cgroup rw - cgroup cgroup2 rw\n"), None);
    }
}
