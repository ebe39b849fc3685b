//! Which I/O servers new files are dealt to.

use crate::lab::*;
use covey_stripe::distribution::{BASIC, TWOD_STRIPE, VARSTRIP};
use covey_stripe::meta::place::{AWAY, CLOSED, FULL};
use covey_stripe::ops::{Id, Op, ROOT, Reply, StripingHint};
use covey_wire::List;
use std::collections::BTreeSet;

fn place(lab: &mut Lab, server: u16, state: u8) {
    assert_eq!(lab.reply(0, Op::Place { server, state }), Reply::Done {});
}

/// The servers of some files just made in a directory, as each has them.
fn dealt(lab: &mut Lab, parent: Id, names: &str) -> Vec<Vec<u16>> {
    let file = |at| lab.create(parent, &format!("{names}{at}"), 0o644).striping.unwrap().servers.0;
    (0..8).map(file).collect()
}

fn all_of(dealt: &[Vec<u16>]) -> Vec<u16> {
    dealt.iter().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

/// A directory whose files are laid out so.
fn directory(lab: &mut Lab, name: &str, hint: StripingHint) -> Id {
    let id = lab.mkdir(ROOT, name).id;
    node(lab.reply(0, Op::SetStriping { id, hint }));
    id
}

#[test]
fn new_files_lie_on_servers_that_are_open_serve_and_have_space_as_long_as_there_are_any() {
    let mut lab = Lab::default();
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "a")), [0, 1, 2, 3]);
    place(&mut lab, 1, CLOSED);
    place(&mut lab, 2, AWAY);
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "b")), [0, 3]);
    place(&mut lab, 3, FULL);
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "c")), [0]);
    place(&mut lab, 0, AWAY | CLOSED);
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "d")), [3], "a full one is better than a closed one");
    place(&mut lab, 3, AWAY);
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "e")), [1], "a closed one is better than one away");
    place(&mut lab, 1, AWAY);
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "f")), [0, 1, 2, 3], "none is better than another");
    for server in 0..4 {
        place(&mut lab, server, 0);
    }
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "g")), [0, 1, 2, 3]);
}

#[test]
fn where_there_are_fewer_servers_a_file_is_laid_out_on_those_unless_its_layout_needs_them_all() {
    let mut lab = Lab::default();
    let three = directory(&mut lab, "three", StripingHint::simple_stripe(64 << 10, 3));
    let params = List(vec![0, 4096, 3, 4096]);
    let hint = StripingHint { kind: VARSTRIP, strip_bytes: 0, server_count: 0, params };
    let var = directory(&mut lab, "var", hint);
    let params = List(vec![2, 3]);
    let hint = StripingHint { kind: TWOD_STRIPE, strip_bytes: 64 << 10, server_count: 0, params };
    let twod = directory(&mut lab, "twod", hint);
    place(&mut lab, 0, AWAY);
    place(&mut lab, 2, FULL);
    for (dir, count, servers) in
        [(three, 2, vec![1, 3]), (twod, 2, vec![1, 3]), (var, 4, vec![0, 1, 2, 3])]
    {
        let dealt = dealt(&mut lab, dir, "f");
        assert!(dealt.iter().all(|servers| servers.len() == count), "{dealt:?}");
        assert_eq!(all_of(&dealt), servers);
    }
    // They begin on different ones.
    let firsts: BTreeSet<u16> =
        dealt(&mut lab, three, "g").iter().map(|servers| servers[0]).collect();
    assert_eq!(firsts, BTreeSet::from([1, 3]));
}

#[test]
fn files_of_every_kind_are_made_where_no_server_is_open() {
    let mut lab = Lab::default();
    let basic = StripingHint { kind: BASIC, strip_bytes: 0, server_count: 0, params: List(vec![]) };
    let basic = directory(&mut lab, "basic", basic);
    let all = directory(&mut lab, "all", StripingHint::progressive(64 << 10, 0));
    for state in [FULL, CLOSED, AWAY, FULL | CLOSED | AWAY] {
        (0..4).for_each(|server| place(&mut lab, server, state));
        assert_eq!(all_of(&dealt(&mut lab, basic, &state.to_string())), [0, 1, 2, 3]);
        assert_eq!(all_of(&dealt(&mut lab, all, &state.to_string())), [0, 1, 2, 3]);
    }
    place(&mut lab, 2, FULL);
    assert_eq!(all_of(&dealt(&mut lab, basic, "last")), [2]);
}

#[test]
fn a_replay_deals_as_the_first_time_and_what_was_seen_is_known_after_a_start() {
    let mut lab = Lab::default();
    place(&mut lab, 1, CLOSED);
    lab.save();
    place(&mut lab, 2, AWAY);
    let before = dealt(&mut lab, ROOT, "a");
    place(&mut lab, 2, 0);
    lab.crash();
    assert_eq!(lab.store.places(), [0, CLOSED, 0, 0]);
    let found: Vec<Vec<u16>> = (0..8)
        .map(|at| lab.find(ROOT, &format!("a{at}")).unwrap().striping.unwrap().servers.0)
        .collect();
    assert_eq!(found, before);
    assert_eq!(all_of(&found), [0, 3]);
    // A server that is added is open.
    let more = [servers(), vec!["io4".into()]].concat();
    assert_eq!(lab.store.adopt_servers(&more).unwrap(), 1);
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "b")), [0, 2, 3, 4]);
    place(&mut lab, 4, FULL);
    assert_eq!(lab.store.places(), [0, CLOSED, 0, 0, FULL]);
}
