//! On whose behalf a request is: FUSE tells a caller's user, primary group and thread, and /proc the
//! thread's other groups.
//!
//! They are the thread's, not the account's: containers, services and setpriv(1) give groups that no
//! database knows of, and take away some that it knows. To read them takes as long as a request
//! that is answered from memory, so what was read is used again for [`KEPT`]. It may be wrong then in
//! two ways, and neither shows:
//!
//! - The thread has got a group. A refusal by what is remembered is no answer: /proc is read again, and
//!   if it says something else, so is the question asked again ([`Session::as_caller`]). Changes of
//!   modes and groups, which may go wrong without being refused, never go by what is remembered.
//! - The thread has lost a group, or is another one with its number. The kernel checks permissions
//!   itself wherever it lets in others than root, with the groups of this moment.
//!
//! The account's groups stand in where there is no thread to look at: the caller is in a pid namespace
//! that is not below the mount's (the kernel says 0), /proc is hidden or that of another namespace,
//! or the thread acts as somebody else than it is, as those of knfsd and io_uring may.

use super::{Result, Session, locked};
use crate::Groups;
use crate::abi::Header;
use crate::files::Files;
use covey_io::os::credentials::{self, ThreadIdentity};
use covey_ninep::tree::Errno;
use covey_stripe::ops::Caller;
use covey_wire::List;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The callers of one mount.
pub struct Who {
    /// The groups of an account.
    account: Groups,
    /// The identity of a thread.
    thread: Box<dyn Fn(u32) -> Option<ThreadIdentity> + Send + Sync>,
    known: Mutex<HashMap<u32, Known>>,
}

/// What /proc has said of a thread.
struct Known {
    who: Caller,
    read_at: Instant,
}

impl Who {
    /// Looks at /proc, if that is of this process's pid namespace.
    pub fn new(account: Groups) -> Who {
        if credentials::sees_threads() {
            Who::with(account, credentials::of_thread)
        } else {
            Who::with(account, |_| None)
        }
    }

    fn with(
        account: Groups,
        thread: impl Fn(u32) -> Option<ThreadIdentity> + Send + Sync + 'static,
    ) -> Who {
        Who { account, thread: Box::new(thread), known: Mutex::default() }
    }

    /// Who asks, and whether that is remembered.
    pub fn of(&self, header: &Header) -> (Caller, bool) {
        self.of_at(header, Instant::now())
    }

    fn of_at(&self, header: &Header, now: Instant) -> (Caller, bool) {
        let known = locked(&self.known).get(&header.pid).and_then(|known| {
            let is_the_same = (known.who.uid, known.who.gid) == (header.uid, header.gid);
            let is_young = now.duration_since(known.read_at) < KEPT;
            (is_the_same && is_young).then(|| known.who.clone())
        });
        match known {
            Some(who) => (who, true),
            None => (self.anew_at(header, now), false),
        }
    }

    /// Who asks, with the groups of this moment.
    pub fn anew(&self, header: &Header) -> Caller {
        self.anew_at(header, Instant::now())
    }

    fn anew_at(&self, header: &Header, now: Instant) -> Caller {
        let (uid, gid) = (header.uid, header.gid);
        let caller = |mut groups: Vec<u32>| {
            groups.truncate(GROUPS_MAX);
            Caller { uid, gid, groups: List(groups) }
        };
        // Root is not asked for its groups.
        if uid == 0 {
            return caller(vec![gid]);
        }
        let is_seen = header.pid != 0;
        let thread = is_seen.then(|| (self.thread)(header.pid)).flatten();
        let Some(thread) = thread.filter(|thread| (thread.uid, thread.gid) == (uid, gid)) else {
            return caller((self.account)(uid, gid));
        };
        let who = caller(thread.groups);
        self.remember(header.pid, Known { who: who.clone(), read_at: now });
        who
    }

    fn remember(&self, tid: u32, news: Known) {
        let mut known = locked(&self.known);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, known| news.read_at.duration_since(known.read_at) < KEPT);
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(tid, news);
    }
}

