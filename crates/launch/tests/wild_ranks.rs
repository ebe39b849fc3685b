//! Ranks and starters that say anything at all: nothing panics, nothing grows without bound, and what is
//! answered goes to those who asked.

use covey_launch::exchange::{Down, Frames, Hub, Up};
use covey_launch::job::Placement;
use covey_launch::pmi::{Event, KVS_BYTES_MAX, Server};
use covey_wire::{List, Name, Payload};
use proptest::prelude::*;

fn placement(nodes: usize, ranks: u32) -> Placement {
    let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
    Placement::new(&names, Some(ranks), None).unwrap()
}

/// A line that a rank might send, or nearly.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let known = prop_oneof![
        (0u32..4).prop_map(|rank| format!("cmd=initack pmiid={rank}")),
        Just("cmd=init pmi_version=1 pmi_subversion=1".to_owned()),
        ("[a-c]", "[x-z]{0,3}")
            .prop_map(|(key, value)| format!("cmd=put kvsname=j key={key} value={value}")),
        "[a-d]".prop_map(|key| format!("cmd=get kvsname=j key={key}")),
        Just("cmd=barrier_in".to_owned()),
        Just("cmd=finalize".to_owned()),
        Just("cmd=abort exitcode=3".to_owned()),
        Just("mcmd=spawn\nendcmd".to_owned()),
        "cmd=[a-z_]{0,12}( [a-z]{1,5}=[a-z0-9]{0,5}){0,3}",
    ];
    let wild = proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![8 => known.prop_map(String::into_bytes), 1 => wild]
}

#[derive(Clone, Debug)]
enum Op {
    Connect(u64),
    Line(u64, Vec<u8>),
    Close(u64),
    Fenced(Vec<u8>),
}

fn op() -> impl Strategy<Value = Op> {
    let connection = 0u64..5;
    prop_oneof![
        2 => connection.clone().prop_map(Op::Connect),
        12 => (connection.clone(), line()).prop_map(|(connection, line)| Op::Line(connection, line)),
        1 => connection.prop_map(Op::Close),
        1 => proptest::collection::vec(any::<u8>(), 0..12).prop_map(Op::Fenced),
    ]
}

proptest! {
    #[test]
    fn ranks_that_say_anything_break_nothing(ops in proptest::collection::vec(op(), 0..120)) {
        let mut server = Server::new("j", placement(2, 4), 0);
        let mut open = std::collections::BTreeSet::new();
        let mut fences = 0;
        for op in ops {
            match op {
                Op::Connect(connection) if open.insert(connection) => server.connected(connection),
                Op::Connect(_) => {}
                Op::Line(connection, mut line) => {
                    line.push(b'\n');
                    server.handle_input(connection, &line);
                }
                Op::Close(connection) => {
                    open.remove(&connection);
                    server.closed(connection);
                }
                Op::Fenced(data) => {
                    let ended = server.fenced(data.into());
                    prop_assert!(ended.is_err() || fences > 0, "a barrier ended that had not begun");
                    fences = 0;
                }
            }
            while let Some(event) = server.poll_event() {
                match event {
                    Event::Reply(connection, _) => prop_assert!(open.contains(&connection)),
                    Event::Close(connection) => drop(open.remove(&connection)),
                    Event::Fence(data) => {
                        fences += 1;
                        prop_assert!(data.len() <= KVS_BYTES_MAX);
                    }
                    Event::Abort { rank, .. } | Event::Gone { rank } | Event::Joined { rank } => {
                        prop_assert!(rank < 2, "rank {rank} is not of this node");
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_no_frames_end_the_stream(pieces in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..50), 0..20,
    )) {
        let (mut up, mut down) = (Frames::<Up>::default(), Frames::<Down>::default());
        for piece in pieces {
            up.push(&piece);
            down.push(&piece);
            while let Ok(Some(_)) = up.take_next() {}
            while let Ok(Some(_)) = down.take_next() {}
        }
    }

    #[test]
    fn whatever_starters_say_a_fence_is_answered_once_to_each_who_came(
        said in proptest::collection::vec((0usize..3, up()), 0..80),
    ) {
        let mut hub = Hub::new(placement(3, 6));
        let mut at_fence = std::collections::BTreeMap::<(usize, u8, Vec<u32>), i32>::new();
        for (node, said) in said {
            let fence = match &said {
                Up::Fence { space, ranks, .. } => Some((*space, normal(&ranks.0))),
                _ => None,
            };
            if hub.handle(node, said).is_ok() {
                if let Some((space, ranks)) = fence {
                    *at_fence.entry((node, space, ranks)).or_default() += 1;
                }
            } else {
                hub.lost(node);
            }
            while let Some((node, said)) = hub.poll_output() {
                prop_assert!(node < 3);
                if let Down::Fenced { space, ranks, .. } = said {
                    let open = at_fence.entry((node, space, ranks.0)).or_default();
                    *open -= 1;
                    prop_assert!(*open >= 0, "node {node} was not at that fence");
                }
            }
        }
    }
}

/// As the hub names the ranks of a fence.
fn normal(ranks: &[u32]) -> Vec<u32> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    if ranks.len() == 6 { Vec::new() } else { ranks }
}

fn up() -> impl Strategy<Value = Up> {
    let ranks = proptest::collection::vec(0u32..7, 0..4);
    let data = || proptest::collection::vec(any::<u8>(), 0..9).prop_map(Payload::from);
    prop_oneof![
        8 => (1u8..4, ranks, data()).prop_map(|(space, ranks, data)| {
            Up::Fence { space, ranks: List(ranks), data }
        }),
        2 => (any::<u32>(), 0u32..8).prop_map(|(token, rank)| Up::Ask { token, rank }),
        2 => (0u32..4, any::<u32>(), any::<bool>(), data()).prop_map(|(asker, token, ok, data)| {
            Up::Answer { asker, token, ok, data }
        }),
        1 => (0u32..8, any::<u32>()).prop_map(|(rank, code)| {
            Up::Abort { rank, code, why: Name::EMPTY }
        }),
        1 => (0u32..8).prop_map(|rank| Up::Gone { rank }),
        1 => (0u32..8).prop_map(|rank| Up::Joined { rank }),
    ]
}
