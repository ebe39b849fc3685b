//! Files that are moved to other I/O servers while others work on them: nobody may notice.

use super::{Role, Run, repeat};
use crate::sim::lab::Lab;
use covey_ninep::tree::Errno;
use covey_stripe::client::{Fs, Pace};
use covey_stripe::ops::Id;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// One who moves files, whoever's they are.
pub struct Moves {
    pub files: Vec<Id>,
    pub servers: u16,
    pub left: Cell<u64>,
    pub pace: Pace,
}

impl Role for Moves {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let most = Duration::from_secs(2);
            repeat(&lab, &self.left, most, async || self.step(&lab, &fs).await).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }
}

impl Moves {
    async fn step(&self, lab: &Lab, fs: &Fs) {
        let id = self.files[lab.below(self.files.len() as u64) as usize];
        // Any servers, in any order, as many as there are or fewer.
        let mut servers: Vec<u16> = (0..self.servers).collect();
        for at in (1..servers.len()).rev() {
            servers.swap(at, lab.below(at as u64 + 1) as usize);
        }
        servers.truncate(1 + lab.below(servers.len() as u64) as usize);
        let what = format!("move {id} to {servers:?}");
        let moved = fs.move_file(id, |_| Some(servers.clone()), &self.pace);
        let answers = [Errno::EIO, Errno::ESTALE, Errno::EBUSY, Errno::ENOSPC, Errno::ENOENT];
        let _ = lab.expect(what, &answers, moved).await;
    }
}
