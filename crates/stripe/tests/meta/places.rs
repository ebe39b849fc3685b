//! Which I/O servers new files are dealt to.

use crate::lab::*;
use covey_ninep::tree::Errno;
use covey_stripe::distribution::{self, BASIC, TWOD_STRIPE, VARSTRIP};
use covey_stripe::meta::mode;
use covey_stripe::meta::place::{AWAY, CLOSED, FULL, LEAVING, REMOVED};
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

#[test]
fn a_layout_that_names_removed_servers_makes_no_file_that_nobody_can_read() {
    let mut lab = Lab::default();
    let four = directory(&mut lab, "four", StripingHint::simple_stripe(64 << 10, 4));
    let params = List(vec![0, 4096, 3, 4096]);
    let hint = StripingHint { kind: VARSTRIP, strip_bytes: 0, server_count: 0, params };
    let var = directory(&mut lab, "var", hint);
    lab.create(var, "before", 0o644);
    place(&mut lab, 1, CLOSED | REMOVED);
    assert_eq!(lab.code(0, create(var, "after", mode::REGULAR | 0o644)), Errno::EINVAL);
    assert_eq!(lab.create(var, "dir", mode::DIRECTORY | 0o755).nlink, 2);
    let fewer = lab.create(four, "f", 0o644).striping.unwrap();
    assert_eq!(fewer.servers.0.len(), 3);
    assert!(distribution::of(&fewer).is_ok());
    let hint = StripingHint::simple_stripe(64 << 10, 0);
    node(lab.reply(0, Op::SetStriping { id: var, hint }));
    lab.create(var, "after", 0o644);
}

/// As a start with a configuration that lists these I/O servers: how many are new, or why it is refused.
fn configured(lab: &mut Lab, names: &str) -> Result<usize, String> {
    let names: Vec<String> = names.split(' ').map(Into::into).collect();
    lab.store.adopt_servers(&names).map_err(|error| error.reason.to_string())
}

#[test]
fn nothing_comes_to_lie_on_a_server_that_leaves_whatever_else_is_left() {
    let mut lab = Lab::default();
    assert_eq!(configured(&mut lab, "io0 io1 io2 io3"), Ok(0));
    let moved = lab.file("moved");
    place(&mut lab, 1, CLOSED | LEAVING);
    place(&mut lab, 2, CLOSED | REMOVED);
    for server in [0, 3] {
        place(&mut lab, server, AWAY | CLOSED | FULL);
    }
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "a")), [0, 3], "these are at least there");
    let three = StripingHint::simple_stripe(64 << 10, 3);
    let id = lab.mkdir(ROOT, "three").id;
    assert_eq!(lab.code(0, Op::SetStriping { id, hint: three }), Errno::EINVAL, "there are 2");
    for servers in [vec![0, 1], vec![2], vec![9]] {
        let id = moved.id;
        let begun = node(lab.reply(0, Op::BeginMove { id }));
        lab.reply(0, Op::CutDone { id, epoch: begun.epoch });
        let (epoch, version) = (begun.epoch, begun.version);
        let to = Op::Move { id, epoch, version, servers: List(servers) };
        assert_eq!(lab.code(0, to), Errno::EINVAL);
    }
    lab.crash();
    assert!(lab.store.is_removed(2) && !lab.store.is_removed(1));
    assert_eq!(lab.store.server_count(), 2);
    assert!(lab.store.served_by(2).is_empty() && !lab.store.served_by(1).is_empty());
}

#[test]
fn a_server_that_was_removed_may_be_missing_in_the_configuration_and_its_name_is_not_used_again() {
    let mut lab = Lab::default();
    assert_eq!(configured(&mut lab, "io0 io1 io2 io3"), Ok(0));
    assert!(configured(&mut lab, "io0 io2 io3").is_err());
    place(&mut lab, 1, CLOSED | REMOVED);
    let Reply::Chains { servers, .. } = lab.reply(0, Op::Chains {}) else { panic!("Chains") };
    let told: Vec<_> = servers.0.iter().map(|name| name.lossy().into_owned()).collect();
    assert_eq!(told, ["io0", "", "io2", "io3"]);
    assert_eq!(configured(&mut lab, "io0 io2 io3"), Ok(0));
    assert_eq!(configured(&mut lab, "io0 io1 io2 io3"), Ok(0), "it may be listed still");
    let lacking = configured(&mut lab, "io0 io3").unwrap_err();
    assert!(lacking.contains("io0, io2, io3, in this order"), "{lacking}");
    let again = configured(&mut lab, "io0 io2 io3 io1").unwrap_err();
    assert!(again.contains("io1 was removed"), "{again}");
    assert_eq!(configured(&mut lab, "io0 io2 io3 io4"), Ok(1));
    assert_eq!(configured(&mut lab, "io0 io1 io2 io3 io4"), Ok(0));
    assert_eq!(all_of(&dealt(&mut lab, ROOT, "a")), [0, 2, 3, 4], "its index is nobody's");
}
