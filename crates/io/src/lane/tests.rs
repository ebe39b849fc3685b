//! Two and more that send to each other over simulated ways, from seeds.

use super::*;
use crate::sim::{CarrierProfile, Carriers, SimTransport, SimWire};
use covey_wire::Rng;

/// What an engine was told: the packets of each peer.
#[derive(Default)]
struct Heard {
    packets: Vec<(Peer, Vec<u8>)>,
    dead: Vec<Peer>,
}

impl Sink for Heard {
    fn packet(&mut self, peer: Peer, head: &[u8], payload: &[u8]) {
        assert!(payload.iter().all(|byte| *byte == head[1]));
        self.packets.push((peer, [head, &(payload.len() as u32).to_le_bytes()].concat()));
    }

    fn dead(&mut self, peer: Peer) {
        self.dead.push(peer);
    }
}

type Ours = Laned<SimTransport, SimWire>;

struct Node {
    laned: Ours,
    heard: Heard,
    /// What was sent to whom.
    sent: Vec<Vec<Vec<u8>>>,
}

fn profile(rng: &mut Rng) -> CarrierProfile {
    CarrierProfile {
        packet_bytes_max: 512 + rng.index(3) * 700,
        post_bytes_max: 0,
        packets_max: 2 + rng.index(30),
        refused_permille: rng.below(400),
        delay_max: rng.below(60),
        lost_permille: if rng.chance(300) { 0 } else { rng.below(400) },
        view: false,
        one_copy: false,
        shared_permille: 0,
        published: false,
        card: None,
    }
}

fn nodes(carriers: &Carriers, count: usize, choice: Choice) -> Vec<Node> {
    let node = |number| Node {
        laned: carriers.laned_end(number, choice).0,
        heard: Heard::default(),
        sent: vec![Vec::new(); count],
    };
    (0..count).map(node).collect()
}

impl Node {
    /// Sends a packet of any length, if it is taken.
    fn send(&mut self, me: usize, other: usize, rng: &mut Rng) -> Result<(), Refused> {
        let longest = self.laned.packet_bytes_max(Carriers::peer(me, other));
        let bytes = if rng.chance(700) { rng.index(100) } else { rng.index(longest + 1) };
        let mark = rng.next() as u8;
        let head = [1, mark, rng.next() as u8];
        let head = &head[..2 + rng.index(2)];
        self.laned.send(Carriers::peer(me, other), head, bytes, |place| place.fill(mark))?;
        self.sent[other].push([head, &(bytes as u32).to_le_bytes()].concat());
        Ok(())
    }

    fn poll(&mut self, budget: usize) {
        self.laned.poll(budget, &mut self.heard);
    }
}

/// Whether each has heard all that was sent to it, and nothing else, in order.
fn is_all_heard(nodes: &[Node]) -> bool {
    let mut is_all = true;
    for (me, node) in nodes.iter().enumerate() {
        for (other, from) in nodes.iter().enumerate().filter(|(other, _)| *other != me) {
            let peer = Carriers::peer(me, other);
            let heard = node.heard.packets.iter().filter(|(from, _)| *from == peer);
            let heard: Vec<&Vec<u8>> = heard.map(|(_, packet)| packet).collect();
            let sent = &from.sent[me];
            assert!(heard.len() <= sent.len() && heard.iter().zip(sent).all(|(a, b)| *a == b));
            is_all &= heard.len() == sent.len();
        }
    }
    is_all
}

