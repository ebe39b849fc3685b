//! One wire in one direction: what a frame meets on it.

use super::class::is_storage;
use super::{FRAME_BYTES_MIN, HEADER_BYTES, Settings};
use bytes::Bytes;
use covey_wire::Rng;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Add;

/// A frame that overtakes nothing is held back by this many times its own length.
const REORDER_LENGTHS: u64 = 4;
/// Senders whose frames meet within this time crowd a wire.
const CROWD_NS: u64 = 20_000_000;
/// A wire remembers no more senders.
pub const CROWD_MAX: usize = 16;

/// A wire and the queue before it.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// When each frame that was accepted has left, and its bytes on the wire; past ones are dropped.
    queue: VecDeque<(u64, u64)>,
    queued_bytes: u64,
    busy_until_ns: u64,
    /// How much of the policer's burst is used up, in bytes, and when that was counted.
    used: f64,
    used_at_ns: u64,
    /// Who has sent within the time of a crowd, and when last.
    senders: Vec<([u8; 6], u64)>,
    /// What it has carried and lost.
    pub counts: Counts,
}

/// What a wire has carried and lost since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames that went over it.
    pub frames: u64,
    /// Their bytes on the wire, overhead included.
    pub bytes: u64,
    /// Of the frames, those of storage: TCP with the port of iSCSI or of Covey's nodes at one end.
    #[serde(default)]
    pub storage_frames: u64,
    /// Their bytes on the wire.
    #[serde(default)]
    pub storage_bytes: u64,
    /// Lost because the queue was full.
    pub lost_queue: u64,
    /// Lost by chance.
    pub lost_chance: u64,
    /// Lost because they were longer than the MTU.
    pub lost_mtu: u64,
    /// Lost to the policer.
    pub lost_policer: u64,
    /// Lost because the cable was down.
    pub lost_down: u64,
    /// Delivered with a wrong bit.
    pub corrupted: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            frames: self.frames + other.frames,
            bytes: self.bytes + other.bytes,
            storage_frames: self.storage_frames + other.storage_frames,
            storage_bytes: self.storage_bytes + other.storage_bytes,
            lost_queue: self.lost_queue + other.lost_queue,
            lost_chance: self.lost_chance + other.lost_chance,
            lost_mtu: self.lost_mtu + other.lost_mtu,
            lost_policer: self.lost_policer + other.lost_policer,
            lost_down: self.lost_down + other.lost_down,
            corrupted: self.corrupted + other.corrupted,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
        }
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives.
    Arrives {
        /// When its last bit does.
        due_ns: u64,
        /// When a second copy does.
        again_ns: Option<u64>,
        /// Which bit is wrong.
        wrong_bit: Option<u64>,
    },
}

impl Fate {
    /// The frames that arrive, with their times.
    pub fn arrivals(self, frame: Bytes) -> impl Iterator<Item = (u64, Bytes)> {
        let (due_ns, again_ns, frame) = match self {
            Fate::Lost => (None, None, frame),
            Fate::Arrives { due_ns, again_ns, wrong_bit: None } => (Some(due_ns), again_ns, frame),
            Fate::Arrives { due_ns, again_ns, wrong_bit: Some(bit) } => {
                (Some(due_ns), again_ns, with_wrong_bit(&frame, bit))
            }
        };
        [due_ns, again_ns].into_iter().flatten().map(move |due| (due, frame.clone()))
    }
}

/// Behind the Ethernet header, so that the frame still arrives somewhere.
fn with_wrong_bit(frame: &Bytes, bit: u64) -> Bytes {
    let mut copy = frame.to_vec();
    let payload_bits = 8 * (copy.len() - HEADER_BYTES) as u64;
    if let Some(at) = bit.checked_rem(payload_bits) {
        copy[HEADER_BYTES + (at / 8) as usize] ^= 1 << (at % 8);
    }
    copy.into()
}

