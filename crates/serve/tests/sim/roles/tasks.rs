//! Drains and rebalances of the metadata server's own, begun, paused and ended while others work and servers die: nobody may
//! notice, and what is said of them outlives the server.

use super::{Role, Run, repeat};
use crate::sim::lab::Lab;
use covey_io::sim::Rng;
use covey_io::task as time;
use covey_ninep::tree::Errno;
use covey_stripe::check::Access;
use covey_stripe::client::Fs;
use covey_stripe::ops::{Op, Reply, Task, task};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// An operator of the cluster.
pub struct Tasks {
    pub rng: RefCell<Rng>,
    pub left: Cell<u64>,
    pub servers: u16,
}

impl Tasks {
    pub fn new(mut rng: Rng, servers: u16) -> Tasks {
        let left = Cell::new(5 + rng.below(30));
        Tasks { rng: RefCell::new(rng), left, servers }
    }
}

/// What the servers may answer: refusals that have their reason, and those that are full or away.
const ANSWERS: [u32; 5] = [Errno::EIO, Errno::ENOSPC, Errno::EBUSY, Errno::ENOENT, Errno::EINVAL];

impl Role for Tasks {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let most = Duration::from_secs(4);
            repeat(&lab, &self.left, most, async || self.step(&lab, &fs).await).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    /// All are ended, and stay so; nobody is left who moves anything.
    fn settle(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            for one in tasks(&fs).await {
                if matches!(one.state, task::ON | task::PAUSED) {
                    let (kind, server, act) = (one.kind, one.server, task::STOP);
                    let stopped =
                        Access::ask(&fs, Op::AskTask { kind, server, act, rate: 0 }).await;
                    // It may have ended by itself.
                    let is_over = matches!(&stopped, Err(error) if error.code() == Errno::ENOENT);
                    let is_right = stopped.is_ok() || is_over;
                    lab.check(
                        "a task is stopped",
                        is_right.then_some(()).ok_or(format!("{stopped:?}")),
                    );
                }
            }
            time::sleep(Duration::from_secs(10)).await;
            for one in tasks(&fs).await {
                let is_over = matches!(one.state, task::DONE | task::STOPPED);
                lab.check("all tasks are over", is_over.then_some(()).ok_or(format!("{one:?}")));
            }
        })
    }
}

impl Tasks {
    async fn step(&self, lab: &Lab, fs: &Fs) {
        let (roll, server, rate) = {
            let mut rng = self.rng.borrow_mut();
            (rng.below(10), rng.below(u64::from(self.servers)) as u16, rng.below(3) * 20_000)
        };
        let (kind, at) = match roll % 3 {
            0 => (task::REBALANCE, 0),
            _ => (task::DRAIN, server),
        };
        let act = match roll {
            0..5 => task::BEGIN,
            5 => task::PAUSE,
            6..8 => task::RESUME,
            8 => task::STOP,
            _ => {
                let open = Access::ask(fs, Op::SetPlace { server, closed: 0 });
                let _ = lab.expect(format!("open {server}"), &ANSWERS, open).await;
                return;
            }
        };
        let asked = Access::ask(fs, Op::AskTask { kind, server: at, act, rate });
        let _ = lab.expect(format!("task {kind} of {at}: {act}"), &ANSWERS, asked).await;
    }
}

async fn tasks(fs: &Fs) -> Vec<Task> {
    match Access::ask(fs, Op::Tasks {}).await {
        Ok(Reply::Tasks { tasks }) => tasks.0,
        other => panic!("everything is whole: {other:?}"),
    }
}
