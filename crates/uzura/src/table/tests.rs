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
    assert_eq!(table.remove(Key(first.key)), Ok(()));
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
