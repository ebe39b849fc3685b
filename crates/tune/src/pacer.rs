//! The pacer's control law: what one direction of a port can take for bulk, so that messages through the same port
//! keep nearly their unloaded latency.
//!
//! Bulk is what this project's own storage sends; messages are everything else that the port carries. A switch with plain
//! FIFO ports makes a message wait behind all bulk that arrived before it, so bulk has to stay out of the queue: its
//! senders together are ordered to send a little less than what messages leave. One [`Port`] is one direction of one
//! port. Its owner calls [`Port::observe`] every [`INTERVAL_S`] or so with counters; there is no clock and no I/O here.
//!
//! ```text
//!   interface counters ─┐
//!   bulk, per flow      ├──► Port::observe ──► Order::Free                 nobody sends messages: bulk is not paced
//!   a probe's latency  ─┘                 └──► Order::Paced(rate of each flow)
//! ```
//!
//! What always holds:
//! - without messages the order is free, so bulk loses nothing; so it is where orders turn out to be of no use;
//! - with messages, bulk is ordered at least [`Settings::least`] and at most `1 - margin` of the port;
//! - the rates of all flows add up to no more than the port's rate for bulk, but for a tenth of its node's fair share for
//!   each that is quiet, or that was not seen yet;
//! - the shares are max-min fair among senders, and among the flows of one sender;
//! - half frames are asked for where full ones are long and messages short: it is the wire that is shared, not the payload.
//!
//! Rates are bytes on the wire in a second, with everything that a frame occupies; [`Port::payload`] converts.
//! Design note 0036 has the reasons and the argument for stability.

mod fair;
mod futile;
mod load;
mod strays;

pub use fair::divide;

use crate::wire::Wire;
use futile::Futile;
use load::Load;
use std::collections::{BTreeMap, BTreeSet};

/// How long an interval should be, in seconds. Others work; one of them more than `GAP_S` is not judged.
pub const INTERVAL_S: f64 = 0.010;
/// An interval longer than this says nothing about now.
const GAP_S: f64 = 1.0;

/// What an administrator can set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The part of what messages leave that bulk does not get.
    pub margin: f64,
    /// The part of the port that bulk gets whatever messages take.
    pub least: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { margin: 0.07, least: 0.10 }
    }
}

/// Frames as an interface counts them: with the link header, without preamble, check sequence and gap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    /// Frames.
    pub packets: f64,
    /// Bytes of these frames.
    pub bytes: f64,
}

/// One connection of bulk through the port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Names the connection.
    pub id: u64,
    /// Names the node at its other end: nodes have equal shares, however many connections they have.
    pub node: u64,
    /// What it has carried in the interval.
    pub carried: Carried,
}

/// What was counted in one interval.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'a> {
    /// Its length in seconds.
    pub seconds: f64,
    /// What the interface has carried in this direction.
    pub carried: Carried,
    /// How many frames went through the interface while all this was read: by so many a difference may be wrong.
    pub between: f64,
    /// The part of it that is bulk, by connection. A connection that is missing has ended.
    pub flows: &'a [Flow],
    /// The part of it that is known connections of other programs.
    pub messages: Carried,
    /// What the rest is, that belongs to no connection.
    pub rest: Rest,
    /// The round trip of a small probe through the port that was answered in this interval, in seconds.
    pub probe_s: Option<f64>,
}

/// What an interface carries that belongs to no known connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Messages: connections were listed, and none was unknown.
    Messages,
    /// A connection that was not listed yet, or messages.
    Unknown,
    /// The beginnings and ends of connections.
    Changed,
}

/// What the senders of bulk are to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Send as TCP likes.
    Free,
    /// Send no faster than this, in bytes on the wire in a second, by the connection's id.
    Paced(BTreeMap<u64, f64>),
}

