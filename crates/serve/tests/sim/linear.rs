//! Whether what several clients saw of names, modes and extended attributes could have happened one after another.
//!
//! A history is *linearizable* when every operation can be given one moment between its question and
//! its answer, so that the answers are those of a single directory. An operation without an answer may
//! have happened at any moment up to the next answered one of its client, or never: nothing older takes effect
//! after a client has come back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Something done to a directory or to files in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Create(u8),
    Unlink(u8),
    Rename(u8, u8),
    Lookup(u8),
    List,
    SetMode(usize, u32),
    Mode(usize),
    SetXattr(usize, u8),
    RemoveXattr(usize),
    Xattr(usize),
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Is(u64),
    Names(BTreeMap<u8, u64>),
    Mode(u32),
    Value(u8),
    Missing,
    Exists,
}

/// One operation of a history.
#[derive(Clone, Debug)]
pub struct Event {
    pub client: usize,
    pub op: Op,
    pub began: Instant,
    /// None: it was not answered.
    pub answer: Option<(Answer, Instant)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    names: BTreeMap<u8, u64>,
    modes: BTreeMap<usize, u32>,
    xattrs: BTreeMap<usize, u8>,
}

/// A way in which things may have gone so far: the state, and which of the open operations are done.
type Way = (State, BTreeSet<usize>);

/// More ways than this are not followed: then nothing is said.
const WAYS_MAX: usize = 4000;

/// An error when the answers contradict one another.
pub fn check(events: &[Event]) -> Result<(), String> {
    let ends: Vec<Option<Instant>> = (0..events.len()).map(|at| end_of(events, at)).collect();
    // Moments in order; at one moment questions come before answers.
    let mut moments: Vec<(Instant, bool, usize)> = Vec::new();
    for (at, event) in events.iter().enumerate() {
        moments.push((event.began, false, at));
        moments.extend(ends[at].map(|end| (end, true, at)));
    }
    moments.sort();
    let mut open = BTreeSet::new();
    let mut ways: BTreeSet<Way> = BTreeSet::from([Way::default()]);
    for (_, is_end, at) in moments {
        if !is_end {
            open.insert(at);
            continue;
        }
        let Some(grown) = grow(events, &open, &ways) else { return Ok(()) };
        open.remove(&at);
        let is_answered = events[at].answer.is_some();
        let kept = grown.into_iter().filter(|(_, done)| !is_answered || done.contains(&at));
        ways = kept
            .map(|(state, mut done)| {
                done.remove(&at);
                (state, done)
            })
            .collect();
        if ways.is_empty() {
            return Err(explain(events, at));
        }
    }
    Ok(())
}

/// When an operation is over at the latest.
fn end_of(events: &[Event], at: usize) -> Option<Instant> {
    let event = &events[at];
    if let Some((_, end)) = &event.answer {
        return Some(*end);
    }
    let later = |other: &&Event| other.client == event.client && other.began > event.began;
    events.iter().filter(later).filter_map(|other| other.answer.as_ref()).map(|a| a.1).min()
}

/// All ways that come of doing any of the open operations in any order. None: too many.
fn grow(events: &[Event], open: &BTreeSet<usize>, ways: &BTreeSet<Way>) -> Option<BTreeSet<Way>> {
    let mut all = ways.clone();
    let mut queue: Vec<Way> = ways.iter().cloned().collect();
    while let Some((state, done)) = queue.pop() {
        for &at in open.difference(&done) {
            let event = &events[at];
            let Some(next) = state.after(&event.op, event.answer.as_ref().map(|a| &a.0), at) else {
                continue;
            };
            let mut done = done.clone();
            done.insert(at);
            let way = (next, done);
            if all.insert(way.clone()) {
                queue.push(way);
            }
        }
        if all.len() > WAYS_MAX {
            return None;
        }
    }
    Some(all)
}

fn explain(events: &[Event], at: usize) -> String {
    let event = &events[at];
    let first = events.iter().map(|event| event.began).min().expect("there is this one");
    let near = events.iter().filter(|other| {
        let end = event.answer.as_ref().map_or(event.began, |answer| answer.1);
        other.began <= end
    });
    let tail: Vec<String> = near
        .map(|event| {
            let answer = event.answer.as_ref().map(|(answer, end)| (answer, *end - first));
            format!(
                "client{} {:?} at {:?}: {answer:?}",
                event.client,
                event.op,
                event.began - first
            )
        })
        .collect();
    let from = tail.len().saturating_sub(40);
    format!("no order explains {event:?}:\n{}", tail[from..].join("\n"))
}

