//! A byte stream between two processes through memory that they share.
//!
//! What a machine sends travels as packets of the transport, and large payloads travel not at all. What lies in a file
//! in memory is mapped by its sender, and fetched from there by the receiver: the kernel copies it once, on the CPU of
//! whoever wants it. Where that is not permitted, and for everything else, each side has blocks in its memory where
//! payloads land: the sender fills one and says at which place of the stream its bytes come; it is given
//! back when the last holder has let go of them.
//!
//! ```text
//!   Run::Own, small ──► Bytes packet ───────────────────────► appended to the input: 2 copies, small
//!   Run::File       ──► mapped ◄── process_vm_readv ─────────► Arrived::Placed: 1 copy, the kernel's, of which the
//!                                                              sender does a part
//!            or     ──► pread ──► block of the receiver ─────► Arrived::Placed: 1 copy, the kernel's
//!   Run::Shared     ──► held  ◄── process_vm_readv ─────────► Arrived::Placed: the same
//!            or     ──► copied ─► block of the receiver ─────► Arrived::Placed: 1 copy
//!                                      and, where its user has named a place (`poll_land`): it is fetched to that
//!                                      place instead, or copied there from its block
//! ```
//!
//! What always holds:
//! - What is on its way is bounded by credit, so a packet always finds room and nobody waits for it.
//! - A reader that finds nothing lets its thread go on with other tasks and looks again, for a short while; then it
//!   sleeps until the peer wakes it. An idle connection uses no CPU.
//! - Who ends is told by its socket and its pidfd. What it had sent before is received first.
//! - Nothing that the peer writes is used as a length or an index before it was copied and checked.
//!
//! The packets are those of `docs/protocol/9p.md`.

mod apart;
mod fetch;
mod inbound;
mod landing;
mod packet;
mod pull;
#[cfg(test)]
mod tests;

use super::{Peer, Settings, Shm, sleep};
use crate::os::file::{MappedRange, read_range};
use crate::os::run::{Arrived, SLICES_MAX, Stream, front_slices, write_front};
use apart::Apart;
use bytes::{Bytes, BytesMut};
use covey_wire::transport::Refused;
use covey_wire::{FileRange, Landing as Place, Piece, RANGE_BYTES_MIN, Segments, Span, Transport};
use fetch::Fetching;
use inbound::{Arrival, End, Inbound, State};
use landing::{Far, Landing};
use packet::Head;
use pull::{Fetched, Pool, Range};
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// One end of a stream through shared memory.
#[derive(Debug)]
pub struct Channel {
    shm: Shm,
    /// Readable when there is something to poll, while we sleep.
    events: AsyncFd<OwnedFd>,
    state: State,
    /// Where what is fetched comes to.
    pool: Arc<Pool>,
    fetching: Option<Fetching>,
    /// When something moved last.
    moved: Instant,
    is_asleep: bool,
    apart: Apart,
}

/// Whether something may come.
#[derive(PartialEq, Eq)]
enum More {
    Perhaps,
    Nothing,
}

/// What channels of this process have copied, and had the kernel copy, in bytes.
#[derive(Debug, Default)]
pub struct Copied {
    /// By our own code: into packets, out of packets and into blocks.
    pub by_us: AtomicU64,
    /// From files to where payloads stay, by the kernel.
    pub by_kernel: AtomicU64,
    /// Where the last payload stayed.
    pub last: AtomicUsize,
}

/// Of all channels of this process.
pub static COPIED: Copied =
    Copied { by_us: AtomicU64::new(0), by_kernel: AtomicU64::new(0), last: AtomicUsize::new(0) };

/// The two ends have mapped each other's memory.
#[derive(Debug)]
pub struct Met(Shm);

/// Shares memory with the process at the other end of a socket, which does the same. Waits for it, 5 s at most: not to be
/// called where tasks run.
pub fn meet(stream: UnixStream) -> io::Result<Met> {
    meet_as(stream, true)
}

/// The same, where the kernel may or may not copy from the peer's memory.
fn meet_as(stream: UnixStream, one_copy: bool) -> io::Result<Met> {
    let heap_bytes = u64::from(landing::BLOCKS) * landing::BLOCK_BYTES as u64;
    let mut shm = Shm::new(Settings { peers_max: 1, heap_bytes, one_copy, view: true })?;
    shm.meet(stream)?;
    Ok(Met(shm))
}

