//! Chains that go to other I/O servers while others work on their files: nobody may notice.

use super::{Role, Run, repeat};
use crate::sim::lab::Lab;
use covey_io::sim::Rng;
use covey_ninep::tree::Errno;
use covey_stripe::client::{Fs, Pace};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// A move is many requests, one after the other, each of which may wait for a disk that hangs.
const MOVE_MAX: Duration = Duration::from_secs(1200);

/// One who moves them, whatever is under way.
pub struct ChainMoves {
    rng: RefCell<Rng>,
    servers: u16,
    left: Cell<u64>,
    pace: Pace,
}

impl ChainMoves {
    pub fn new(mut rng: Rng, servers: u16) -> ChainMoves {
        let left = Cell::new(5 + rng.below(20));
        ChainMoves { rng: RefCell::new(rng), servers, left, pace: Pace::default() }
    }

    async fn step(&self, lab: &Lab, fs: &Fs) {
        let Ok((_, Some(chains))) = lab.expect("chains".into(), &[], fs.chains()).await else {
            return;
        };
        let (chain, to) = {
            let mut rng = self.rng.borrow_mut();
            (rng.index(chains.len()) as u16, rng.below(self.servers.into()) as u16)
        };
        let moved = fs.move_chain(chain, to, &self.pace);
        // It is there already, is away, is full, is being moved, or has started anew.
        let answers = [
            Errno::EINVAL,
            Errno::EIO,
            Errno::ENOSPC,
            Errno::EBUSY,
            Errno::EAGAIN,
            Errno::ESTALE,
            Errno::EREMCHG,
        ];
        let what = format!("give chain {chain} to {to}");
        let _ = lab.expect_within(MOVE_MAX, what, &answers, moved).await;
    }
}

impl Role for ChainMoves {
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
