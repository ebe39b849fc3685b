//! What a directory may hold that one client alone changes: a toy of the names, and every state that
//! it may be in.
//!
//! A change that failed may have been done or not, so both states go on until an answer rules one
//! out. An answer that fits no state is a broken promise. A loss of the metadata server's power may lead
//! back to any state since the last fsync.

use std::collections::BTreeMap;

/// A directory's number and a name in it.
pub type Path = (usize, u8);

/// What is asked of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create(Path),
    Mkdir(Path),
    Unlink(Path),
    Rmdir(Path),
    Rename(Path, Path),
    /// Gives the file called first a second name.
    Link(Path, Path),
    Lookup(Path),
    List(usize),
    Fsync,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// A file's id, and its number of links when it is no directory.
    Is(u64, Option<u32>),
    /// Names with their ids.
    Names(BTreeMap<u8, u64>),
    /// An error that says what is so, not that somebody was out of reach.
    Refused(u32),
}

/// A file or directory of the toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    /// Which change made it.
    made_by: u64,
    is_dir: bool,
}

/// One possible state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    names: BTreeMap<Path, Thing>,
    /// Ids as far as they were told, by the change that made them.
    ids: BTreeMap<u64, u64>,
}

/// Every state that is possible.
#[derive(Debug)]
pub struct Names {
    states: Vec<State>,
    since_sync: Vec<State>,
    changes: u64,
}

mod code {
    pub const EPERM: u32 = 1;
    pub const ENOENT: u32 = 2;
    pub const EEXIST: u32 = 17;
    pub const ENOTDIR: u32 = 20;
    pub const EISDIR: u32 = 21;
}

/// So many states since the last fsync call for another one.
const STATES_MANY: usize = 40;
/// More states than this are a mistake of these tests.
const STATES_MAX: usize = 4096;

impl Default for Names {
    fn default() -> Self {
        Names { states: vec![State::default()], since_sync: Vec::new(), changes: 0 }
    }
}

impl Names {
    /// An answer has come; an error when no possible state would have given it.
    pub fn answered(&mut self, op: Op, answer: &Answer) -> Result<(), String> {
        self.changes += 1;
        let before = self.states.clone();
        let fits = before.iter().filter_map(|state| state.after_answer(op, answer, self.changes));
        let next = unique(fits.collect());
        if next.is_empty() {
            return Err(format!("{op:?} answered {answer:?}; it may be {before:?}"));
        }
        self.since_sync.extend(before);
        self.since_sync = unique(std::mem::take(&mut self.since_sync));
        if op == Op::Fsync {
            self.since_sync.clear();
        }
        self.states = next;
        Ok(())
    }

    /// No answer has come, or none that is to be relied on: it was done, or it was not.
    pub fn unanswered(&mut self, op: Op) {
        self.changes += 1;
        let mut done: Vec<State> =
            self.states.iter().map(|state| state.done(op, self.changes)).collect();
        if let Op::Link(from, to) = op {
            done.extend(self.linked_by_number(from, to));
        }
        self.since_sync.extend(self.states.iter().cloned());
        self.states.extend(done);
        self.states = unique(std::mem::take(&mut self.states));
    }

    /// A link is asked for by the file's number, which its name was looked up for before. A loss of power between the two
    /// may give the name back to another file, or the file another name: it is the file that was found
    /// which is linked, in whatever state there is by then.
    fn linked_by_number(&self, from: Path, to: Path) -> Vec<State> {
        let before = self.states.iter().chain(&self.since_sync);
        let mut found: Vec<Thing> =
            before.filter_map(|state| state.names.get(&from).copied()).collect();
        found.retain(|thing| !thing.is_dir);
        found.sort_unstable();
        found.dedup();
        let linked = |thing: Thing| {
            let there = self.states.iter().filter(move |state| {
                !state.names.contains_key(&to) && state.names.values().any(|one| *one == thing)
            });
            there.map(move |state| {
                let mut next = state.clone();
                next.put(to, thing);
                next
            })
        };
        found.into_iter().flat_map(linked).collect()
    }

    /// Whether it is time for an fsync, or there will be too many states to follow.
    pub fn wants_fsync(&self) -> bool {
        self.since_sync.len() > STATES_MANY
    }

    /// The metadata server has lost its power.
    pub fn lost_power(&mut self) {
        self.states.extend(self.since_sync.iter().cloned());
        self.states = unique(std::mem::take(&mut self.states));
    }
}

fn unique(states: Vec<State>) -> Vec<State> {
    let mut out: Vec<State> = Vec::new();
    for state in states {
        if !out.contains(&state) {
            out.push(state);
        }
    }
    assert!(out.len() <= STATES_MAX, "too many possible states to follow");
    out
}

impl State {
    /// The state after an answer that this one could have given.
    fn after_answer(&self, op: Op, answer: &Answer, number: u64) -> Option<State> {
        if let Some(code) = self.refusal(op) {
            return (*answer == Answer::Refused(code)).then(|| self.clone());
        }
        let mut next = self.done(op, number);
        let fits = match (op, answer) {
            (_, Answer::Refused(_)) => false,
            (Op::Create(path) | Op::Mkdir(path) | Op::Lookup(path), Answer::Is(id, links)) => {
                let thing = next.names[&path];
                next.learn(thing, *id) && next.has_links(thing, *links)
            }
            (Op::Link(_, to), Answer::Is(id, links)) => {
                let thing = next.names[&to];
                next.learn(thing, *id) && next.has_links(thing, *links)
            }
            (Op::List(dir), Answer::Names(found)) => {
                let mine: Vec<(u8, Thing)> = next.within(dir).collect();
                mine.len() == found.len()
                    && mine.iter().all(|(name, thing)| {
                        found.get(name).is_some_and(|&id| next.learn(*thing, id))
                    })
            }
            (_, Answer::Done) => true,
            _ => false,
        };
        fits.then_some(next)
    }

