//! What was removed a while ago: a write or a cut that comes late must not bring it back.

use covey_stripe::ops::Id;
use std::collections::{HashMap, VecDeque};

/// How many removed ids are remembered.
const GONE_MAX: usize = 1 << 16;

/// Removed objects.
#[derive(Default)]
pub struct Gone {
    /// Up to which epoch each was removed.
    epochs: HashMap<Id, u32>,
    /// The oldest first.
    order: VecDeque<Id>,
}

impl Gone {
    /// Whether the object was removed, at whatever epoch.
    pub fn has(&self, id: Id) -> bool {
        self.epochs.contains_key(&id)
    }

    /// Whether the object was removed at this epoch or a later one.
    pub fn has_at(&self, id: Id, epoch: u32) -> bool {
        self.epochs.get(&id).is_some_and(|&gone| gone >= epoch)
    }

    /// The object was removed up to this epoch.
    pub fn add(&mut self, id: Id, epoch: u32) {
        let before = self.epochs.get(&id).copied();
        self.epochs.insert(id, epoch.max(before.unwrap_or(0)));
        if before.is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > GONE_MAX {
            let oldest = self.order.pop_front().expect("it has more than none");
            self.epochs.remove(&oldest);
        }
    }

    /// The object is there again, at an epoch that nobody had removed.
    pub fn is_back(&mut self, id: Id) {
        if self.epochs.remove(&id).is_some() {
            self.order.retain(|&other| other != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DataTree;
    use super::*;
    use covey_io::os::disk::OsDisk;
    use covey_stripe::objects::Doomed;
    use std::rc::Rc;
    use std::sync::Arc;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut gone = Gone::default();
        (0..=GONE_MAX as Id).for_each(|id| gone.add(id, 0));
        assert!(!gone.has(0));
        assert!(gone.has(1) && gone.has(GONE_MAX as Id));
    }

    #[test]
    fn what_is_back_at_a_later_epoch_may_go_again() {
        let mut gone = Gone::default();
        gone.add(1, 2);
        gone.add(1, 1);
        assert!(gone.has_at(1, 2) && !gone.has_at(1, 3));
        gone.is_back(1);
        assert!(!gone.has(1));
    }

    #[test]
    fn a_cut_that_comes_after_the_removal_makes_no_object() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Rc::new(DataTree::open(Arc::new(OsDisk), directory.path()).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tree.cut(7, 1, 0).await.unwrap();
            tree.remove_all(&[Doomed { id: 7, epoch: 2 }]).unwrap();
            tree.cut(7, 2, 0).await.unwrap();
            assert!(!tree.path(7, 2).exists());
            // One that was given another striping lives on.
            tree.cut(7, 3, 0).await.unwrap();
            assert!(tree.path(7, 3).exists());
        });
    }

    #[test]
    fn a_cut_that_waits_for_a_write_while_the_object_is_removed_makes_none() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Rc::new(DataTree::open(Arc::new(OsDisk), directory.path()).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let object = tree.object(7);
            let writing = tree.begin_writing(&object, 0, 1);
            let cut = tree.cut(7, 1, 0);
            let remove = async {
                tokio::task::yield_now().await;
                tree.remove_all(&[Doomed { id: 7, epoch: 1 }]).unwrap();
                drop(writing);
            };
            let (cut, ()) = futures_util::join!(cut, remove);
            cut.unwrap();
            assert!(!tree.path(7, 1).exists());
        });
    }
}