/// One direction of a port.
#[derive(Clone, Debug)]
pub struct Port {
    wire: Wire,
    settings: Settings,
    load: Load,
    guard: Guard,
    trim: Trim,
    futile: Futile,
    flows: BTreeMap<u64, Known>,
    bulk: f64,
    /// Full frames are long beside those of messages.
    in_half: bool,
    /// Of the last interval in a smoothed value.
    weight: f64,
}

/// A flow as it was last seen.
#[derive(Clone, Copy, Debug)]
struct Known {
    node: u64,
    /// Bytes on the wire in a second, smoothed.
    used: f64,
    /// The rate that was ordered, smoothed in the same way, where one was.
    allowed: Option<f64>,
    /// For how long it still counts as one that wants more, in seconds.
    hungry: f64,
}

impl Port {
    /// A port of this rate and frame size, through which nothing has gone yet.
    pub fn new(wire: Wire, settings: Settings) -> Port {
        Port {
            wire,
            settings,
            load: Load::new(wire),
            guard: Guard::default(),
            trim: Trim::default(),
            futile: Futile::default(),
            flows: BTreeMap::new(),
            bulk: 0.0,
            in_half: false,
            weight: 1.0,
        }
    }

    /// Changes what an administrator has set.
    pub fn set(&mut self, wire: Wire, settings: Settings) {
        if wire != self.wire {
            *self = Port::new(wire, settings);
        }
        self.settings = settings;
    }

    /// Takes in what was counted, and says what bulk may do from now on.
    pub fn observe(&mut self, seen: &Interval<'_>) -> Order {
        let is_sound = seen.seconds > 0.0 && seen.seconds <= GAP_S;
        if !is_sound {
            self.load.forget();
            // What is not seen is not there: an order that nothing renews would hold for ever.
            self.guard.pass(if seen.seconds > GAP_S { GAP_S } else { INTERVAL_S });
            return self.order();
        }
        self.note_flows(seen);
        self.load.add(seen);
        self.note_frames();
        self.guard.step(&self.load, seen.seconds);
        self.futile.step(self.is_in_vain(), seen.seconds);
        if self.is_guarded() {
            let untrimmed = self.rate_for_bulk_untrimmed();
            self.trim.step(&self.load, untrimmed, seen.seconds);
        } else {
            self.trim = Trim::default();
        }
        self.order()
    }

    /// Whether messages are about, so that bulk is paced, and senders obey.
    pub fn is_guarded(&self) -> bool {
        self.guard.is_up() && !self.futile.is_free()
    }

    /// Whether the port carries more than the known connections explain: they should be listed.
    pub fn has_strays(&self) -> bool {
        self.load.has_strays()
    }

    /// What messages take, in bytes on the wire in a second.
    pub fn messages(&self) -> f64 {
        self.load.messages()
    }

    /// How many frames of messages there are in a second.
    pub fn message_packets(&self) -> f64 {
        self.load.packets()
    }

    /// Whether bulk is to go in frames of half the length: a full one takes the wire so long that a short message waits longer
    /// for it than for all else, and there are so many senders that it meets more than three of them.
    pub fn wants_half_frames(&self) -> bool {
        self.in_half && self.is_guarded()
    }

    fn note_frames(&mut self) {
        let full = (self.wire.mtu + self.wire.overhead_bytes) as f64;
        let Some(part) = self.load.frame_bytes().map(|bytes| bytes / full) else { return };
        let is_short = part <= if self.in_half { SHORT_STILL } else { SHORT };
        self.in_half = is_short && full / self.rate() > LONG_S && self.streams() > FEW_STREAMS;
    }

    /// Flows that carry much, beside the one that carries most.
    fn streams(&self) -> usize {
        let most = self.flows.values().map(|flow| flow.used).fold(0.0, f64::max);
        self.flows.values().filter(|flow| flow.used > STREAM * most).count()
    }

    /// What bulk takes, in bytes on the wire in a second.
    pub fn bulk_used(&self) -> f64 {
        self.flows.values().map(|flow| flow.used).sum()
    }