impl Channel {
    /// A stream between two that have met. Must be called within a runtime.
    pub fn new(met: Met) -> io::Result<Channel> {
        let Met(shm) = met;
        // Deprecated because a type may lie about its descriptor; an OwnedFd does not.
        #[allow(deprecated)]
        let events = AsyncFd::with_interest(shm.events.try_clone()?, Interest::READABLE)?;
        let link = shm.links.first().ok_or(io::ErrorKind::NotConnected)?;
        let (can_fetch, far) = (link.can_copy, Far::new(link.memory()));
        let state = State::new(Landing::new(shm.arena.clone()), far);
        let mut channel = Channel {
            shm,
            events,
            state,
            pool: Arc::default(),
            fetching: None,
            moved: Instant::now(),
            is_asleep: false,
            apart: Apart::default(),
        };
        if can_fetch {
            channel.send(Head::Fetches, 0, |_| {});
        }
        Ok(channel)
    }

    /// Takes what the peer has sent, bytes into `input` as long as nothing waits before them. Answers how many bytes that
    /// were.
    fn pump(&mut self, input: Option<&mut BytesMut>, bytes_max: usize) -> usize {
        let mut inbound = Inbound { state: &mut self.state, input, taken: 0 };
        while inbound.taken < bytes_max && self.shm.poll(1, &mut inbound) > 0 {}
        inbound.taken
    }

    /// Tells the peer what it may send, which blocks it may fill again, and what became of files.
    fn tell(&mut self) {
        let blocks = self.state.landing.freed();
        if !blocks.is_empty() {
            let told = self.send(Head::Free, 4 * blocks.len(), |out| {
                for (place, block) in out.chunks_exact_mut(4).zip(&blocks) {
                    place.copy_from_slice(&block.to_le_bytes());
                }
            });
            if told {
                self.state.landing.give(&blocks);
            }
        }
        for is_cut in std::mem::take(&mut self.state.answers) {
            self.send(Head::Rest { is_cut }, 0, |_| {});
        }
        if let Some(bytes) = self.state.credit.due()
            && self.send(Head::Credit { bytes }, 0, |_| {})
        {
            self.state.credit.told();
        }
    }

    /// The same end, which goes to another CPU where long payloads have both on one.
    pub fn making_way(mut self) -> Channel {
        self.apart.makes_way = true;
        self
    }

    /// The next part of the stream, where it is there already. Bytes are appended to `input`.
    fn next(
        &mut self,
        input: &mut BytesMut,
        bytes_max: usize,
    ) -> Option<Poll<io::Result<Arrived>>> {
        if self.fetching.is_some() {
            self.pump(None, 1);
            return self.fetch_on().map(|fetched| self.placed(fetched.into_bytes()));
        }
        let count = match self.state.arrived.pop_front() {
            Some(Arrival::Placed(bytes)) => return Some(self.placed(bytes)),
            Some(Arrival::Rest(bytes)) => return Some(Poll::Ready(Ok(Arrived::Placed(bytes)))),
            Some(Arrival::Lies(index, from)) => {
                let fetched = Fetched::pooled(&self.pool, from.bytes as usize);
                let fetched = self.fetch(fetched, index, from)?;
                return Some(self.placed(fetched.into_bytes()));
            }
            Some(Arrival::Bytes(bytes)) => {
                self.state.credit.take(bytes.len());
                input.extend_from_slice(&bytes);
                bytes.len()
            }
            None => self.pump(Some(input), bytes_max),
        };
        if count == 0 {
            return None;
        }
        self.wake();
        Some(Poll::Ready(Ok(Arrived::Bytes(count))))
    }

    /// Sends a packet of our own, for which there is always room unless the peer has ended or is odd.
    fn send(&mut self, head: Head, bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let refused = match self.shm.send(PEER, &head.encode(), bytes, fill) {
            Ok(()) => return true,
            Err(Refused::Dead) => End::Closed,
            Err(_) => End::Broken("peer takes nothing, and had promised room"),
        };
        self.state.end.get_or_insert(refused);
        false
    }

