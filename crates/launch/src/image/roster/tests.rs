use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn party(number: usize) -> Party {
    let host = format!("10.0.0.{number}");
    Party { peer: format!("tcp!{host}!999"), host, is_local: false }
}

fn offer(bytes: u64) -> Offer {
    Offer { port: 7000, time: 100 * SECOND, bytes }
}

fn at(number: usize) -> Source {
    Source::Volunteer { host: party(number).host, port: 7000 }
}

fn roster() -> (Roster, Instant) {
    (Roster::new(1600, Limits::default()), Instant::now())
}

/// A volunteer that reads, too: its place in the tree.
fn join(roster: &mut Roster, now: Instant, number: usize) -> (u64, u64, Option<Source>) {
    let reader = roster.enter(&party(number));
    let source = roster.choose(now, reader, None);
    let volunteer = roster.register(now, &party(number), offer(0)).unwrap();
    (reader, volunteer, source)
}

#[test]
fn readers_spread_over_volunteers_and_wait_when_all_are_busy() {
    let (mut roster, now) = roster();
    let readers: Vec<u64> = (1..=5).map(|number| roster.enter(&party(number))).collect();
    assert_eq!(roster.choose(now, readers[0], None), Some(Source::First));
    assert_eq!(roster.choose(now, readers[1], None), Some(Source::First));
    assert_eq!(roster.choose(now, readers[2], None), None);
    roster.register(now, &party(1), offer(0)).unwrap();
    roster.register(now, &party(2), offer(0)).unwrap();
    assert_eq!(roster.choose(now, readers[2], None), Some(at(1)));
    assert_eq!(roster.choose(now, readers[3], None), Some(at(2)));
    assert_eq!(roster.choose(now, readers[4], None), Some(at(1)));
    roster.leave(readers[2]);
    let sixth = roster.enter(&party(6));
    // Equally many read from both, and the second was chosen less recently.
    assert_eq!(roster.choose(now, sixth, None), Some(at(2)));
}

#[test]
fn a_volunteer_goes_when_its_lease_ends_unless_it_renews() {
    let (mut roster, now) = roster();
    let one = roster.register(now, &party(1), offer(0)).unwrap();
    roster.register(now, &party(2), Offer { time: SECOND, ..offer(0) }).unwrap();
    assert_eq!(roster.next_end(), Some(now + SECOND));
    roster.renew(now + 9 * SECOND, one, offer(800)).unwrap();
    assert_eq!(roster.counts().0, 1);
    let reader = roster.enter(&party(3));
    assert_eq!(roster.choose(now + 18 * SECOND, reader, None), Some(at(1)));
    let late = roster.renew(now + 20 * SECOND, one, offer(900)).unwrap_err();
    assert_eq!(late.code, Errno::ESTALE);
}

#[test]
fn nobody_is_sent_to_one_who_waits_for_himself() {
    let (mut roster, now) = roster();
    let (first, ..) = join(&mut roster, now, 1);
    let (_, _, second) = join(&mut roster, now, 2);
    let (_, _, third) = join(&mut roster, now, 3);
    // 3 reads from 2, that from 1, which now looks for another source.
    assert_eq!((second, third), (Some(at(1)), Some(at(2))));
    let previous = roster.vacate(first);
    assert_eq!(previous, Some(Source::First));
    assert_eq!(roster.choose(now, first, previous.as_ref()), None);
    assert_eq!(roster.choose(now, first, None), Some(Source::First));
}

#[test]
fn a_source_that_is_as_far_goes_before_the_first_server_and_one_behind_after_it() {
    let (mut roster, now) = roster();
    let one = roster.register(now, &party(1), offer(800)).unwrap();
    roster.register(now, &party(2), offer(100)).unwrap();
    let reader = roster.enter(&party(3));
    roster.register(now, &party(3), offer(850)).unwrap();
    assert_eq!(roster.choose(now, reader, None), Some(at(1)));
    let previous = roster.vacate(reader);
    assert_eq!(roster.choose(now, reader, previous.as_ref()), Some(Source::First));
    let others = [4, 5].map(|number| roster.enter(&party(number)));
    others.iter().for_each(|other| drop(roster.choose_first(*other)));
    let previous = roster.vacate(reader);
    roster.unregister(one);
    assert_eq!(roster.choose(now, reader, previous.as_ref()), Some(at(2)));
}

