//! Sleeping until a peer has sent something, and waiting that begins without it.

use covey_wire::Transport;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What a descriptor that is watched is.
pub(super) const BELL: u64 = 0;
pub(super) const LISTENER: u64 = 1;
pub(super) const PEER: u64 = 2;

/// What others ring to wake us.
pub(super) fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Wakes the owner of a bell.
pub(super) fn ring(bell: &OwnedFd) {
    // Any number will do. It can only fail when the sum has reached what nobody reaches.
    let _ = rustix::io::write(bell, &1_u64.to_le_bytes());
}

/// Takes back that it was rung.
pub(super) fn silence(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

/// A bell that another process or thread rings.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A bell that nobody has rung.
    pub fn new() -> io::Result<Bell> {
        bell().map(Bell)
    }

    /// Wakes who sleeps until it rings.
    pub fn ring(&self) {
        ring(&self.0);
    }

    /// Takes back that it was rung.
    pub fn silence(&self) {
        silence(&self.0);
    }

    /// Sleeps until it rings or the other end of `peer` is gone or has sent something, so long at most. Says whether
    /// `peer` has something to say.
    pub fn sleep(&self, peer: BorrowedFd<'_>, time: Duration) -> bool {
        let mut fds =
            [&self.0.as_fd(), &peer].map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let _ = rustix::event::poll(&mut fds, Some(&time));
        let has_spoken = !fds[1].revents().is_empty();
        self.silence();
        has_spoken
    }
}

impl From<OwnedFd> for Bell {
    fn from(fd: OwnedFd) -> Bell {
        Bell(fd)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Adds a descriptor to those whose events wake us.
pub(super) fn watch(events: &OwnedFd, fd: BorrowedFd<'_>, what: u64) -> io::Result<()> {
    Ok(epoll::add(events, fd, EventData::new_u64(what), EventFlags::IN)?)
}

/// Whether any descriptor that is watched has an event.
pub(in crate::os) fn has_event(events: &OwnedFd) -> bool {
    is_readable(events.as_fd())
}

/// Whether a descriptor has something to be read, or its other end is gone.
pub(super) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(fd, Duration::ZERO)
}

fn poll(fd: BorrowedFd<'_>, time: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    rustix::event::poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// How long a waiter does what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Only polls.
    pub spin: Duration,
    /// Polls, and lets others have the CPU between.
    pub yield_: Duration,
    /// Longest sleep, after which it polls again whatever happens.
    pub sleep: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            spin: Duration::from_micros(50),
            yield_: Duration::from_micros(500),
            sleep: Duration::from_millis(100),
        }
    }
}

/// What a wait does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Polls again.
    Spin,
    /// Lets others have the CPU first.
    Yield,
    /// Sleeps until it is woken, as long as the patience says.
    Sleep,
}

/// Waits between polls that found nothing: first it spins, then it yields, then it sleeps until a peer wakes it. So one
/// that is answered soon loses nothing, and more processes than CPUs do not starve each other.
#[derive(Debug)]
pub struct Waiter {
    patience: Patience,
    rounds: u32,
    since: Option<Instant>,
}

impl Waiter {
    /// A waiter with this patience.
    pub fn new(patience: Patience) -> Waiter {
        Waiter { patience, rounds: 0, since: None }
    }

    /// Something happened: the next wait begins anew.
    #[inline]
    pub fn reset(&mut self) {
        self.rounds = 0;
        self.since = None;
    }

    /// A poll found nothing. `may_sleep` is false where something is to be tried again that no peer wakes us for.
    #[inline]
    pub fn wait(&mut self, transport: &mut impl Transport, may_sleep: bool) {
        self.wait_until(transport, may_sleep, None);
    }

    /// The same, but not beyond a point in time. Says whether that was reached.
    #[inline]
    pub fn wait_until(
        &mut self,
        transport: &mut impl Transport,
        may_sleep: bool,
        until: Option<Instant>,
    ) -> bool {
        self.rounds += 1;
        // The clock costs as much as some polls.
        if self.rounds.is_multiple_of(ROUNDS) {
            return self.wait_longer(transport, may_sleep, until);
        }
        std::hint::spin_loop();
        false
    }

    /// What the next wait does: for who polls something else than a transport.
    #[inline]
    pub fn pace(&mut self) -> Pace {
        self.rounds += 1;
        if self.rounds.is_multiple_of(ROUNDS) {
            return self.pace_at(crate::os::clock::monotonic());
        }
        Pace::Spin
    }

    /// Longest sleep.
    pub fn sleep_max(&self) -> Duration {
        self.patience.sleep
    }

    #[cold]
    fn pace_at(&mut self, now: Instant) -> Pace {
        let waited = now.saturating_duration_since(*self.since.get_or_insert(now));
        if waited < self.patience.spin {
            return Pace::Spin;
        }
        // From here on each wait yields or sleeps.
        self.rounds = ROUNDS - 1;
        if waited < self.patience.spin + self.patience.yield_ { Pace::Yield } else { Pace::Sleep }
    }

    #[cold]
    fn wait_longer(
        &mut self,
        transport: &mut impl Transport,
        may_sleep: bool,
        until: Option<Instant>,
    ) -> bool {
        let now = crate::os::clock::monotonic();
        let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
        if left.is_zero() {
            return true;
        }
        match self.pace_at(now) {
            Pace::Spin => return false,
            Pace::Yield => {
                std::thread::yield_now();
                return false;
            }
            Pace::Sleep => {}
        }
        let Some(fd) = transport.sleep_on().filter(|_| may_sleep) else {
            std::thread::sleep(RETRY);
            return false;
        };
        if transport.prepare_sleep() {
            // SAFETY: the transport has this descriptor open, and is borrowed while we wait.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            poll(fd, self.patience.sleep.min(left));
            transport.woke();
        }
        false
    }
}

/// Polls between two looks at the clock.
const ROUNDS: u32 = 64;
/// Between two tries where nobody wakes us.
const RETRY: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::shm::{Settings, Shm};

    #[test]
    fn who_would_sleep_for_an_hour_wakes_when_its_time_is_over() {
        let mut shm = Shm::new(Settings::default()).expect("shared memory");
        let sleep = Duration::from_secs(3600);
        let patience = Patience { spin: Duration::ZERO, yield_: Duration::ZERO, sleep };
        let until = Instant::now() + Duration::from_millis(20);
        for may_sleep in [true, false] {
            let mut waiter = Waiter::new(patience);
            while !waiter.wait_until(&mut shm, may_sleep, Some(until)) {}
            assert!(Instant::now() >= until);
        }
    }
}
