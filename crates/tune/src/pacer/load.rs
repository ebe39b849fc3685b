//! What a port carried in the last fifth of a second, and what of it was messages.
//!
//! Messages are the connections of other programs, and what belongs to no connection ([`Strays`]). The wire is taken to be
//! busy by sums over several intervals: one may be some frames short, and the next as many over.

use super::strays::Strays;
use super::{Carried, Interval};
use crate::wire::Wire;
use std::collections::VecDeque;

/// Sums over the last intervals.
#[derive(Clone, Debug)]
pub struct Load {
    wire: Wire,
    strays: Strays,
    last: VecDeque<Sample>,
    floor: Option<f64>,
    probe: Option<f64>,
    /// The most that the wire was seen to carry, as a part of what it is said to.
    most: f64,
    /// For how long it has carried less than that, in seconds: there is no queue at a port that has room.
    below: f64,
}

/// One interval.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seconds: f64,
    /// Of messages.
    packets: f64,
    /// Of messages, on the wire.
    bytes: f64,
    /// The part of the time in which the wire was busy.
    busy: f64,
    probe: Option<f64>,
}

impl Load {
    pub fn new(wire: Wire) -> Load {
        let strays = Strays::default();
        Load {
            wire,
            strays,
            last: VecDeque::new(),
            floor: None,
            probe: None,
            most: 0.0,
            below: 0.0,
        }
    }

    pub fn forget(&mut self) {
        self.last.clear();
    }

    pub fn add(&mut self, seen: &Interval<'_>) {
        let known = sum(seen.flows.iter().map(|flow| flow.carried).chain([seen.messages]));
        let rest = Carried {
            packets: seen.carried.packets - known.packets,
            bytes: seen.carried.bytes - known.bytes,
        };
        let strays = self.strays.take(rest, seen.rest, seen.between, seen.seconds);
        let messages = sum([seen.messages, strays].into_iter());
        let busy = self.on_wire(seen.carried) / (self.rate() * seen.seconds);
        self.note_probe(seen.probe_s, busy);
        self.last.push_back(Sample {
            seconds: seen.seconds,
            packets: messages.packets,
            bytes: self.on_wire(messages),
            busy,
            probe: seen.probe_s,
        });
        while self.seconds() - self.last[0].seconds > LONG_S {
            self.last.pop_front();
        }
        self.note_carried(seen.seconds);
    }

    /// Whether more went through than is explained.
    pub fn has_strays(&self) -> bool {
        self.strays.has_some()
    }

    /// What frames occupy on the wire, in bytes.
    pub fn on_wire(&self, carried: Carried) -> f64 {
        let beside = self.wire.overhead_bytes.saturating_sub(LINK_HEADER_BYTES) as f64;
        let least = self.wire.least_bytes as f64 * carried.packets;
        (carried.bytes + beside * carried.packets).max(least)
    }

    /// What messages take, in bytes on the wire in a second.
    pub fn messages(&self) -> f64 {
        let (seconds, bytes) = self.over(LOAD_S, |sample| sample.bytes);
        if seconds > 0.0 { (bytes / seconds).clamp(0.0, self.rate()) } else { 0.0 }
    }

    /// How many frames of messages there are in a second.
    pub fn packets(&self) -> f64 {
        let (seconds, packets) = self.over(SHORT_S, |sample| sample.packets);
        if seconds > 0.0 { (packets / seconds).max(0.0) } else { 0.0 }
    }

    /// What a frame of messages takes on the wire on the mean, in bytes; none where there are none.
    pub fn frame_bytes(&self) -> Option<f64> {
        let [bytes, packets] = [|sample: &Sample| sample.bytes, |sample: &Sample| sample.packets]
            .map(|of| self.over(LOAD_S, of).1);
        (packets > 0.0).then(|| bytes / packets)
    }

    /// Whether messages have begun: more frames than a difference of counters may be wrong by.
    pub fn has_come(&self) -> bool {
        self.over(SHORT_S, |sample| sample.packets).1 >= COME_PACKETS
            || self.over(LONG_S, |sample| sample.packets).1 >= COME_PACKETS_LONG
    }

    /// Whether there still are some.
    pub fn has_some(&self) -> bool {
        self.over(SHORT_S, |sample| sample.packets).1 >= STAY_PACKETS
            || self.over(LONG_S, |sample| sample.packets).1 >= COME_PACKETS_LONG
    }

