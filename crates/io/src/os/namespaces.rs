//! Namespaces: making them, entering them, and becoming root in one of one's own.
//!
//! [`isolate`] and [`enter`] prepare a command; what must happen between fork and exec happens there.
//! Entering a process namespace counts for children only, so [`move_into`] does it for the caller,
//! who then starts the program.

use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes `command` start in process, mount, host-name and IPC namespaces of its own: its children
/// are the first of the new process namespace. With `as_root`, in a user namespace too, where the
/// caller is root.
pub fn isolate(command: &mut Command, as_root: bool) {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let maps = as_root.then(|| {
        [
            ("/proc/self/setgroups", "deny".to_owned()),
            ("/proc/self/uid_map", format!("0 {uid} 1")),
            ("/proc/self/gid_map", format!("0 {gid} 1")),
        ]
    });
    let mut flags = UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
    flags |= UnshareFlags::NEWIPC;
    flags.set(UnshareFlags::NEWUSER, as_root);
    let prepare = move || {
        unshare(flags)?;
        maps.iter().flatten().try_for_each(|(file, text)| write_map(file, text))
    };
    // SAFETY: between fork and exec only system calls are made, on memory prepared before.
    unsafe { command.pre_exec(prepare) };
}

/// Makes `command` start in these namespaces, joined in this order, and in `directory` where that is
/// there; else in the root of the last mount namespace.
pub fn enter(command: &mut Command, namespaces: Vec<OwnedFd>, directory: Option<&Path>) {
    let directory = directory.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let prepare = move || {
        namespaces.iter().try_for_each(move_into)?;
        // Joining a mount namespace has moved us to its root.
        if let Some(directory) = &directory {
            let _ = rustix::process::chdir(directory.as_c_str());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made, on descriptors opened before.
    unsafe { command.pre_exec(prepare) };
}

/// Makes `command` end when the thread that starts it does.
pub fn die_with_parent(command: &mut Command) {
    let prepare = || {
        let signal = Some(rustix::process::Signal::TERM);
        Ok(rustix::process::set_parent_process_death_signal(signal)?)
    };
    // SAFETY: one system call.
    unsafe { command.pre_exec(prepare) };
}

/// Moves the calling thread into a namespace, given as an open file of it. A user or a mount
/// namespace needs a process of one thread; a process namespace counts for later children.
pub fn move_into(namespace: impl AsFd) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), None)?)
}

/// Moves the calling thread into new network, host-name and mount namespaces.
pub fn new_machine() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET | UnshareFlags::NEWUTS | UnshareFlags::NEWNS)
}

/// A mount namespace that this process has left, and may visit.
pub struct Home {
    namespace: OwnedFd,
    identity: Identity,
}

/// Which namespace one is. The kernel gives the inode numbers of those that are gone to new ones; a mount namespace has a
/// number that is never given twice, if the kernel tells it (since Linux 6.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    number: Option<u64>,
}

impl Identity {
    fn of(namespace: BorrowedFd<'_>) -> io::Result<Identity> {
        let found = rustix::fs::fstat(namespace)?;
        let mut number = 0u64;
        // SAFETY: NS_GET_MNTNS_ID writes one u64.
        let told = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_MNTNS_ID, &raw mut number) };
        let number = (told == 0).then_some(number);
        Ok(Identity { device: found.st_dev, inode: found.st_ino, number })
    }
}

