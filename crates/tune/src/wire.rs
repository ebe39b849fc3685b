//! What a wire allows: the line of theory beside a measurement.

use serde::{Deserialize, Serialize};

/// IP and TCP headers with timestamps.
pub const TCP_HEADER_BYTES: u64 = 20 + 20 + 12;

/// A packet network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// Bits per second.
    pub bits_per_s: f64,
    /// Longest packet in bytes.
    pub mtu: u64,
    /// Bytes on the wire for each packet beside its own: link header, check sequence, preamble, gap.
    pub overhead_bytes: u64,
    /// The least a packet takes on the wire, all included.
    pub least_bytes: u64,
}

impl Wire {
    /// Full-duplex Ethernet: header 14, check sequence 4, preamble 8, gap 12; frames of 64 at least.
    pub fn ethernet(bits_per_s: f64, mtu: u64) -> Wire {
        Wire { bits_per_s, mtu, overhead_bytes: 38, least_bytes: 84 }
    }

    /// TCP payload of one packet.
    pub fn payload_bytes(&self) -> u64 {
        self.mtu.saturating_sub(TCP_HEADER_BYTES).max(1)
    }

    /// The TCP payload that a long transfer can reach, in bits per second.
    pub fn tcp_bits_per_s(&self) -> f64 {
        let on_wire = self.mtu + self.overhead_bytes;
        self.bits_per_s * self.payload_bytes() as f64 / on_wire as f64
    }

    /// How long a block of TCP payload occupies the wire, in seconds.
    pub fn time_s(&self, bytes: u64) -> f64 {
        let packet =
            |payload: u64| (payload + TCP_HEADER_BYTES + self.overhead_bytes).max(self.least_bytes);
        let full = bytes / self.payload_bytes();
        let rest = bytes % self.payload_bytes();
        let mut on_wire = full * packet(self.payload_bytes());
        if rest > 0 {
            on_wire += packet(rest);
        }
        on_wire as f64 * 8.0 / self.bits_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_ethernet_and_gigabit_have_the_rates_of_the_textbook() {
        assert!((Wire::ethernet(100e6, 1500).tcp_bits_per_s() / 1e6 - 94.148).abs() < 0.001);
        assert!((Wire::ethernet(1e9, 1500).tcp_bits_per_s() / 1e6 - 941.48).abs() < 0.01);
        assert!((Wire::ethernet(1e9, 9000).tcp_bits_per_s() / 1e6 - 990.04).abs() < 0.01);
    }

    #[test]
    fn one_byte_takes_a_whole_frame() {
        let wire = Wire::ethernet(100e6, 1500);
        // 1 + 52 + 38 bytes.
        assert!((wire.time_s(1) - 91.0 * 8.0 / 100e6).abs() < 1e-12);
        assert_eq!(wire.time_s(0), 0.0);
        assert!((wire.time_s(2 * 1448) - 2.0 * 1538.0 * 8.0 / 100e6).abs() < 1e-12);
    }
}
