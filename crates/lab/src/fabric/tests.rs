//! The network in virtual time.

use super::*;
use crate::profile::Profile;

const ANY: [u8; 6] = [0xff; 6];

fn settings() -> Settings {
    Profile::named("fast-ethernet").unwrap().settings(1 << 20)
}

fn mac(card: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, card as u8]
}

/// A marked frame of this many bytes.
fn frame(from: usize, to: [u8; 6], bytes: usize, mark: u8) -> Bytes {
    let mut frame = vec![mark; bytes];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&mac(from));
    frame.into()
}

/// Two cards and a cable of these settings.
fn cable(settings: Settings) -> Fabric {
    let mut fabric = Fabric::new(2, 7);
    let ends = [Device::Card(0), Device::Card(1)];
    fabric.add_cable(ends, 1, Deal::Flow, [settings.clone(), settings]);
    fabric
}

/// So many cards at one switch.
fn star(cards: usize, settings: Settings) -> Fabric {
    let mut fabric = Fabric::new(cards, 7);
    let switch = fabric.add_switch(4_000);
    for card in 0..cards {
        let ends = [Device::Card(card), Device::Switch(switch)];
        fabric.add_cable(ends, 1, Deal::Flow, [settings.clone(), settings.clone()]);
    }
    fabric
}

fn deliveries(fabric: &mut Fabric) -> Vec<Delivery> {
    std::iter::from_fn(|| fabric.poll_delivery(u64::MAX)).collect()
}

#[test]
fn a_frame_takes_its_length_on_the_wire_and_the_delay() {
    let mut fabric = cable(Settings { delay_ns: 500, ..settings() });
    fabric.handle_frame(1_000, 0, frame(0, mac(1), 1514, 1));
    assert_eq!(fabric.poll_deadline(), Some(1_000 + 123_040 + 500));
    assert_eq!(fabric.poll_delivery(1_000 + 123_040 + 499), None);
    let delivery = fabric.poll_delivery(1_000 + 123_040 + 500).unwrap();
    assert_eq!((delivery.card, delivery.frame.len()), (1, 1514));
}

#[test]
fn a_short_frame_takes_as_long_as_the_least_one() {
    let mut fabric = cable(settings());
    fabric.handle_frame(0, 0, frame(0, mac(1), 20, 1));
    // 60 bytes and 24 of overhead at 100 Mbit/s.
    assert_eq!(deliveries(&mut fabric)[0].due_ns, 6_720);
}

#[test]
fn a_train_takes_exactly_as_long_as_the_wire_needs_and_an_idle_wire_saves_nothing_up() {
    let mut fabric = cable(settings());
    for burst in 0..10u64 {
        // A second of silence between the bursts earns no credit.
        let from_ns = burst * 1_000_000_000;
        (0..20).for_each(|_| fabric.handle_frame(from_ns, 0, frame(0, mac(1), 1514, 1)));
        let last = deliveries(&mut fabric).last().unwrap().due_ns;
        assert_eq!(last - from_ns, 20 * 123_040);
    }
}

#[test]
fn lateness_of_the_caller_does_not_add_up() {
    let mut fabric = star(2, settings());
    let mut now_ns = 0;
    let mut last_ns = 0;
    for _ in 0..1000 {
        fabric.handle_frame(now_ns, 0, frame(0, mac(1), 1514, 1));
        now_ns += 123_040;
        // The caller looks rarely: what passes the switch meanwhile keeps its time.
        if now_ns % 7 == 0 {
            while let Some(delivery) = fabric.poll_delivery(now_ns) {
                last_ns = delivery.due_ns;
            }
        }
    }
    last_ns = deliveries(&mut fabric).last().map_or(last_ns, |last| last.due_ns);
    assert_eq!(last_ns, 1000 * 123_040 + 4_000 + 123_040);
}

#[test]
fn the_two_ways_do_not_disturb_each_other_unless_the_cable_is_half_duplex() {
    for (half_duplex, last) in [(false, 123_040), (true, 246_080)] {
        let mut fabric = cable(Settings { half_duplex, ..settings() });
        fabric.handle_frame(0, 0, frame(0, mac(1), 1514, 1));
        fabric.handle_frame(0, 1, frame(1, mac(0), 1514, 2));
        assert_eq!(deliveries(&mut fabric).last().unwrap().due_ns, last);
    }
}

