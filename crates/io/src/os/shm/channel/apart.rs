//! Both ends of a channel on CPUs of their own, where there is enough to copy.
//!
//! A scheduler that has put two processes on one CPU leaves them there, since each yields to the other: then only one copies
//! at a time. Each end says where it waits. One of them, which is always the same, goes to another CPU when it has found the
//! other on its own for a while, and long payloads between them.

use crate::os::place::{apart_from, current_cpu};
use crate::os::shm::Shm;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Payloads of so many bytes are worth two CPUs.
const LONG_BYTES: u64 = 128 << 10;
/// And for so long after one.
const LONG_LASTS: Duration = Duration::from_millis(2);
/// Waits in a row with the other end on the same CPU.
const TOGETHER_MAX: u32 = 16;
/// No more often than this.
const AGAIN: Duration = Duration::from_millis(10);

/// What is known of where both are.
#[derive(Debug, Default)]
pub(super) struct Apart {
    pub makes_way: bool,
    together: u32,
    /// A long payload was sent then.
    passed: Option<Instant>,
    left: Option<Instant>,
}

impl Apart {
    /// A payload of so many bytes is sent.
    pub fn passed(&mut self, bytes: u64) {
        if self.makes_way && bytes >= LONG_BYTES {
            self.passed = Some(Instant::now());
        }
    }

    /// This end waits for the other one, and does not sleep.
    pub fn wait(&mut self, shm: &Shm) {
        let here = u32::try_from(current_cpu()).unwrap_or(0);
        shm.arena.cpu().store(here + 1, Ordering::Relaxed);
        if !self.makes_way || self.passed.is_none() {
            return;
        }
        let is_with = |link: &super::super::link::Link| link.waits_on(here + 1);
        if !shm.links.iter().any(is_with) {
            self.together = 0;
            return;
        }
        self.together += 1;
        if self.together >= TOGETHER_MAX {
            self.together = 0;
            self.leave(here as usize);
        }
    }

    fn leave(&mut self, here: usize) {
        let now = Instant::now();
        let is_old = |at: Instant, age| now.saturating_duration_since(at) > age;
        if self.passed.is_none_or(|at| is_old(at, LONG_LASTS)) {
            self.passed = None;
        } else if self.left.is_none_or(|at| is_old(at, AGAIN)) {
            self.left = Some(now);
            apart_from(here);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::shm::Settings;
    use std::os::unix::net::UnixStream;

    /// Two that have met, of which the first waits where the other one says that it does.
    fn together(apart: &mut Apart, bytes: u64, waits: u32) {
        let new =
            || Shm::new(Settings { peers_max: 1, heap_bytes: 0, one_copy: false, view: true });
        let (mut shm, mut other) = (new().unwrap(), new().unwrap());
        let (one, two) = UnixStream::pair().unwrap();
        let there = std::thread::spawn(move || {
            other.meet(two).unwrap();
            other
        });
        shm.meet(one).unwrap();
        let other = there.join().unwrap();
        apart.passed(bytes);
        for _ in 0..waits {
            let here = u32::try_from(current_cpu()).unwrap();
            other.arena.cpu().store(here + 1, Ordering::Relaxed);
            apart.wait(&shm);
        }
    }

    #[test]
    fn one_of_two_on_a_cpu_leaves_it_where_long_payloads_pass() {
        let leaves = |makes_way, bytes, waits| {
            let mut apart = Apart { makes_way, ..Apart::default() };
            together(&mut apart, bytes, waits);
            apart.left.is_some()
        };
        // A payload counts for a moment only.
        assert!((0..100).any(|_| leaves(true, LONG_BYTES, 1000)));
        assert!(!leaves(false, LONG_BYTES, 1000), "it is the other one's to leave");
        assert!(!leaves(true, LONG_BYTES - 1, 1000), "two CPUs are not worth it");
        assert!(!leaves(true, LONG_BYTES, TOGETHER_MAX - 1), "it may be over soon");
    }
}
