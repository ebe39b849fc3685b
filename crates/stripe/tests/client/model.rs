//! Several clients at once, over connections that are cut and servers that start anew, against byte
//! arrays.
//!
//! A batch is what some clients do at the same time. What may come of it is what comes of doing it
//! one after another, in any order. Writes of one batch may overlap; then either may win, byte by byte.

use crate::lab::*;
use covey_ninep::tree::SetAttr;
use covey_stripe::client::{File, Fs, Result, Taken, access};
use covey_stripe::ops::ROOT;
use covey_stripe::view::View;
use futures_util::future::{Either, join_all, select};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const CLIENTS: usize = 3;
const FILES: usize = 2;

/// Longer than a restarted metadata server waits for leases from before.
const WHAT_IS_GIVEN_UP_ENDS: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
enum Op {
    Read {
        offset: usize,
        count: usize,
    },
    Write {
        offset: usize,
        count: usize,
    },
    /// `pieces` of `count` bytes with `gap` bytes between them.
    ReadView {
        offset: usize,
        count: usize,
        gap: usize,
        pieces: usize,
    },
    WriteView {
        offset: usize,
        count: usize,
        gap: usize,
        pieces: usize,
    },
    Append {
        count: usize,
    },
    Truncate {
        size: usize,
    },
    Stat,
    Fsync,
    /// Closes the client's handle and opens the file again.
    Reopen,
}

/// What one client does in a batch; given up after so many rounds when there is a number.
#[derive(Clone, Debug)]
struct Step {
    file: usize,
    op: Op,
    patience: Option<usize>,
}

#[derive(Clone, Debug)]
struct Batch {
    steps: Vec<Step>,
    events: Vec<(usize, Event)>,
}

fn offset() -> impl Strategy<Value = usize> {
    prop_oneof![0..9 * STRIP, (0..9usize).prop_map(|strip| strip * STRIP), 0..300usize, Just(0)]
}

fn count() -> impl Strategy<Value = usize> {
    prop_oneof![1..100usize, 1..4 * STRIP, Just(STRIP), Just(3 * STRIP)]
}

fn list() -> impl Strategy<Value = (usize, usize, usize, usize)> {
    (offset(), 1..STRIP, prop_oneof![0..50usize, 0..2 * STRIP], 1..12usize)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (offset(), count()).prop_map(|(offset, count)| Op::Write { offset, count }),
        4 => (offset(), count()).prop_map(|(offset, count)| Op::Read { offset, count }),
        2 => list().prop_map(|(offset, count, gap, pieces)| {
            Op::WriteView { offset, count, gap, pieces }
        }),
        2 => list().prop_map(|(offset, count, gap, pieces)| {
            Op::ReadView { offset, count, gap, pieces }
        }),
        2 => count().prop_map(|count| Op::Append { count }),
        2 => offset().prop_map(|size| Op::Truncate { size }),
        1 => Just(Op::Stat),
        1 => Just(Op::Fsync),
        1 => Just(Op::Reopen),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let patience = prop_oneof![6 => Just(None), 1 => (0..60usize).prop_map(Some)];
    (0..FILES, op(), patience).prop_map(|(file, op, patience)| Step { file, op, patience })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..12usize, any::<bool>()).prop_map(|(conn, delivered)| Event::Cut { conn, delivered }),
        2 => (0..SERVERS).prop_map(Event::RestartData),
        2 => Just(Event::RestartMeta),
        1 => Just(Event::Checkpoint),
        2 => (0..SERVERS).prop_map(Event::RaiseChain),
    ]
}

fn batch() -> impl Strategy<Value = Batch> {
    let steps = prop::collection::vec(any_step(), CLIENTS);
    let events = prop::collection::vec((0..80usize, event()), 0..3);
    (steps, events).prop_map(|(steps, events)| Batch { steps, events })
}

/// What a client saw.
#[derive(Debug)]
enum Seen {
    Nothing,
    Bytes(Vec<u8>),
    Size(u64),
    Offset(u64),
    GivenUp,
}

/// A change to one file, as the model does it: the byte it writes names it.
#[derive(Clone, Copy, Debug)]
struct Change {
    op: Op,
    byte: u8,
    /// Whether it was certainly done.
    is_done: bool,
    /// Where an append says that it went.
    offset: Option<u64>,
}

/// What may be there after changes that are done at the same time: as if one after another, in any
/// order, and those that are not certain done in part, wherever they reach.
struct Outcomes<'a> {
    before: &'a [u8],
    changes: &'a [Change],
    ghosts: &'a [Change],
    /// For each size that the file may have, where the byte at a place may come from: bits.
    states: BTreeMap<usize, Vec<u8>>,
}

