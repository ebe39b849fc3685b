//! Between fork and exec of a program.

use super::request::Request;
use super::talk::Stage;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Something that the process does before it becomes the program.
type Step = fn(&Prepared) -> io::Result<()>;

/// What the program's own process needs, made ready before it is forked.
pub(super) struct Prepared {
    request: Request,
    /// Where the program may be, in the order in which it is looked for.
    candidates: Vec<CString>,
    directory: CString,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    stdio: Vec<OwnedFd>,
    cgroup: Option<OwnedFd>,
}

impl Prepared {
    pub fn new(
        request: Request,
        stdio: Vec<OwnedFd>,
        cgroup: Option<OwnedFd>,
    ) -> io::Result<Prepared> {
        let directory = CString::new(request.directory.as_os_str().as_bytes())?;
        let candidates = candidates(&request)?;
        let pointers = |words: &[CString]| {
            words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, env) = (pointers(&request.argv), pointers(&request.env));
        Ok(Prepared { request, candidates, directory, argv, env, stdio, cgroup })
    }

    /// Becomes the program. Answers why that did not work.
    pub fn become_program(&self) -> (Stage, io::Error) {
        let steps: [(Stage, Step); 5] = [
            (Stage::Process, Prepared::enter_group),
            (Stage::Process, Prepared::take_files),
            (Stage::Process, Prepared::limit),
            (Stage::User, Prepared::become_user),
            (Stage::Directory, Prepared::enter_directory),
        ];
        for (stage, step) in steps {
            if let Err(error) = step(self) {
                return (stage, error);
            }
        }
        reset_signals();
        (Stage::Program, self.exec())
    }

    fn enter_group(&self) -> io::Result<()> {
        match &self.cgroup {
            Some(cgroup) => Ok(rustix::io::write(cgroup, b"0").map(drop)?),
            None => Ok(()),
        }
    }

    /// A session of its own, with the terminal if it has one, and three open files.
    fn take_files(&self) -> io::Result<()> {
        rustix::process::setsid()?;
        if self.request.has_terminal {
            rustix::process::ioctl_tiocsctty(&self.stdio[0])?;
        }
        for (fd, at) in self.stdio.iter().zip(0..) {
            // SAFETY: the first three are open, for nothing that anyone here uses.
            check(unsafe { libc::dup2(fd.as_raw_fd(), at) })?;
        }
        Ok(())
    }

    fn limit(&self) -> io::Result<()> {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let lower = |resource, current: u64| {
            let Rlimit { maximum, .. } = getrlimit(resource);
            let current = Some(maximum.map_or(current, |maximum| maximum.min(current)));
            setrlimit(resource, Rlimit { current, maximum })
        };
        lower(Resource::Core, 0)?;
        lower(Resource::Nofile, OPEN_FILES)?;
        if let Some(processes) = self.request.processes_max {
            let Rlimit { maximum, .. } = getrlimit(Resource::Nproc);
            let most = Some(maximum.map_or(processes, |maximum| maximum.min(processes)));
            setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most })?;
        }
        Ok(())
    }

    /// The user with its groups, for good. A process that cannot become who it was asked to be ends.
    fn become_user(&self) -> io::Result<()> {
        let Request { uid, gid, groups, .. } = &self.request;
        let (uid, gid) = (*uid, *gid);
        if rustix::process::geteuid().is_root() {
            // SAFETY: the list is as long as it says; this process has one thread.
            unsafe {
                check(libc::setgroups(groups.len(), groups.as_ptr()))?;
                check(libc::setresgid(gid, gid, gid))?;
                check(libc::setresuid(uid, uid, uid))?;
            }
        }
        let is_user =
            rustix::process::getuid().as_raw() == uid && rustix::process::geteuid().as_raw() == uid;
        if !is_user {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        // A change of user takes it away, so it comes after. The keeper is the parent.
        let signal = Some(rustix::process::Signal::KILL);
        Ok(rustix::process::set_parent_process_death_signal(signal)?)
    }

    fn enter_directory(&self) -> io::Result<()> {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        Ok(rustix::process::chdir(self.directory.as_c_str())?)
    }

    fn exec(&self) -> io::Error {
        let mut refused = io::Error::from_raw_os_error(libc::ENOENT);
        for candidate in &self.candidates {
            // SAFETY: both lists end with null and point to strings that are still there.
            unsafe { libc::execve(candidate.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                // A program of that name may be further on, as for a shell.
                Some(libc::EACCES) => refused = error,
                _ => return error,
            }
        }
        refused
    }
}

/// Where a program may be: its path, or its name in each directory of PATH.
fn candidates(request: &Request) -> io::Result<Vec<CString>> {
    let program = request.program.as_os_str().as_bytes();
    if program.contains(&b'/') {
        return Ok(vec![CString::new(program)?]);
    }
    let path = request.env.iter().find_map(|word| word.as_bytes().strip_prefix(b"PATH="));
    let directories = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin").split(|byte| *byte == b':');
    let absolute = directories.filter(|directory| directory.starts_with(b"/"));
    absolute.map(|directory| Ok(CString::new([directory, b"/", program].concat())?)).collect()
}

/// As a program expects them: std ignores SIGPIPE, and a keeper more.
fn reset_signals() {
    // SAFETY: plain system calls on a set of this frame; signals without a number are refused.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn check(answer: i32) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What Linux gives to a program that nobody gave more.
const OPEN_FILES: u64 = 1024;
