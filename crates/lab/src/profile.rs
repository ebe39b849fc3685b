//! Networks that are known by name.

use super::fabric::Settings;
use super::units;
use covey_io::os::tap::MTU_MAX;
use covey_tune::wire::{TCP_HEADER_BYTES, Wire};
use serde::{Deserialize, Serialize};

/// A kind of network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// As in `covey lab up --link NAME`.
    pub name: String,
    /// Bits per second on the wire; `None` is as fast as this machine.
    pub bits_per_s: Option<u64>,
    /// One way of a one-byte TCP message between two programs on one cable, both hosts' work
    /// included.
    pub latency_ns: u64,
    /// What a switch adds, beside receiving the frame whole.
    pub switch_latency_ns: u64,
    /// How many bytes wait at a port of a switch.
    pub queue_bytes: u64,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Bytes on the wire beside a frame's own.
    pub overhead_bytes: u32,
    /// The wire's own unit, for which the overhead is paid; 0 is the frame.
    pub segment_bytes: u32,
    /// Where the numbers come from.
    pub about: String,
}

struct Known {
    name: &'static str,
    bits_per_s: Option<u64>,
    latency_us: u64,
    switch_latency_us: u64,
    queue_kib: u64,
    mtu: u32,
    overhead_bytes: u32,
    segment_bytes: u32,
    about: &'static str,
}

/// How many packets a host keeps for its own card before it drops some: Linux' own default.
pub const HOST_QUEUE_PACKETS: u32 = 1000;

/// Preamble 8, check sequence 4, gap 12.
const ETHERNET_OVERHEAD: u32 = 24;

const KNOWN: [Known; 6] = [
    Known {
        name: "fast-ethernet",
        bits_per_s: Some(100_000_000),
        latency_us: 57,
        switch_latency_us: 4,
        queue_kib: 64,
        mtu: 1500,
        overhead_bytes: ETHERNET_OVERHEAD,
        segment_bytes: 0,
        about: "Ethernet at 100 Mbit/s, full duplex; the latency of two Pentium III hosts of 2001",
    },
    Known {
        name: "gigabit",
        bits_per_s: Some(1_000_000_000),
        latency_us: 40,
        switch_latency_us: 3,
        queue_kib: 128,
        mtu: 1500,
        overhead_bytes: ETHERNET_OVERHEAD,
        segment_bytes: 0,
        about: "Ethernet at 1 Gbit/s, full duplex",
    },
    Known {
        name: "myrinet2000",
        bits_per_s: Some(2_000_000_000),
        latency_us: 25,
        switch_latency_us: 1,
        queue_kib: 256,
        mtu: 9000,
        overhead_bytes: 8,
        segment_bytes: 0,
        about: "Myrinet 2000 at 2 Gbit/s with IP over GM",
    },
    Known {
        name: "infiniband-sdr",
        bits_per_s: Some(8_000_000_000),
        latency_us: 20,
        switch_latency_us: 1,
        queue_kib: 512,
        mtu: MTU_MAX - 1,
        overhead_bytes: 26,
        segment_bytes: 2048,
        about: "InfiniBand 4x SDR, 10 Gbit/s less 8b/10b, IPoIB connected",
    },
    Known {
        name: "10gbe",
        bits_per_s: Some(10_000_000_000),
        latency_us: 20,
        switch_latency_us: 1,
        queue_kib: 1024,
        mtu: 9000,
        overhead_bytes: ETHERNET_OVERHEAD,
        segment_bytes: 0,
        about: "Ethernet at 10 Gbit/s with jumbo frames",
    },
    Known {
        name: "loopback",
        bits_per_s: None,
        latency_us: 0,
        switch_latency_us: 0,
        queue_kib: 16384,
        mtu: MTU_MAX - 1,
        overhead_bytes: 0,
        segment_bytes: 0,
        about: "no rate and no delay: as fast as this machine moves frames",
    },
];

/// The names of all profiles.
pub fn names() -> Vec<&'static str> {
    KNOWN.iter().map(|known| known.name).collect()
}

impl Profile {
    /// The profile of that name.
    pub fn named(name: &str) -> Result<Profile, String> {
        let known = KNOWN.iter().find(|known| known.name == name);
        known.map(Profile::from_known).ok_or_else(|| {
            format!("no profile is called `{name}`; there are {}", names().join(", "))
        })
    }

    /// One way of a cable as this profile has it, before any delay.
    pub fn settings(&self, queue_bytes: u64) -> Settings {
        Settings {
            bits_per_s: self.bits_per_s,
            delay_ns: 0,
            jitter_ns: 0,
            queue_bytes,
            mtu: self.mtu,
            overhead_bytes: self.overhead_bytes,
            segment_bytes: self.segment_bytes,
            loss_ppm: 0,
            loss_from_bytes: 0,
            crowd_loss_ppm: 0,
            crowd_from: 2,
            corrupt_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            police_bits_per_s: None,
            police_burst_bytes: 32 << 10,
            half_duplex: false,
            is_down: false,
        }
    }

