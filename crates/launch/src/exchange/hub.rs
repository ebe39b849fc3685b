//! The launcher's side: fences are collected, questions are passed on.

use super::message::{Down, Space, Up};
use crate::job::Placement;
use covey_wire::{Blame, Bytes, List, Name, Payload};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where all starters of a job meet. `handle` takes what a starter says, `lost` that one is gone, `poll_output`
/// gives what is to be said to whom.
pub struct Hub {
    placement: Placement,
    fences: BTreeMap<(Space, Vec<u32>), Fence>,
    lost: BTreeSet<usize>,
    output: VecDeque<(usize, Down)>,
}

/// Which nodes have arrived, and what they brought.
#[derive(Default)]
struct Fence {
    parts: BTreeMap<usize, Bytes>,
    bytes: usize,
}

/// What the launcher itself must know.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A node's ranks may be started, with these variables: for all, and for each.
    Ready {
        /// Of all ranks of the node.
        all: Vec<Name>,
        /// Of each, in order.
        each: Vec<Vec<Name>>,
    },
    /// A rank wants the job to end.
    Abort {
        /// The rank.
        rank: u32,
        /// The exit code the job is to have.
        code: u8,
        /// What it said.
        why: String,
    },
    /// A rank has left while others may wait for it.
    Gone {
        /// The rank.
        rank: u32,
    },
    /// A rank has begun to use the library: from now on ranks may wait for each other.
    Joined {
        /// The rank.
        rank: u32,
    },
    /// A node cannot serve the library.
    Unable {
        /// Why not.
        why: String,
    },
}

impl Hub {
    /// For a job.
    pub fn new(placement: Placement) -> Hub {
        Hub { placement, fences: BTreeMap::new(), lost: BTreeSet::new(), output: VecDeque::new() }
    }

    /// What a starter is told first.
    pub fn start(&self, job: &str, node: usize) -> Down {
        let nodes = self.placement.nodes();
        let ranks = (0..nodes.len()).map(|node| self.placement.of_node(node).len() as u32);
        Down::Start {
            job: job.into(),
            node: node as u32,
            ranks: List(ranks.collect()),
            nodes: List(nodes.iter().map(|name| Name::from(name.as_str())).collect()),
        }
    }

    /// A starter has said something. An error means that it is not to be listened to any more.
    pub fn handle(&mut self, node: usize, said: Up) -> Result<Option<Event>, Blame> {
        match said {
            Up::Ready { all, each } => self.ready(node, all, each).map(Some),
            Up::Fence { space, ranks, data } => {
                self.fence(node, Space::of(space)?, ranks.0, data.into_bytes()).map(|()| None)
            }
            Up::Ask { token, rank } => self.ask(node, token, rank).map(|()| None),
            Up::Answer { asker, token, ok, data } => {
                let asker = asker as usize;
                if asker >= self.placement.nodes().len() {
                    return Err(Blame::Malformed(format!("Answer: there is no node {asker}")));
                }
                self.say(asker, Down::Answer { token, ok, data });
                Ok(None)
            }
            Up::Abort { rank, code, why } => {
                self.check(node, rank)?;
                let why = why.lossy().into_owned();
                // As exit(2) takes it; a failure that would read as success is one all the same.
                let code = if code != 0 && code & 0xff == 0 { 1 } else { code as u8 };
                Ok(Some(Event::Abort { rank, code, why }))
            }
            Up::Gone { rank } => self.check(node, rank).map(|()| Some(Event::Gone { rank })),
            Up::Joined { rank } => self.check(node, rank).map(|()| Some(Event::Joined { rank })),
            Up::Unable { why } => Ok(Some(Event::Unable { why: why.lossy().into_owned() })),
        }
    }

    /// A node's starter is gone: fences and questions that need it fail.
    pub fn lost(&mut self, node: usize) {
        self.lost.insert(node);
        let failed: Vec<_> =
            self.fences.keys().filter(|key| self.nodes(&key.1).contains(&node)).cloned().collect();
        for key in failed {
            self.fail(key);
        }
    }

    /// The next thing to say, and to the starter of which node.
    pub fn poll_output(&mut self) -> Option<(usize, Down)> {
        self.output.pop_front()
    }

    fn say(&mut self, node: usize, what: Down) {
        if !self.lost.contains(&node) {
            self.output.push_back((node, what));
        }
    }

    fn check(&self, node: usize, rank: u32) -> Result<(), Blame> {
        if self.placement.of_node(node).contains(&rank) {
            return Ok(());
        }
        Err(Blame::Violation(format!("node {node} speaks for rank {rank}, which is not there")))
    }

