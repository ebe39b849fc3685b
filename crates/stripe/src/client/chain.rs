//! A chain as this client reaches it. Files that are open hold theirs, and follow it when the table changes.

use super::Link;
use crate::chain::Served;
use std::sync::{Arc, RwLock};

/// One chain.
pub struct Chain {
    index: u16,
    head: RwLock<Head>,
}

/// Where its requests go now.
#[derive(Clone)]
pub struct Head {
    /// What is said with them; none where the metadata server knows no chains.
    pub served: Option<Served>,
    /// The first member that has everything.
    pub link: Arc<Link>,
}

impl Head {
    pub(super) fn is_same(&self, other: &Head) -> bool {
        self.served == other.served && Arc::ptr_eq(&self.link, &other.link)
    }
}

impl Chain {
    pub(super) fn new(index: u16, head: Head) -> Arc<Chain> {
        Arc::new(Chain { index, head: RwLock::new(head) })
    }

    /// Its index in the table.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Where its requests go now.
    pub fn head(&self) -> Head {
        self.head.read().expect("no holder panics").clone()
    }

    /// The link of its head.
    pub fn link(&self) -> Arc<Link> {
        self.head().link
    }

    /// Most bytes of payload in one request.
    pub fn payload_max(&self) -> u32 {
        self.head.read().expect("no holder panics").link.payload_max()
    }

    /// Whether its requests go elsewhere by now, or with another generation.
    pub fn has_changed(&self, since: &Head) -> bool {
        !self.head.read().expect("no holder panics").is_same(since)
    }

    pub(super) fn lead_to(&self, head: Head) {
        if self.has_changed(&head) {
            *self.head.write().expect("no holder panics") = head;
        }
    }
}
