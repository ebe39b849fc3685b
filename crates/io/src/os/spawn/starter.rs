//! The process that forks keepers.

use super::Started;
use super::keeper;
use super::pipe::Pipe;
use super::request::{Command, Request, Stdio, WindowSize};
use super::talk::Keeper;
use crate::os::credentials::{self, Identity};
use rustix::fs::{MemfdFlags, SeekFrom};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Starts programs. The process behind it ends when this is dropped.
#[derive(Debug)]
pub struct Starter {
    socket: OwnedFd,
}

impl Starter {
    /// Forks the process. To be called early, while this one is still small.
    pub fn fork() -> io::Result<Starter> {
        let (ours, theirs) = socket_pair()?;
        // SAFETY: the child calls nothing of the runtime and takes no lock that a thread that is not
        // there any more may hold, memory excepted, for which libc's fork takes care; it never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => alone("covey-starter", || serve(theirs)),
            _ => Ok(Starter { socket: ours }),
        }
    }

    /// Has a program started. Whether that worked is what its keeper says first.
    pub fn start(&self, command: &Command) -> io::Result<Started> {
        let (near, far) = socket_pair()?;
        let text = memory(&Request::of(command).encode())?;
        let Ends { stdin, stdout, stderr, theirs } = Ends::open(command)?;
        let mut fds = vec![far.as_fd(), text.as_fd()];
        fds.extend(theirs.iter().map(|fd| fd.as_fd()));
        fds.extend(command.cgroup.iter().map(|fd| fd.as_fd()));
        self.send(&fds)?;
        Ok(Started {
            keeper: Keeper::new(near)?,
            stdin: Pipe::new(stdin)?,
            stdout: Pipe::new(stdout)?,
            stderr: stderr.map(Pipe::new).transpose()?,
        })
    }

    fn send(&self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(b"S")], &mut ancillary, flags)?;
        Ok(())
    }
}

/// The ends of a program's input and output.
struct Ends {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    /// The program's: standard input, output and error.
    theirs: Vec<OwnedFd>,
}

impl Ends {
    fn open(command: &Command) -> io::Result<Ends> {
        match command.stdio {
            Stdio::Pipes => Ends::pipes(),
            Stdio::Terminal(size) => Ends::terminal(command, size),
        }
    }

    fn pipes() -> io::Result<Ends> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let ((in_read, in_write), (out_read, out_write), (err_read, err_write)) =
            (pipe()?, pipe()?, pipe()?);
        let theirs = vec![in_read, out_write, err_write];
        Ok(Ends { stdin: in_write, stdout: out_read, stderr: Some(err_read), theirs })
    }

    /// A terminal that belongs to the user: the kernel gives it to whoever opens its other end.
    fn terminal(command: &Command, size: WindowSize) -> io::Result<Ends> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let open = || rustix::pty::openpt(flags);
        let is_own = credentials::own() == (command.uid, command.gid);
        let master = if is_own || !credentials::can_switch() {
            open()
        } else {
            let Command { uid, gid, groups, .. } = command;
            credentials::act_as(&Identity { uid: *uid, gid: *gid, groups }, open)?
        }?;
        rustix::pty::unlockpt(&master)?;
        rustix::termios::tcsetwinsize(&master, winsize(size))?;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        let theirs = vec![slave.try_clone()?, slave.try_clone()?, slave];
        Ok(Ends { stdin: master.try_clone()?, stdout: master, stderr: None, theirs })
    }
}

pub(super) fn winsize(size: WindowSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Forks a keeper for each request until the daemon is gone.
fn serve(socket: OwnedFd) {
    close_all_but(&[socket.as_raw_fd()]);
    loop {
        match receive(&socket) {
            Ok(Some(fds)) => {
                // SAFETY: this process has one thread.
                if unsafe { libc::fork() } == 0 {
                    alone("covey-keeper", || {
                        drop(socket);
                        keeper::keep(fds);
                    });
                }
            }
            Ok(None) => return,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The descriptors of the next request; None when the daemon is gone.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Option<Vec<OwnedFd>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut into, &mut ancillary, flags)?;
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    // Without all of its descriptors there is nothing to be started; who asked sees its socket close.
    if got.flags.contains(ReturnFlags::CTRUNC) {
        fds.clear();
    }
    Ok(Some(fds))
}

/// Runs `work` as the whole life of a forked process: it never goes back into what its parent does.
fn alone(name: &str, work: impl FnOnce()) -> ! {
    let name = std::ffi::CString::new(name).unwrap_or_default();
    // SAFETY: system calls without memory of ours but the name. Nobody in the terminal's group reaches the
    // process, and what asks the daemon to end must leave it to the daemon to end it.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // Keepers are not waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::chdir(c"/".as_ptr());
    }
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    // SAFETY: ends the process without running what its parent registered for its own end.
    unsafe { libc::_exit(0) }
}

/// Closes every descriptor but these, and leaves standard input, output and error empty.
fn close_all_but(kept: &[i32]) {
    use rustix::fs::{Mode, OFlags};
    let mut from = 3;
    let mut kept: Vec<u32> = kept.iter().map(|fd| *fd as u32).filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    for fd in kept.into_iter().chain([u32::MAX]) {
        if fd > from {
            close_range(from, fd - 1);
        }
        from = fd.saturating_add(1);
    }
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the descriptors belong to the process that this one was copied from; nothing here uses them.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
            // Before Linux 5.9.
            (first..=last.min(OLD_FDS_MAX)).for_each(|fd| {
                libc::close(fd.cast_signed());
            });
        }
    }
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// A file without a name that has this content.
fn memory(content: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("covey-request", MemfdFlags::CLOEXEC)?;
    let mut rest = content;
    while !rest.is_empty() {
        let count = rustix::io::write(&fd, rest)?;
        rest = &rest[count..];
    }
    rustix::fs::seek(&fd, SeekFrom::Start(0))?;
    Ok(fd)
}

/// Keeper's socket, request, three of the program, control group.
const FDS_MAX: usize = 6;
const OLD_FDS_MAX: u32 = 65_536;