    /// What the host before a card keeps waiting for it, in bytes on the wire.
    pub fn host_queue_bytes(&self) -> u64 {
        let longest = u64::from(self.mtu + self.overhead_bytes) + 14;
        (longest * u64::from(HOST_QUEUE_PACKETS)).min(64 << 20)
    }

    /// The TCP payload that a long transfer can reach, in bits per second: what is left of each
    /// packet after the headers of IP and TCP.
    pub fn tcp_bits_per_s(&self) -> Option<f64> {
        let frame = self.mtu as usize + super::fabric::HEADER_BYTES;
        let on_wire = self.settings(0).wire_bytes(frame) as f64;
        let payload = f64::from(self.mtu) - TCP_HEADER_BYTES as f64;
        self.bits_per_s.map(|rate| rate as f64 * payload / on_wire)
    }

    /// The wire of theory; none where there is no rate.
    pub fn wire(&self) -> Option<Wire> {
        let frame = self.mtu as usize + super::fabric::HEADER_BYTES;
        let settings = self.settings(0);
        // A wire with units of its own pays for each; the longest packet has the most of them.
        let overhead_bytes = settings.wire_bytes(frame) - u64::from(self.mtu);
        let least_bytes = settings.wire_bytes(0);
        let rate = |bits: u64| bits as f64;
        self.bits_per_s.map(rate).map(|bits_per_s| Wire {
            bits_per_s,
            mtu: self.mtu.into(),
            overhead_bytes,
            least_bytes,
        })
    }

    /// The delay at each node's end of a cable that makes up this profile's latency, when this
    /// machine alone takes `floor_ns`. The answer's second half says whether it can be had.
    pub fn end_delay_ns(&self, floor_ns: u64) -> (u64, bool) {
        // One byte of TCP with timestamps, in the least frame.
        let settings = self.settings(0);
        let small = super::fabric::HEADER_BYTES + TCP_HEADER_BYTES as usize + 1;
        let small_ns = settings.time_on_wire_ns(settings.wire_bytes(small));
        let wanted = self.latency_ns.saturating_sub(small_ns);
        (wanted.saturating_sub(floor_ns) / 2, wanted >= floor_ns || self.latency_ns == 0)
    }

    fn from_known(known: &Known) -> Profile {
        Profile {
            name: known.name.to_string(),
            bits_per_s: known.bits_per_s,
            latency_ns: known.latency_us * 1000,
            switch_latency_ns: known.switch_latency_us * 1000,
            queue_bytes: known.queue_kib << 10,
            mtu: known.mtu,
            overhead_bytes: known.overhead_bytes,
            segment_bytes: known.segment_bytes,
            about: known.about.to_string(),
        }
    }

    /// One line of what it is.
    pub fn summary(&self) -> String {
        let latency = match self.latency_ns {
            0 => "this machine's latency".to_string(),
            ns => format!("latency {}", units::time_text(ns)),
        };
        let rate = match self.bits_per_s {
            None => "no rate limit".to_string(),
            rate => units::rate_text(rate),
        };
        format!("{rate}, {latency}, mtu {}", self.mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_rates_leave_what_the_textbooks_say_for_tcp() {
        let tcp = |name: &str| Profile::named(name).unwrap().tcp_bits_per_s().unwrap() / 1e6;
        assert!((tcp("fast-ethernet") - 94.148).abs() < 0.001, "{}", tcp("fast-ethernet"));
        assert!((tcp("gigabit") - 941.48).abs() < 0.01, "{}", tcp("gigabit"));
        assert_eq!(Profile::named("loopback").unwrap().tcp_bits_per_s(), None);
        for name in names() {
            let profile = Profile::named(name).unwrap();
            let by_wire = profile.wire().map(|wire| wire.tcp_bits_per_s());
            assert_eq!(by_wire, profile.tcp_bits_per_s(), "{name}");
        }
        assert_eq!(Profile::named("gigabit").unwrap().wire(), Some(Wire::ethernet(1e9, 1500)));
    }

    #[test]
    fn a_latency_below_the_machines_own_is_told() {
        let profile = Profile::named("fast-ethernet").unwrap();
        // 91 bytes at 100 Mbit/s take 7.28 us of the 57.
        assert_eq!(profile.end_delay_ns(20_000), ((57_000 - 7_280 - 20_000) / 2, true));
        assert_eq!(profile.end_delay_ns(60_000), (0, false));
        assert_eq!(Profile::named("loopback").unwrap().end_delay_ns(60_000), (0, true));
    }

    #[test]
    fn an_unknown_profile_is_answered_with_the_known_ones() {
        let error = Profile::named("token-ring").unwrap_err();
        assert!(error.contains("token-ring") && error.contains("myrinet2000"), "{error}");
    }
}