    fn within(&self, dir: usize) -> impl Iterator<Item = (u8, Thing)> {
        let inside = self.names.iter().filter(move |((at, _), _)| *at == dir);
        inside.map(|(&(_, name), &thing)| (name, thing))
    }

    /// Takes in a thing's id; false when it is known to be another.
    fn learn(&mut self, thing: Thing, id: u64) -> bool {
        let is_others = self.ids.iter().any(|(&by, &other)| by != thing.made_by && other == id);
        !is_others && *self.ids.entry(thing.made_by).or_insert(id) == id
    }

    fn has_links(&self, thing: Thing, links: Option<u32>) -> bool {
        let count = self.names.values().filter(|other| **other == thing).count();
        links.is_none_or(|links| thing.is_dir || links as usize == count)
    }

    /// Why an operation is refused.
    fn refusal(&self, op: Op) -> Option<u32> {
        let thing = |path: &Path| self.names.get(path).copied();
        match op {
            Op::Create(path) | Op::Mkdir(path) => thing(&path).map(|_| code::EEXIST),
            Op::Lookup(path) => thing(&path).is_none().then_some(code::ENOENT),
            Op::Unlink(path) => match thing(&path) {
                None => Some(code::ENOENT),
                Some(thing) => thing.is_dir.then_some(code::EISDIR),
            },
            Op::Rmdir(path) => match thing(&path) {
                None => Some(code::ENOENT),
                Some(thing) => (!thing.is_dir).then_some(code::ENOTDIR),
            },
            Op::Rename(from, to) => match (thing(&from), thing(&to)) {
                (None, _) => Some(code::ENOENT),
                (Some(from), Some(to)) if from.is_dir && !to.is_dir => Some(code::ENOTDIR),
                (Some(from), Some(to)) if !from.is_dir && to.is_dir => Some(code::EISDIR),
                _ => None,
            },
            Op::Link(from, to) => match (thing(&from), thing(&to)) {
                (None, _) => Some(code::ENOENT),
                (_, Some(_)) => Some(code::EEXIST),
                (Some(from), _) if from.is_dir => Some(code::EPERM),
                _ => None,
            },
            Op::List(_) | Op::Fsync => None,
        }
    }

    /// The state when the operation was done; this one when it is refused.
    fn done(&self, op: Op, number: u64) -> State {
        let mut next = self.clone();
        if self.refusal(op).is_some() {
            return next;
        }
        match op {
            Op::Create(path) => next.put(path, Thing { made_by: number, is_dir: false }),
            Op::Mkdir(path) => next.put(path, Thing { made_by: number, is_dir: true }),
            Op::Unlink(path) | Op::Rmdir(path) => drop(next.names.remove(&path)),
            Op::Rename(from, to) if self.names.get(&from) != self.names.get(&to) => {
                let thing = next.names.remove(&from).expect("it is not refused");
                next.put(to, thing);
            }
            Op::Link(from, to) => next.put(to, self.names[&from]),
            Op::Rename(..) | Op::Lookup(_) | Op::List(_) | Op::Fsync => {}
        }
        // Ids of what is gone are not needed any more, and states that differ only there are one.
        let State { names, ids } = &mut next;
        ids.retain(|by, _| names.values().any(|thing| thing.made_by == *by));
        next
    }

    fn put(&mut self, path: Path, thing: Thing) {
        self.names.insert(path, thing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Path = (0, 0);
    const B: Path = (0, 1);
    const C: Path = (0, 2);

    fn listed(names: &[(u8, u64)]) -> Answer {
        Answer::Names(names.iter().copied().collect())
    }

    /// File 7 was synced as A and renamed to B; then a link of B to C was asked for, and the power was lost meanwhile.
    fn linked_while_power_was_lost() -> Names {
        let mut names = Names::default();
        names.answered(Op::Create(A), &Answer::Is(7, Some(1))).unwrap();
        names.answered(Op::Fsync, &Answer::Done).unwrap();
        names.answered(Op::Rename(A, B), &Answer::Done).unwrap();
        names.lost_power();
        names.unanswered(Op::Link(B, C));
        names.lost_power();
        names
    }

    #[test]
    fn a_link_that_is_sent_again_after_a_loss_of_power_is_of_the_file_that_was_found() {
        let all = |found: &[(u8, u64)]| {
            linked_while_power_was_lost().answered(Op::List(0), &listed(found))
        };
        all(&[(0, 7), (2, 7)]).expect("the rename is lost, the link came after");
        all(&[(1, 7), (2, 7)]).expect("nothing is lost");
        all(&[(0, 7)]).expect("the link was never done");
        all(&[(2, 7)]).expect_err("one of both names was there");
        all(&[(0, 7), (2, 8)]).expect_err("it is the same file");
    }
}
