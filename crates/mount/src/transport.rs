//! The FUSE device on the runtime's own poller: requests in, replies out, waits that a signal ends.
//!
//! ```text
//!   /dev/fuse ──read(2)──► parse ──► Service::handle ──────────────────────────────► writev(2)
//!                            │        └─ has to wait ──► a task of its own ─────────┘
//!                            └─ INTERRUPT ──► the task drops the handler and answers EINTR
//! ```
//!
//! One [`serve`] runs per thread, each on its own clone of the device. A reply must go to the clone
//! that the request was read from, so a request never leaves its thread. A handler that waits costs
//! a task, never a thread. Every request is answered exactly once: by its handler, by EINTR, or,
//! should the handler panic or be dropped, by EIO.

mod buffers;
mod callers;
mod gate;
mod interrupts;

pub use gate::{Gate, Left};
pub use interrupts::Interrupts;

use super::abi::reply::{InvalInode, OutHeader, encode};
use super::abi::{self, Header, Request};
use buffers::Buffers;
use callers::{Callers, Waits as CallerWaits};
use covey_io::os::place::{Front, Meeting};
use covey_ninep::tree::Errno;
use covey_wire::{Blame, Bytes, Payload};
use gate::{Stood, Waiting, Waits};
use rustix::io::Errno as OsError;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// A successful answer.
#[derive(Debug)]
pub enum Answer {
    /// Nothing but success.
    Done,
    /// An encoded struct.
    Small(Vec<u8>),
    /// Data, sent without being copied.
    Data(Payload),
    /// An encoded struct, sent after the kernel was told to forget the attributes of this file.
    Forgetting(u64, Vec<u8>),
}

/// What the requests are for.
pub trait Service: 'static {
    /// Answers a request. The future is dropped when the request is interrupted.
    fn handle(
        self: Arc<Self>,
        header: Header,
        request: Request,
    ) -> impl Future<Output = Result<Answer, Errno>> + 'static;

    /// How long a request may go on after its process got a signal.
    fn patience(&self, request: &Request) -> Duration;

    /// Whether the request may be given up and begun again, here or in another process: it waits for somebody else.
    fn is_wait(&self, _request: &Request) -> bool {
        false
    }

    /// The kernel drops `count` references to a file.
    fn forget(&self, _id: u64, _count: u64) {}
}

/// How the service of a device has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The file system is unmounted.
    Unmounted,
    /// Another process serves it.
    Given,
}

/// What the requests of one mount share, whatever clone they were read from.
pub struct Served<S> {
    /// What they are for.
    pub service: Arc<S>,
    /// Which of them a signal has met.
    pub interrupts: Arc<Interrupts>,
    /// Whether they are read.
    pub gate: Arc<Gate>,
}

impl<S> Served<S> {
    /// A mount that begins.
    pub fn new(service: Arc<S>) -> Served<S> {
        Served { service, interrupts: Arc::default(), gate: Arc::default() }
    }
}

impl<S> Clone for Served<S> {
    fn clone(&self) -> Served<S> {
        Served {
            service: self.service.clone(),
            interrupts: self.interrupts.clone(),
            gate: self.gate.clone(),
        }
    }
}

/// Serves one clone of the device until the file system is unmounted, or given to another process. To be run on a
/// [`tokio::runtime::LocalRuntime`]; requests still unanswered end with the runtime. `front` may move
/// the thread to the CPU of a lone caller. What a process before has left comes first.
pub async fn serve<S: Service>(
    Left { device, messages: mut left }: Left,
    served: Served<S>,
    front: Option<Front>,
) -> io::Result<End> {
    let device = Rc::new(Device::new(device)?);
    let waits = Rc::new(Waits::default());
    let mut callers = Callers::new(front);
    let mut buffers = Buffers::new(REQUEST_BYTES_MAX);
    let _serving = served.gate.enter();
    let mut answered = 0;
    loop {
        for message in left.drain(..) {
            admit(&device, &served, &waits, &mut callers, message);
        }
        {
            let mut shuts = std::pin::pin!(served.gate.shuts());
            while !served.gate.is_shut() {
                let message = tokio::select! {
                    biased;
                    message = device.receive(&mut buffers) => message?,
                    () = &mut shuts => break,
                };
                let Some(message) = message else { return Ok(End::Unmounted) };
                let is_answered = admit(&device, &served, &waits, &mut callers, message);
                answered = if is_answered { answered + 1 } else { ANSWERED_MAX };
                // The new task's own requests are sent before the next read of the device. Where all is answered at
                // once others have their turn, too.
                if answered >= ANSWERED_MAX {
                    answered = 0;
                    let_others_run().await;
                }
            }
        }
        // Each request holds the device until it is answered.
        let is_idle = || Rc::strong_count(&device) <= 1 + waits.count();
        let stood = served.gate.stand(&waits, is_idle, || device.fd.get_ref().try_clone());
        match stood.await {
            Stood::Open(messages) => left = messages,
            Stood::Given => return Ok(End::Given),
        }
    }
}

