//! The table of chains: what changes it, what it outlives, and stores that have none.

use crate::lab::*;
use covey_stripe::chain::{Chain, SKIPPED, State};
use covey_stripe::kv::{Kv, MemoryKv};
use covey_stripe::meta::place::AWAY;
use covey_stripe::meta::{Record, Store, records};
use covey_stripe::ops::{Op, Reply};
use covey_wire::{Field, List, Name};

/// Server, store, state and generation of each chain, which has one member.
fn table(lab: &Lab) -> Vec<(u16, String, State, u32)> {
    let row = |chain: &Chain| {
        assert_eq!(chain.members.0.len(), 1);
        let member = chain.head().unwrap();
        (member.server, member.store.lossy().into_owned(), member.state(), chain.generation)
    };
    lab.store.chains().iter().map(row).collect()
}

fn generations(lab: &Lab) -> Vec<u32> {
    lab.store.chains().iter().map(|chain| chain.generation).collect()
}

fn know(lab: &mut Lab, server: u16, store: &str) {
    let store = Name::from(store);
    assert_eq!(lab.reply(0, Op::KnowStore { server, store }), Reply::Done {});
}

/// As a server starts.
fn adopt(lab: &mut Lab) {
    assert_eq!(lab.store.adopt_servers(&servers()).unwrap(), 0);
}

/// The rows of the table.
fn rows(kv: &MemoryKv) -> Vec<(u16, Chain)> {
    let rows = dump(kv).into_iter().flat_map(|(key, value)| records(&key, &value));
    let chain = |record| match record {
        Record::Chain { index, chain } => Some((index, chain)),
        _ => None,
    };
    rows.filter_map(chain).collect()
}

#[test]
fn a_store_of_before_gets_a_chain_for_each_server_in_their_order() {
    let mut lab = Lab::default();
    let file = lab.file("f");
    know(&mut lab, 2, "disk");
    // What a version of before has left: no row of the table.
    let mut kv = lab.store.kv().clone();
    for at in 0..4u8 {
        kv.delete(&[&b"schain"[..], &[0, at]].concat()).unwrap();
    }
    lab.store = Store::open(kv).unwrap();
    let plain = |server| (server, String::new(), State::Serving, 1);
    assert_eq!(table(&lab), [0, 1, 2, 3].map(plain), "it can be asked before it has rows");
    adopt(&mut lab);
    let disk = (2, "disk".into(), State::Serving, 1);
    assert_eq!(table(&lab), [plain(0), plain(1), disk, plain(3)]);
    assert_eq!(lab.stat(file.id).striping, file.striping, "what files name means the same");
    let of_rows: Vec<Chain> = rows(lab.store.kv()).into_iter().map(|(_, chain)| chain).collect();
    assert_eq!(of_rows, lab.store.chains());
}

#[test]
fn another_store_raises_the_generations_of_its_server_alone_and_outlives_a_crash() {
    let mut lab = Lab::default();
    adopt(&mut lab);
    know(&mut lab, 1, "one");
    assert_eq!(generations(&lab), [1; 4], "it is the first");
    lab.save();
    know(&mut lab, 1, "two");
    lab.reply(0, Op::RaiseChain { chain: 3 });
    let before = table(&lab);
    assert_eq!(generations(&lab), [1, 2, 1, 2]);
    assert_eq!(before[1].1, "two");
    let [again, living] = lab.replayed();
    assert_eq!(again, living);
    lab.crash();
    assert_eq!(table(&lab), before);
}

#[test]
fn a_server_that_is_away_is_the_last_of_its_chain_and_no_request_is_refused_for_it() {
    let mut lab = Lab::default();
    adopt(&mut lab);
    lab.reply(0, Op::Place { server: 2, state: AWAY });
    assert_eq!(table(&lab)[2], (2, String::new(), State::Last, 1));
    lab.crash();
    assert_eq!(table(&lab)[2].2, State::Last);
    lab.reply(0, Op::Place { server: 2, state: 0 });
    assert_eq!(table(&lab)[2], (2, String::new(), State::Serving, 1));
    // A new disk is put into the place of the lost one while it counts as away.
    know(&mut lab, 2, "old");
    lab.reply(0, Op::Place { server: 2, state: AWAY });
    know(&mut lab, 2, "new");
    assert_eq!(table(&lab)[2], (2, "new".into(), State::Serving, 2));
}