/// A byte is zero, what it was before, or what the change of that index writes.
const ZERO: u8 = 1;
const BEFORE: u8 = 2;

fn from_change(index: usize) -> u8 {
    4 << index
}

impl<'a> Outcomes<'a> {
    fn new(before: &'a [u8], changes: &'a [Change], ghosts: &'a [Change]) -> Outcomes<'a> {
        let mut states: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for order in orders((0..changes.len()).collect(), changes) {
            let Some(after) = in_order(before.len(), changes, &order) else { continue };
            let state = states.entry(after.len()).or_insert_with(|| vec![0; after.len()]);
            state.iter_mut().zip(&after).for_each(|(all, one)| *all |= one);
        }
        Outcomes { before, changes, ghosts, states }
    }

    /// What the byte at a place may be in a file of this size.
    fn bytes(&self, size: usize, at: usize) -> BTreeSet<u8> {
        let bits = self.states[&size][at];
        let mut bytes: BTreeSet<u8> = (bits & ZERO != 0).then_some(0).into_iter().collect();
        if bits & BEFORE != 0 {
            bytes.insert(self.before[at]);
        }
        let changes = self.changes.iter().enumerate();
        bytes.extend(changes.filter(|c| bits & from_change(c.0) != 0).map(|c| c.1.byte));
        if bytes.contains(&0) {
            let reaches = |ghost: &&Change| {
                written(ghost.op).iter().any(|&(from, count)| (from..from + count).contains(&at))
            };
            bytes.extend(self.ghosts.iter().filter(reaches).map(|ghost| ghost.byte));
        }
        bytes
    }

    fn may_be(&self, size: usize, at: usize, byte: u8) -> bool {
        let bits = self.states[&size][at];
        // Almost always the first.
        let is_plain =
            (bits & ZERO != 0 && byte == 0) || (bits & BEFORE != 0 && byte == self.before[at]);
        is_plain || self.bytes(size, at).contains(&byte)
    }
}

/// Every order of the changes; in each, those that are not certain grow the file (as the second
/// says) or do not.
fn orders(left: Vec<usize>, changes: &[Change]) -> Vec<Vec<(usize, bool)>> {
    let Some((&first, rest)) = left.split_first() else { return vec![Vec::new()] };
    let mut all = Vec::new();
    for order in orders(rest.to_vec(), changes) {
        for at in 0..=order.len() {
            for grows in [true, changes[first].is_done] {
                let mut with = order.clone();
                with.insert(at, (first, grows));
                all.push(with);
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// None when an append went to another place than it does in this order.
fn in_order(before: usize, changes: &[Change], order: &[(usize, bool)]) -> Option<Vec<u8>> {
    let mut bytes = vec![BEFORE; before];
    for (at, &(index, grows)) in order.iter().enumerate() {
        let change = &changes[index];
        match change.op {
            Op::Write { .. } | Op::WriteView { .. } => {
                for (offset, count) in written(change.op) {
                    put(&mut bytes, offset, count, index, change.is_done, grows);
                }
            }
            Op::Append { count } if grows => {
                let (end, rest) = (bytes.len(), &order[at + 1..]);
                match change.offset {
                    Some(offset) if went_with_the_end(offset, end, index, changes, rest) => {}
                    Some(offset) if offset != end as u64 => return None,
                    _ => put(&mut bytes, end, count, index, true, true),
                }
            }
            Op::Truncate { size } if grows => bytes.resize(size, ZERO),
            _ => {}
        }
    }
    Some(bytes)
}

/// Whether an append that says it went to `offset`, beyond the end, lay behind another that was under
/// way, and was cut with the rest by a truncation, before the size came to it. The other one may have
/// been sent to a new place: then no order has both.
fn went_with_the_end(
    offset: u64,
    end: usize,
    index: usize,
    changes: &[Change],
    rest: &[(usize, bool)],
) -> bool {
    let is_between = |(other, change): (usize, &Change)| match change.op {
        Op::Append { count } => other != index && (end + count) as u64 == offset,
        _ => false,
    };
    let cuts = |&(later, grows): &(usize, bool)| match changes[later].op {
        Op::Truncate { size } => grows && size <= end,
        _ => false,
    };
    changes.iter().enumerate().any(is_between) && rest.iter().any(cuts)
}

/// Where writes overlap either may win; one that is not certain may be done in part.
fn put(bytes: &mut Vec<u8>, offset: usize, count: usize, index: usize, done: bool, grows: bool) {
    if grows {
        bytes.resize(bytes.len().max(offset + count), ZERO);
    }
    let reached = bytes.iter_mut().skip(offset).take(count);
    reached.for_each(|bits| {
        let others = if done { *bits & !(ZERO | BEFORE) } else { *bits };
        *bits = from_change(index) | others;
    });
}

/// The ranges that an operation at known places reads or writes.
fn ranges(op: Op) -> Vec<(usize, usize)> {
    match op {
        Op::Read { offset, count } | Op::Write { offset, count } => vec![(offset, count)],
        Op::ReadView { offset, count, gap, pieces }
        | Op::WriteView { offset, count, gap, pieces } => {
            (0..pieces).map(|at| (offset + at * (count + gap), count)).collect()
        }
        _ => Vec::new(),
    }
}

fn written(op: Op) -> Vec<(usize, usize)> {
    if is_change(op) { ranges(op) } else { Vec::new() }
}

fn last_end(op: Op) -> usize {
    ranges(op).last().map_or(0, |&(offset, count)| offset + count)
}

fn view(op: Op) -> View {
    let (Op::ReadView { offset, count, gap, pieces }
    | Op::WriteView { offset, count, gap, pieces }) = op
    else {
        panic!("{op:?} is no view");
    };
    let (offset, stride) = (offset as u64, (count + gap) as u64);
    View::column(offset, count as u64, stride, pieces as u64).unwrap()
}

async fn act(fs: &Fs, file: &mut Option<File>, op: Op, byte: u8) -> Result<Seen> {
    let open = file.clone().expect("it is open between batches");
    Ok(match op {
        Op::Read { offset, count } => {
            Seen::Bytes(open.read_at(offset as u64, count).await?.into_bytes().to_vec())
        }
        Op::Write { offset, count } => {
            open.write_at(offset as u64, vec![byte; count].into()).await?;
            Seen::Nothing
        }
        Op::ReadView { .. } => Seen::Bytes(open.read_view(&view(op)).await?.to_vec()),
        Op::WriteView { count, pieces, .. } => {
            open.write_view(&view(op), vec![byte; count * pieces].into()).await?;
            Seen::Nothing
        }
        Op::Append { count } => Seen::Offset(open.append(vec![byte; count].into()).await?),
        Op::Truncate { size } => {
            let size = Some(size as u64);
            let stat =
                fs.setattr(&root(), open.id(), SetAttr { size, ..SetAttr::default() }).await?;
            Seen::Size(stat.inode.size)
        }
        Op::Stat => Seen::Size(fs.inode(open.id()).await?.size),
        Op::Fsync => {
            open.fsync().await?;
            Seen::Nothing
        }
        Op::Reopen => {
            let id = open.id();
            (*file, _) = (None, open);
            *file = Some(fs.open(&root(), id, 6).await?);
            Seen::Nothing
        }
    })
}

/// Completes when it was polled so often.
async fn rounds(count: Option<usize>) {
    let Some(mut left) = count else { return std::future::pending().await };
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

struct Lab {
    world: World,
    clients: Vec<(Fs, Vec<Option<File>>)>,
    /// What is in the files for certain, between batches.
    content: Vec<Vec<u8>>,
    ids: Vec<u64>,
    /// Writes that were given up, by file: what they left beyond the end shows when the file grows.
    ghosts: Vec<Vec<Change>>,
    byte: u8,
}

impl Lab {
    fn new(seed: u64) -> Lab {
        // Striped from the first byte on, or the progressive striping.
        let mut world = if seed & 2 == 0 { World::new(seed) } else { World::progressive(seed) };
        // Hard clients: nothing fails, however long a server is away.
        let fs: Vec<Fs> = (0..CLIENTS).map(|_| world.client(true)).collect();
        let mut ids = Vec::new();
        for at in 0..FILES {
            let (who, text) = (root(), name(&format!("f{at}")));
            let made =
                world.run(fs[0].create(&who, ROOT, &text, 0o644, Taken::Refuse, access::BOTH));
            ids.push(made.unwrap().0.id);
        }
        let (mut clients, ghosts) = (Vec::new(), vec![Vec::new(); FILES]);
        for fs in fs {
            let who = root();
            let open = |id: &u64| Some(world.run(fs.open(&who, *id, 6)).unwrap());
            clients.push((fs.clone(), ids.iter().map(open).collect()));
        }
        Lab { world, clients, content: vec![Vec::new(); FILES], ids, ghosts, byte: 0 }
    }

    fn batch(&mut self, batch: &Batch) {
        let steps = tamed(&batch.steps, &self.content);
        self.world.plan(batch.events.iter().copied());
        let first = self.byte;
        self.byte = self.byte % 200 + CLIENTS as u8;
        let runs =
            self.clients.iter_mut().zip(&steps).enumerate().map(|(at, ((fs, files), step))| {
                let byte = first + at as u8 + 1;
                async move {
                    let acted = act(fs, &mut files[step.file], step.op, byte);
                    match select(pin!(acted), pin!(rounds(step.patience))).await {
                        Either::Left((seen, _)) => seen.expect("nothing fails"),
                        Either::Right(_) => Seen::GivenUp,
                    }
                }
            });
        let seen = self.world.run(join_all(runs));
        if seen.iter().any(|seen| matches!(seen, Seen::GivenUp)) {
            // It comes to its end by itself, if at all, when nothing goes wrong any more.
            while self.world.has_plans() {
                self.world.rest(Duration::from_millis(10));
            }
            self.world.rest(WHAT_IS_GIVEN_UP_ENDS);
        }
        self.reopen();
        for file in 0..FILES {
            self.check(file, first, &steps, &seen);
        }
    }

    /// What was given up may have left a client without its handle.
    fn reopen(&mut self) {
        for (fs, files) in &mut self.clients {
            for (file, id) in files.iter_mut().zip(&self.ids) {
                if file.is_none() {
                    *file = Some(self.world.run(fs.open(&root(), *id, 6)).unwrap());
                }
            }
        }
    }

    fn check(&mut self, file: usize, first: u8, steps: &[Step], seen: &[Seen]) {
        let before = self.content[file].clone();
        let of_file =
            || steps.iter().zip(seen).enumerate().filter(|(_, (step, _))| step.file == file);
        let change = |(at, (step, seen)): (usize, (&Step, &Seen))| Change {
            op: step.op,
            byte: first + at as u8 + 1,
            is_done: !matches!(seen, Seen::GivenUp),
            offset: if let Seen::Offset(offset) = seen { Some(*offset) } else { None },
        };
        let changes: Vec<Change> = of_file().map(change).filter(|c| is_change(c.op)).collect();
        let given_up = changes.iter().filter(|change| !change.is_done).copied();
        self.ghosts[file].extend(given_up);
        let after = Outcomes::new(&before, &changes, &self.ghosts[file]);
        let mut content = None;
        for (_, files) in &self.clients {
            let open = files[file].as_ref().expect("it is open");
            let read = self.world.run(open.read_at(0, 1 << 20)).unwrap().into_bytes().to_vec();
            must_be_one_of(&read, &after);
            let all = content.get_or_insert_with(|| read.clone());
            assert!(*all == read, "clients differ after {changes:?}");
        }
        self.content[file] = content.expect("there are clients");
        for (_, (step, seen)) in of_file() {
            check_seen(step.op, seen, &before, &changes, &self.ghosts[file]);
        }
    }
}

fn is_change(op: Op) -> bool {
    matches!(op, Op::Write { .. } | Op::WriteView { .. } | Op::Append { .. } | Op::Truncate { .. })
}

/// Where an append competes with a write beyond the end or with a cut for the same place, nothing is
/// promised of who gets it: such steps become reads.
fn tamed(steps: &[Step], content: &[Vec<u8>]) -> Vec<Step> {
    let appends = |file| steps.iter().any(|s| s.file == file && matches!(s.op, Op::Append { .. }));
    let tame = |step: &Step| {
        let mut step = step.clone();
        let end = content[step.file].len();
        step.op = match step.op {
            Op::Write { offset, count } if appends(step.file) && offset + count > end => {
                Op::Read { offset, count }
            }
            op @ Op::WriteView { offset, count, gap, pieces }
                if appends(step.file) && last_end(op) > end =>
            {
                Op::ReadView { offset, count, gap, pieces }
            }
            Op::Truncate { size } if appends(step.file) && size > end => Op::Stat,
            other => other,
        };
        step
    };
    steps.iter().map(tame).collect()
}

fn must_be_one_of(read: &[u8], after: &Outcomes) {
    let story = || format!("{:?} after {:?}", runs_of(after.before), after.changes);
    let sizes = after.states.keys();
    let is_size = after.states.contains_key(&read.len());
    assert!(is_size, "size {}, not {sizes:?}: {}", read.len(), story());
    for (at, &byte) in read.iter().enumerate() {
        if !after.may_be(read.len(), at, byte) {
            let may = after.bytes(read.len(), at);
            panic!("byte {at} is {byte}, not {may:?}: {}", story());
        }
    }
}

/// The same bytes in short: how many of which.
fn runs_of(bytes: &[u8]) -> Vec<(usize, u8)> {
    bytes.chunk_by(|a, b| a == b).map(|run| (run.len(), run[0])).collect()
}

/// What a client saw in the middle of it: any mixture of what there was on the way.
fn check_seen(op: Op, seen: &Seen, before: &[u8], changes: &[Change], ghosts: &[Change]) {
    let maybe: Vec<Change> = changes.iter().map(|c| Change { is_done: false, ..*c }).collect();
    let outcomes = Outcomes::new(before, &maybe, ghosts);
    let states = &outcomes.states;
    match (op, seen) {
        (Op::Read { .. } | Op::ReadView { .. }, Seen::Bytes(read)) => {
            let places: Vec<usize> =
                ranges(op).into_iter().flat_map(|(at, count)| at..at + count).collect();
            let fits = |size: &usize| places.iter().filter(|at| *at < size).count() == read.len();
            assert!(states.keys().any(fits), "read {} bytes of {op:?}", read.len());
            for (byte, &at) in read.iter().zip(&places) {
                let is_in = |&&size: &&usize| at < size && outcomes.may_be(size, at, *byte);
                let is_there = states.keys().any(|size| is_in(&size));
                // Where a write extends the file, its size may come first.
                let is_coming = *byte == 0 && (at >= before.len() || has_cut(changes));
                assert!(is_there || is_coming, "read {byte} at {at} of {changes:?}");
            }
        }
        (Op::Stat, Seen::Size(size)) => {
            assert!(states.contains_key(&(*size as usize)), "size {size} of {changes:?}");
        }
        _ => {}
    }
}

fn has_cut(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change.op, Op::Truncate { .. }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn a_completed_write_is_what_every_later_read_sees(
        seed in any::<u64>(),
        batches in prop::collection::vec(batch(), 1..8),
    ) {
        let mut lab = Lab::new(seed);
        batches.iter().for_each(|batch| lab.batch(batch));
    }
}

// What it has found.

fn step(file: usize, op: Op, patience: Option<usize>) -> Step {
    Step { file, op, patience }
}

fn write(offset: usize, count: usize) -> Step {
    step(0, Op::Write { offset, count }, None)
}

#[test]
fn an_append_that_was_given_up_leaves_no_hole() {
    let append = step(0, Op::Append { count: 1 }, Some(1));
    let steps = vec![append, write(0, 1), write(0, 1)];
    let events = vec![(2, Event::RestartMeta)];
    Lab::new(1_368_862_688_090_806_712).batch(&Batch { steps, events });
}

#[test]
fn an_append_that_was_given_up_holds_nobody_up() {
    let append = |count, patience| step(0, Op::Append { count }, patience);
    let steps = vec![append(4197, Some(1)), append(1, None), write(0, 1)];
    let events = vec![(5, Event::Cut { conn: 3, delivered: false })];
    Lab::new(435_513_966_555_164_170).batch(&Batch { steps, events });
}

#[test]
fn an_append_and_a_write_share_a_place_that_a_truncation_has_freed() {
    let mut lab = Lab::new(14_110_751_781_914_418_342);
    let append = |file, count| step(file, Op::Append { count }, None);
    let truncate = step(0, Op::Truncate { size: 0 }, None);
    let steps = vec![write(0, 1), append(1, 277), write(28594, 79)];
    lab.batch(&Batch { steps, events: vec![(16, Event::RestartData(0))] });
    lab.batch(&Batch { steps: vec![write(0, 1), write(0, 1), append(1, 1)], events: vec![] });
    lab.batch(&Batch { steps: vec![write(1, 4096), truncate, append(0, 4096)], events: vec![] });
}

#[test]
fn an_append_goes_with_the_truncation_that_sends_the_one_before_it_elsewhere() {
    for seed in [13, 14, 15] {
        let mut lab = Lab::new(seed);
        lab.batch(&Batch { steps: vec![write(0, 100), write(0, 1), write(0, 1)], events: vec![] });
        let append = |count| step(0, Op::Append { count }, None);
        let truncate = step(0, Op::Truncate { size: 10 }, None);
        let events = vec![(0, Event::Cut { conn: 4, delivered: false })];
        lab.batch(&Batch { steps: vec![append(7), truncate, append(50)], events });
    }
}