/// One run: random sends and polls, then nothing but polls until all has arrived. Whether the wire was used.
fn run(seed: u64, choice: Choice) -> bool {
    let mut rng = Rng::new(seed);
    let profile = profile(&mut rng);
    let count = 2 + rng.index(3);
    let carriers = Carriers::new(rng.next(), count, 8, profile);
    let mut nodes = nodes(&carriers, count, choice);
    let steps = 500 + rng.below(8000);
    let mut is_used = false;
    for _ in 0..steps {
        carriers.step();
        let me = rng.index(count);
        let node = &mut nodes[me];
        is_used |= node.laned.uses_wire(Peer(0));
        match rng.index(10) {
            0 => node.laned.gather(true),
            1 => node.laned.gather(false),
            2..5 => {
                let other = (me + 1 + rng.index(count - 1)) % count;
                for _ in 0..rng.index(6) {
                    let _ = node.send(me, other, &mut rng);
                }
            }
            5 => {
                if node.laned.prepare_sleep() {
                    node.laned.woke();
                }
            }
            _ => node.poll(rng.index(20)),
        }
    }
    for node in &mut nodes {
        node.laned.gather(false);
    }
    let mut left = 200_000;
    while !is_all_heard(&nodes) {
        carriers.step();
        for _ in 0..20 {
            nodes[rng.index(count)].poll(8);
        }
        left -= 1;
        assert!(left > 0, "seed {seed}: something never arrives");
    }
    assert!(nodes.iter().all(|node| node.heard.dead.is_empty()));
    is_used
}

fn seeds(usual: u64) -> u64 {
    std::env::var("COVEY_SEEDS").map_or(usual, |seeds| seeds.parse().expect("a number"))
}

#[test]
fn everything_arrives_once_and_in_order_however_the_wire_behaves() {
    let mut used = 0;
    let count = seeds(150);
    for seed in 0..count {
        let choice = if seed % 3 == 0 { Choice::Better } else { Choice::Always };
        used += u64::from(run(seed, choice));
    }
    assert!(used > count / 4, "the wire was used in {used} of {count} runs only");
}

#[test]
fn without_a_wire_everything_goes_by_the_stream() {
    for seed in 0..10 {
        assert!(!run(seed, Choice::Never));
    }
}

/// Two that use the wire, which loses nothing.
fn pair() -> (Carriers, Vec<Node>, Rng) {
    let mut rng = Rng::new(1);
    let profile = CarrierProfile {
        packet_bytes_max: 2000,
        refused_permille: 0,
        lost_permille: 0,
        delay_max: 0,
        packets_max: 1000,
        ..profile(&mut rng)
    };
    let carriers = Carriers::new(1, 2, 8, profile);
    let mut nodes = nodes(&carriers, 2, Choice::Always);
    until(&carriers, &mut nodes, |nodes| nodes.iter().all(|node| node.laned.uses_wire(Peer(0))));
    (carriers, nodes, rng)
}

fn until(carriers: &Carriers, nodes: &mut [Node], is_so: impl Fn(&[Node]) -> bool) {
    for _ in 0..100_000 {
        if is_so(nodes) {
            return;
        }
        carriers.step();
        nodes.iter_mut().for_each(|node| node.poll(16));
    }
    panic!("it does not come true");
}

#[test]
fn a_wire_that_is_cut_is_left_and_nothing_is_lost() {
    let (carriers, mut nodes, mut rng) = pair();
    nodes[0].laned.wire().cut();
    for _ in 0..100 {
        for (me, node) in nodes.iter_mut().enumerate() {
            let _ = node.send(me, 1 - me, &mut rng);
        }
        carriers.step();
        nodes.iter_mut().for_each(|node| node.poll(16));
    }
    until(&carriers, &mut nodes, is_all_heard);
    until(&carriers, &mut nodes, |nodes| nodes.iter().all(|node| !node.laned.uses_wire(Peer(0))));
    // All comes by the stream now, which is looked at as often as without a lane.
    let is_resting = |node: &mut Node| node.laned.stream().is_resting(Peer(0));
    assert!(!nodes.iter_mut().any(is_resting));
    // And the wire is used again when it is there again.
    nodes[0].laned.wire().mend();
    until(&carriers, &mut nodes, |nodes| nodes.iter().all(|node| node.laned.uses_wire(Peer(0))));
}

