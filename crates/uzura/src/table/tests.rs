use super::*;

fn table(near_bytes: usize) -> Table {
    Table::new(near_bytes, 42)
}

#[test]
fn what_is_used_most_stays_in_the_near_table() {
    // One set of four.
    let mut table = table(256);
    let keys: Vec<u64> = (0..8)
        .map(|n| table.add(Span::new(n << 12, 4096), Rights::ALL).expect("there is room").key)
        .collect();
    for _ in 0..1000 {
        table.find(keys[0]).expect("it is registered");
    }
    let hits = table.hits;
    for key in keys[1..].iter().cycle().take(28) {
        table.find(*key).expect("it is registered");
        // Every other access is to the one.
        table.find(keys[0]).expect("it is registered");
    }
    assert_eq!(table.hits - hits, 28, "the one always, the others never");
}

#[test]
fn a_revoked_key_is_told_from_one_that_never_was() {
    let mut table = table(4 << 20);
    let span = Span::new(4096, 4096);
    let first = table.add(span, Rights::READ).expect("there is room");
    assert_eq!(table.find(first.key), Ok(first));
    assert_eq!(table.find(first.key), Ok(first));
    assert_eq!((table.hits, table.misses), (1, 1));
    assert_eq!(table.remove(Key(first.key)), Ok(None));
    assert_eq!(table.find(first.key), Err(Fault::Revoked));
    let second = table.add(span, Rights::READ).expect("there is room");
    assert_ne!(second.key, first.key);
    assert_eq!(table.find(first.key), Err(Fault::Revoked));
    assert_eq!(table.find(second.key ^ 1 << 50), Err(Fault::WrongKey));
    assert_eq!(table.find(0), Err(Fault::WrongKey));
    assert_eq!(table.remove(Key(first.key)), Err(Fault::Revoked));
}

#[test]
fn an_access_stays_within_memory_and_rights() {
    let mut table = table(0);
    let key = table.add(Span::new(1000, 100), Rights::READ).expect("there is room").key;
    let mut ask = |right, at, hull| table.translate(key, right, at, hull);
    assert_eq!(ask(Rights::READ, 0, (0, 100)), Ok(Span::new(1000, 100)));
    assert_eq!(ask(Rights::READ, 50, (-50, 50)), Ok(Span::new(1000, 100)));
    assert_eq!(ask(Rights::READ, 0, (0, 101)), Err(Fault::OutOfRange));
    assert_eq!(ask(Rights::READ, 0, (-1, 1)), Err(Fault::OutOfRange));
    assert_eq!(ask(Rights::READ, u64::MAX, (0, 1)), Err(Fault::OutOfRange));
    assert_eq!(ask(Rights::WRITE, 0, (0, 1)), Err(Fault::Denied));
    assert_eq!(ask(Rights::READ.and(Rights::WRITE), 0, (0, 1)), Err(Fault::Denied));
}

#[test]
fn a_chosen_key_is_refused_while_it_is_taken_and_means_new_memory_when_it_is_used_again() {
    for near_bytes in [0, 4 << 20] {
        let mut table = table(near_bytes);
        let (one, other) = (Span::new(4096, 64), Span::new(8192, 64));
        let given = table.add(one, Rights::ALL).expect("there is room").key;
        assert_eq!(table.add_as(given, one, Rights::ALL), Err(Fault::KeyTaken));
        for key in [0, 1, 1 << 63, u64::MAX] {
            for span in [one, other] {
                let added = table.add_as(key, span, Rights::ALL).expect("it is free");
                assert_eq!(table.add_as(key, span, Rights::ALL), Err(Fault::KeyTaken));
                assert_eq!((table.find(key), table.find(key)), (Ok(added), Ok(added)));
                assert!(table.remove(Key(key)).is_ok());
                assert_eq!(table.find(key), Err(Fault::WrongKey));
            }
        }
        // A key that was chosen leaves the engine's own alone.
        let next = table.add(one, Rights::ALL).expect("there is room").key;
        assert_eq!((index(given), index(next)), (0, 1));
    }
}

#[test]
fn the_engine_never_gives_out_a_key_that_was_chosen() {
    let mut table = table(0);
    let span = Span::new(4096, 64);
    let chosen = [(0, 1), (0, 2), (1, 1)].map(|(index, serial)| key(42, index, serial));
    for key in chosen {
        table.add_as(key, span, Rights::ALL).expect("it is free");
    }
    for _ in 0..4 {
        let given = table.add(span, Rights::ALL).expect("there is room").key;
        assert!(!chosen.contains(&given));
    }
}

#[test]
fn each_key_has_places_of_its_own_among_those_that_are_published() {
    let mut table = table(0);
    let mut taken = std::collections::HashMap::new();
    for key in (1..2000_u64).map(|number| number << 32 | 7) {
        table.add_as(key, Span::new(4096, 64), Rights::ALL).expect("it is free");
        if let Some(slot) = table.publish(key) {
            assert!(slots(key).any(|one| one == slot) && slot < PUBLISHED_MAX);
            assert_eq!(taken.insert(slot, key), None);
        }
    }
    assert!(taken.len() > 400, "{}", taken.len());
    for (slot, key) in taken {
        assert_eq!(table.remove(Key(key)), Ok(Some(slot)));
    }
    assert_eq!(slots(0).count(), 0);
}

#[test]
fn memory_that_is_registered_by_address_is_named_by_address() {
    let mut table = table(0);
    let rights = Rights::READ.and(Rights::BY_ADDRESS);
    let key = table.add(Span::new(1000, 100), rights).expect("there is room").key;
    let mut ask = |at| table.translate(key, Rights::READ, at, (0, 10));
    assert_eq!((ask(1000), ask(1090)), (Ok(Span::new(1000, 10)), Ok(Span::new(1090, 10))));
    assert_eq!([ask(999), ask(0), ask(1091), ask(u64::MAX)], [Err(Fault::OutOfRange); 4]);
}