    /// What the port can take for bulk, in bytes on the wire in a second: the whole of it while it is free.
    pub fn bulk(&self) -> f64 {
        self.bulk
    }

    /// What a connection that has not been seen yet may begin with, while bulk is paced: a sender that joins would else fill the
    /// queue until it is seen.
    pub fn begin(&self) -> Option<f64> {
        self.is_guarded().then(|| START * self.bulk / self.senders().max(1) as f64)
    }

    fn senders(&self) -> usize {
        self.flows.values().map(|flow| flow.node).collect::<BTreeSet<_>>().len()
    }

    /// The lowest and the last round trip of a probe in seconds.
    pub fn latency(&self) -> Option<(f64, f64)> {
        self.load.latency()
    }

    /// TCP payload in bytes a second, of full segments that take `rate` on the wire.
    pub fn payload(&self, rate: f64) -> f64 {
        let on_wire = self.wire.mtu + self.wire.overhead_bytes;
        rate * self.wire.payload_bytes() as f64 / on_wire as f64
    }

    fn rate(&self) -> f64 {
        self.wire.bits_per_s / 8.0
    }

    fn rate_for_bulk_untrimmed(&self) -> f64 {
        let left = (self.rate() - self.load.messages()).max(0.0);
        (left * (1.0 - self.settings.margin)).max(self.least())
    }

    fn least(&self) -> f64 {
        self.rate() * self.settings.least
    }

    fn order(&mut self) -> Order {
        if !self.is_guarded() {
            self.bulk = self.rate();
            self.flows.values_mut().for_each(|flow| flow.allowed = None);
            return Order::Free;
        }
        self.bulk = (self.rate_for_bulk_untrimmed() - self.trim.bytes).max(self.least());
        Order::Paced(self.shares())
    }

    /// Whether some take much more than they may, and the port is full although bulk was cut.
    fn is_in_vain(&self) -> bool {
        let is_cut = self.is_guarded() && self.bulk <= CUT * self.rate_for_bulk_untrimmed();
        let beyond: f64 = self.flows.values().map(Known::beyond).sum();
        is_cut && beyond >= DISOBEYED * self.rate() && self.load.carried() >= FULL
    }

    fn note_flows(&mut self, seen: &Interval<'_>) {
        let before = std::mem::take(&mut self.flows);
        self.weight = (seen.seconds / USED_OVER_S).min(1.0);
        for flow in seen.flows {
            let used = self.load.on_wire(flow.carried) / seen.seconds;
            let new = Known { node: flow.node, used, allowed: None, hungry: HUNGRY_S };
            let mut known = before.get(&flow.id).copied().unwrap_or(new);
            known.used += self.weight * (used - known.used);
            known.note_hunger(seen.seconds);
            self.flows.insert(flow.id, known);
        }
    }

    /// Nodes share the port, flows the part of their node.
    fn shares(&mut self) -> BTreeMap<u64, f64> {
        let mut nodes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (id, flow) in &self.flows {
            nodes.entry(flow.node).or_default().push(*id);
        }
        let fair = self.bulk / nodes.len().max(1) as f64;
        let demands: Vec<f64> = nodes.values().map(|ids| self.demand_of(ids, fair)).collect();
        let mut out = BTreeMap::new();
        for (ids, share) in nodes.values().zip(divide(self.bulk, &demands)) {
            let start = start_of(fair, ids.len());
            let demands: Vec<f64> = ids.iter().map(|id| self.flows[id].demand(start)).collect();
            // Nothing is kept free for a flow that is quiet, but it may begin.
            let rates = divide(share, &demands).into_iter().map(|rate| rate.max(start));
            out.extend(ids.iter().copied().zip(rates));
        }
        for (id, rate) in &out {
            if let Some(flow) = self.flows.get_mut(id) {
                // What it uses follows an order as slowly.
                let allowed = flow.allowed.unwrap_or(*rate);
                flow.allowed = Some(allowed + self.weight * (rate - allowed));
            }
        }
        out
    }