#[test]
fn a_peer_that_computes_gets_everything_when_it_looks_and_keeps_the_wire() {
    let (carriers, mut nodes, mut rng) = pair();
    while nodes[0].send(0, 1, &mut rng).is_ok() {}
    for _ in 0..10_000 {
        carriers.step();
        nodes[0].poll(16);
    }
    assert!(nodes[0].laned.uses_wire(Peer(0)));
    until(&carriers, &mut nodes, is_all_heard);
    assert!(nodes[0].laned.uses_wire(Peer(0)) && nodes[1].laned.uses_wire(Peer(0)));
}

#[test]
fn frames_that_come_while_the_stream_is_looked_at_are_not_missing() {
    let (carriers, mut nodes, mut rng) = pair();
    for _ in 0..20 {
        let _ = nodes[0].send(0, 1, &mut rng);
    }
    // The other one was stopped between its look at the wire and its look at the stream, until all went again.
    for _ in 0..200 {
        carriers.step();
        nodes[0].poll(16);
    }
    let Node { laned, heard, .. } = &mut nodes[1];
    laned.poll_stream(64, heard);
    laned.keep_up();
    until(&carriers, &mut nodes, is_all_heard);
    until(&carriers, &mut nodes, |nodes| !nodes[1].laned.links[0].is_waiting());
    assert!(nodes.iter().all(|node| node.laned.uses_wire(Peer(0))));
}

#[test]
fn what_was_sent_before_the_end_arrives_though_the_wire_has_lost_it() {
    let (carriers, mut nodes, mut rng) = pair();
    nodes[0].laned.wire().cut();
    for _ in 0..20 {
        let _ = nodes[0].send(0, 1, &mut rng);
    }
    let sent = std::mem::take(&mut nodes[0].sent[1]);
    assert!(!sent.is_empty());
    nodes.remove(0);
    for _ in 0..100 {
        carriers.step();
        nodes[0].poll(16);
    }
    let heard: Vec<_> = nodes[0].heard.packets.iter().map(|(_, packet)| packet.clone()).collect();
    assert_eq!(heard, sent);
}

#[test]
fn frames_that_came_before_the_end_are_taken_before_the_peer_is_dead() {
    for budget in [1, 5, 16] {
        let (carriers, mut nodes, mut rng) = pair();
        while nodes[0].sent[1].len() < 20 {
            let frame = [1, 7, rng.next() as u8];
            let sent = nodes[0].laned.send(Peer(0), &frame, 8, |place| place.fill(7));
            sent.expect("there is room");
            nodes[0].sent[1].push([&frame[..], &[8, 0, 0, 0]].concat());
        }
        // It ends without a word: nothing goes by the stream.
        carriers.kill(0);
        until(&carriers, &mut nodes[1..], |nodes| !nodes[0].heard.dead.is_empty());
        let heard = nodes[1].heard.packets.iter().map(|(_, packet)| packet);
        assert!(heard.eq(&nodes[0].sent[1]), "budget {budget}");
        assert_eq!(nodes[1].heard.dead, [Peer(0)]);
    }
}

#[test]
fn a_flood_of_frames_does_not_keep_a_dead_peer_from_being_reported() {
    let (carriers, mut nodes, _) = pair();
    carriers.kill(0);
    for _ in 0..10_000 {
        for _ in 0..40 {
            nodes[0].laned.wire().send(Peer(0), &[0; 60]);
        }
        carriers.step();
        nodes[1].poll(16);
        if !nodes[1].heard.dead.is_empty() {
            return;
        }
    }
    panic!("it is not reported");
}

