//! The table of chains: what changes it, what it outlives, and stores that have none.

use crate::lab::*;
use covey_stripe::chain::{Chain, Dropped, SKIPPED, State};
use covey_stripe::kv::{Kv, MemoryKv};
use covey_stripe::meta::place::{AWAY, CLOSED};
use covey_stripe::meta::{Record, Store, format_chains, records};
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

/// A store of four servers with so many chains each.
fn with_chains(each: u16) -> Lab {
    let mut lab = Lab::default();
    let mut kv = lab.store.kv().clone();
    format_chains(&mut kv, 4, each).unwrap();
    lab.store = Store::open(kv).unwrap();
    adopt(&mut lab);
    (0..4).for_each(|server| know(&mut lab, server, &format!("disk{server}")));
    lab
}

fn format_of(kv: &MemoryKv) -> u32 {
    let rows = dump(kv).into_iter().flat_map(|(key, value)| records(&key, &value));
    let mut formats = rows.filter_map(|row| match row {
        Record::Superblock { format, .. } => Some(format),
        _ => None,
    });
    formats.next().unwrap()
}

#[test]
fn a_store_with_several_chains_on_a_server_is_of_a_format_that_earlier_versions_refuse() {
    assert_eq!(format_of(Lab::default().store.kv()), 4);
    assert_eq!(format_of(with_chains(1).store.kv()), 4);
    assert_eq!(format_of(with_chains(2).store.kv()), 5);
    assert_eq!(with_chains(2000).store.chains().len(), 4096, "so many are enough");
}

fn give(lab: &mut Lab, chain: u16, server: u16, store: &str, generation: u32) -> Reply {
    lab.reply(0, Op::MoveChain { chain, server, generation, store: Name::from(store) })
}

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Error { .. })
}

#[test]
fn new_files_take_the_chains_of_each_server_in_turn_and_no_server_twice() {
    let mut lab = with_chains(16);
    assert_eq!(lab.store.chains().len(), 64);
    let mut seen = std::collections::BTreeMap::<u16, u32>::new();
    for at in 0..128 {
        let inode = lab.file(&format!("f{at}"));
        let List(chains) = inode.striping.unwrap().servers;
        let mut heads: Vec<u16> = chains.iter().map(|chain| chain % 4).collect();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), chains.len(), "two parts on one server: {chains:?}");
        chains.iter().for_each(|&chain| *seen.entry(chain).or_default() += 1);
    }
    assert_eq!(seen.len(), 64, "a chain gets nothing");
    let (least, most) = (seen.values().min().unwrap(), seen.values().max().unwrap());
    assert!(most - least <= 2, "{seen:?}");
    let more = [servers(), vec!["io4".into()]].concat();
    assert_eq!(lab.store.adopt_servers(&more).unwrap(), 1);
    assert_eq!(lab.store.chains_on(4), (64..80).collect::<Vec<_>>(), "an added one gets its own");
}

#[test]
fn a_chain_moves_once_to_the_store_that_has_it_and_what_it_left_is_remembered() {
    let mut lab = with_chains(2);
    for (server, store, generation) in [
        (3, "disk2", 2),
        (3, "", 2),
        (3, "disk3", 1),
        (3, "disk3", 3),
        (1, "disk1", 2),
        (9, "disk9", 2),
    ] {
        let reply = give(&mut lab, 5, server, store, generation);
        assert!(is_refused(&reply), "{server} {store} {generation}: {reply:?}");
    }
    assert!(is_refused(&give(&mut lab, 8, 3, "disk3", 2)), "there is no such chain");
    assert_eq!(give(&mut lab, 5, 3, "disk3", 2), Reply::Done {});
    assert!(is_refused(&give(&mut lab, 5, 3, "disk3", 2)), "twice");
    let moved = (3, "disk3".into(), State::Serving, 2);
    assert_eq!(table(&lab)[5], moved);
    assert_eq!((lab.store.chains_on(1), lab.store.chains_on(3)), (vec![1], vec![3, 5, 7]));
    // New files follow it, and what is kept is what is known.
    adopt(&mut lab);
    assert_eq!(rows(lab.store.kv())[5].1, lab.store.chains()[5]);
    let left = Dropped { chain: 5, server: 1, generation: 2 };
    assert_eq!(lab.store.drops().unwrap(), [left]);
    // It goes on before the first has heard of it, and back there.
    assert_eq!(give(&mut lab, 5, 0, "disk0", 3), Reply::Done {});
    assert_eq!(give(&mut lab, 5, 1, "disk1", 4), Reply::Done {});
    let later =
        [(3, 3), (0, 4)].map(|(server, generation)| Dropped { chain: 5, server, generation });
    assert_eq!(lab.store.drops().unwrap(), later, "what is there is the chain itself");
    let Dropped { chain, server, generation } = later[0];
    lab.reply(0, Op::ChainDropped { chain, server, generation });
    lab.reply(0, Op::ChainDropped { chain, server, generation: 9 });
    assert_eq!(lab.store.drops().unwrap(), later[1..]);
}

#[test]
fn a_server_that_has_given_its_chains_away_gets_new_ones_only_when_it_is_open() {
    let mut lab = with_chains(1);
    assert_eq!(lab.reply(0, Op::Place { server: 1, state: CLOSED }), Reply::Done {});
    assert_eq!(give(&mut lab, 1, 2, "disk2", 2), Reply::Done {});
    adopt(&mut lab);
    assert_eq!((lab.store.chains().len(), lab.store.chains_on(1)), (4, vec![]));
    let inode = lab.file("f");
    assert!(!inode.striping.unwrap().servers.0.is_empty());
    assert_eq!(lab.reply(0, Op::Place { server: 1, state: 0 }), Reply::Done {});
    assert_eq!(lab.store.chains_on(1), [4]);
    adopt(&mut lab);
    assert_eq!(lab.store.chains_on(1), [4], "once");
}

/// The key of a chain's row.
fn key(index: u16) -> Vec<u8> {
    [&b"schain"[..], &[(index >> 8) as u8, index as u8]].concat()
}

/// Why a store does not open after something was done to its rows.
fn refusal(change: impl FnOnce(&mut MemoryKv)) -> String {
    let mut kv = with_chains(16).store.kv().clone();
    change(&mut kv);
    match Store::open(kv) {
        Ok(_) => panic!("it opens"),
        Err(error) => error.to_string(),
    }
}

/// Nobody but the row knows where such a chain is: one that is made anew, or left out, would read as zeros.
#[test]
fn a_row_that_is_lost_or_damaged_and_cannot_be_made_anew_is_named() {
    let why = refusal(|kv| kv.put(&key(40), b"\x01nonsense").unwrap());
    assert!(why.contains("chain 40") && why.contains("hint: "), "{why}");
    let why = refusal(|kv| assert!(kv.delete(&key(40)).unwrap()));
    assert!(why.contains("chain 40") && why.contains("hint: "), "{why}");
    let why = refusal(|kv| put(kv, &key(63), &Chain::of_one(4)));
    assert!(why.contains("chain 63") && why.contains("hint: "), "{why}");
    // The last one may never have been: it was not given yet when the power went.
    let mut kv = with_chains(16).store.kv().clone();
    kv.delete(&key(63)).unwrap();
    assert_eq!(Store::open(kv).unwrap().chains().len(), 63);
}