    /// Whether there is a queue at the port that does not drain, by what was seen in the last `since` seconds: the wire was
    /// busy all the time and no majority of probes got through at once.
    pub fn is_full(&self, since: f64) -> bool {
        is_long(since) && self.is_busy() && !self.is_quick()
    }

    /// The same by probes alone, of which not even the fastest got through at once: the wire may be narrower than it is said to
    /// be. A port with a queue sends all the time, so one that carries less than it was seen to has none, whatever the node
    /// says that answers.
    pub fn has_standing_queue(&self, since: f64) -> bool {
        is_long(since) && self.below == 0.0 && self.are_slow()
    }

    /// What the wire carries now, as a part of what it is said to; nothing where that cannot be told yet.
    pub fn carried(&self) -> f64 {
        let (seconds, busy) = self.over(FULL_S, |sample| sample.busy * sample.seconds);
        if seconds >= FULL_S * 0.75 { busy / seconds } else { 0.0 }
    }

    /// Whether the wire carries less than messages and what bulk may send: only then can there be a queue that stays.
    pub fn lacks(&self, bulk: f64) -> bool {
        self.carried() * self.rate() < ALL * (bulk + self.messages())
    }

    /// Whether the wire was never seen to carry what it is said to.
    pub fn is_narrow(&self) -> bool {
        self.most < BUSY_EACH
    }

    /// What bulk takes, in bytes on the wire in a second: all that is not messages.
    pub fn bulk(&self) -> f64 {
        (self.carried() * self.rate() - self.messages()).max(0.0)
    }

    /// Whether not even the fastest of the newest probes got through at once.
    fn are_slow(&self) -> bool {
        self.quick_probes(QUEUE_FRAMES).is_some_and(|(quick, _)| quick == 0)
    }

    /// What a full frame takes on the wire, in seconds.
    fn frame_s(&self) -> f64 {
        (self.wire.mtu + self.wire.overhead_bytes) as f64 / self.rate()
    }

    /// The lowest and the last round trip of a probe, in seconds.
    pub fn latency(&self) -> Option<(f64, f64)> {
        self.floor.zip(self.probe)
    }

    /// Whether the wire is busy all the time.
    fn is_busy(&self) -> bool {
        let (seconds, busy) = self.over(FULL_S, |sample| sample.busy * sample.seconds);
        let is_always = self.newest(FULL_S).all(|sample| sample.busy >= BUSY_EACH);
        seconds >= FULL_S * 0.75 && is_always && busy / seconds >= BUSY_MEAN
    }

    /// A wire that is busy without a queue is one that is used well.
    fn is_quick(&self) -> bool {
        self.quick_probes(QUICK_FRAMES).is_some_and(|(quick, all)| 2 * quick > all)
    }

    fn note_carried(&mut self, seconds: f64) {
        let carried = self.carried();
        self.most = self.most.max(carried.min(1.0));
        let has_room = carried < AT_MOST * self.most || carried < NARROW;
        self.below = if has_room { self.below + seconds } else { 0.0 };
        if self.below >= ROOM_S && self.are_slow() {
            self.learn_floor();
        }
    }

    /// The node that answers has become slow.
    fn learn_floor(&mut self) {
        let probes = self.newest(SHORT_S).filter_map(|sample| sample.probe);
        self.floor = probes.reduce(f64::min).or(self.floor);
    }

    /// How many of the newest probes have waited for fewer frames, and of how many; none where they are too few to tell.
    fn quick_probes(&self, frames: f64) -> Option<(usize, usize)> {
        let limit = self.floor? + frames * self.frame_s() + NOISE_S;
        let probes: Vec<f64> = self.newest(SHORT_S).filter_map(|sample| sample.probe).collect();
        let quick = probes.iter().filter(|probe| **probe <= limit).count();
        (probes.len() >= PROBES_MIN).then_some((quick, probes.len()))
    }

    /// The floor rises while the port has room: a probe that waits behind bulk says nothing about it. It falls at any time.
    fn note_probe(&mut self, probe: Option<f64>, busy: f64) {
        self.probe = probe.or(self.probe);
        let Some(probe) = probe else { return };
        let floor = self.floor.unwrap_or(f64::INFINITY);
        if probe < floor && (busy < ROOM || self.floor.is_some()) {
            self.floor = Some(probe);
        } else if busy < ROOM {
            self.floor = Some(floor * FLOOR_RISES);
        }
    }