#[test]
fn a_wire_that_is_busy_is_kept_and_nothing_is_lost() {
    let (carriers, mut nodes, mut rng) = pair();
    for _ in 0..20 {
        nodes[0].laned.wire().fill(true);
        for _ in 0..20 {
            let _ = nodes[0].send(0, 1, &mut rng);
            carriers.step();
            nodes.iter_mut().for_each(|node| node.poll(16));
        }
        nodes[0].laned.wire().fill(false);
        let before = carriers.frames_sent();
        until(&carriers, &mut nodes, is_all_heard);
        assert!(carriers.frames_sent() > before && nodes[0].laned.uses_wire(Peer(0)));
    }
    // One that stays busy is left.
    nodes[0].laned.wire().fill(true);
    for _ in 0..1000 {
        let _ = nodes[0].send(0, 1, &mut rng);
        carriers.step();
        nodes.iter_mut().for_each(|node| node.poll(16));
    }
    until(&carriers, &mut nodes, is_all_heard);
    assert!(!nodes[0].laned.uses_wire(Peer(0)));
}

#[test]
fn a_program_that_computes_between_two_tries_has_not_seen_the_wire_busy_meanwhile() {
    let (carriers, mut nodes, mut rng) = pair();
    nodes[0].laned.wire().fill(true);
    while nodes[0].sent[1].is_empty() {
        let _ = nodes[0].send(0, 1, &mut rng);
    }
    assert!(nodes[0].laned.links[0].lane.is_building());
    for _ in 0..BUSY_TRIES_MIN - 2 {
        // Twice as long as a frame waits.
        (0..80).for_each(|_| carriers.step());
        nodes[0].poll(16);
        let link = &nodes[0].laned.links[0];
        assert!(link.lane.is_building() && link.failed == 0, "it went by the stream");
    }
    nodes[0].laned.wire().fill(false);
    let before = carriers.frames_sent();
    until(&carriers, &mut nodes, is_all_heard);
    assert!(carriers.frames_sent() > before && nodes[0].laned.uses_wire(Peer(0)));
}

#[test]
fn every_frame_waits_for_a_busy_wire_as_long_as_the_first_does() {
    let (carriers, mut nodes, mut rng) = pair();
    nodes[0].laned.wire().fill(true);
    // Time for two frames, and to try each many times.
    for _ in 0..100 {
        for _ in 0..20 {
            let _ = nodes[0].send(0, 1, &mut rng);
        }
        carriers.step();
        nodes.iter_mut().for_each(|node| node.poll(16));
    }
    let link = &nodes[0].laned.links[0];
    assert!(link.uses && (1..=3).contains(&link.failed), "{} did not leave", link.failed);
    nodes[0].laned.wire().fill(false);
    until(&carriers, &mut nodes, is_all_heard);
}

#[test]
fn a_peer_that_ends_before_it_was_told_of_a_lane_leaves_its_share_to_others() {
    let carriers =
        Carriers::new(1, 2, 8, CarrierProfile { lost_permille: 0, ..profile(&mut Rng::new(1)) });
    let mut nodes: Vec<Node> = nodes(&carriers, 1, Choice::Always);
    nodes[0].poll(16);
    assert_eq!(nodes[0].laned.offers, 1);
    // The other one never says how it is found.
    carriers.kill(1);
    until(&carriers, &mut nodes, |nodes| !nodes[0].heard.dead.is_empty());
    assert_eq!(nodes[0].laned.wire().forgotten(), [Peer(0)]);
    assert_eq!(nodes[0].laned.offers, 0);
    // One that ends later does the same.
    let (carriers, mut nodes, _) = pair();
    carriers.kill(1);
    until(&carriers, &mut nodes[..1], |nodes| !nodes[0].heard.dead.is_empty());
    assert_eq!(nodes[0].laned.wire().forgotten(), [Peer(0)]);
    assert_eq!(nodes[0].laned.offers, 0);
}

