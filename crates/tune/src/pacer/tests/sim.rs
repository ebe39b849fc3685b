//! A port of a switch with one plain queue, some senders of bulk and one of messages, in steps of half a millisecond.

use super::super::{Carried, Flow, INTERVAL_S, Interval, Order, Port, Rest, Settings};
use crate::wire::Wire;
use std::collections::VecDeque;

/// Chance from a seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    /// Between 0 and 1.
    pub fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.part()
    }

    pub fn below(&mut self, count: usize) -> usize {
        ((self.part() * count as f64) as usize).min(count - 1)
    }
}

/// What somebody sends through the port beside bulk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Messages {
    None,
    /// The next one leaves when the last one was answered; the round trip in seconds, without its own time on the wire.
    PingPong {
        bytes: f64,
        trip_s: f64,
    },
    /// So many in a second, whatever becomes of them.
    Steady {
        bytes: f64,
        per_s: f64,
    },
}

/// A node that sends bulk over one connection.
#[derive(Clone, Debug)]
pub struct Sender {
    /// When it begins and ends.
    pub from: f64,
    pub to: f64,
    /// After its end the connection is still known this long: it died.
    pub lingers: f64,
    /// The most that it has to send, in bytes on the wire in a second.
    pub wants: f64,
    /// How long an order is on its way.
    pub delay: f64,
    /// Whether it follows orders; else it takes what the others leave.
    pub obeys: bool,
    /// The part of each fifth of a second in which it has something to send.
    pub duty: f64,
    pending: VecDeque<(f64, Option<f64>)>,
    rate: Option<f64>,
    /// In the port's queue: when it is through, and bytes.
    queued: VecDeque<(f64, f64)>,
    /// On the wire since the last tick, and in all.
    recent: f64,
    /// What it has carried, by tick: time, bytes, fair share in bytes.
    pub history: Vec<(f64, f64, f64)>,
}

impl Sender {
    pub fn new(from: f64, to: f64, wants: f64) -> Sender {
        let (lingers, delay) = (0.0, 0.002);
        let history = Vec::new();
        Sender {
            from,
            to,
            lingers,
            wants,
            delay,
            obeys: true,
            duty: 1.0,
            pending: VecDeque::new(),
            rate: None,
            queued: VecDeque::new(),
            recent: 0.0,
            history,
        }
    }

    pub fn is_alive(&self, now: f64) -> bool {
        self.from <= now && now < self.to
    }

    /// Counts what is through the queue.
    fn arrive(&mut self, now: f64) {
        while self.queued.front().is_some_and(|(at, _)| *at <= now) {
            self.recent += self.queued.pop_front().map_or(0.0, |(_, bytes)| bytes);
        }
    }

    fn is_known(&self, now: f64) -> bool {
        self.from <= now && now < self.to + self.lingers
    }

    /// Bytes that it sends in a step; `fair` is what TCP would give it where it is not paced.
    fn sends(&mut self, now: f64, fair: f64) -> f64 {
        while self.pending.front().is_some_and(|(at, _)| *at <= now) {
            self.rate = self.pending.pop_front().and_then(|(_, rate)| rate);
        }
        if !self.is_alive(now) || ((now + self.delay * 13.0) / 0.2).fract() >= self.duty {
            return 0.0;
        }
        let rate = self.rate.filter(|_| self.obeys);
        self.wants.min(rate.unwrap_or(fair)) * STEP_S
    }
}

/// By what the node that is probed answers later than it could.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    None,
    /// Always.
    Slow(f64),
    /// In every other period of this length, in seconds, and by ever more.
    Waver {
        every_s: f64,
        by_s: f64,
    },
    /// Where the port carries more than this part of its rate, as if it were narrower than it is.
    Narrow {
        above: f64,
        by_s: f64,
    },
}

impl Lie {
    fn adds(self, now: f64, carried: f64) -> f64 {
        match self {
            Lie::Slow(by_s) => by_s,
            Lie::Waver { every_s, by_s } if (now / every_s) % 2.0 < 1.0 => by_s * (1.0 + now),
            Lie::Narrow { above, by_s } if carried > above => by_s,
            _ => 0.0,
        }
    }
}

/// What was seen at a tick.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub at: f64,
    /// How long the interval was, in seconds.
    pub seconds: f64,
    /// What messages leave for bulk, as a part of the port.
    pub left: f64,
    /// What senders want, as a part of the port.
    pub wanted: f64,
    /// What bulk was ordered, as a part of the port; one where it is free.
    pub ordered: f64,
    pub is_paced: bool,
}

