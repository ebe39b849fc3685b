//! One peer of a process.

use super::arena::Arena;
use super::meet::Met;
use super::ring::{Broken, Reader, Writer};
use super::{Settings, barrier, reach, sleep};
use covey_wire::Span;
use covey_wire::transport::{PUBLISHED_MAX, Published, Refused};
use rustix::process::{Pid, PidfdFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One peer.
#[derive(Debug)]
pub(super) struct Link {
    writer: Writer,
    reader: Reader,
    /// Our memory, where the peer writes; and the peer's.
    ours: Arc<Arena>,
    theirs: Arc<Arena>,
    inbox: u32,
    /// Of ours in its memory.
    their_inbox: u32,
    /// In the peer's addresses.
    heap: Span,
    pid: i32,
    pub can_copy: bool,
    /// The peer makes barriers for us.
    is_spared: bool,
    bell: OwnedFd,
    stream: UnixStream,
    process: Option<OwnedFd>,
    is_alive: bool,
}

impl Link {
    pub fn new(
        met: Met,
        stream: UnixStream,
        ours: &Arc<Arena>,
        inbox: u32,
        settings: &Settings,
        has_barrier: bool,
    ) -> io::Result<Link> {
        let theirs = Arc::new(Arena::open(met.memory.as_fd(), met.card.plan)?);
        stream.set_nonblocking(true)?;
        // A peer of another pid namespace has no number here: its socket must do.
        let process = Pid::from_raw(met.pid)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Link {
            writer: Writer::new(theirs.clone(), met.card.inbox),
            reader: Reader::new(ours.clone(), inbox),
            ours: ours.clone(),
            inbox,
            their_inbox: met.card.inbox,
            heap: Span::new(met.card.heap_address, met.card.plan.heap_bytes),
            pid: met.pid,
            can_copy: settings.one_copy && reach::can_read(met.pid, met.card.probe),
            is_spared: has_barrier && met.card.has_barrier,
            bell: met.bell,
            theirs,
            stream,
            process,
            is_alive: true,
        })
    }

    /// What it shares with us.
    pub fn memory(&self) -> Arc<Arena> {
        self.theirs.clone()
    }

    /// What becomes readable when it is gone.
    pub fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.process.iter().map(|process| process.as_fd()).chain([self.stream.as_fd()])
    }

    #[inline]
    pub fn is_alive(&self) -> bool {
        self.is_alive
    }

    /// Whether its process has ended or has let go of us.
    pub fn is_gone(&self) -> bool {
        self.is_alive && self.watched().any(|fd| sleep::is_readable(fd))
    }

    /// Nothing is sent to it or taken from it any more.
    pub fn bury(&mut self) {
        self.is_alive = false;
        self.can_copy = false;
        self.process = None;
        // Descriptors that are closed are watched no more; and the peer learns of it.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Ok((end, _)) = UnixStream::pair() {
            self.stream = end;
        }
    }

    #[inline]
    pub fn send(
        &mut self,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        self.writer.send(head, bytes, fill)?;
        barrier::light(self.is_spared);
        if self.theirs.sleeping().load(Ordering::Relaxed) != 0 {
            self.wake();
        }
        Ok(())
    }

    #[cold]
    fn wake(&self) {
        self.theirs.sleeping().store(0, Ordering::Relaxed);
        sleep::ring(&self.bell);
    }

    #[inline]
    pub fn take(&mut self, with: impl FnOnce(&[u8], &[u8])) -> Result<bool, Broken> {
        if self.is_alive { self.reader.take(with) } else { Ok(false) }
    }

    #[inline]
    pub fn has_packet(&self) -> bool {
        self.is_alive && self.reader.has_packet()
    }

    /// Where memory of its heap is mapped here.
    #[inline]
    pub fn view(&self, theirs: Span) -> Option<Span> {
        let at = theirs.address.checked_sub(self.heap.address)?;
        self.heap.part(at, theirs.bytes)?;
        self.theirs.heap().part(at, theirs.bytes)
    }

    /// Its process, if its memory can be copied.
    pub fn copyable(&self) -> Result<i32, Refused> {
        if self.can_copy { Ok(self.pid) } else { Err(Refused::Unsupported) }
    }

    #[inline]
    pub fn enter(&mut self, slot: u32, key: u64) -> Result<Published, Refused> {
        if slot >= PUBLISHED_MAX || key == 0 {
            return Err(Refused::Key);
        }
        let access = &self.theirs.access(self.their_inbox).key;
        access.store(key, Ordering::Release);
        barrier::light(self.is_spared);
        let row = self.theirs.row(slot);
        let is_there = row.key.load(Ordering::Acquire) == key;
        let published = Published {
            key,
            span: Span::new(row.address.load(Ordering::Acquire), row.bytes.load(Ordering::Acquire)),
            rights: row.rights.load(Ordering::Acquire) as u32,
        };
        // The row may have been given to another registration while it was read.
        if is_there && row.key.load(Ordering::Acquire) == key {
            return Ok(published);
        }
        access.store(0, Ordering::Release);
        Err(Refused::Key)
    }

    #[inline]
    pub fn leave(&self) {
        self.theirs.access(self.their_inbox).key.store(0, Ordering::Release);
    }

    /// Returns when the peer accesses no memory of ours by this key: an access is as long as its copy.
    pub fn wait_for_access(&mut self, key: u64) {
        let access = &self.ours.access(self.inbox).key;
        let mut rounds = 0_u32;
        while key != 0 && access.load(Ordering::Acquire) == key && !self.is_gone() && self.is_alive
        {
            rounds += 1;
            if rounds > 1000 {
                std::thread::sleep(Duration::from_micros(50));
            }
            std::thread::yield_now();
        }
    }
}
