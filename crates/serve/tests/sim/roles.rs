//! What clients do, and what they must find. Each role goes on in its client's next process when the
//! machine is lost; what it knows is the observer's, not the process's.

pub mod appends;
pub mod chain_moves;
pub mod chains;
pub mod files;
pub mod locks;
pub mod makers;
pub mod moves;
pub mod orphans;
pub mod private_names;
pub mod shared_names;
pub mod tasks;

use super::lab::Lab;
use covey_stripe::client::Fs;
use covey_stripe::ops::Caller;
use covey_wire::Name;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// A role's process-long run.
pub type Run = Pin<Box<dyn Future<Output = ()>>>;

/// Something that a client does.
pub trait Role {
    /// Goes on until it is done, in a process that has just connected.
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run;
    /// Whether it is done.
    fn is_done(&self) -> bool;
    /// A server has lost its power: the metadata server or an I/O server.
    fn power_lost(&self, _is_meta: bool) {}
    /// The metadata server's process has started anew.
    fn meta_started(&self) {}
    /// The client's machine is gone, and what it was doing with it.
    fn client_lost(&self) {}
    /// The client's session may have ended, and its locks with it.
    fn session_in_doubt(&self) {}
    /// What must hold when everything is whole and quiet again, seen by a client that has just come.
    fn settle(self: Rc<Self>, _lab: Rc<Lab>, _fs: Fs) -> Run {
        Box::pin(async {})
    }
}

/// Does something as often as is left to do, with a pause of up to `most` before each time.
pub async fn repeat(lab: &Lab, left: &Cell<u64>, most: Duration, mut step: impl AsyncFnMut()) {
    while left.get() > 0 {
        lab.pause(most).await;
        step().await;
        left.set(left.get() - 1);
    }
}

/// Everything is done by root.
pub fn root() -> Caller {
    Caller::default()
}

pub fn name(text: impl AsRef<str>) -> Name {
    Name::from(text.as_ref())
}