pub struct Sim {
    pub chance: Chance,
    pub wire: Wire,
    pub port: Port,
    pub senders: Vec<Sender>,
    pub messages: Messages,
    /// Messages that belong to no connection, so that they show in the difference of counters only.
    pub is_stray: bool,
    /// What the node that is probed takes to answer.
    pub answers_s: f64,
    pub lie: Lie,
    /// What the wire carries of what it is said to.
    pub narrowed: f64,
    /// All send as fast as the slowest: they are parts of the same files.
    pub in_step: bool,
    pub seen: Vec<Seen>,
    /// Round trips of messages: when, and how long.
    pub trips: Vec<(f64, f64)>,
    pub now: f64,
    queue: f64,
    queue_max: f64,
    tick_last: f64,
    tick_next: f64,
    /// Of messages: frames and bytes on the wire that went through since the last tick.
    through: Carried,
    /// Those that are on their way: when they are through, frames and bytes.
    coming: VecDeque<(f64, Carried)>,
    /// The next message begins.
    next: f64,
    /// Bytes of the current message that are still to come, and when it began.
    rest: f64,
    begun: f64,
    skew: f64,
    probe: Option<f64>,
}

pub const STEP_S: f64 = 0.000_5;
const FRAME: f64 = 1538.0;

impl Sim {
    pub fn new(seed: u64, bits_per_s: f64, queue_max: f64) -> Sim {
        let wire = Wire::ethernet(bits_per_s, 1500);
        Sim {
            chance: Chance::new(seed),
            wire,
            port: Port::new(wire, Settings::default()),
            senders: Vec::new(),
            messages: Messages::None,
            is_stray: false,
            in_step: false,
            answers_s: 0.000_1,
            lie: Lie::None,
            narrowed: 1.0,
            seen: Vec::new(),
            trips: Vec::new(),
            now: 0.0,
            queue: 0.0,
            queue_max,
            tick_last: 0.0,
            tick_next: INTERVAL_S,
            through: Carried::default(),
            coming: VecDeque::new(),
            next: 0.0,
            rest: 0.0,
            begun: 0.0,
            skew: 0.0,
            probe: None,
        }
    }

    pub fn rate(&self) -> f64 {
        self.narrowed * self.wire.bits_per_s / 8.0
    }

    pub fn run_until(&mut self, end: f64) {
        while self.now < end {
            self.step();
        }
    }

    fn step(&mut self) {
        let (now, rate) = (self.now, self.rate());
        let alive = self.senders.iter().filter(|sender| sender.is_alive(now)).count();
        // Unpaced senders fill the queue and hold it full.
        let greedy = 1.05 * rate / alive.max(1) as f64;
        let mut sent: Vec<f64> =
            self.senders.iter_mut().map(|one| one.sends(now, greedy)).collect();
        let all: f64 = sent.iter().sum();
        if let Some(taken) = self.senders.iter().zip(&mut sent).find(|(one, _)| !one.obeys) {
            *taken.1 += (1.05 * rate * STEP_S - all).max(0.0);
        }
        if self.in_step {
            let least = sent.iter().copied().fold(f64::INFINITY, f64::min);
            sent.iter_mut().for_each(|bytes| *bytes = least);
        }
        let bulk: f64 = sent.iter().sum();
        let message = self.message_bytes();
        let room = self.queue_max + rate * STEP_S - self.queue;
        let kept =
            if bulk + message > room { ((room - message) / bulk).clamp(0.0, 1.0) } else { 1.0 };
        self.queue = (self.queue + bulk * kept + message - rate * STEP_S).max(0.0);
        self.now += STEP_S;
        let through = self.now + self.queue / rate;
        for (sender, bytes) in self.senders.iter_mut().zip(sent) {
            if bytes > 0.0 {
                sender.queued.push_back((through, bytes * kept));
            }
            // A step's end is not an exact number.
            sender.arrive(self.now + STEP_S / 2.0);
        }
        self.finish_message(message);
        while self.coming.front().is_some_and(|(at, _)| *at <= self.now) {
            if let Some((_, one)) = self.coming.pop_front() {
                self.through.packets += one.packets;
                self.through.bytes += one.bytes;
            }
        }
        if self.now >= self.tick_next {
            self.tick();
        }
    }