#[test]
fn generations_that_may_have_been_given_out_are_skipped() {
    let mut lab = Lab::default();
    adopt(&mut lab);
    lab.reply(0, Op::RaiseChain { chain: 0 });
    lab.store.opened_on(1, true).unwrap();
    assert_eq!(generations(&lab), [2 + SKIPPED, 1 + SKIPPED, 1 + SKIPPED, 1 + SKIPPED]);
    lab.reply(0, Op::Restored {});
    assert_eq!(
        generations(&lab)[0],
        2 + 2 * SKIPPED,
        "the copy may be older than what was given out"
    );
    let rows: Vec<u32> = rows(lab.store.kv()).iter().map(|(_, chain)| chain.generation).collect();
    assert_eq!(rows, generations(&lab));
    lab.store.opened_on(1, false).unwrap();
    assert_eq!(generations(&lab)[0], 2 + 2 * SKIPPED);
}

#[test]
fn servers_that_are_added_bring_chains_of_their_own() {
    let mut lab = Lab::default();
    let more = [servers(), vec!["io4".into()]].concat();
    assert_eq!(lab.store.adopt_servers(&more).unwrap(), 1);
    assert_eq!(table(&lab)[4], (4, String::new(), State::Serving, 1));
    know(&mut lab, 4, "disk");
    assert_eq!(table(&lab)[4], (4, "disk".into(), State::Serving, 1));
    assert_eq!(lab.store.chains_on(4), [4]);
    let served = lab.store.served_by(4);
    assert_eq!(served.iter().map(|one| (one.chain, one.generation)).collect::<Vec<_>>(), [(4, 1)]);
    assert!(lab.store.served_by(5).is_empty());
}

fn put<T: Field>(kv: &mut MemoryKv, key: &[u8], value: &T) {
    let mut row = vec![1];
    value.put((), &mut row);
    kv.put(key, &row).unwrap();
}

/// An older version serves the store in between, which knows no chains, and a disk is replaced under it.
#[test]
fn a_store_that_was_replaced_under_an_older_version_raises_the_generation_at_the_next_start() {
    let mut lab = Lab::default();
    adopt(&mut lab);
    know(&mut lab, 0, "one");
    let mut kv = lab.store.kv().clone();
    put(&mut kv, b"sstores", &List(vec![Name::from("two")]));
    lab.store = Store::open(kv).unwrap();
    adopt(&mut lab);
    assert_eq!(table(&lab)[0], (0, "two".into(), State::Serving, 2));
    adopt(&mut lab);
    assert_eq!(generations(&lab), [2, 1, 1, 1], "once");
}

#[test]
fn a_damaged_row_of_the_table_keeps_nobody_from_starting() {
    let mut lab = Lab::default();
    adopt(&mut lab);
    know(&mut lab, 1, "disk");
    let key = b"schain\0\x01".to_vec();
    for damage in [&b"\x01\x02"[..], b"", b"\x07rubbish"] {
        let mut kv = lab.store.kv().clone();
        kv.put(&key, damage).unwrap();
        lab.store = Store::open(kv).unwrap();
        let before = lab.store.chains()[1].generation;
        assert!(before > SKIPPED, "what was given out is not known");
        adopt(&mut lab);
        assert_eq!((table(&lab)[1].0, table(&lab)[1].1.as_str()), (1, "disk"));
        assert_eq!(rows(lab.store.kv()).len(), 4, "the row is whole again");
    }
}

#[test]
fn the_table_names_the_servers() {
    let mut lab = Lab::default();
    match lab.reply(0, Op::Chains {}) {
        Reply::Chains { servers, chains } => {
            assert_eq!(servers.0.len(), 4);
            assert_eq!(chains.0, lab.store.chains());
        }
        other => panic!("{other:?}"),
    }
}
