//! Several clients that remember under leases, against the metadata server itself: whatever a client
//! answers, from memory or not, is what the server would say.
//!
//! In each round the clients change things at the same time, over connections that are cut and a server
//! that starts anew. Then each looks at everything, and every answer is compared.

use crate::lab::*;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Error, Fs, Listing, Result, Taken, access};
use covey_stripe::ops::{Id, Inode, Op as MetaOp, ROOT, Reply};
use covey_wire::Rng;
use futures_util::future::join_all;
use proptest::prelude::*;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

const CLIENTS: usize = 3;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const DIR: u32 = 0o040_755;

#[derive(Clone, Copy, Debug)]
enum Op {
    Create { dir: usize, name: usize },
    Mkdir { dir: usize, name: usize },
    Unlink { dir: usize, name: usize, is_dir: bool },
    Rename { dir: usize, name: usize, to: usize, to_name: usize, flags: u32 },
    Link { dir: usize, name: usize, to_name: usize },
    Chmod { dir: usize, name: usize, mode: u32 },
    Write { dir: usize, name: usize, count: usize },
    Cut { dir: usize, name: usize },
    Append { dir: usize, name: usize },
    List { dir: usize },
    Look { dir: usize, name: usize },
}

#[derive(Clone, Debug)]
struct Round {
    /// What two tasks of each client do; given up after so many turns of the world when there is a number.
    ops: Vec<(Vec<Op>, Option<usize>)>,
    events: Vec<(usize, Event)>,
    rest_ms: u64,
    /// Who looks afterwards, and in which order.
    lookers: Vec<usize>,
}

fn op() -> impl Strategy<Value = Op> {
    let (dir, name) = (|| 0..2usize, || 0..NAMES.len());
    prop_oneof![
        4 => (dir(), name()).prop_map(|(dir, name)| Op::Create { dir, name }),
        1 => (dir(), name()).prop_map(|(dir, name)| Op::Mkdir { dir, name }),
        4 => (dir(), name(), prop::bool::weighted(0.2))
            .prop_map(|(dir, name, is_dir)| Op::Unlink { dir, name, is_dir }),
        3 => (dir(), name(), dir(), name(), prop_oneof![3 => Just(0), 1 => Just(2)])
            .prop_map(|(dir, name, to, to_name, flags)| Op::Rename { dir, name, to, to_name, flags }),
        2 => (dir(), name(), name()).prop_map(|(dir, name, to_name)| Op::Link { dir, name, to_name }),
        2 => (dir(), name(), 0..0o1000u32).prop_map(|(dir, name, mode)| Op::Chmod { dir, name, mode }),
        2 => (dir(), name(), 1..5000usize).prop_map(|(dir, name, count)| Op::Write { dir, name, count }),
        1 => (dir(), name()).prop_map(|(dir, name)| Op::Cut { dir, name }),
        1 => (dir(), name()).prop_map(|(dir, name)| Op::Append { dir, name }),
        1 => dir().prop_map(|dir| Op::List { dir }),
        4 => (dir(), name()).prop_map(|(dir, name)| Op::Look { dir, name }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..12usize, any::<bool>()).prop_map(|(conn, delivered)| Event::Cut { conn, delivered }),
        1 => Just(Event::RestartMeta),
        1 => Just(Event::Checkpoint),
    ]
}

fn round() -> impl Strategy<Value = Round> {
    let patience = prop_oneof![6 => Just(None), 1 => (0..60usize).prop_map(Some)];
    let ops = prop::collection::vec((prop::collection::vec(op(), 0..4), patience), 2 * CLIENTS);
    let events = prop_oneof![
        3 => Just(vec![]),
        1 => prop::collection::vec((0..60usize, event()), 1..3)
    ];
    let rest = prop_oneof![4 => Just(0u64), 1 => 0..1200u64];
    let lookers = prop::collection::vec(0..CLIENTS, 1..4);
    (ops, events, rest, lookers).prop_map(|(ops, events, rest_ms, lookers)| Round {
        ops,
        events,
        rest_ms,
        lookers,
    })
}

async fn act(fs: &Fs, dirs: &[Id], op: Op) -> Result<()> {
    let who = root();
    let name = |at: usize| name(NAMES[at]);
    match op {
        Op::Create { dir, name: at } => fs
            .create(&who, dirs[dir], &name(at), 0o644, Taken::Refuse, access::BOTH)
            .await
            .map(drop),
        Op::Mkdir { dir, name: at } => {
            fs.make(&who, dirs[dir], &name(at), DIR, 0, name(0)).await.map(drop)
        }
        Op::Unlink { dir, name: at, is_dir } => {
            fs.unlink(&who, dirs[dir], &name(at), Removal::directory_if(is_dir)).await
        }
        Op::Rename { dir, name: at, to, to_name, flags } => {
            fs.rename(&who, dirs[dir], &name(at), dirs[to], &name(to_name), flags).await
        }
        Op::Link { dir, name: at, to_name } => {
            let id = fs.lookup(&who, dirs[dir], &name(at)).await?.id;
            fs.link(&who, id, dirs[1 - dir], &name(to_name)).await.map(drop)
        }
        Op::Chmod { dir, name: at, mode } => {
            let id = fs.lookup(&who, dirs[dir], &name(at)).await?.id;
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            fs.setattr(&who, id, set).await.map(drop)
        }
        Op::Cut { dir, name: at } => {
            let id = fs.lookup(&who, dirs[dir], &name(at)).await?.id;
            let set = SetAttr { size: Some(7), ..SetAttr::default() };
            fs.setattr(&who, id, set).await.map(drop)
        }
        Op::Write { dir, name: at, count } => {
            let id = fs.lookup(&who, dirs[dir], &name(at)).await?.id;
            let file = fs.open(&who, id, 6).await?;
            file.write_at(100, vec![1; count].into()).await
        }
        Op::Append { dir, name: at } => {
            let id = fs.lookup(&who, dirs[dir], &name(at)).await?.id;
            let file = fs.open(&who, id, 2).await?;
            file.append(vec![2; 50].into()).await.map(drop)
        }
        Op::List { dir } => {
            fs.readdir(&who, dirs[dir], 0, 0, 1 << 16, Listing::Inodes).await.map(drop)
        }
        Op::Look { dir, name: at } => fs.lookup(&who, dirs[dir], &name(at)).await.map(drop),
    }
}