    fn ready(&self, node: usize, all: List<Name>, each: List<List<Name>>) -> Result<Event, Blame> {
        let expected = self.placement.of_node(node).len();
        if !each.0.is_empty() && each.0.len() != expected {
            let what = format!("Ready: each is of {} ranks, the node has {expected}", each.0.len());
            return Err(Blame::Malformed(what));
        }
        Ok(Event::Ready { all: all.0, each: each.0.into_iter().map(|one| one.0).collect() })
    }

    /// The nodes that have one of these ranks; all when there is none.
    fn nodes(&self, ranks: &[u32]) -> BTreeSet<usize> {
        match ranks {
            [] => (0..self.placement.nodes().len()).collect(),
            ranks => ranks.iter().map(|rank| self.placement.node_of(*rank)).collect(),
        }
    }

    fn fence(
        &mut self,
        node: usize,
        space: Space,
        mut ranks: Vec<u32>,
        data: Bytes,
    ) -> Result<(), Blame> {
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.last().is_some_and(|rank| *rank >= self.placement.ranks()) {
            return Err(Blame::Malformed("Fence: ranks beyond the job's".into()));
        }
        if ranks.len() == self.placement.ranks() as usize {
            ranks.clear();
        }
        let nodes = self.nodes(&ranks);
        if !nodes.contains(&node) {
            return Err(Blame::Violation(format!("node {node} is at a fence of other nodes")));
        }
        let key = (space, ranks);
        // Each node is at a few fences at a time: of one group for each rank at most.
        if self.fences.len() >= FENCES_MAX && !self.fences.contains_key(&key) {
            return Err(Blame::Violation(format!("more than {FENCES_MAX} fences at a time")));
        }
        let fence = self.fences.entry(key.clone()).or_default();
        fence.bytes += data.len();
        if fence.parts.insert(node, data).is_some() {
            return Err(Blame::Violation(format!("node {node} is twice at the same fence")));
        }
        let is_full = fence.parts.len() == nodes.len();
        let is_over =
            self.fences.values().map(|fence| fence.bytes).sum::<usize>() > FENCE_BYTES_MAX;
        if is_over || !nodes.is_disjoint(&self.lost) {
            self.fail(key);
        } else if is_full {
            self.complete(key);
        }
        Ok(())
    }

    fn complete(&mut self, key: (Space, Vec<u32>)) {
        let Some(fence) = self.fences.remove(&key) else { return };
        let (nodes, parts): (Vec<_>, Vec<_>) = fence.parts.into_iter().unzip();
        let data: Bytes = parts.concat().into();
        for node in nodes {
            self.tell(node, &key, true, data.clone().into());
        }
    }

    fn fail(&mut self, key: (Space, Vec<u32>)) {
        let Some(fence) = self.fences.remove(&key) else { return };
        for node in fence.parts.into_keys() {
            self.tell(node, &key, false, Payload::from(Vec::new()));
        }
    }

    fn tell(&mut self, node: usize, (space, ranks): &(Space, Vec<u32>), ok: bool, data: Payload) {
        let ranks = List(ranks.clone());
        self.say(node, Down::Fenced { space: *space as u8, ranks, ok, data });
    }

    fn ask(&mut self, node: usize, token: u32, rank: u32) -> Result<(), Blame> {
        if rank >= self.placement.ranks() {
            return Err(Blame::Malformed(format!("Ask: there is no rank {rank}")));
        }
        let owner = self.placement.node_of(rank);
        if self.lost.contains(&owner) {
            self.say(node, Down::Answer { token, ok: false, data: Vec::new().into() })
        } else {
            self.say(owner, Down::Ask { asker: node as u32, token, rank })
        }
        Ok(())
    }
}

