//! The TCP ports of this node's targets: their connections are bulk, whichever port that is.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The ports at which targets are served now, and at how many addresses each.
#[derive(Clone, Debug, Default)]
pub struct TargetPorts(Rc<RefCell<BTreeMap<u16, usize>>>);

/// A target is served at a port, as long as this is there.
#[derive(Debug)]
pub struct TargetPort {
    all: TargetPorts,
    port: u16,
}

impl TargetPorts {
    /// A target is served there from here on.
    pub fn hold(&self, port: u16) -> TargetPort {
        *self.0.borrow_mut().entry(port).or_default() += 1;
        TargetPort { all: self.clone(), port }
    }

    /// These ports, and those of targets.
    pub fn and(&self, others: &BTreeSet<u16>) -> BTreeSet<u16> {
        others.iter().chain(self.0.borrow().keys()).copied().collect()
    }
}

impl Drop for TargetPort {
    fn drop(&mut self) {
        let mut all = self.all.0.borrow_mut();
        let held = all.get_mut(&self.port).expect("a port is held as often as it is let go");
        *held -= 1;
        if *held == 0 {
            all.remove(&self.port);
        }
    }
}