/// Polls the future only now and then, as if its thread were busy, and drops it after so many turns.
async fn sluggishly<F: Future>(future: F, seed: u64, patience: Option<usize>) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let (mut left, mut rng) = (patience, Rng::new(seed));
    poll_fn(move |context| {
        if rng.below(4) == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        match &mut left {
            Some(0) => return Poll::Ready(None),
            Some(left) => {
                *left -= 1;
                context.waker().wake_by_ref();
            }
            None => {}
        }
        Poll::Pending
    })
    .await
}

/// What the server itself says of a name, or of a file.
fn said(reply: &Reply) -> std::result::Result<&Inode, u32> {
    match reply {
        Reply::Nodes { inodes } => Ok(&inodes.0[0]),
        Reply::Node { inode } => Ok(inode),
        Reply::Error { code, .. } => Err(*code),
        other => panic!("{other:?}"),
    }
}

/// What a client answers is what the server would have said meanwhile: something that was given up, or
/// that nobody waits for, may be done between.
fn compare<F>(world: &mut World, question: MetaOp, asked: F, what: &str) -> Option<Inode>
where
    F: Future<Output = Result<Inode>>,
{
    world.meta.watch(question);
    let found = world.run(asked).map_err(|error| error.code());
    let truths = world.meta.watched();
    let is_true = truths.iter().any(|truth| said(truth) == found.as_ref().map_err(|code| *code));
    assert!(is_true, "{what}: {found:?}, not {truths:?}");
    found.ok()
}

fn look(world: &mut World, fs: &Fs, who: usize, dirs: &[Id]) {
    for (index, &dir) in dirs.iter().enumerate() {
        for called in NAMES {
            let (what, caller) = (format!("client {who} at {index}/{called}"), root());
            let (walk, text) =
                (MetaOp::Walk { from: dir, names: meta::names(called) }, name(called));
            let Some(found) = compare(world, walk, fs.lookup(&caller, dir, &text), &what) else {
                continue;
            };
            let id = found.id;
            compare(world, MetaOp::Getattr { id }, fs.inode(id), &what);
            if found.is_regular() && found.inline > 0 {
                look_inside(world, fs, id, &what);
            }
        }
    }
}

/// What a file holds with its inode, as the client reads it.
fn look_inside(world: &mut World, fs: &Fs, id: Id, what: &str) {
    world.meta.watch(MetaOp::ReadInline { id, offset: 0, count: INLINE as u32 });
    let read = world.run(async {
        let file = fs.open(&root(), id, 4).await?;
        file.read_at(0, INLINE).await
    });
    let read = read.ok().map(|data| data.into_bytes());
    let truths = world.meta.watched();
    let is_true = truths.iter().any(|truth| match truth {
        Reply::Inline { data, .. } => read.as_ref() == Some(&data.clone().into_bytes()),
        _ => read.is_none(),
    });
    assert!(is_true, "{what}: {read:?}, not {truths:?}");
}

fn run(seed: u64, rounds: &[Round]) {
    let mut world =
        if seed.is_multiple_of(2) { World::new(seed) } else { World::progressive(seed) };
    let clients: Vec<Fs> = (0..CLIENTS).map(|_| world.client(true)).collect();
    let (who, sub) = (root(), name("sub"));
    let mkdir = clients[0].make(&who, ROOT, &sub, DIR, 0, name(""));
    let dirs = [ROOT, world.run(mkdir).unwrap().id];
    for round in rounds {
        world.plan(round.events.iter().copied());
        let steps = round.ops.iter().enumerate().map(|(at, (ops, patience))| {
            let fs = &clients[at % CLIENTS];
            let all = async move {
                for op in ops {
                    let done = act(fs, &dirs, *op).await;
                    let is_known = |error: &Error| error.code() != Errno::EPROTO;
                    assert!(done.as_ref().err().is_none_or(is_known), "{op:?}: {done:?}");
                }
            };
            sluggishly(all, seed ^ at as u64, *patience)
        });
        world.run(join_all(steps));
        world.rest(Duration::from_millis(round.rest_ms));
        for &looker in &round.lookers {
            look(&mut world, &clients[looker], looker, &dirs);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_a_client_remembers_is_what_the_server_says(
        seed in any::<u64>(),
        rounds in prop::collection::vec(round(), 1..16),
    ) {
        run(seed, &rounds);
    }
}