    fn rate(&self) -> f64 {
        self.wire.bits_per_s / 8.0
    }

    fn seconds(&self) -> f64 {
        self.last.iter().map(|sample| sample.seconds).sum()
    }

    /// The newest intervals that make up `window` seconds.
    fn newest(&self, window: f64) -> impl Iterator<Item = &Sample> {
        let mut seconds = 0.0;
        self.last.iter().rev().take_while(move |sample| {
            let is_within = seconds < window - sample.seconds / 2.0;
            seconds += sample.seconds;
            is_within
        })
    }

    /// The length of the newest intervals within a window, and a sum over them.
    fn over(&self, window: f64, of: impl Fn(&Sample) -> f64) -> (f64, f64) {
        let add = |(seconds, sum), sample: &Sample| (seconds + sample.seconds, sum + of(sample));
        self.newest(window).fold((0.0, 0.0), add)
    }
}

fn is_long(window: f64) -> bool {
    window >= FULL_S * 0.9
}

fn sum(all: impl Iterator<Item = Carried>) -> Carried {
    all.fold(Carried::default(), |sum, one| Carried {
        packets: sum.packets + one.packets,
        bytes: sum.bytes + one.bytes,
    })
}

/// What an interface counts of a frame's overhead: two addresses and a type.
const LINK_HEADER_BYTES: u64 = 14;
/// The load of messages is a mean of this long.
const LOAD_S: f64 = 0.080;
/// Messages come and go within this long.
const SHORT_S: f64 = 0.050;
/// Rare messages are looked for in this long.
const LONG_S: f64 = 0.200;
/// How long the wire is busy before the port is called full.
const FULL_S: f64 = 0.040;
/// The part of each interval, and of all of them, for which it is busy then.
const BUSY_EACH: f64 = 0.97;
const BUSY_MEAN: f64 = 0.985;
/// Frames of messages in a short and in a long time by which they have come.
const COME_PACKETS: f64 = 4.0;
const COME_PACKETS_LONG: f64 = 6.0;
/// Frames in a short time by which they stay.
const STAY_PACKETS: f64 = 2.5;
/// Fewer probes say nothing about a queue.
const PROBES_MIN: usize = 3;
/// What a probe may wait without there being a queue: frames, and what a host's scheduler adds.
const QUEUE_FRAMES: f64 = 6.0;
/// The same for most of them where the wire is busy.
const QUICK_FRAMES: f64 = 3.0;
const NOISE_S: f64 = 0.000_3;
/// A port that is busy for less than this has room.
const ROOM: f64 = 0.8;
/// A wire carries what it can while it carries this part of the most that it was seen to.
const AT_MOST: f64 = 0.96;
/// It carries all that is sent where that is no more than this part short.
const ALL: f64 = 0.97;
/// A wire of less than half of what it is said to carry is not looked for: it is as likely that nobody sends more.
const NARROW: f64 = 0.45;
/// After this long below it, no probe of the newest can have met a queue.
const ROOM_S: f64 = 0.1;
/// By what the floor rises with every probe, so that a longer path becomes the floor in time: by a tenth in 1000 probes.
const FLOOR_RISES: f64 = 1.000_1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacer::Rest;

    /// A wire that was all but idle, and then busy all the time with probes that took so long.
    fn busy(probe_s: f64) -> Load {
        let mut load = Load::new(Wire::ethernet(100e6, 1500));
        for interval in 0..20 {
            let is_busy = interval >= 10;
            let packets = if is_busy { 81.3 } else { 1.0 };
            load.add(&Interval {
                seconds: 0.010,
                carried: Carried { packets, bytes: packets * 1514.0 },
                between: 0.0,
                flows: &[],
                messages: Carried::default(),
                rest: Rest::Messages,
                probe_s: Some(if is_busy { probe_s } else { 0.000_3 }),
            });
        }
        load
    }

    #[test]
    fn a_busy_wire_is_full_where_probes_wait() {
        assert!(busy(0.000_3).is_busy());
        assert!(!busy(0.000_3).is_full(1.0), "all probes are as quick as without load");
        assert!(busy(0.001_0).is_full(1.0));
        assert!(busy(0.005_0).is_full(1.0));
    }
}
