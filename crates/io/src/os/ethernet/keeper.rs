//! Sends frames again that nobody has acknowledged, while the program that sent them computes and does not call us.
//!
//! Who calls sends what was lost by TCP, after 2 ms. Who does not call has a thread for it, which sends the frame again by the
//! wire, twice: the kernel does as much for what was given to TCP. It is there once something was sent, and sleeps while
//! nothing is. A receiver that computes, too, acknowledges nothing either: its ring has room for what comes again.

use super::ring::Way;
use covey_wire::Peer;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is kept for all peers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// By peer: frames that are kept. Not more than the thread has.
    counts: Vec<usize>,
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    wakes: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    /// By peer.
    frames: Vec<VecDeque<Frame>>,
    spare: Vec<Vec<u8>>,
    /// Whether the thread must be woken.
    is_asleep: bool,
    is_over: bool,
    /// Frames that were kept, ever.
    count: u64,
}

#[derive(Debug)]
struct Frame {
    sequence: u32,
    bytes: Vec<u8>,
    way: Way,
    /// When it goes again; none until the thread has seen it.
    due: Option<Instant>,
    /// How often it has gone again.
    again: usize,
}

impl Keeper {
    /// Keeps a frame that has just left.
    pub fn keep(&mut self, peer: Peer, sequence: u32, frame: &[u8], way: &Way) {
        let at = peer.0 as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        if self.thread.is_none() && self.begin().is_err() {
            // Then it goes again when its sender calls.
            return;
        }
        self.counts[at] += 1;
        let mut kept = self.shared.lock();
        let mut bytes = kept.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(frame);
        if kept.frames.len() <= at {
            kept.frames.resize_with(at + 1, VecDeque::new);
        }
        let frame = Frame { sequence, bytes, way: way.clone(), due: None, again: 0 };
        kept.frames[at].push_back(frame);
        kept.count += 1;
        if kept.is_asleep {
            self.shared.wakes.notify_one();
        }
    }

    /// Forgets the frames of a peer before this number.
    #[inline]
    pub fn release(&mut self, peer: Peer, before: u32) {
        if self.counts.get(peer.0 as usize).is_some_and(|count| *count > 0) {
            self.forget(peer, |frame| (frame.sequence.wrapping_sub(before) as i32) < 0);
        }
    }

    /// Forgets all frames of a peer.
    pub fn release_all(&mut self, peer: Peer) {
        self.forget(peer, |_| true);
    }

    fn forget(&mut self, peer: Peer, is_over: impl Fn(&Frame) -> bool) {
        let Some(count) = self.counts.get_mut(peer.0 as usize).filter(|count| **count > 0) else {
            return;
        };
        let mut kept = self.shared.lock();
        let Kept { frames, spare, .. } = &mut *kept;
        let frames = &mut frames[peer.0 as usize];
        while let Some(Frame { mut bytes, .. }) = frames.pop_front_if(|frame| is_over(frame)) {
            bytes.clear();
            if spare.len() < SPARE_MAX {
                spare.push(bytes);
            }
        }
        *count = frames.len();
    }

    #[cold]
    fn begin(&mut self) -> io::Result<()> {
        let (shared, builder) = (self.shared.clone(), std::thread::Builder::new());
        let thread = builder.name("covey-frames".to_owned()).spawn(move || {
            // Handlers of the program run in threads of the program.
            hold_signals();
            shared.run();
        })?;
        self.thread = Some(thread);
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.wakes.notify_one();
        if let Some(thread) = self.thread.take() {
            // What it panics with is on stderr.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let (mut kept, mut count, mut since) = (self.lock(), 0, Instant::now());
        while !kept.is_over {
            let now = Instant::now();
            let waits = kept.send_due(now);
            if kept.count != count {
                (count, since) = (kept.count, now);
            }
            kept = if waits || now < since + LINGER {
                let woken = self.wakes.wait_timeout(kept, TICK);
                woken.unwrap_or_else(PoisonError::into_inner).0
            } else {
                kept.is_asleep = true;
                let mut woken = self.wakes.wait(kept).unwrap_or_else(PoisonError::into_inner);
                woken.is_asleep = false;
                woken
            };
        }
    }
}

fn hold_signals() {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: the set is filled before it is used, and the mask is that of this thread alone.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

impl Kept {
    /// Sends what is due. Whether something will be.
    fn send_due(&mut self, now: Instant) -> bool {
        let mut waits = false;
        for frame in self.frames.iter_mut().flatten() {
            let Some(pause) = PAUSES.get(frame.again) else { continue };
            waits = true;
            let due = *frame.due.get_or_insert(now + *pause);
            if due <= now {
                // Whether it left does not matter: its sender sees to it.
                frame.way.send(&frame.bytes);
                frame.again += 1;
                frame.due = PAUSES.get(frame.again).map(|pause| now + *pause);
            }
        }
        waits
    }
}

/// Before a frame goes again, and again. A sender that calls has sent it by TCP before.
const PAUSES: [Duration; 2] = [Duration::from_millis(6), Duration::from_millis(50)];
/// How often a frame is sent, at most.
#[cfg(test)]
pub(super) const TIMES: usize = PAUSES.len() + 1;
const TICK: Duration = Duration::from_millis(5);
/// After so long without a frame it sleeps until there is one.
const LINGER: Duration = Duration::from_millis(100);
const SPARE_MAX: usize = 64;
