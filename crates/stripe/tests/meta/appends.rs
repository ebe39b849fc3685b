//! Random appends, writes, cuts, deaths and crashes: what a reader may see, against a list of places.

use crate::lab::*;
use covey_stripe::meta::{Applied, WaitId};
use covey_stripe::ops::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Reserve { client: usize, length: u64 },
    Commit { place: usize },
    Write { end: u64 },
    Cut { size: u64 },
    Die { client: usize },
    Crash,
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3usize, 1..10u64).prop_map(|(client, length)| Step::Reserve { client, length }),
        6 => (0..16usize).prop_map(|place| Step::Commit { place }),
        1 => (0..60u64).prop_map(|end| Step::Write { end }),
        1 => (0..40u64).prop_map(|size| Step::Cut { size }),
        1 => (0..3usize).prop_map(|client| Step::Die { client }),
        1 => Just(Step::Crash),
        1 => Just(Step::Checkpoint),
    ]
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Reserved,
    Written,
    Lost,
}

/// A place that was given out since the last cut.
#[derive(Clone, Debug)]
struct Place {
    session: u64,
    offset: u64,
    end: u64,
    state: State,
    wait: Option<WaitId>,
}

struct Toy {
    places: Vec<Place>,
    size: u64,
}

impl Toy {
    /// The size moves over places that are written or lost, up to the first that may still come.
    fn settle(&mut self) {
        for place in &self.places {
            match place.state {
                State::Reserved if place.end > self.size => break,
                State::Written => self.size = self.size.max(place.end),
                State::Reserved | State::Lost => {}
            }
        }
    }

    /// Waits whose place shows, or was cut.
    fn reached(&mut self) -> Vec<WaitId> {
        let size = self.size;
        let shown = self.places.iter_mut().filter(|place| place.end <= size);
        shown.filter_map(|place| place.wait.take()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn appends_show_in_order_and_never_overlap(steps in prop::collection::vec(step(), 1..60)) {
        let mut lab = Lab::default();
        let id = lab.file("f").id;
        let mut clients: Vec<u64> = (0..3).map(|_| lab.hello(0, &[]).0).collect();
        let mut toy = Toy { places: Vec::new(), size: 0 };
        for step in steps {
            let mut expected = Vec::new();
            match step {
                Step::Reserve { client, length } => {
                    let session = clients[client];
                    let reply = lab.reply(session, Op::Reserve { id, length });
                    let Reply::Offset { offset, .. } = reply else { panic!("{reply:?}") };
                    let free = toy.places.iter().map(|place| place.end).max().unwrap_or(0);
                    prop_assert_eq!(offset, free.max(toy.size));
                    let (end, state) = (offset + length, State::Reserved);
                    toy.places.push(Place { session, offset, end, state, wait: None });
                }
                Step::Commit { place } => {
                    let count = toy.places.len();
                    let Some(place) = toy.places.get(place % count.max(1)).cloned() else { continue };
                    let (offset, length) = (place.offset, place.end - place.offset);
                    let applied = lab.send(place.session, 0, Op::Commit { id, offset, length });
                    if !clients.contains(&place.session) {
                        prop_assert!(applied.is_refused());
                        continue;
                    }
                    let index = toy.places.iter().position(|other| other.offset == offset).unwrap();
                    if let Some(old) = toy.places[index].wait.take() {
                        lab.store.cancel_wait(old);
                    }
                    toy.places[index].state = State::Written;
                    toy.settle();
                    match applied {
                        Applied::Wait(wait) => {
                            prop_assert!(toy.size < place.end);
                            toy.places[index].wait = Some(wait);
                        }
                        applied => {
                            prop_assert_eq!(applied, Applied::Reply(Reply::Done {}));
                            prop_assert!(toy.size >= place.end);
                        }
                    }
                }
                Step::Write { end } => {
                    lab.extend(id, end);
                    toy.size = toy.size.max(end);
                    toy.settle();
                }
                Step::Cut { size } if size < toy.size => {
                    lab.truncate(id, size);
                    expected.extend(toy.places.iter().filter_map(|place| place.wait));
                    // Places that are gone can still be committed; nothing comes of it.
                    toy = Toy { places: Vec::new(), size };
                }
                Step::Cut { .. } => {}
                Step::Die { client } => {
                    let session = clients[client];
                    lab.store.session_expired(session).unwrap();
                    lab.serve();
                    for place in toy.places.iter_mut().filter(|place| place.session == session) {
                        place.wait = None;
                        place.state = match place.state {
                            State::Reserved => State::Lost,
                            state => state,
                        };
                    }
                    toy.settle();
                    clients[client] = lab.hello(0, &[]).0;
                }
                Step::Crash => {
                    lab.crash();
                    toy.places.iter_mut().for_each(|place| place.wait = None);
                }
                Step::Checkpoint => lab.save(),
            }
            expected.extend(toy.reached());
            let mut answered: Vec<_> = lab.answers().into_iter().map(|(wait, _)| wait).collect();
            answered.sort();
            expected.sort();
            prop_assert_eq!(answered, expected);
            prop_assert_eq!(lab.stat(id).size, toy.size);
        }
        let [again, living] = lab.replayed();
        prop_assert_eq!(again, living);
    }
}