#[test]
fn a_switch_floods_until_it_has_learned() {
    let mut fabric = star(3, settings());
    fabric.handle_frame(0, 0, frame(0, ANY, 100, 1));
    let mut cards: Vec<usize> = deliveries(&mut fabric).iter().map(|one| one.card).collect();
    cards.sort_unstable();
    assert_eq!(cards, [1, 2]);
    fabric.handle_frame(1_000_000, 1, frame(1, mac(0), 100, 2));
    assert_eq!(deliveries(&mut fabric).iter().map(|one| one.card).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_full_queue_loses_what_comes_last() {
    let queue_bytes = 10 * 1538;
    let mut fabric = cable(Settings { queue_bytes, ..settings() });
    (0..20).for_each(|mark| fabric.handle_frame(0, 0, frame(0, mac(1), 1514, mark)));
    let marks: Vec<u8> = deliveries(&mut fabric).iter().map(|one| one.frame[20]).collect();
    // One is on the wire, ten wait.
    assert_eq!(marks, (0..11).collect::<Vec<u8>>());
    assert_eq!(fabric.counts(0, Way::There).lost_queue, 9);
}

#[test]
fn packets_longer_than_the_mtu_are_lost_and_others_are_not() {
    let mut fabric = cable(Settings { mtu: 1000, ..settings() });
    fabric.handle_frame(0, 0, frame(0, mac(1), 1014, 1));
    fabric.handle_frame(0, 0, frame(0, mac(1), 1015, 2));
    assert_eq!(deliveries(&mut fabric).len(), 1);
    assert_eq!(fabric.counts(0, Way::There).lost_mtu, 1);
}

#[test]
fn chance_strikes_as_often_as_was_asked_and_the_same_for_the_same_seed() {
    let faulty = Settings {
        loss_ppm: 100_000,
        corrupt_ppm: 50_000,
        duplicate_ppm: 20_000,
        bits_per_s: None,
        ..settings()
    };
    let run = || {
        let mut fabric = cable(faulty.clone());
        (0..20_000).for_each(|now| fabric.handle_frame(now, 0, frame(0, mac(1), 200, 1)));
        (deliveries(&mut fabric), fabric.counts(0, Way::There))
    };
    let (first, counts) = run();
    let near = |count: u64, wanted: u64| count.abs_diff(wanted) < wanted / 5;
    assert!(near(counts.lost_chance, 2_000), "{counts:?}");
    assert!(near(counts.corrupted, 900) && near(counts.duplicated, 360), "{counts:?}");
    let expected = 20_000 - counts.lost_chance + counts.duplicated;
    assert_eq!(first.len() as u64, expected);
    assert_eq!(run(), (first, counts));
}

#[test]
fn loss_may_spare_short_packets() {
    let faulty = Settings { loss_ppm: 1_000_000, loss_from_bytes: 1000, ..settings() };
    let mut fabric = cable(faulty);
    fabric.handle_frame(0, 0, frame(0, mac(1), 1013, 1));
    fabric.handle_frame(0, 0, frame(0, mac(1), 1014, 2));
    let marks: Vec<u8> = deliveries(&mut fabric).iter().map(|one| one.frame[20]).collect();
    assert_eq!(marks, [1]);
}

#[test]
fn a_crowd_is_lost_upon_only_while_there_is_one() {
    let mut fabric = star(3, settings());
    let bad = Settings { crowd_loss_ppm: 1_000_000, ..settings() };
    fabric.set(2, Way::Back, bad);
    let mut now_ns = 0;
    let mut send = |fabric: &mut Fabric, from: usize| {
        now_ns += 1_000_000;
        fabric.handle_frame(now_ns, from, frame(from, mac(2), 500, 1));
        deliveries(fabric).iter().filter(|one| one.card == 2).count()
    };
    // The switch learns where everybody is.
    fabric.handle_frame(0, 2, frame(2, mac(0), 100, 1));
    deliveries(&mut fabric);
    assert_eq!((0..10).map(|_| send(&mut fabric, 0)).sum::<usize>(), 10);
    assert_eq!((0..10).map(|turn| send(&mut fabric, turn % 2)).sum::<usize>(), 1);
    now_ns += 1_000_000_000;
    fabric.handle_frame(now_ns, 1, frame(1, mac(2), 500, 1));
    assert_eq!(deliveries(&mut fabric).len(), 1);
    // Two are no crowd where it takes three.
    fabric.set(2, Way::Back, Settings { crowd_loss_ppm: 1_000_000, crowd_from: 3, ..settings() });
    for turn in 0..10 {
        now_ns += 1_000_000;
        fabric.handle_frame(now_ns, turn % 2, frame(turn % 2, mac(2), 500, 1));
    }
    assert_eq!(deliveries(&mut fabric).len(), 10);
}

#[test]
fn a_held_back_frame_is_overtaken() {
    let mut fabric = cable(settings());
    fabric.set(0, Way::There, Settings { reorder_ppm: 1_000_000, ..settings() });
    fabric.handle_frame(0, 0, frame(0, mac(1), 500, 1));
    fabric.set(0, Way::There, settings());
    fabric.handle_frame(0, 0, frame(0, mac(1), 500, 2));
    let marks: Vec<u8> = deliveries(&mut fabric).iter().map(|one| one.frame[20]).collect();
    assert_eq!(marks, [2, 1]);
}

#[test]
fn a_policer_lets_a_burst_pass_and_then_its_rate() {
    let policed = Settings {
        police_bits_per_s: Some(10_000_000),
        police_burst_bytes: 5 * 1538,
        ..settings()
    };
    let mut fabric = cable(policed);
    // One second at 100 Mbit/s.
    (0..8127).for_each(|turn| fabric.handle_frame(turn * 123_040, 0, frame(0, mac(1), 1514, 1)));
    let passed = deliveries(&mut fabric).len();
    // 10 Mbit/s are 812.7 frames.
    assert!((814..=819).contains(&passed), "{passed}");
}

#[test]
fn a_cable_that_is_down_carries_nothing() {
    let mut fabric = cable(Settings { is_down: true, ..settings() });
    fabric.handle_frame(0, 0, frame(0, mac(1), 100, 1));
    assert_eq!((deliveries(&mut fabric).len(), fabric.counts(0, Way::There).lost_down), (0, 1));
}

#[test]
fn a_bond_dealt_in_turn_is_twice_as_fast_and_by_flow_only_for_two_flows() {
    let flow = |port: u8| {
        let mut frame = frame(0, mac(1), 1514, 0).to_vec();
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[23] = 6;
        frame[34..38].copy_from_slice(&[0x10, port, 0, 80]);
        Bytes::from(frame)
    };
    let last = |deal, frames: &[Bytes]| {
        let mut fabric = Fabric::new(2, 7);
        let ends = [Device::Card(0), Device::Card(1)];
        fabric.add_cable(ends, 2, deal, [settings(), settings()]);
        frames.iter().for_each(|frame| fabric.handle_frame(0, 0, frame.clone()));
        deliveries(&mut fabric).last().unwrap().due_ns / 123_040
    };
    assert_eq!(last(Deal::Turn, &vec![flow(1); 10]), 5);
    assert_eq!(last(Deal::Flow, &vec![flow(1); 10]), 10);
    let many: Vec<Bytes> = (0..100).map(flow).collect();
    assert!(last(Deal::Flow, &many) < 70);
}

#[test]
fn frames_too_short_for_a_header_are_dropped() {
    let mut fabric = cable(settings());
    fabric.handle_frame(0, 0, Bytes::from_static(b"quail"));
    assert_eq!(fabric.poll_deadline(), None);
}

#[test]
fn a_cable_counts_storage_apart() {
    let mut fabric = star(2, settings());
    let mut segment = frame(0, mac(1), 1000, 0).to_vec();
    segment[12] = 8;
    segment[14] = 0x45;
    segment[23] = 6;
    // 3260.
    segment[36..38].copy_from_slice(&[12, 188]);
    fabric.handle_frame(0, 0, segment.into());
    fabric.handle_frame(0, 0, frame(0, mac(1), 500, 1));
    deliveries(&mut fabric);
    for (cable, way) in [(0, Way::There), (1, Way::Back)] {
        let counts = fabric.counts(cable, way);
        assert_eq!((counts.frames, counts.storage_frames), (2, 1));
        assert_eq!((counts.bytes, counts.storage_bytes), (1548, 1024));
    }
}
