//! Which files which users have open for writing.
//!
//! All users of a node's `/fs` share one session on the metadata server. So what one of them has open,
//! and what that permits, is kept apart from the others' here.

use covey_stripe::ops::Id;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// How often each user has each file open for writing.
#[derive(Clone, Default)]
pub(super) struct Writers(Rc<RefCell<HashMap<(u32, Id), usize>>>);

/// One of these opens, until it is dropped.
pub(super) struct Writer {
    writers: Writers,
    key: (u32, Id),
}

impl Writers {
    /// The user `uid` has opened the file for writing.
    pub fn enter(&self, uid: u32, id: Id) -> Writer {
        *self.0.borrow_mut().entry((uid, id)).or_default() += 1;
        Writer { writers: self.clone(), key: (uid, id) }
    }

    /// Whether the user may cut the file, whatever its mode says by now. Any of the user's opens will
    /// do: Linux's v9fs does not always send the fid that ftruncate(2) was called with.
    pub fn has(&self, uid: u32, id: Id) -> bool {
        self.0.borrow().contains_key(&(uid, id))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut all = self.writers.0.borrow_mut();
        let Some(count) = all.get_mut(&self.key) else { return };
        *count -= 1;
        if *count == 0 {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_user_has_open_is_nothing_to_the_others_and_ends_with_the_last_open() {
        let writers = Writers::default();
        let (one, two) = (writers.enter(1001, 7), writers.enter(1001, 7));
        assert!(writers.has(1001, 7) && !writers.has(1002, 7) && !writers.has(1001, 8));
        drop(one);
        assert!(writers.has(1001, 7));
        drop(two);
        assert!(!writers.has(1001, 7) && writers.0.borrow().is_empty());
    }
}
