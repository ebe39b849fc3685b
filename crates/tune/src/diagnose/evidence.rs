//! What is known of a link before anything is concluded.

use crate::curve::{Curve, Point};
use serde::{Deserialize, Serialize};

/// What was measured of one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Blocks to and fro.
    pub curve: Curve,
    /// A block that never passed.
    pub stalled: Option<Stall>,
    /// Long transfers, bits per second: there, back.
    pub streams: Option<[f64; 2]>,
    /// The same two at once.
    pub both_at_once: Option<[f64; 2]>,
    /// TCP payload of a full segment.
    pub segment_bytes: u64,
    /// What this machine moves without any wire, where that is known.
    pub machine_bits_per_s: Option<f64>,
    /// What links of the same kind carry.
    pub expected_bits_per_s: Option<f64>,
    /// Share of the time in which programs waited for a CPU.
    pub cpu_pressure: Option<f64>,
    /// How many CPUs programs used that belong to neither end nor to the measurement.
    #[serde(default)]
    pub outside_cpus: Option<f64>,
    /// Share of the CPUs' time that a hypervisor gave to others.
    #[serde(default)]
    pub steal: Option<f64>,
    /// The end that asked and the one that answered, as far as they told.
    #[serde(default)]
    pub ends: Vec<End>,
    /// Addresses that more than one card says it has.
    #[serde(default)]
    pub taken: Vec<Taken>,
    /// Long transfers of which little is under way, measured where trains lose segments.
    #[serde(default)]
    pub held: Option<Held>,
    /// Blocks written as many programs write them, where that was asked for.
    #[serde(default)]
    pub written: Option<Written>,
}

/// A block that never passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// Its size.
    pub bytes: u64,
    /// The longest that did pass.
    pub passed_bytes: u64,
    /// On a new connection the one passed again and the other did not.
    pub confirmed: bool,
}

/// An end as it tells of itself. What it cannot know is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// The host's name.
    pub name: String,
    /// The card through which the measurement goes.
    pub card: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Largest packet in bytes.
    pub mtu: u32,
    /// What the card says it negotiated, in bits per second.
    pub speed_bits_per_s: Option<f64>,
    /// It negotiated half duplex.
    pub is_half_duplex: bool,
    /// Features that somebody has switched off, by the kernel's names.
    pub features_off: Vec<String>,
    /// The greatest receive buffer that TCP may use, in bytes.
    pub receive_max_bytes: Option<u64>,
    /// The greatest send buffer.
    pub send_max_bytes: Option<u64>,
    /// Share of the time of its long transfer in which the other end's receive window kept it waiting.
    pub window_limited: f64,
    /// The same of its own send buffer.
    pub buffer_limited: f64,
    /// How many CPUs its other programs used.
    pub busy_cpus: f64,
    /// Which of them most.
    pub busiest: Vec<String>,
    /// Share of the time in which the measuring program itself was ready and had no CPU.
    pub waited: f64,
}

/// An address that somebody else has as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The address.
    pub address: String,
    /// The hardware addresses of all cards that say so.
    pub macs: Vec<String>,
}

/// Long transfers, there and back, of which little is under way at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Never more than so many bytes.
    pub window_bytes: u64,
    /// Rates there and back.
    pub bits_per_s: [f64; 2],
    /// Segments sent, both ways.
    pub segments: u64,
    /// How many of them again.
    pub retransmits: u64,
}

/// Blocks whose header and body were written apart, without TCP_NODELAY.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// Each size.
    pub points: Vec<Point>,
}
