//! A discrete-event simulation of units that go through resources one after another.
//!
//! A resource serves who came first, and a poll as soon as it is free: buses serve their masters in
//! turn. A unit holds it for a while, and goes on to its next step some time
//! after it has begun, which may be before it lets go (cut through) or when it does. Polls come
//! to a resource at a rhythm of their own, for as long as there are units.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// One step of a unit's way. Times are in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which resource.
    pub resource: usize,
    /// How long it is held.
    pub hold_ps: u64,
    /// When the next step may begin, after this one has.
    pub through_ps: u64,
}

/// Something that takes a resource again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Which resource.
    pub resource: usize,
    /// From the end of one to the next, at least 1.
    pub every_ps: u64,
    /// How long it is held.
    pub hold_ps: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Unit { unit: usize, step: usize },
    Poll { poll: usize },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Somebody wants a resource.
    Comes(Job),
    /// A resource is free again.
    Free(usize),
}

#[derive(Default)]
struct Resource {
    is_held: bool,
    waiting: VecDeque<Job>,
}

/// When each unit has gone through its last step. They enter in order, from 0 on, so that at most
/// `under_way` of them have not left yet.
pub fn run(ways: &[Vec<Step>], polls: &[Poll], under_way: usize) -> Vec<u64> {
    let steps = ways.iter().flatten().map(|step| step.resource);
    let count =
        steps.chain(polls.iter().map(|poll| poll.resource)).max().map_or(0, |last| last + 1);
    let mut world = World {
        ways,
        polls,
        now: 0,
        sequence: 0,
        events: BinaryHeap::new(),
        resources: (0..count).map(|_| Resource::default()).collect(),
        done: vec![0; ways.len()],
        entered: 0,
        left: ways.len(),
    };
    for poll in 0..polls.len() {
        world.comes(0, Job::Poll { poll });
    }
    (0..under_way.clamp(1, ways.len().max(1))).for_each(|_| world.enter());
    while world.left > 0 {
        let Some(Reverse((at, _, event))) = world.events.pop() else { break };
        world.now = at;
        match event {
            Event::Comes(job) => world.begin_or_wait(job),
            Event::Free(resource) => world.free(resource),
        }
    }
    world.done
}

struct World<'a> {
    ways: &'a [Vec<Step>],
    polls: &'a [Poll],
    now: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    resources: Vec<Resource>,
    done: Vec<u64>,
    entered: usize,
    left: usize,
}

impl World<'_> {
    fn at(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now.saturating_add(after), self.sequence, event)));
    }

    fn enter(&mut self) {
        if self.entered < self.ways.len() {
            self.comes(0, Job::Unit { unit: self.entered, step: 0 });
            self.entered += 1;
        }
    }

    fn comes(&mut self, after: u64, job: Job) {
        self.at(after, Event::Comes(job));
    }

    fn begin_or_wait(&mut self, job: Job) {
        let resource = match job {
            Job::Poll { poll } => self.polls[poll].resource,
            Job::Unit { unit, step } => match self.ways[unit].get(step) {
                Some(step) => step.resource,
                None => {
                    self.done[unit] = self.now;
                    self.left -= 1;
                    self.enter();
                    return;
                }
            },
        };
        let held = &mut self.resources[resource];
        match (held.is_held, job) {
            (false, _) => self.begin(resource, job),
            (true, Job::Unit { .. }) => held.waiting.push_back(job),
            (true, Job::Poll { .. }) => held.waiting.push_front(job),
        }
    }

    fn begin(&mut self, resource: usize, job: Job) {
        self.resources[resource].is_held = true;
        let hold = match job {
            Job::Poll { poll } => {
                let Poll { every_ps, hold_ps, .. } = self.polls[poll];
                self.comes(hold_ps.saturating_add(every_ps.max(1)), job);
                hold_ps
            }
            Job::Unit { unit, step } => {
                let Step { hold_ps, through_ps, .. } = self.ways[unit][step];
                self.comes(through_ps, Job::Unit { unit, step: step + 1 });
                hold_ps
            }
        };
        self.at(hold, Event::Free(resource));
    }

    fn free(&mut self, resource: usize) {
        self.resources[resource].is_held = false;
        if let Some(job) = self.resources[resource].waiting.pop_front() {
            self.begin(resource, job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(resource: usize, hold_ps: u64, through_ps: u64) -> Step {
        Step { resource, hold_ps, through_ps }
    }

    #[test]
    fn units_follow_each_other_through_the_slowest_stage() {
        let way = vec![step(0, 3, 3), step(1, 5, 5), step(2, 2, 2)];
        assert_eq!(run(&[way.clone(), way.clone(), way], &[], 9), [10, 15, 20]);
        // Cut through: the next step begins before this one lets go.
        let early = vec![step(0, 3, 1), step(1, 5, 1)];
        assert_eq!(run(&[early.clone(), early], &[], 9), [2, 7]);
        assert!(run(&[], &[], 1).is_empty());
        let one_at_a_time = vec![step(0, 3, 3), step(1, 5, 5)];
        assert_eq!(run(&[one_at_a_time.clone(), one_at_a_time], &[], 1), [8, 16]);
    }

    #[test]
    fn polls_take_their_share_of_a_resource() {
        let way = vec![step(0, 10, 10)];
        let poll = Poll { resource: 0, every_ps: 10, hold_ps: 5 };
        let alone = run(&vec![way.clone(); 100], &[], 9);
        let beside = run(&vec![way; 100], &[poll], 9);
        assert_eq!(alone[99], 1000);
        assert_eq!(beside[99], 1500, "one poll before each unit");
    }

    proptest! {
        /// Where every unit takes the same way through different resources, each begins when it has
        /// come and the one before has let go: the recurrence of a line of machines.
        #[test]
        fn a_line_of_machines_obeys_its_recurrence(
            steps in prop::collection::vec((0u64..50, 0u64..50), 1..6),
            units in 1usize..12,
        ) {
            let way: Vec<Step> = steps
                .iter()
                .enumerate()
                .map(|(resource, &(hold, through))| step(resource, hold, through))
                .collect();
            let found = run(&vec![way; units], &[], units);
            let mut free = vec![0; steps.len()];
            for unit in found {
                let mut here = 0;
                for (at, (hold, through)) in steps.iter().enumerate() {
                    let begin = here.max(free[at]);
                    (free[at], here) = (begin + hold, begin + through);
                }
                prop_assert_eq!(unit, here);
            }
        }
    }
}
