//! Threads that answer requests on the CPU of whoever asks: [`crate::place`] decides, this does it.
//!
//! ```text
//!   a program ──► Front: the mount, `covey export` ──► Follower: a server of the cluster
//!      CPU 3        joins CPU 3 and makes way           joins the front that is bound
//! ```
//!
//! A [`Front`] answers somebody whom it cannot tell where to run. So that the scheduler wakes the caller
//! where the front is, and not on an idle CPU, the front gives itself the policy SCHED_IDLE as long as it
//! shares the caller's CPU: it then makes way for the caller at once. It needs the right to take
//! that back (CAP_SYS_NICE, or RLIMIT_NICE), else it stays where it is. A [`Follower`] only binds
//! itself.
//!
//! What always holds:
//! - a thread moves itself only, and only within the CPUs that it was given from outside;
//! - a guard looks at every front that has moved, every 5 ms: one that did not get to run, or
//!   that nobody has asked since, is set free;
//! - a thread that answers reads nothing of /proc that waits for who asks it: a scout does;
//! - threads that one that has moved starts do not stay there ([`everywhere`]).
//!
//! Who moves much data says besides that others are more urgent ([`make_way`]).
//!
//! `COVEY_PLACEMENT=off` in the environment turns all of it off.

mod follower;
mod front;
mod guard;
mod scout;
mod slice;
mod thread;

pub use follower::Follower;
pub use front::{Front, Meeting, Whereabouts};
pub use slice::{make_way, usual_turns};
pub use thread::run_first;
pub(crate) use thread::{apart_from, current_cpu};

use rustix::thread::CpuSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger data takes so long to copy that two CPUs are worth more than none woken.
pub const SMALL_BYTES: usize = 128 << 10;

/// How often threads of this process have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Moves to another's CPU.
    pub joined: u64,
    /// Times that the guard set a thread free because it did not get to run.
    pub rescued: u64,
}

/// How often threads of this process have moved until now.
pub fn moves() -> Moves {
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Moves { joined: value(&JOINED), rescued: value(&RESCUED) }
}

/// To be called by threads that may have been started by one that has moved: they inherit its place
/// and its policy. A failure leaves them so, which costs time only.
pub fn everywhere() {
    let Some(all) = at_start().filter(|_| moves().joined > 0) else { return };
    if thread::is_yielding() {
        let _ = thread::be_normal(0);
    }
    if thread::allowed(None).is_ok_and(|set| set.count() == 1) {
        let _ = thread::allow(None, all);
    }
}

/// Where this process may run: what was given to it. None where there is nothing to choose, or it
/// was turned off.
fn at_start() -> Option<&'static CpuSet> {
    static ALL: OnceLock<Option<CpuSet>> = OnceLock::new();
    let look = || {
        let is_off = std::env::var_os("COVEY_PLACEMENT").is_some_and(|value| value == "off");
        if is_off { None } else { thread::allowed(None).ok().filter(|all| all.count() > 1) }
    };
    ALL.get_or_init(look).as_ref()
}

static JOINED: AtomicU64 = AtomicU64::new(0);
static RESCUED: AtomicU64 = AtomicU64::new(0);

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