/// What all nodes together may bring to the fences that are open.
pub const FENCE_BYTES_MAX: usize = 64 << 20;
/// Fences that may be open at a time.
const FENCES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(nodes: usize, ranks: u32) -> Hub {
        let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
        Hub::new(Placement::new(&names, Some(ranks), None).unwrap())
    }

    fn fence(ranks: &[u32], data: &str) -> Up {
        Up::Fence { space: 1, ranks: List(ranks.to_vec()), data: data.as_bytes().to_vec().into() }
    }

    fn output(hub: &mut Hub) -> Vec<(usize, Down)> {
        std::iter::from_fn(|| hub.poll_output()).collect()
    }

    fn fenced(ranks: &[u32], ok: bool, data: &str) -> Down {
        let (ranks, data) = (List(ranks.to_vec()), data.as_bytes().to_vec().into());
        Down::Fenced { space: 1, ranks, ok, data }
    }

    #[test]
    fn a_fence_ends_when_the_last_node_is_in_and_everybody_gets_everything() {
        let mut hub = hub(3, 6);
        for (node, data) in [(2, "c"), (0, "a")] {
            assert_eq!(hub.handle(node, fence(&[], data)), Ok(None));
        }
        assert_eq!(output(&mut hub), []);
        hub.handle(1, fence(&[0, 1, 2, 3, 4, 5], "b")).unwrap();
        let all = [0, 1, 2].map(|node| (node, fenced(&[], true, "abc")));
        assert_eq!(output(&mut hub), all);
        // And again.
        hub.handle(0, fence(&[], "")).unwrap();
        assert_eq!(output(&mut hub), []);
    }

    #[test]
    fn fences_of_some_ranks_concern_their_nodes_only() {
        let mut hub = hub(3, 6);
        hub.handle(0, fence(&[3, 0], "a")).unwrap();
        hub.handle(2, fence(&[], "x")).unwrap();
        hub.handle(1, fence(&[0, 3], "b")).unwrap();
        let both = [0, 1].map(|node| (node, fenced(&[0, 3], true, "ab")));
        assert_eq!(output(&mut hub), both);
        let pmix = Up::Fence { space: 2, ranks: List(vec![]), data: Vec::new().into() };
        hub.handle(0, pmix).unwrap();
        hub.handle(1, fence(&[], "")).unwrap();
        assert_eq!(output(&mut hub), [], "another library's fence is another fence");
    }

    #[test]
    fn questions_go_to_the_node_that_knows_and_answers_come_back() {
        let mut hub = hub(2, 4);
        hub.handle(0, Up::Ask { token: 9, rank: 3 }).unwrap();
        assert_eq!(output(&mut hub), [(1, Down::Ask { asker: 0, token: 9, rank: 3 })]);
        let data = Payload::from(vec![5]);
        hub.handle(1, Up::Answer { asker: 0, token: 9, ok: true, data: data.clone() }).unwrap();
        assert_eq!(output(&mut hub), [(0, Down::Answer { token: 9, ok: true, data })]);
    }

    #[test]
    fn a_lost_node_fails_what_needs_it_before_and_after() {
        let mut hub = hub(3, 3);
        hub.handle(0, fence(&[], "a")).unwrap();
        hub.handle(0, fence(&[0, 1], "a")).unwrap();
        hub.lost(2);
        assert_eq!(output(&mut hub), [(0, fenced(&[], false, ""))]);
        hub.handle(1, fence(&[], "b")).unwrap();
        hub.handle(1, Up::Ask { token: 1, rank: 2 }).unwrap();
        let answer = Down::Answer { token: 1, ok: false, data: Vec::new().into() };
        assert_eq!(output(&mut hub), [(1, fenced(&[], false, "")), (1, answer)]);
        hub.handle(1, fence(&[0, 1], "b")).unwrap();
        assert_eq!(output(&mut hub).len(), 2);
    }

    #[test]
    fn an_abort_has_the_code_that_exit_would_give_it() {
        for (said, code) in [(42, 42), (0, 0), (256, 1), (257, 1), (u32::MAX, 255)] {
            let abort = Up::Abort { rank: 1, code: said, why: "no".into() };
            let event = Event::Abort { rank: 1, code, why: "no".into() };
            assert_eq!(hub(1, 2).handle(0, abort), Ok(Some(event)));
        }
    }

    #[test]
    fn starters_that_break_the_rules_are_refused() {
        for said in [
            Up::Gone { rank: 2 },
            Up::Abort { rank: 3, code: 1, why: Name::EMPTY },
            fence(&[2, 3], ""),
            fence(&[4], ""),
            Up::Fence { space: 9, ranks: List(vec![]), data: Vec::new().into() },
            Up::Ask { token: 0, rank: 4 },
            Up::Answer { asker: 2, token: 0, ok: true, data: Vec::new().into() },
            Up::Ready { all: List(vec![]), each: List(vec![List(vec![])]) },
        ] {
            assert!(hub(2, 4).handle(0, said.clone()).is_err(), "{said:?}");
        }
        let mut twice = hub(2, 4);
        twice.handle(0, fence(&[], "")).unwrap();
        assert!(twice.handle(0, fence(&[], "")).is_err());
    }

    #[test]
    fn a_fence_beyond_the_limit_fails_for_those_who_are_there() {
        let mut hub = hub(2, 2);
        let data = vec![0; FENCE_BYTES_MAX / 2 + 1];
        for node in 0..2 {
            let data = data.clone().into();
            hub.handle(node, Up::Fence { space: 1, ranks: List(vec![]), data }).unwrap();
        }
        assert_eq!(output(&mut hub), [0, 1].map(|node| (node, fenced(&[], false, ""))));
    }
}
