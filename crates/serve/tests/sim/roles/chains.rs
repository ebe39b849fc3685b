//! Generations of chains that rise while others work: nobody may notice, and nobody may go on with one that is over.

use super::{Role, Run, repeat};
use crate::sim::lab::Lab;
use crate::sim::net::SimNet;
use covey_io::sim::Rng;
use covey_io::task;
use covey_ninep::tree::Errno;
use covey_stripe::chain::Served;
use covey_stripe::check::Access;
use covey_stripe::client::{Fs, Options, data_call, data_link};
use covey_stripe::objects::{DataOp, DataReply};
use covey_stripe::ops::Op;
use covey_wire::{List, Payload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// One who raises them.
pub struct Chains {
    pub rng: RefCell<Rng>,
    pub left: Cell<u64>,
    /// Those that are over, and the servers that must refuse them.
    pub over: RefCell<Vec<(String, Served)>>,
}

impl Chains {
    pub fn new(mut rng: Rng) -> Chains {
        let left = Cell::new(5 + rng.below(25));
        Chains { rng: RefCell::new(rng), left, over: RefCell::default() }
    }
}

impl Role for Chains {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let most = Duration::from_secs(2);
            repeat(&lab, &self.left, most, async || self.step(&lab, &fs).await).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    fn settle(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let chains = fs.chains().await.expect("everything is whole");
            for (server, served) in self.over.take() {
                let now = chains[usize::from(served.chain)].generation;
                let what = format!("{served:?} is over, and its chain is at {now}");
                lab.check(&what, (now > served.generation).then_some(()).ok_or("again".into()));
                let refused = is_refused(&server, served).await;
                lab.check(&what, if refused { Ok(()) } else { Err("it is served".into()) });
            }
        })
    }
}

impl Chains {
    async fn step(&self, lab: &Lab, fs: &Fs) {
        let Ok((_, Some(chains))) = lab.expect("chains".into(), &[], fs.chains()).await else {
            return;
        };
        let chain = self.rng.borrow_mut().index(chains.len());
        let before = Served { chain: chain as u16, generation: chains[chain].generation };
        let head = chains[chain].head().expect("somebody is whole").server;
        let what = format!("fence {before:?}");
        let fenced = Access::ask(fs, Op::FenceChain { chain: before.chain });
        let answer = lab.expect(what, &[Errno::EIO, Errno::ENOSPC], fenced).await;
        if !matches!(answer, Ok((_, Some(_)))) {
            return;
        }
        // Somebody who has not heard of it, and somebody who lies about what is to come.
        let server = fs.servers()[usize::from(head)].clone();
        let later = Served { generation: before.generation + 1000, ..before };
        for (served, text) in [(before, "is over"), (later, "was never given out")] {
            let refused = is_refused(&server, served).await;
            let what = format!("{served:?}, which {text}, is served by {server}");
            lab.check("a fence", if refused { Ok(()) } else { Err(what) });
        }
        self.over.borrow_mut().push((server, before));
    }
}

/// Asks a server by a chain at a generation that it does not serve.
async fn is_refused(server: &str, served: Served) -> bool {
    let options = Options { name: "late".into(), ..Options::default() };
    let link = data_link(Arc::new(SimNet), server, options, 0);
    let op = Payload::from(DataOp::Look { ids: List(vec![1]) }.encode());
    let asked = data_call(&link, DataOp::By { served, op });
    // One that is away serves nobody.
    !matches!(
        task::timeout(Duration::from_secs(20), asked).await,
        Some(Ok(DataReply::Objects { .. }))
    )
}
