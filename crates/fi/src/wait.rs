//! Sleeping: what wakes a program, and the thread that makes everything go on for one that does not want to.

use crate::abi::{self, Fid};
use crate::boundary::{Errno, Result, object, put, put_bytes};
use crate::domain::Shared;
use crate::{cntr, cq, eq};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A descriptor that becomes readable when it is rung.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    pub fn new() -> io::Result<Bell> {
        // SAFETY: it takes numbers, and answers a new descriptor or a negative number.
        unsafe { owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) }.map(Bell)
    }

    pub fn descriptor(&self) -> c_int {
        self.0.as_raw_fd()
    }

    pub fn ring(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes that are there. It fails only when it rings already.
        unsafe { libc::write(self.descriptor(), (&raw const one).cast(), 8) };
    }

    pub fn silence(&self) {
        let mut count = 0_u64;
        // SAFETY: room for eight bytes. It fails only when it does not ring.
        unsafe { libc::read(self.descriptor(), (&raw mut count).cast(), 8) };
    }

    pub fn wait(&self, longest: Duration) {
        poll(self.descriptor(), longest);
    }
}

/// What wakes whoever waits for a queue or a counter: its bell, and the transports of its endpoints.
#[derive(Debug)]
pub struct Waker {
    epoll: OwnedFd,
    bell: Bell,
    /// Somebody sleeps, or is about to.
    is_armed: AtomicBool,
}

impl Waker {
    pub fn new() -> io::Result<Waker> {
        // SAFETY: it takes a number, and answers a new descriptor or a negative number.
        let epoll = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        let waker = Waker { epoll, bell: Bell::new()?, is_armed: AtomicBool::new(false) };
        waker.watch(waker.bell.descriptor())?;
        Ok(waker)
    }

    pub fn descriptor(&self) -> c_int {
        self.epoll.as_raw_fd()
    }

    /// Wakes when this becomes readable too. It is forgotten when it is closed.
    pub fn watch(&self, descriptor: c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: an event that is there during the call.
        let done = unsafe { libc::epoll_ctl(self.descriptor(), add, descriptor, &raw mut event) };
        if done == 0 { Ok(()) } else { not_there_already(io::Error::last_os_error()) }
    }

    /// Something has happened.
    #[inline]
    pub fn ring(&self) {
        if self.is_armed.load(Ordering::Relaxed) {
            self.ring_now();
        }
    }

    #[cold]
    pub fn ring_now(&self) {
        self.is_armed.store(false, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Rings from now on; what it has rung for was seen.
    pub fn silence(&self) {
        self.is_armed.store(true, Ordering::Relaxed);
        self.bell.silence();
    }

    pub fn wait(&self, longest: Duration) {
        poll(self.descriptor(), longest);
    }
}

fn not_there_already(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// # Safety
///
/// A new descriptor, or a negative number for an error.
unsafe fn owned(descriptor: c_int) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is new, so nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn poll(descriptor: c_int, longest: Duration) {
    let mut one = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let longest = c_int::try_from(longest.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one entry that is there during the call.
    unsafe { libc::poll(&raw mut one, 1, longest) };
}

/// A thread that makes everything of a domain go on, as long as this is kept.
pub struct Progress {
    is_over: Arc<AtomicBool>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub fn begin(shared: &Arc<Shared>) -> io::Result<Progress> {
        let (is_over, bell) = (Arc::new(AtomicBool::new(false)), Arc::new(Bell::new()?));
        shared.waker.watch(bell.descriptor())?;
        let (shared, over) = (shared.clone(), is_over.clone());
        let thread = std::thread::Builder::new().name("covey-fi".to_owned());
        let thread = Some(thread.spawn(move || go_on(&shared, &over))?);
        Ok(Progress { is_over, bell, thread })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported on stderr.
            let _ = thread.join();
        }
    }
}

/// Makes everything go on, and sleeps when nothing does.
fn go_on(shared: &Shared, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        let may_sleep = shared.gate.with(|state| {
            let all: Vec<usize> = state.endpoints.each().map(|(number, _)| number).collect();
            all.iter().for_each(|endpoint| state.progress(*endpoint));
            shared.waker.silence();
            all.iter().all(|endpoint| state.prepare_sleep(*endpoint))
        });
        if may_sleep {
            shared.waker.wait(Duration::from_millis(100));
        } else {
            std::thread::yield_now();
        }
    }
}

/// What is waited for with: a descriptor, or whatever suits us.
pub fn offered(wait_obj: c_int) -> Result<c_int> {
    match wait_obj {
        abi::WAIT_NONE | abi::WAIT_UNSPEC | abi::WAIT_FD | abi::WAIT_YIELD => Ok(wait_obj),
        _ => Err(Errno(libc::ENOSYS)),
    }
}

/// `fi_control` of a thing that is waited for.
///
/// # Safety
///
/// A place for what the command answers.
pub unsafe fn control(
    command: c_int,
    wait_obj: c_int,
    descriptor: c_int,
    into: *mut c_void,
) -> Result<c_int> {
    if into.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    let has_descriptor = matches!(wait_obj, abi::WAIT_FD | abi::WAIT_UNSPEC);
    // SAFETY: the caller's promise.
    unsafe {
        match command {
            abi::GETWAIT if has_descriptor => put(into.cast(), descriptor),
            abi::GETWAITOBJ => {
                let told = if has_descriptor { abi::WAIT_FD } else { wait_obj };
                put(into.cast(), told);
            }
            abi::GETWAIT => return Err(Errno(libc::ENODATA)),
            _ => return Err(Errno(libc::ENOSYS)),
        }
    }
    Ok(0)
}

/// Whether a program may sleep on a thing's descriptor.
///
/// # Safety
///
/// An open object of ours.
pub unsafe fn try_wait(fid: *mut Fid) -> Result<()> {
    // SAFETY: the caller's promise; all objects begin with this.
    unsafe {
        match object::<Fid, _>(fid)?.class {
            abi::CLASS_CQ => cq::try_wait(fid),
            abi::CLASS_CNTR => cntr::try_wait(fid),
            abi::CLASS_EQ => eq::try_wait(fid),
            _ => Err(Errno(libc::EINVAL)),
        }
    }
}

/// When a wait is over; never for a negative number.
pub fn until(timeout_ms: c_int) -> Option<Instant> {
    let timeout = u64::try_from(timeout_ms).ok()?;
    Some(Instant::now() + Duration::from_millis(timeout))
}

/// What is left of a wait, of which a part is slept at a time.
pub fn left(until: Option<Instant>, longest: Duration) -> Duration {
    let left = until.map_or(longest, |until| until.saturating_duration_since(Instant::now()));
    // Less than what can be slept is not skipped.
    left.clamp(Duration::from_millis(1), longest)
}

/// The text of an error, also in the program's own room.
///
/// # Safety
///
/// Null, or room for so many bytes.
pub unsafe fn error_text(number: c_int, into: *mut c_char, room: usize) -> *const c_char {
    // SAFETY: strerror's own text, which is copied at once where there is room; the caller's promise.
    unsafe {
        let text: &CStr = match number {
            abi::ETRUNC => c"the message is longer than its buffer",
            abi::ENOKEY => c"no registration has this key",
            number => CStr::from_ptr(libc::strerror(number)),
        };
        if into.is_null() || room == 0 {
            return text.as_ptr();
        }
        put_bytes(into.cast(), room, text.to_bytes_with_nul());
        put(into.add(room - 1), 0);
        into
    }
}
