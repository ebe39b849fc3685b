//! Chains against a reference that says of each member what it has.

use super::*;

fn named(text: &str) -> Name {
    Name::from(text)
}

fn of_two() -> Chain {
    let member = |server| Member { server, store: named("a"), state: State::Serving as u8 };
    Chain { generation: 1, members: List(vec![member(0), member(1)]) }
}

#[test]
fn the_only_member_that_leaves_is_waited_for_and_keeps_its_generation() {
    let mut chain = Chain::of_one(3);
    assert!(chain.has_left(3));
    assert_eq!((chain.generation, chain.members.0[0].state()), (1, State::Last));
    assert_eq!(chain.head().unwrap().server, 3, "nobody else has what it has");
    assert!(!chain.has_left(3));
    assert!(chain.is_back(3) && !chain.is_back(3));
    assert_eq!((chain.generation, chain.members.0[0].state()), (1, State::Serving));
}

#[test]
fn another_store_ends_the_generation_and_the_first_does_not() {
    let mut chain = Chain::of_one(0);
    assert!(chain.has_store(0, &named("a")) && !chain.has_store(0, &named("a")));
    assert_eq!(chain.generation, 1, "nobody knew another one");
    assert!(chain.has_store(0, &named("b")));
    assert_eq!((chain.generation, chain.head().unwrap().store.clone()), (2, named("b")));
    assert!(!chain.has_store(1, &named("c")), "no member of it");
}

#[test]
fn a_member_that_is_gone_on_without_is_stale_and_fenced() {
    let mut chain = of_two();
    assert!(chain.has_left(0));
    assert_eq!((chain.generation, chain.head().unwrap().server), (2, 1));
    assert!(!chain.is_back(0), "it has missed something");
    assert_eq!(chain.written().collect::<Vec<_>>(), [1]);
    assert!(chain.has_left(1));
    assert_eq!((chain.generation, chain.members.0[1].state()), (2, State::Last));
    assert_eq!(chain.head().unwrap().server, 1, "the stale one does not take its place");
}

#[test]
fn an_empty_store_in_a_chain_of_two_is_stale() {
    let mut chain = of_two();
    assert!(chain.has_store(0, &named("b")));
    assert_eq!((chain.generation, chain.members.0[0].state()), (2, State::Stale));
    assert_eq!(chain.head().unwrap().server, 1);
}

#[test]
fn what_a_chain_serves_comes_back_from_its_text() {
    let served = Served { chain: 65535, generation: u32::MAX };
    assert_eq!(Served::parse(&served.text()), Some(served));
    for bad in ["", "1", "1.", ".1", "65536.1", "1.4294967296", "1.2.3", "-1.1", "1.+"] {
        assert_eq!(Served::parse(bad), None, "{bad}");
    }
}

/// All orders of leaving, coming back and changing stores of two members, up to eight steps: the head always has all that
/// was acknowledged, and whoever knows an older head has an older generation.
#[test]
fn a_head_has_what_was_acknowledged_in_every_order_of_events() {
    for start in [Chain::of_one(0), of_two()] {
        let count = start.members.0.len() as u32;
        for events in 0..(2 * count).pow(6) {
            play(start.clone(), count, events);
        }
    }
}

/// What is written, as often as a chain has a head that serves, goes to all that take part.
fn play(mut chain: Chain, count: u32, mut events: u32) {
    let (mut written, mut has) = (0, vec![0; count as usize]);
    let mut before = (chain.generation, chain.head().map(|head| head.server));
    for _ in 0..6 {
        let (server, leaves) = ((events / 2 % count) as u16, events.is_multiple_of(2));
        events /= 2 * count;
        if leaves {
            chain.has_left(server)
        } else {
            chain.is_back(server)
        };
        let head = chain.head().map(|head| (head.server, head.state()));
        let now = (chain.generation, head.map(|head| head.0));
        assert!(now.0 >= before.0, "generations do not go back");
        assert!(now.1 == before.1 || now.0 > before.0, "another head, and nobody is fenced");
        let Some((head, state)) = head else { panic!("a whole member never goes") };
        assert_eq!(has[usize::from(head)], written, "the head lacks something: {chain:?}");
        if state == State::Serving {
            written += 1;
            chain.written().for_each(|server| has[usize::from(server)] = written);
        }
        before = now;
    }
}