impl Lane {
    /// Until when frames that were accepted are still leaving.
    pub fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns
    }

    /// Takes a frame. `silent_from_ns` is the earliest time at which the medium is free for this end.
    pub fn send(
        &mut self,
        now_ns: u64,
        silent_from_ns: u64,
        frame: &[u8],
        settings: &Settings,
        rng: &mut Rng,
    ) -> Fate {
        let wire_bytes = settings.wire_bytes(frame.len());
        self.forget_departed(now_ns);
        if let Some(lost) = self.refusal(now_ns, frame.len(), wire_bytes, settings) {
            *lost += 1;
            return Fate::Lost;
        }
        let begins_ns = now_ns.max(self.busy_until_ns).max(silent_from_ns);
        let leaves_ns = begins_ns + settings.time_on_wire_ns(wire_bytes);
        self.busy_until_ns = leaves_ns;
        self.queue.push_back((leaves_ns, wire_bytes));
        self.queued_bytes += wire_bytes;
        self.counts.frames += 1;
        self.counts.bytes += wire_bytes;
        if is_storage(frame) {
            self.counts.storage_frames += 1;
            self.counts.storage_bytes += wire_bytes;
        }
        // A frame that is lost on the wire has taken its time there all the same.
        if self.is_lost(now_ns, frame, settings, rng) {
            self.counts.lost_chance += 1;
            return Fate::Lost;
        }
        self.arrive(leaves_ns + settings.delay_ns, wire_bytes, settings, rng)
    }

    fn forget_departed(&mut self, now_ns: u64) {
        while let Some((leaves_ns, bytes)) = self.queue.front().copied() {
            if leaves_ns > now_ns {
                break;
            }
            self.queued_bytes -= bytes;
            self.queue.pop_front();
        }
    }

    /// Why the frame does not even get onto the wire: the count to raise.
    fn refusal(
        &mut self,
        now_ns: u64,
        frame_bytes: usize,
        wire_bytes: u64,
        settings: &Settings,
    ) -> Option<&mut u64> {
        if settings.is_down {
            return Some(&mut self.counts.lost_down);
        }
        if frame_bytes > settings.mtu as usize + HEADER_BYTES {
            return Some(&mut self.counts.lost_mtu);
        }
        // What is being sent waits no more.
        let waiting = self.queued_bytes - self.queue.front().map_or(0, |(_, bytes)| *bytes);
        if !self.queue.is_empty() && waiting + wire_bytes > settings.queue_bytes {
            return Some(&mut self.counts.lost_queue);
        }
        (!self.policer_permits(now_ns, wire_bytes, settings))
            .then_some(&mut self.counts.lost_policer)
    }

    fn policer_permits(&mut self, now_ns: u64, wire_bytes: u64, settings: &Settings) -> bool {
        let Some(rate) = settings.police_bits_per_s else { return true };
        let burst = settings.police_burst_bytes as f64;
        let passed_ns = now_ns.saturating_sub(self.used_at_ns);
        self.used = (self.used - passed_ns as f64 * rate as f64 / 8e9).max(0.0);
        self.used_at_ns = now_ns;
        let permits = self.used + wire_bytes as f64 <= burst;
        if permits {
            self.used += wire_bytes as f64;
        }
        permits
    }

    fn is_lost(&mut self, now_ns: u64, frame: &[u8], settings: &Settings, rng: &mut Rng) -> bool {
        let crowded =
            settings.crowd_loss_ppm > 0 && self.is_crowded(now_ns, frame, settings.crowd_from);
        let long_enough = frame.len() >= settings.loss_from_bytes as usize + HEADER_BYTES;
        (long_enough && rng.strikes(settings.loss_ppm))
            || (crowded && rng.strikes(settings.crowd_loss_ppm))
    }

    /// Whether at least this many senders use the wire now.
    fn is_crowded(&mut self, now_ns: u64, frame: &[u8], from: u32) -> bool {
        let sender: [u8; 6] = std::array::from_fn(|index| frame[6 + index]);
        self.senders
            .retain(|(one, at_ns)| *one != sender && now_ns.saturating_sub(*at_ns) < CROWD_NS);
        if self.senders.len() == CROWD_MAX {
            self.senders.remove(0);
        }
        self.senders.push((sender, now_ns));
        self.senders.len() >= from as usize
    }

    fn arrive(
        &mut self,
        on_time_ns: u64,
        wire_bytes: u64,
        settings: &Settings,
        rng: &mut Rng,
    ) -> Fate {
        let mut due_ns = on_time_ns;
        if settings.jitter_ns > 0 {
            due_ns += rng.below(settings.jitter_ns + 1);
        }
        if rng.strikes(settings.reorder_ppm) {
            self.counts.reordered += 1;
            let length_ns = settings.time_on_wire_ns(wire_bytes.max(FRAME_BYTES_MIN as u64));
            due_ns += (REORDER_LENGTHS * length_ns).max(100_000);
        }
        let duplicate = rng.strikes(settings.duplicate_ppm);
        let wrong_bit = rng.strikes(settings.corrupt_ppm).then(|| rng.next());
        self.counts.duplicated += u64::from(duplicate);
        self.counts.corrupted += u64::from(wrong_bit.is_some());
        Fate::Arrives { due_ns, again_ns: duplicate.then_some(due_ns + 1), wrong_bit }
    }
}