/// Starts what the message asks for; whether that is done. Messages that cannot be read are the kernel's error, or ours:
/// they are logged, and refused where there is someone to refuse.
fn admit<S: Service>(
    device: &Rc<Device>,
    served: &Served<S>,
    waits: &Rc<Waits>,
    callers: &mut Callers,
    message: Bytes,
) -> bool {
    let (service, interrupts) = (&served.service, &served.interrupts);
    let (header, body) = match abi::parse(message.clone()) {
        Ok(parts) => parts,
        Err(blame) => {
            tracing::error!("fuse: {blame}");
            return true;
        }
    };
    let request = match body {
        Ok(request) => request,
        Err(blame) => {
            device.reply(header.unique, refuse(&header, &blame));
            return true;
        }
    };
    match request {
        Request::Forget { nlookup } => service.forget(header.nodeid, nlookup),
        Request::BatchForget { rest } => {
            // A count and padding, then pairs of a file and its references.
            let numbers = rest.0.get(8..).unwrap_or_default().chunks_exact(8);
            let numbers: Vec<u64> = numbers
                .map(|bytes| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
                .collect();
            numbers.chunks_exact(2).for_each(|one| service.forget(one[0], one[1]));
        }
        Request::Interrupt { unique } => interrupts.interrupt(unique),
        request => {
            let waiting =
                service.is_wait(&request).then(|| Box::new(waits.enter(header.unique, message)));
            let (waits, meeting) = callers.note(&header, device.has_none.get());
            let (device, unique) = (device.clone(), Some(header.unique));
            let reply = PendingReply { device, unique, waits, meeting };
            let (name, patience) = (request.name(), service.patience(&request));
            let unique = header.unique;
            // Most answers are known already: those need no task, nor can a signal come in between. What has to wait is
            // asked again by its task, which is then woken.
            let first = AssertUnwindSafe(|| {
                let mut handled = Box::pin(service.clone().handle(header, request));
                let polled = handled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                match polled {
                    Poll::Ready(outcome) => Ok(outcome),
                    Poll::Pending => Err(handled),
                }
            });
            match std::panic::catch_unwind(first) {
                Ok(Ok(outcome)) => end(name, outcome, reply),
                Ok(Err(handled)) => {
                    let interrupted = interrupts.enter(unique);
                    let asked = answer(handled, (name, patience), interrupted, reply, waiting);
                    tokio::task::spawn_local(asked);
                    return false;
                }
                // It was told of, and the reply is dropped: that is EIO.
                Err(_) => {}
            }
        }
    }
    true
}

fn refuse(header: &Header, blame: &Blame) -> Result<Answer, Errno> {
    match blame {
        Blame::Unsupported(_) => {
            tracing::debug!("fuse: {blame}");
            Err(Errno::ENOSYS.into())
        }
        _ => {
            tracing::error!("fuse: request {}: {blame}", header.unique);
            Err(Errno::because(Errno::EIO, blame.to_string()))
        }
    }
}

/// The rest of the life of a request that has to wait.
async fn answer(
    handled: Pin<Box<impl Future<Output = Result<Answer, Errno>>>>,
    (name, patience): (&'static str, Duration),
    interrupted: interrupts::Interrupted,
    reply: PendingReply,
    waiting: Option<Box<Waiting>>,
) {
    let ended = async {
        interrupted.wait().await;
        tokio::time::sleep(patience).await;
    };
    let leaves = async {
        match &waiting {
            Some(waiting) => waiting.leaves().await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        biased;
        outcome = handled => Some(outcome),
        () = ended => Some(Err(Errno::because(Errno::EINTR, "a signal ended the wait"))),
        () = leaves => None,
    };
    let Some(outcome) = outcome else {
        if let Some(waiting) = waiting {
            waiting.leave();
        }
        return reply.leave();
    };
    // Out of the table before the reply: the kernel sends no interrupt for what it has an answer to.
    drop(interrupted);
    let device = reply.device.clone();
    end(name, outcome, reply);
    device.answered.notify_one();
}

fn end(name: &str, outcome: Result<Answer, Errno>, reply: PendingReply) {
    match &outcome {
        Err(error) if error.code == Errno::EIO && is_worth_saying() => {
            tracing::warn!("a program gets an error: {name}: {error}");
        }
        Err(error) => tracing::trace!("fuse: {name}: {error}"),
        Ok(_) => {}
    }
    reply.send(outcome);
}

/// Once in a second: each request to a server that is dead may fail.
fn is_worth_saying() -> bool {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1));
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// Answers EIO when it is dropped unsent, so that no process ever waits for a lost request.
struct PendingReply {
    device: Rc<Device>,
    unique: Option<u64>,
    /// The caller, who waits for as long as this is there.
    waits: Option<CallerWaits>,
    /// How the caller is to be woken.
    meeting: Option<Meeting>,
}

impl PendingReply {
    /// Somebody else answers.
    fn leave(mut self) {
        self.unique = None;
    }

    fn send(mut self, outcome: Result<Answer, Errno>) {
        // Before the reply: the caller may ask again before the call returns.
        if let Some(waits) = self.waits.take() {
            self.device.has_none.set(false);
            if let Ok(Answer::Data(data)) = &outcome {
                waits.note(data.len());
            }
        }
        let Some(unique) = self.unique.take() else { return };
        match self.meeting.take() {
            Some(meeting) => meeting.answer(|| self.device.reply(unique, outcome)),
            None => self.device.reply(unique, outcome),
        }
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(unique) = self.unique.take() {
            self.device.reply(unique, Err(Errno::because(Errno::EIO, "the handler was lost")));
        }
    }
}

/// One clone of /dev/fuse, non-blocking.
struct Device {
    fd: AsyncFd<OwnedFd>,
    /// It was looked at in vain since somebody who waited was answered.
    has_none: Cell<bool>,
    /// A task has answered somebody, who may have asked again while that was written.
    answered: Notify,
}

impl Device {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // Deprecated because a type may lie about its descriptor; an OwnedFd does not, and the
        // replacement is unsafe.
        #[allow(deprecated)]
        let fd = AsyncFd::with_interest(fd, WAKE)?;
        Ok(Device { fd, has_none: Cell::default(), answered: Notify::new() })
    }

    /// The next message; none once the file system is unmounted.
    async fn receive(&self, buffers: &mut Buffers) -> io::Result<Option<Bytes>> {
        loop {
            let guard = tokio::select! {
                biased;
                guard = self.fd.ready(WAKE) => Some(guard?),
                () = self.answered.notified() => None,
            };
            match buffers.fill(|room| rustix::io::read(self.fd.get_ref(), room)) {
                Ok(message) => return Ok(Some(message)),
                Err(OsError::AGAIN) => {
                    self.has_none.set(true);
                    guard.into_iter().for_each(|mut guard| guard.clear_ready());
                }
                // NOENT: the request was taken back while it was being copied.
                Err(OsError::INTR | OsError::NOENT) => {}
                Err(OsError::NODEV | OsError::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes the reply in one call. A reply that the kernel does not take is replaced by EIO: a
    /// process must not wait for ever because of our mistake.
    fn reply(&self, unique: u64, outcome: Result<Answer, Errno>) {
        let sent = match &outcome {
            Ok(Answer::Done) => self.write(unique, 0, &[]),
            Ok(Answer::Small(bytes)) => self.write(unique, 0, &[bytes]),
            Ok(Answer::Data(data)) => self.write_payload(unique, data),
            Ok(Answer::Forgetting(id, bytes)) => {
                self.forget_attributes(*id);
                self.write(unique, 0, &[bytes])
            }
            Err(error) => self.write(unique, error_number(error), &[]),
        };
        match sent {
            // NOENT: the request is gone, its process was killed. NODEV: unmounted.
            Ok(()) | Err(OsError::NOENT | OsError::NODEV) => {}
            Err(error) => {
                tracing::error!("fuse: the kernel refused a reply: {error}");
                let _ = self.write(unique, Errno::EIO, &[]);
            }
        }
    }

    /// A notification: an unasked reply. An inode that the kernel does not know is no error.
    fn forget_attributes(&self, id: u64) {
        let what = encode(&InvalInode { ino: id, off: u64::MAX, len: 0 });
        if let Err(error) = self.write_raw(0, NOTIFY_INVAL_INODE, &[&what])
            && !matches!(error, OsError::NOENT | OsError::NODEV)
        {
            tracing::error!("fuse: the kernel refused a notification: {error}");
        }
    }

    fn write_payload(&self, unique: u64, data: &Payload) -> Result<(), OsError> {
        // One slot is the header's.
        if data.pieces().len() < IOV_MAX {
            let pieces: Vec<&[u8]> = data.pieces().iter().map(|piece| &piece[..]).collect();
            return self.write(unique, 0, &pieces);
        }
        self.write(unique, 0, &[&data.clone().into_bytes()])
    }

    fn write(&self, unique: u64, error: u32, pieces: &[&[u8]]) -> Result<(), OsError> {
        self.write_raw(unique, error.wrapping_neg(), pieces)
    }

    fn write_raw(&self, unique: u64, error: u32, pieces: &[&[u8]]) -> Result<(), OsError> {
        let length = OutHeader::BYTES + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let len = u32::try_from(length).map_err(|_| OsError::INVAL)?;
        let header = encode(&OutHeader { len, error, unique });
        let mut slices = Vec::with_capacity(pieces.len() + 1);
        slices.push(IoSlice::new(&header));
        slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
        rustix::io::retry_on_intr(|| rustix::io::writev(self.fd.get_ref(), &slices)).map(|_| ())
    }
}

/// The errno to be sent: the kernel takes 1 to 511 only.
fn error_number(error: &Errno) -> u32 {
    if (1..512).contains(&error.code) { error.code } else { Errno::EIO }
}

/// Goes to the end of the run queue, without asking the poller as tokio's yield does, and again: the
/// first round runs the new task, the second the connection that it gave its message to.
async fn let_others_run() {
    let mut rounds = 2;
    poll_fn(|context| {
        if rounds == 0 {
            return Poll::Ready(());
        }
        rounds -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// What ends a wait for the device: a request, or EPOLLERR, which is all that an unmount says.
const WAKE: Interest = Interest::READABLE.add(Interest::ERROR);

/// The largest WRITE payload and READ reply in bytes: 256 pages, the kernel's own limit.
pub const DATA_BYTES_MAX: u32 = 1 << 20;

/// The device refuses reads with less room than this.
const REQUEST_BYTES_MAX: usize = DATA_BYTES_MAX as usize + 4096;

const IOV_MAX: usize = 1024;

/// So many requests are answered at once before others have their turn.
const ANSWERED_MAX: usize = 4;

/// FUSE_NOTIFY_INVAL_INODE, where a reply has its error.
const NOTIFY_INVAL_INODE: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::task::Waker;

    #[test]
    fn the_device_is_looked_at_again_when_a_task_has_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (kernel, ours) = UnixDatagram::pair().unwrap();
            let device = Device::new(ours.into()).unwrap();
            let mut buffers = Buffers::new(4096);
            let mut message = Box::pin(device.receive(&mut buffers));
            let mut look = || message.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(look().is_pending());
            device.has_none.set(false);
            device.answered.notify_one();
            assert!(look().is_pending());
            assert!(device.has_none.get(), "the caller may be somewhere else");
            device.has_none.set(false);
            kernel.send(b"a request").unwrap();
            device.answered.notify_one();
            let Poll::Ready(Ok(Some(found))) = look() else { panic!("it is there already") };
            assert_eq!(&found[..], b"a request");
            assert!(!device.has_none.get());
        });
    }
}