    /// Ready when it is worth another look at what has come, or nothing more will.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<More>> {
        if self.fetching.is_none() && !self.state.arrived.is_empty() {
            return Poll::Ready(Ok(More::Perhaps));
        }
        match &self.state.end {
            Some(End::Closed) => Poll::Ready(Ok(More::Nothing)),
            Some(broken) => Poll::Ready(Err(broken.error())),
            None => self.poll_wait(context).map_ok(|()| More::Perhaps),
        }
    }

    /// Ready when it is worth another look at what the peer has sent.
    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_asleep {
            if self.spin() {
                return Poll::Ready(Ok(()));
            }
            if self.moved.elapsed() < patience() {
                // The peer may be waiting for this very CPU, and so may other tasks of this thread.
                self.apart.wait(&self.shm);
                std::thread::yield_now();
                let _ = pin!(tokio::task::yield_now()).poll(context);
                return Poll::Pending;
            }
            self.state.landing.wake(context.waker());
            if !self.shm.prepare_sleep() {
                return Poll::Ready(Ok(()));
            }
            self.is_asleep = true;
        }
        loop {
            let mut guard = ready!(self.events.poll_read_ready(context))?;
            guard.clear_ready();
            // What came before that was cleared is not told of anew.
            if sleep::has_event(&self.shm.events) {
                self.wake();
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Looks for something to do for a moment.
    fn spin(&self) -> bool {
        let mut looks = 0..SPINS;
        let has_news = || self.shm.links.iter().any(|link| link.has_news() || link.is_asked());
        looks.any(|_| {
            std::hint::spin_loop();
            has_news()
        })
    }

    /// Something moved.
    fn wake(&mut self) {
        self.moved = Instant::now();
        if std::mem::take(&mut self.is_asleep) {
            self.shm.woke();
        }
    }

    /// Waits until a packet of so many bytes may be sent.
    fn poll_credit(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<io::Result<()>> {
        while !self.state.credit.permits(bytes) {
            self.pump(None, 1);
            self.tell();
            if self.state.credit.permits(bytes) {
                self.wake();
                break;
            }
            if let Some(end) = &self.state.end {
                return Poll::Ready(Err(end.error()));
            }
            ready!(self.poll_wait(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends bytes of the stream.
    fn send_bytes(&mut self, slices: &[IoSlice<'_>], bytes: usize) -> io::Result<usize> {
        let is_sent = self.send(Head::Bytes, bytes, |out| gather(slices, out));
        self.sent(is_sent, bytes, bytes)
    }

    /// Says that a block of the peer has the next bytes of the stream.
    fn send_landed(&mut self, block: u32, bytes: usize) -> io::Result<usize> {
        let is_sent = self.send(Head::Landed { block, bytes: bytes as u32 }, 0, |_| {});
        self.sent(is_sent, 0, bytes)
    }

    /// Says where the next bytes of the stream lie, if the peer can fetch them there.
    fn lend(&mut self, range: &FileRange) -> Option<io::Result<usize>> {
        if !self.state.peer_fetches {
            return None;
        }
        let length = range.length.min(landing::BLOCK_BYTES);
        let part = FileRange { file: range.file.clone(), offset: range.offset, length };
        self.lend_range(Range::Mapped(MappedRange::new(&part)?))
    }

    fn lend_range(&mut self, range: Range) -> Option<io::Result<usize>> {
        let Span { address, bytes } = range.span();
        self.apart.passed(bytes);
        let index = self.state.lent.lend(range)?;
        let is_sent = self.send(Head::Lies { index, bytes: bytes as u32, address }, 0, |_| {});
        Some(self.sent(is_sent, 0, bytes as usize))
    }

    /// A payload that nobody changes stays where it is until the peer has fetched it, if that can fetch. Otherwise it is sent
    /// like others.
    fn poll_write_shared(
        &mut self,
        context: &mut Context<'_>,
        run: &Bytes,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_credit(context, 0))?;
        if self.state.peer_fetches {
            let part = run.slice(..run.len().min(landing::BLOCK_BYTES));
            if let Some(lent) = self.lend_range(Range::Memory(part)) {
                return Poll::Ready(lent);
            }
        }
        Pin::new(self).poll_write(context, run)
    }

    fn poll_write_range(
        &mut self,
        context: &mut Context<'_>,
        range: &FileRange,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_credit(context, 0))?;
        if let Some(lent) = self.lend(range) {
            return Poll::Ready(lent);
        }
        let Some(far) = self.state.far.take() else {
            let bytes = read_range(range)?;
            return Pin::new(self).poll_write(context, &bytes);
        };
        let bytes = far.fill_from(range)?;
        COPIED.by_kernel.fetch_add(bytes as u64, Ordering::Relaxed);
        Poll::Ready(self.send_landed(far.block, bytes))
    }

    fn sent(&mut self, is_sent: bool, in_packet: usize, bytes: usize) -> io::Result<usize> {
        match (is_sent, &self.state.end) {
            (true, _) => {
                self.state.credit.spend(in_packet);
                self.wake();
                Ok(bytes)
            }
            (false, end) => Err(end.as_ref().map_or(io::ErrorKind::BrokenPipe.into(), End::error)),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.abandon_copy();
    }
}

impl Stream for Channel {
    fn places(&self) -> bool {
        true
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        input: &mut BytesMut,
        bytes_max: usize,
    ) -> Poll<io::Result<Arrived>> {
        loop {
            let next = self.next(input, bytes_max);
            self.tell();
            if let Some(received) = next {
                return received;
            }
            if ready!(self.poll_more(context))? == More::Nothing {
                return Poll::Ready(Ok(Arrived::Bytes(0)));
            }
        }
    }

    fn poll_land(
        &mut self,
        context: &mut Context<'_>,
        landing: &mut Place,
    ) -> Poll<io::Result<usize>> {
        loop {
            let landed = self.land(landing);
            self.tell();
            if let Some(bytes) = landed {
                return Poll::Ready(Ok(bytes));
            }
            if ready!(self.poll_more(context))? == More::Nothing {
                return Poll::Ready(Ok(0));
            }
        }
    }

    fn poll_write_files(
        &mut self,
        context: &mut Context<'_>,
        output: &Segments,
    ) -> Poll<io::Result<usize>> {
        if let Some(run) = output.front_shared().filter(|run| run.len() >= RANGE_BYTES_MIN) {
            return self.poll_write_shared(context, run);
        }
        match output.pieces().next() {
            Some(Piece::File(range)) => self.poll_write_range(context, range),
            Some(Piece::Loan(_)) => write_front(self, context, output),
            _ => {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let (count, _) = front_slices(output, &mut slices);
                Pin::new(self).poll_write_vectored(context, &slices[..count])
            }
        }
    }
}

/// Appends what slices have, up to the length of `out`.
fn gather(slices: &[IoSlice<'_>], mut out: &mut [u8]) {
    COPIED.by_us.fetch_add(out.len() as u64, Ordering::Relaxed);
    for slice in slices {
        let (place, rest) = out.split_at_mut(slice.len().min(out.len()));
        place.copy_from_slice(&slice[..place.len()]);
        out = rest;
    }
}

impl AsyncWrite for Channel {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    /// One packet's worth: small slices together, or a large one into a block.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let channel = self.get_mut();
        let is_large = |slice: &&IoSlice<'_>| slice.len() >= RANGE_BYTES_MIN;
        if let Some(large) = slices.first().filter(is_large) {
            ready!(channel.poll_credit(context, 0))?;
            if let Some(far) = channel.state.far.take() {
                let bytes = far.fill(large);
                COPIED.by_us.fetch_add(bytes as u64, Ordering::Relaxed);
                return Poll::Ready(channel.send_landed(far.block, bytes));
            }
        }
        let small =
            slices.iter().enumerate().take_while(|(at, slice)| *at == 0 || !is_large(slice));
        let bytes: usize = small.map(|(_, slice)| slice.len()).sum();
        let bytes = bytes.min(super::ring::PACKET_BYTES_MAX);
        ready!(channel.poll_credit(context, bytes))?;
        Poll::Ready(channel.send_bytes(slices, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let channel = self.get_mut();
        let mut input = BytesMut::new();
        let mut got = match ready!(channel.poll_receive(context, &mut input, buffer.remaining()))? {
            Arrived::Bytes(_) => input.freeze(),
            Arrived::Placed(bytes) => bytes,
        };
        let now = got.split_to(got.len().min(buffer.remaining()));
        buffer.put_slice(&now);
        if !got.is_empty() {
            channel.state.arrived.push_front(Arrival::Rest(got));
        }
        Poll::Ready(Ok(()))
    }
}

/// How long a reader looks before it sleeps: about as long as a large payload takes. On a machine with one CPU the peer could
/// not answer meanwhile. (A process that is bound to one of several looks, too: its peer may be on another.)
fn patience() -> Duration {
    static PATIENCE: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
    // SAFETY: it takes a number and returns one.
    let cpus = || unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    *PATIENCE.get_or_init(|| if cpus() > 1 { Duration::from_micros(200) } else { Duration::ZERO })
}

/// Looks without letting anybody else have the CPU: some 2 us.
const SPINS: u32 = 40;

/// The only peer.
const PEER: Peer = Peer(0);