    /// What the flows of a node ask for together: without limit as soon as one of them does.
    fn demand_of(&self, ids: &[u64], fair: f64) -> f64 {
        let start = start_of(fair, ids.len());
        ids.iter().map(|id| self.flows[id].demand(start)).sum()
    }
}

impl Known {
    /// A flow that uses what it may wants more, now and for a while.
    fn note_hunger(&mut self, seconds: f64) {
        self.hungry = (self.hungry - seconds).max(0.0);
        if self.allowed.is_none_or(|allowed| self.used >= HUNGRY * allowed) {
            self.hungry = HUNGRY_S;
        }
    }

    /// What it takes beside what it may; an order takes a while to be followed.
    fn beyond(&self) -> f64 {
        self.allowed.map_or(0.0, |allowed| (self.used - OBEYED * allowed).max(0.0))
    }

    /// What it would send if it could: without limit where it uses what it has, else half as much again as it uses.
    fn demand(&self, start: f64) -> f64 {
        let has_paused = self.allowed.is_some_and(|allowed| self.used < PAUSED * allowed);
        let is_hungry = self.hungry > 0.0 && !has_paused && self.used > BEGUN * start;
        if is_hungry { f64::INFINITY } else { HEADROOM * self.used }
    }
}

/// What a quiet flow may begin with, where its node's fair share is this much: so it can show that it wants more.
fn start_of(fair: f64, flows: usize) -> f64 {
    fair * START.min(1.0 / flows.max(1) as f64)
}

/// Whether messages are about: up as soon as some are seen, down when none were for a while.
#[derive(Clone, Debug, Default)]
struct Guard {
    /// Seconds without messages, while it is up.
    quiet: Option<f64>,
    /// Seconds since it went down last.
    down: f64,
    /// How long it stays up; at least [`HOLD_S`].
    hold: f64,
}

impl Guard {
    fn is_up(&self) -> bool {
        self.quiet.is_some()
    }

    fn step(&mut self, load: &Load, seconds: f64) {
        match &mut self.quiet {
            Some(quiet) if load.has_some() => *quiet = 0.0,
            Some(_) => self.pass(seconds),
            None => {
                self.down += seconds;
                if load.has_come() {
                    self.raise();
                }
            }
        }
    }

    /// Time in which no messages were seen.
    fn pass(&mut self, seconds: f64) {
        let Some(quiet) = &mut self.quiet else { return self.down += seconds };
        *quiet += seconds;
        if *quiet >= self.hold {
            (self.quiet, self.down) = (None, 0.0);
        }
    }

    /// Messages that come back soon after the guard went down are a rhythm: it stays up longer.
    fn raise(&mut self) {
        let is_rhythm = self.hold > 0.0 && self.down < RHYTHM_S;
        self.hold = if is_rhythm { (2.0 * self.hold).min(HOLD_MAX_S) } else { HOLD_S };
        self.quiet = Some(0.0);
    }
}

/// What is taken off besides, while there is a queue although there should be none.
#[derive(Clone, Debug, Default)]
struct Trim {
    /// Bytes on the wire in a second.
    bytes: f64,
    /// Seconds since the last cut.
    since: f64,
    /// Seconds for which bulk still makes way for the queue that it left when it was free.
    drains: Option<f64>,
    /// Half of it is given back in this many seconds.
    half_s: f64,
}

impl Trim {
    /// Cuts bulk where the port is full, then waits for the effect to be seen; afterwards gives back by halves.
    fn step(&mut self, load: &Load, untrimmed: f64, seconds: f64) {
        if self.drain(load, seconds) {
            self.bytes = untrimmed * (1.0 - KEPT);
            return;
        }
        self.since += seconds;
        if self.since < SETTLE_S && self.bytes > 0.0 {
            return;
        }
        let bulk = (untrimmed - self.bytes).max(0.0);
        if load.is_full(self.since) {
            self.cut(untrimmed - bulk * KEPT, GIVE_BACK_S);
        } else if load.has_standing_queue(self.since) && load.lacks(bulk) {
            // A narrow wire carries less than is ordered, and fills again as soon as that is.
            let half_s = if load.is_narrow() { GIVE_BACK_NARROW_S } else { GIVE_BACK_S };
            self.cut(untrimmed - bulk.min(load.bulk()) * KEPT, half_s);
        } else {
            self.bytes *= 0.5_f64.powf(seconds / self.half_s.max(GIVE_BACK_S));
        }
        self.bytes = self.bytes.clamp(0.0, untrimmed);
    }