impl Home {
    /// Moves this process, which must have one thread only, into a mount namespace of its own that has no other mounts
    /// than those on the way to `paths`, and hears of none that come later.
    ///
    /// The server of a file system does so: when the last process of a namespace is killed, it unmounts what is
    /// mounted there while its own descriptors are still open. A server that does this waits for its own answer, for
    /// ever, if something is left to be written.
    pub fn leave(paths: &[PathBuf]) -> io::Result<Home> {
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("the process has several threads"));
        }
        let namespace = open(OWN)?;
        let identity = Identity::of(namespace.as_fd())?;
        let home = Home { namespace, identity };
        // A visitor's root is that of the namespace: whoever has another one would find other files there.
        if home.visit(root)? != root()? {
            return Err(io::Error::other("the process has a root of its own"));
        }
        let directory = std::env::current_dir()?;
        unshare(UnshareFlags::NEWNS)?;
        let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        let left = rustix::mount::mount_change("/", alone).map_err(io::Error::from);
        if let Err(error) = left.and_then(|()| super::mount::keep_only(paths)) {
            // The mounts are still those of home: nothing but this process knows of the journey.
            move_into(&home.namespace)?;
            std::env::set_current_dir(directory)?;
            return Err(error);
        }
        Ok(home)
    }

    /// Does something there, on a thread of its own. Paths must be absolute.
    pub fn visit<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        visit(self.namespace.as_fd(), act)
    }

    /// Lets go of the namespace, which lives as long as other processes have it.
    pub fn forget(self) -> Forgotten {
        Forgotten(self.identity)
    }
}

/// A namespace that was left, without a hold on it.
pub struct Forgotten(Identity);

impl Forgotten {
    /// Does something there, as long as it is some other process's.
    pub fn visit<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let processes = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
        // What is compared is what was opened: behind a name in /proc there may be another process by then.
        let is_it = |namespace: &OwnedFd| {
            Identity::of(namespace.as_fd()).is_ok_and(|found| found == self.0)
        };
        let opened = processes.filter_map(|process| open(process.join("ns/mnt")).ok());
        let found = opened.into_iter().find(is_it);
        visit(found.ok_or(io::ErrorKind::NotFound)?.as_fd(), act)
    }
}

/// A thread may move alone if it has a current directory of its own.
fn visit<T: Send>(
    namespace: BorrowedFd<'_>,
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let there = || {
        unshare(UnshareFlags::FS)?;
        move_into(namespace)?;
        act()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("visit".into()).spawn_scoped(scope, there)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Which directory the root is.
fn root() -> io::Result<(u64, u64)> {
    let root = std::fs::metadata("/")?;
    Ok((root.dev(), root.ino()))
}

fn open(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    Ok(std::fs::File::open(path)?.into())
}

const OWN: &str = "/proc/self/ns/mnt";
/// `_IOR(0xb7, 0x5, __u64)` from linux/nsfs.h.
const NS_GET_MNTNS_ID: libc::c_ulong = 0x8008_b705;

/// Whether this process could make a user namespace and become root there: tried in a child.
pub fn user_namespace_permitted() -> io::Result<()> {
    let mut probe = Command::new("/proc/self/exe");
    probe.arg("--version");
    probe.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    isolate(&mut probe, true);
    probe.status().map(|_| ())
}

/// Lets the kernel reap all children of this process by itself.
pub fn reap_by_itself() {
    // SAFETY: no handler is installed; the disposition is process-wide and wanted so.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: descriptors stay shared (no CLONE_FILES), so none changes its meaning for anybody.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

fn write_map(file: &str, text: &str) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    let file = match open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        // Kernels without it need it not.
        Err(Errno::NOENT) if file.ends_with("setgroups") => return Ok(()),
        other => other?,
    };
    Ok(rustix::io::write(&file, text.as_bytes()).map(|_| ())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Identity {
        Identity::of(open(OWN).unwrap().as_fd()).unwrap()
    }

    #[test]
    fn a_namespace_that_is_forgotten_is_found_by_its_processes() {
        let found = Forgotten(own()).visit(|| Ok(()));
        match found {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => other.unwrap(),
        }
    }

    /// It is gone, and another one has its inode number.
    #[test]
    fn a_namespace_with_the_number_of_another_is_not_taken_for_it() {
        let own = own();
        let Some(number) = own.number else {
            return covey_harness::skip("needs a kernel that numbers mount namespaces");
        };
        let gone = Identity { number: Some(number + 1), ..own };
        let error = Forgotten(gone).visit(|| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