    /// What arrives of messages in this step: no faster than the sender's own wire.
    fn message_bytes(&mut self) -> f64 {
        let bytes = match self.messages {
            Messages::None => return 0.0,
            Messages::PingPong { bytes, .. } | Messages::Steady { bytes, .. } => bytes,
        };
        if self.rest == 0.0 && self.now >= self.next {
            self.rest = on_wire(bytes).bytes;
            self.begun = self.now;
        }
        let now = self.rest.min(self.rate() * STEP_S);
        self.rest -= now;
        now
    }

    fn finish_message(&mut self, arrived: f64) {
        if arrived == 0.0 || self.rest > 0.0 {
            return;
        }
        let waits = self.queue / self.rate();
        match self.messages {
            Messages::PingPong { bytes, trip_s } => {
                self.coming.push_back((self.now + waits, on_wire(bytes)));
                // The answer takes the same time on a wire that is empty.
                let back = on_wire(bytes).bytes / self.rate();
                self.next = self.now + waits + trip_s + back;
                self.trips.push((self.begun, self.next - self.begun));
            }
            Messages::Steady { bytes, per_s } => {
                self.coming.push_back((self.now + waits, on_wire(bytes)));
                self.next = self.begun + 1.0 / per_s;
                self.trips.push((self.begun, self.now + waits - self.begun));
            }
            Messages::None => {}
        }
    }

    fn tick(&mut self) {
        let (now, seconds) = (self.now, self.now - self.tick_last);
        // The counters of connections are read a little later than those of the interface.
        let skew = self.chance.between(0.0, 2.0);
        let moved = skew - self.skew;
        self.skew = skew;
        let alive = self.senders.iter().filter(|sender| sender.is_alive(now)).count().max(1);
        let fair = self.port.bulk().max(0.1 * self.rate()) / alive as f64 * seconds;
        let mut carried = self.through;
        carried.bytes -= 24.0 * carried.packets;
        let messages = if self.is_stray { Carried::default() } else { carried };
        let mut flows = Vec::new();
        for (id, sender) in self.senders.iter_mut().enumerate() {
            let bulk = frames(sender.recent / FRAME);
            carried = Carried {
                packets: carried.packets + bulk.packets,
                bytes: carried.bytes + bulk.bytes,
            };
            if sender.is_alive(now) {
                sender.history.push((now, sender.recent, fair));
            }
            sender.recent = 0.0;
            if sender.is_known(now) {
                let part = frames(if bulk.packets > 3.0 { moved / alive as f64 } else { 0.0 });
                let own = Carried {
                    packets: bulk.packets + part.packets,
                    bytes: bulk.bytes + part.bytes,
                };
                flows.push(Flow { id: id as u64, node: id as u64, carried: own });
            }
        }
        self.through = Carried::default();
        let (flows, rest, probe_s) = (&flows[..], Rest::Messages, self.probe);
        let interval = Interval { seconds, carried, between: 0.0, flows, messages, rest, probe_s };
        let order = self.port.observe(&interval);
        self.obey(&order);
        let alive = self.senders.iter().filter(|sender| sender.is_alive(now));
        self.seen.push(Seen {
            at: now,
            seconds,
            wanted: alive.map(|sender| sender.wants).sum::<f64>() / self.rate(),
            left: self.port.rate_for_bulk_untrimmed() / self.port.rate(),
            ordered: self.port.bulk() / self.rate(),
            is_paced: self.port.is_guarded(),
        });
        let late = self.lie.adds(now, self.port.load.on_wire(carried) / seconds / self.rate());
        self.probe = Some(self.answers_s + late + self.queue / self.rate());
        self.tick_last = now;
        self.tick_next = now + INTERVAL_S * self.chance.between(0.9, 1.3);
    }

    fn obey(&mut self, order: &Order) {
        for (id, sender) in self.senders.iter_mut().enumerate() {
            let rate = match order {
                Order::Free => None,
                Order::Paced(rates) => match rates.get(&(id as u64)) {
                    Some(rate) => Some(*rate),
                    None => continue,
                },
            };
            sender.pending.push_back((self.now + sender.delay, rate));
        }
    }
}

fn frames(count: f64) -> Carried {
    Carried { packets: count, bytes: count * (FRAME - 24.0) }
}

/// A message of TCP payload: frames, and bytes on the wire.
fn on_wire(bytes: f64) -> Carried {
    let packets = (bytes / 1448.0).ceil();
    Carried { packets, bytes: bytes + packets * 90.0 }
}