#[test]
fn two_machines_drop_a_volunteer_and_one_alone_only_avoids_it() {
    let (mut roster, now) = roster();
    roster.register(now, &party(1), offer(1600)).unwrap();
    let reader = roster.enter(&party(2));
    assert_eq!(roster.choose(now, reader, None), Some(at(1)));
    assert_eq!(roster.complain(reader), Some((at(1), false)));
    assert_eq!(roster.complain(reader), Some((at(1), false)));
    roster.vacate(reader);
    assert_eq!(roster.choose(now, reader, None), Some(Source::First));
    // Others may still read there, when nothing else is free.
    let third = roster.enter(&party(3));
    assert_eq!(roster.choose(now, third, None), Some(Source::First));
    let fourth = roster.enter(&party(4));
    assert_eq!(roster.choose(now, fourth, None), Some(at(1)));
    assert_eq!(roster.complain(fourth), Some((at(1), true)));
    assert_eq!(roster.counts().0, 0);
    let again = roster.register(now, &party(1), Offer { port: 7001, ..offer(0) }).unwrap_err();
    assert_eq!(again.code, Errno::EACCES);
}

#[test]
fn a_machine_registers_a_few_volunteers_and_only_itself() {
    let (mut roster, now) = roster();
    for port in 1..=16 {
        roster.register(now, &party(1), Offer { port, ..offer(0) }).unwrap();
    }
    let many = roster.register(now, &party(1), offer(0)).unwrap_err();
    assert_eq!(many.code, Errno::EDQUOT);
    let unix = Party { host: String::new(), ..party(1) };
    assert_eq!(roster.register(now, &unix, offer(0)).unwrap_err().code, Errno::EINVAL);
    for wrong in ["", "7000", "0 5", "70000 5", "7000 5 x", "10.0.0.9!7000 5", "7000 5 6 7"] {
        assert_eq!(Offer::parse(wrong).unwrap_err().code, Errno::EINVAL, "{wrong}");
    }
    assert_eq!(Offer::parse("7000 5\n").unwrap().bytes, 0);
}

#[test]
fn a_volunteer_on_the_servers_machine_is_named_to_readers_there_only() {
    let (mut roster, now) = roster();
    let local = |number: usize| Party {
        peer: format!("tcp!127.0.0.1!{number}"),
        host: "127.0.0.1".into(),
        is_local: true,
    };
    roster.register(now, &local(1), offer(0)).unwrap();
    let (far, near) = (roster.enter(&party(2)), roster.enter(&local(2)));
    assert_eq!(roster.choose(now, far, None), Some(Source::First));
    let source = Source::Volunteer { host: "127.0.0.1".into(), port: 7000 };
    assert_eq!(roster.choose(now, near, None), Some(source));
}

#[test]
fn what_is_gone_leaves_nothing_behind() {
    let (mut roster, now) = roster();
    let joined: Vec<_> = (1..=20).map(|number| join(&mut roster, now, number)).collect();
    for (reader, volunteer, _) in joined {
        roster.leave(reader);
        roster.unregister(volunteer);
    }
    assert_eq!(roster.counts(), (0, 0));
    assert_eq!(roster.readers_of_first, 0);
    assert!(
        roster.readers_of.is_empty() && roster.volunteers_of.is_empty() && roster.free.is_empty()
    );
}

#[test]
fn a_chain_does_not_grow_for_ever() {
    let (mut roster, now) = roster();
    (1..=200).for_each(|number| drop(join(&mut roster, now, number)));
    let deepest = roster.readers.values().map(|reader| reader.depth).max();
    assert_eq!(deepest, Some(DEPTH));
}