impl<F: Files> Session<F> {
    /// Acts on behalf of a caller. What is refused because of groups that are remembered is asked once
    /// more with those of this moment, if they are others.
    pub(super) async fn as_caller<T>(
        &self,
        header: &Header,
        act: impl AsyncFn(&Caller) -> Result<T>,
    ) -> Result<T> {
        let (who, is_remembered) = self.who.of(header);
        let outcome = act(&who).await;
        let is_refused = |error: &Errno| matches!(error.code, Errno::EACCES | Errno::EPERM);
        if !is_remembered || !outcome.as_ref().is_err_and(is_refused) {
            return outcome;
        }
        match self.who.anew(header) {
            now if now == who => outcome,
            now => act(&now).await,
        }
    }
}

/// How long the groups of a thread are good for, so that a program that asks a lot costs one look a
/// second.
const KEPT: Duration = Duration::from_secs(1);

/// Threads that are remembered at once.
const KNOWN_MAX: usize = 1024;

/// Most groups that are sent to servers; Linux has up to 65,536.
const GROUPS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn header(uid: u32, pid: u32) -> Header {
        Header {
            len: 40,
            opcode: 1,
            unique: 1,
            nodeid: 1,
            uid,
            gid: 100,
            pid,
            total_extlen: 0,
            padding: 0,
        }
    }

    /// Threads 1 to 9999 are user 7's, with as many groups as they were looked at.
    fn who() -> (Who, Arc<AtomicUsize>) {
        let looks = Arc::new(AtomicUsize::new(0));
        let count = looks.clone();
        let thread = move |tid: u32| {
            let look = count.fetch_add(1, Ordering::Relaxed);
            let groups = (0..=look as u32).collect();
            (tid < 10_000).then_some(ThreadIdentity { uid: 7, gid: 100, groups })
        };
        (Who::with(Arc::new(|_, _| vec![55]), thread), looks)
    }

    #[test]
    fn a_thread_is_looked_at_once_a_second_and_when_it_matters() {
        let (who, looks) = who();
        let (now, header) = (Instant::now(), header(7, 42));
        let (first, is_remembered) = who.of_at(&header, now);
        assert_eq!((first.groups.0.len(), is_remembered), (1, false));
        let almost = now + KEPT - Duration::from_nanos(1);
        assert_eq!(who.of_at(&header, almost), (first, true));
        let (later, is_remembered) = who.of_at(&header, now + KEPT);
        assert_eq!((later.groups.0.len(), is_remembered), (2, false));
        assert_eq!(who.anew_at(&header, now + KEPT).groups.0.len(), 3);
        assert_eq!(looks.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn the_account_stands_in_where_there_is_no_such_thread() {
        let (who, looks) = who();
        for (uid, pid, seen) in [(7, 0, 0), (7, 10_000, 1), (8, 42, 2)] {
            let (found, _) = who.of(&header(uid, pid));
            assert_eq!((found.uid, &found.groups.0[..]), (uid, &[55][..]));
            assert_eq!(looks.load(Ordering::Relaxed), seen);
        }
    }

    #[test]
    fn root_is_not_looked_at_and_a_thread_that_became_another_user_is() {
        let (who, looks) = who();
        assert_eq!(who.of(&header(0, 42)).0.groups.0, [100]);
        assert_eq!(looks.load(Ordering::Relaxed), 0);
        assert!(!who.of(&header(7, 42)).1);
        // It is not that user by now: not even what is remembered of the number is used.
        assert_eq!(who.of(&header(9, 42)).0.groups.0, [55]);
    }

    #[test]
    fn neither_threads_nor_groups_are_kept_without_end() {
        let (who, _) = who();
        let now = Instant::now();
        for tid in 1..=KNOWN_MAX as u32 * 3 {
            let (found, _) = who.of_at(&header(7, tid), now);
            assert!(found.groups.0.len() <= GROUPS_MAX);
            assert!(locked(&who.known).len() <= KNOWN_MAX);
        }
    }
}
