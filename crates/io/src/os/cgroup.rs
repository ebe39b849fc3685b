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
    /// Makes a group below this process's own, called `name`. Says why that cannot be done.
    pub fn make(name: &str) -> Result<Cgroups, String> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let mount = mount(&mounts).ok_or("no cgroup2 file system is mounted")?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
        let dir = Path::new(mount).join(own).join(name);
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
        fs::create_dir(&dir)?;
        Ok(Cgroup { dir })
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
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
    fn the_mount_is_found_by_its_type() {
        let mounts = "24 1 0:6 / /proc rw - proc proc rw\n\
            31 24 0:27 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount(mounts), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mount("24 1 0:6 / /sys/fs/cgroup rw - cgroup cgroup2 rw\n"), None);
    }
}
