//! Who has asked for fcntl locks on what, and through which handles: what close owes.
//!
//! An owner is a process, whose locks on a file end with its first close of that file (FLUSH), or an
//! open file itself (F_OFD_SETLK), whose locks end with it. The kernel does not tell the two apart, and
//! RELEASE names no owner of fcntl locks. So what an owner still has goes with the last of the handles
//! that it has asked through.

use covey_stripe::ops::Id;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// The owners of one mount.
#[derive(Default)]
pub struct Askers {
    /// The handles by which an owner has asked for locks on a file.
    handles: HashMap<(Id, u64), HashSet<u64>>,
    /// The owners that have asked by a handle.
    owners: HashMap<u64, HashSet<u64>>,
    /// The owners whose locks on a file are being given back since a handle has gone, and how often.
    leaving: HashMap<(Id, u64), usize>,
}

impl Askers {
    /// An owner is about to ask for a lock by a handle.
    pub fn note(&mut self, id: Id, owner: u64, fh: u64) {
        self.handles.entry((id, owner)).or_default().insert(fh);
        self.owners.entry(fh).or_default().insert(owner);
    }

    /// All of them: file, owner, handle.
    pub fn all(&self) -> impl Iterator<Item = (Id, u64, u64)> {
        let of = |(&(id, owner), handles): (&(Id, u64), _)| {
            let handles: &HashSet<u64> = handles;
            handles.iter().map(move |&fh| (id, owner, fh)).collect::<Vec<_>>()
        };
        self.handles.iter().flat_map(of)
    }

    /// Whether an owner has asked for locks on a file since it last gave up all of them.
    pub fn has(&self, id: Id, owner: u64) -> bool {
        self.handles.contains_key(&(id, owner))
    }

    /// An owner gives up all it has on a file; whether there may be anything.
    pub fn leave(&mut self, id: Id, owner: u64) -> bool {
        let Some(handles) = self.handles.remove(&(id, owner)) else { return false };
        for fh in handles {
            if let Some(owners) = self.owners.get_mut(&fh) {
                owners.remove(&owner);
                if owners.is_empty() {
                    self.owners.remove(&fh);
                }
            }
        }
        true
    }

    /// Whether locks of an owner on a file are being given back: one that it asks for meanwhile would go with them.
    pub fn is_leaving(&self, id: Id, owner: u64) -> bool {
        self.leaving.contains_key(&(id, owner))
    }

    /// They have been given back.
    pub fn left(&mut self, id: Id, owner: u64) {
        if let Entry::Occupied(mut count) = self.leaving.entry((id, owner)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// A handle is gone: the owners whose last one it was. They are leaving until [`Askers::left`] is called for each.
    pub fn close(&mut self, id: Id, fh: u64) -> Vec<u64> {
        let owners = self.owners.remove(&fh).unwrap_or_default();
        let is_last = |owner: &u64| {
            let Some(handles) = self.handles.get_mut(&(id, *owner)) else { return false };
            handles.remove(&fh);
            handles.is_empty() && self.handles.remove(&(id, *owner)).is_some()
        };
        let last: Vec<u64> = owners.into_iter().filter(is_last).collect();
        for owner in &last {
            *self.leaving.entry((id, *owner)).or_default() += 1;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_empty(askers: &Askers) -> bool {
        askers.handles.is_empty() && askers.owners.is_empty() && askers.leaving.is_empty()
    }

    #[test]
    fn an_open_file_leaves_with_its_handle() {
        let mut askers = Askers::default();
        askers.note(7, 100, 1);
        askers.note(7, 100, 1);
        askers.note(7, 200, 2);
        assert_eq!(askers.close(7, 1), [100]);
        assert!(!askers.has(7, 100) && askers.has(7, 200));
        assert_eq!(askers.close(7, 2), [200]);
        assert!(askers.is_leaving(7, 100) && !askers.is_leaving(7, 300));
        [100, 200].into_iter().for_each(|owner| askers.left(7, owner));
        assert!(is_empty(&askers));
    }

    #[test]
    fn a_process_leaves_with_its_first_close_and_comes_back_by_another_handle() {
        let mut askers = Askers::default();
        askers.note(7, 100, 1);
        askers.note(7, 100, 2);
        assert!(askers.leave(7, 100));
        assert!(!askers.leave(7, 100));
        // The first handle lives on with another process.
        askers.note(7, 100, 2);
        assert!(askers.close(7, 1).is_empty());
        assert!(askers.has(7, 100));
        assert!(askers.leave(7, 100));
        assert!(askers.close(7, 2).is_empty());
        assert!(is_empty(&askers));
    }

    #[test]
    fn what_no_flush_gave_up_goes_with_the_last_handle() {
        let mut askers = Askers::default();
        askers.note(7, 100, 1);
        askers.note(7, 100, 2);
        askers.note(7, 300, 1);
        assert_eq!(askers.close(7, 1), [300]);
        assert_eq!(askers.close(7, 2), [100]);
        [100, 300].into_iter().for_each(|owner| askers.left(7, owner));
        assert!(is_empty(&askers));
    }
}