impl State {
    /// The state after an operation, if it would have been answered so. An unanswered one is done
    /// here, or it is not looked at.
    fn after(&self, op: &Op, answer: Option<&Answer>, at: usize) -> Option<State> {
        let mut next = self.clone();
        let real = match op {
            Op::Create(name) if self.names.contains_key(name) => Answer::Exists,
            Op::Create(name) => {
                // Who was never told its file's id has made one that nobody knows yet.
                let id = match answer {
                    Some(Answer::Is(id)) => *id,
                    _ => UNKNOWN + at as u64,
                };
                next.names.insert(*name, id);
                Answer::Is(id)
            }
            Op::Unlink(name) => match next.names.remove(name) {
                Some(_) => Answer::Done,
                None => Answer::Missing,
            },
            Op::Rename(from, to) => match self.names.get(from) {
                Some(_) if from == to => Answer::Done,
                Some(id) => {
                    next.names.insert(*to, *id);
                    next.names.remove(from);
                    Answer::Done
                }
                None => Answer::Missing,
            },
            Op::Lookup(name) => match self.names.get(name) {
                Some(&id) if id >= UNKNOWN => match answer {
                    Some(Answer::Is(told)) => next.learn(id, *told)?,
                    _ => return None,
                },
                Some(&id) => Answer::Is(id),
                None => Answer::Missing,
            },
            Op::List => match answer {
                Some(Answer::Names(told)) => {
                    for (name, id) in self.names.iter().filter(|(_, id)| **id >= UNKNOWN) {
                        next.learn(*id, *told.get(name)?)?;
                    }
                    Answer::Names(next.names.clone())
                }
                _ => return None,
            },
            Op::SetMode(file, mode) => {
                next.modes.insert(*file, *mode);
                Answer::Done
            }
            Op::Mode(file) => Answer::Mode(self.modes.get(file).copied().unwrap_or(MODE_FIRST)),
            Op::SetXattr(file, value) => {
                next.xattrs.insert(*file, *value);
                Answer::Done
            }
            Op::RemoveXattr(file) => match next.xattrs.remove(file) {
                Some(_) => Answer::Done,
                None => Answer::Missing,
            },
            Op::Xattr(file) => self.xattrs.get(file).map_or(Answer::Missing, |&v| Answer::Value(v)),
        };
        match answer {
            Some(answer) => (real == *answer).then_some(next),
            None => (next != *self).then_some(next),
        }
    }

    /// Somebody has told the id of a file that nobody knew; None when it is another's.
    fn learn(&mut self, unknown: u64, id: u64) -> Option<Answer> {
        if self.names.values().any(|other| *other == id) {
            return None;
        }
        self.names.values_mut().filter(|other| **other == unknown).for_each(|other| *other = id);
        Some(Answer::Is(id))
    }
}

/// Ids from here on stand for files whose id was not told.
const UNKNOWN: u64 = 1 << 60;
/// The mode that files are made with.
pub const MODE_FIRST: u32 = 0o644;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Client, operation, when it began; its answer and when it came.
    type Told = (usize, Op, u64, Option<(Answer, u64)>);

    fn events(list: &[Told]) -> Vec<Event> {
        let zero = Instant::now();
        let at = |time| zero + Duration::from_secs(time);
        let event = |(client, op, began, answer): &Told| Event {
            client: *client,
            op: op.clone(),
            began: at(*began),
            answer: answer.clone().map(|(answer, end)| (answer, at(end))),
        };
        list.iter().map(event).collect()
    }

    #[test]
    fn a_lookup_must_see_what_was_created_before_it() {
        let create = (0, Op::Create(1), 0, Some((Answer::Is(7), 2)));
        let beside = (1, Op::Lookup(1), 1, Some((Answer::Missing, 3)));
        let after = (1, Op::Lookup(1), 3, Some((Answer::Missing, 4)));
        assert!(check(&events(&[create.clone(), beside])).is_ok());
        assert!(check(&events(&[create, after])).is_err());
    }

    #[test]
    fn what_was_not_answered_may_come_until_its_client_is_back() {
        let lost = (0, Op::Create(1), 0, None);
        let back = (0, Op::Lookup(2), 5, Some((Answer::Missing, 6)));
        let missing = (1, Op::Lookup(1), 3, Some((Answer::Missing, 4)));
        let there = (1, Op::Lookup(1), 7, Some((Answer::Is(9), 8)));
        let late = (1, Op::Lookup(1), 7, Some((Answer::Missing, 8)));
        let then = (1, Op::Lookup(1), 9, Some((Answer::Is(9), 10)));
        let all = [lost, back, missing];
        assert!(check(&events(&[&all[..], &[there]].concat())).is_ok());
        assert!(check(&events(&[&all[..], &[late, then]].concat())).is_err());
    }

    #[test]
    fn modes_are_those_set_last() {
        let set = (0, Op::SetMode(0, 0o600), 0, Some((Answer::Done, 1)));
        let old = (1, Op::Mode(0), 2, Some((Answer::Mode(MODE_FIRST), 3)));
        let new = (1, Op::Mode(0), 2, Some((Answer::Mode(0o600), 3)));
        assert!(check(&events(&[set.clone(), new])).is_ok());
        assert!(check(&events(&[set, old])).is_err());
    }
}