#[test]
fn no_more_frames_are_under_way_than_their_receiver_has_room_for() {
    for window in [1, 2, 8, 64] {
        let (carriers, mut nodes, _) = pair();
        let there = nodes[0].laned.links[0].there.as_mut().expect("it was told");
        let offer = Offer { window, ..*there };
        *there = offer;
        nodes[0].laned.links[0].lane.begin(window, window);
        nodes[1].laned.links[0].lane.begin(window, window);
        let before = carriers.frames_sent();
        let word = |node: &mut Node| {
            let sent = node.laned.send(Peer(0), b"\x01\x02", 8, |place| place.fill(2));
            sent.is_ok().then(|| node.sent[1].push(vec![1, 2, 8, 0, 0, 0]))
        };
        while word(&mut nodes[0]).is_some() {}
        assert_eq!(carriers.frames_sent() - before, u64::from(window));
        // Its receiver acknowledges before the window is full, so that nobody waits for a clock.
        for _ in 0..100 {
            while word(&mut nodes[0]).is_some() {}
            nodes[1].poll(16);
            nodes[0].poll(16);
        }
        assert!(nodes[0].sent[1].len() >= 100, "window {window}: {}", nodes[0].sent[1].len());
        until(&carriers, &mut nodes, is_all_heard);
    }
}

#[test]
fn a_dead_peer_is_told_of_once_and_refused() {
    let (carriers, mut nodes, mut rng) = pair();
    let _ = nodes[0].send(0, 1, &mut rng);
    carriers.kill(1);
    until(&carriers, &mut nodes[..1], |nodes| !nodes[0].heard.dead.is_empty());
    for _ in 0..1000 {
        carriers.step();
        nodes[0].poll(16);
    }
    assert_eq!(nodes[0].heard.dead, [Peer(0)]);
    assert_eq!(nodes[0].send(0, 1, &mut rng), Err(Refused::Dead));
}

#[test]
fn frames_of_strangers_and_frames_that_are_none_change_nothing() {
    let (carriers, mut nodes, mut rng) = pair();
    let there = nodes[0].laned.links[0].there.expect("it was told");
    let Offer { number, lane, key, .. } = there;
    let mut frame = vec![0; HEADER_BYTES];
    frame::add(&mut frame, b"\x01x", 0, |_| ());
    let whole = |key, lane, frame: &mut Vec<u8>| {
        let (sequence, expected, after, kind) = (0, 0, 0, Kind::Packets);
        Header { number, lane, key, sequence, expected, after, kind }.put(frame);
    };
    for round in 0..2000_u64 {
        let mut frame = frame.clone();
        match round % 4 {
            0 => whole(key ^ (1 << (round % 64)), lane, &mut frame),
            1 => whole(key, lane + 1 + round as u32, &mut frame),
            2 => frame = (0..rng.index(100)).map(|_| rng.next() as u8).collect(),
            _ => {
                // Of the peer itself, and cut anywhere.
                whole(key, lane, &mut frame);
                let at = 28 + rng.index(frame.len() - 28);
                frame.truncate(at);
            }
        }
        nodes[0].laned.wire().send(Peer(0), &frame);
        carriers.step();
        nodes.iter_mut().for_each(|node| node.poll(16));
    }
    assert!(nodes[1].heard.packets.is_empty());
    for _ in 0..10 {
        let _ = nodes[0].send(0, 1, &mut rng);
    }
    until(&carriers, &mut nodes, is_all_heard);
}

#[test]
fn packets_that_leave_together_share_frames() {
    let (carriers, mut nodes, _) = pair();
    let frames = |carriers: &Carriers| carriers.frames_sent();
    let before = frames(&carriers);
    nodes[0].laned.gather(true);
    for _ in 0..100 {
        let sent = nodes[0].laned.send(Peer(0), b"\x01\x02", 8, |place| place.fill(2));
        sent.expect("there is room");
        nodes[0].sent[1].push(vec![1, 2, 8, 0, 0, 0]);
    }
    nodes[0].laned.gather(false);
    assert!(frames(&carriers) - before <= 3);
    until(&carriers, &mut nodes, is_all_heard);
}
