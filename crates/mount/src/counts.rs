//! What each user asks of this mount, for that user's own eyes: the servers know a mount as one client, whoever uses it.

use super::transport::Answer;
use covey_ninep::tree::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The attribute that reads as the reader's own counts, at any file of the mount. Nobody sets it.
pub const STATS: &str = "user.covey.stats";

/// Users that are counted. The requests of those who come later are not.
const USERS_MAX: usize = 1024;

/// Counts of all users, since the mount began.
#[derive(Default)]
pub(crate) struct Counts {
    users: Mutex<HashMap<u32, HashMap<&'static str, Count>>>,
}

/// Requests of one kind.
#[derive(Default)]
struct Count {
    count: u64,
    errors: u64,
    bytes: u64,
    sum: Duration,
    max: Duration,
}

impl Counts {
    /// A user's request of this kind was answered. `written` is the bytes it carried.
    pub fn note(
        &self,
        uid: u32,
        kind: &'static str,
        written: u32,
        outcome: &Result<Answer, Errno>,
        took: Duration,
    ) {
        let mut users = self.lock();
        if users.len() >= USERS_MAX && !users.contains_key(&uid) {
            return;
        }
        let one = users.entry(uid).or_default().entry(kind).or_default();
        one.count += 1;
        match outcome {
            Ok(Answer::Data(data)) => one.bytes += data.len() as u64,
            Ok(_) => one.bytes += u64::from(written),
            Err(_) => one.errors += 1,
        }
        one.sum += took;
        one.max = one.max.max(took);
    }

    /// A user's counts, a line for each kind: `op KIND count N errors N bytes N mean_us N max_us N`, as in a node's /stats.
    pub fn of(&self, uid: u32) -> String {
        let users = self.lock();
        let kinds: BTreeMap<_, _> = users.get(&uid).into_iter().flatten().collect();
        let mut text = String::new();
        for (kind, Count { count, errors, bytes, sum, max }) in kinds {
            let (mean, max) = (sum.as_secs_f64() * 1e6 / *count as f64, max.as_secs_f64() * 1e6);
            let _ = writeln!(
                text,
                "op {} count {count} errors {errors} bytes {bytes} mean_us {mean:.1} max_us {max:.1}",
                kind.to_ascii_lowercase(),
            );
        }
        text
    }

    /// Counts are changed in single steps: what a panic left behind is whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, HashMap<&'static str, Count>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_sees_what_is_theirs() {
        let counts = Counts::default();
        let took = Duration::from_micros(10);
        counts.note(1, "Write", 7, &Ok(Answer::Done), took);
        counts.note(1, "Write", 5, &Err(Errno::from(Errno::ENOSPC)), 3 * took);
        counts.note(1, "Read", 0, &Ok(Answer::Data(vec![0; 3].into())), took);
        counts.note(2, "Lookup", 0, &Ok(Answer::Done), took);
        let mine = "op read count 1 errors 0 bytes 3 mean_us 10.0 max_us 10.0\n\
                    op write count 2 errors 1 bytes 7 mean_us 20.0 max_us 30.0\n";
        assert_eq!(counts.of(1), mine);
        assert_eq!(counts.of(2), "op lookup count 1 errors 0 bytes 0 mean_us 10.0 max_us 10.0\n");
        assert_eq!(counts.of(3), "");
    }

    #[test]
    fn users_are_bounded() {
        let counts = Counts::default();
        let count = |uid| counts.note(uid, "Lookup", 0, &Ok(Answer::Done), Duration::ZERO);
        (0..2000).for_each(count);
        count(5);
        assert!(counts.of(5).starts_with("op lookup count 2 "));
        assert_eq!(counts.of(1999), "");
    }
}