    fn cut(&mut self, bytes: f64, half_s: f64) {
        (self.bytes, self.half_s, self.since) = (bytes, half_s, 0.0);
    }

    /// The first messages find the queue of bulk that was free. Whether it still drains.
    fn drain(&mut self, load: &Load, seconds: f64) -> bool {
        let is_full = || load.is_full(f64::INFINITY) || load.has_standing_queue(f64::INFINITY);
        let begins = || if is_full() { DRAINS_S } else { 0.0 };
        let left = self.drains.map_or_else(begins, |left| (left - seconds).max(0.0));
        let ends = self.drains.is_some_and(|before| before > 0.0 && left == 0.0);
        self.drains = Some(left);
        if ends {
            (self.bytes, self.since) = (0.0, 0.0);
        }
        left > 0.0
    }
}

/// A full frame that takes longer than this is long: one of 1,500 bytes below 246 Mbit/s.
const LONG_S: f64 = 0.000_05;
/// Messages whose frames have no more than this part of a full one on the mean are short, and until they have more than that.
/// Halves would not help long ones.
const SHORT: f64 = 0.4;
const SHORT_STILL: f64 = 0.6;
/// So many streams leave fewer than three full frames in front of a message at the 99th percentile (a calculation): halves would
/// cost more than they are worth.
const FEW_STREAMS: usize = 3;
/// What carries more than this part of the largest flow is a stream.
const STREAM: f64 = 0.1;
/// A flow's use is the mean of about this long.
const USED_OVER_S: f64 = 0.050;
/// How long a flow that wanted more is taken to want more.
const HUNGRY_S: f64 = 0.150;
/// A flow that uses this part of what it was allowed wants more.
const HUNGRY: f64 = 0.7;
/// One that uses less than this part has paused.
const PAUSED: f64 = 0.4;
/// One that uses less than this part of what a quiet one may begin with has not begun: heartbeats and small requests.
const BEGUN: f64 = 0.5;
/// What one that is not hungry may use, as a multiple of what it does.
const HEADROOM: f64 = 1.5;
/// What a quiet flow may begin with, as a part of its node's fair share.
const START: f64 = 0.1;
/// One that uses no more than this multiple of what it is allowed obeys.
const OBEYED: f64 = 1.25;
/// The part of the port that is taken against orders where these are in vain, what the port carries then, and what a cut has left.
const DISOBEYED: f64 = 0.05;
const FULL: f64 = 0.97;
const CUT: f64 = 0.95;
/// How long the guard stays up without messages.
const HOLD_S: f64 = 0.050;
/// The longest that becomes where messages come and go.
const HOLD_MAX_S: f64 = 1.0;
/// Messages that come back within this time are a rhythm.
const RHYTHM_S: f64 = 1.0;
/// How long the effect of a cut may take to be seen.
const SETTLE_S: f64 = 0.060;
/// The part of bulk that a cut leaves.
const KEPT: f64 = 0.7;
/// How long the first cut lasts: of a queue of 64 KiB at 100 Mbit/s more than twice the time that it takes.
const DRAINS_S: f64 = 0.040;
/// In this time half of a cut is given back.
const GIVE_BACK_S: f64 = 0.030;
/// The same where the wire was never seen to carry what it is said to.
const GIVE_BACK_NARROW_S: f64 = 0.300;

#[cfg(test)]
mod tests;
