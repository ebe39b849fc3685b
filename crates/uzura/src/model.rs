//! The timing model of the UZURA network card.
//!
//! ```text
//!   host ──bus──► FPGA ──PL4──► MAC ══ link ══ MAC ──PL4──► FPGA ──bus──► host
//!    start  read                                                   write  notice
//! ```
//!
//! Each part of the way is something that one unit holds at a time, for as long as its bytes take there,
//! and that passes its first bytes on after a time of its own. A [message] goes in cells of 64 bytes, the
//! length that the paper timed, and no part waits for the whole; [RDMA](rdma) goes in packets, and
//! each stage waits for all of one, as in the paper's figure 9. A discrete-event simulation
//! says when each unit is where, beside lookups and polls that want the same bus.
//!
//! [`Nic::components`] says of every number whether it is the paper's, follows from it, or is assumed.

mod components;
mod message;
mod pipeline;
mod rdma;
mod way;

pub use components::{Component, Origin, Unit};
pub use message::{Line, Message, message};
pub use rdma::{Rdma, Stage, rdma};
pub use way::{Access, Notice, Start, Translation, Way, access};

/// Bytes of the message whose parts the paper timed (table 5), its header included.
pub const CELL_BYTES: u64 = 64;
/// The longest message or block that is computed.
pub const BYTES_MAX: u64 = 1 << 30;

/// What a transfer of so many bytes takes at a rate, in picoseconds.
pub fn transfer_ps(bytes: u64, bytes_per_s: u64) -> u64 {
    let (bytes, rate) = (u128::from(bytes), u128::from(bytes_per_s.max(1)));
    u64::try_from((bytes * 1_000_000_000_000 + rate / 2) / rate).unwrap_or(u64::MAX)
}

/// A network card and the bus that it sits on. Times are in picoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// The host writes a register of the card (table 4).
    pub start_register_ps: u64,
    /// The card polls the host's memory (table 4).
    pub start_poll_ps: u64,
    /// The card reads a cell from the host's memory (table 5).
    pub dma_read_ps: u64,
    /// The sender's FPGA without PL4 (table 2).
    pub fpga_send_ps: u64,
    /// The sender's PL4 (table 2).
    pub pl4_send_ps: u64,
    /// Both MACs together, with the wire (table 2).
    pub mac_ps: u64,
    /// The receiver's PL4 (table 2).
    pub pl4_receive_ps: u64,
    /// The receiver's FPGA without PL4 (table 2).
    pub fpga_receive_ps: u64,
    /// The card writes a cell to the host's memory (table 5), where the host polls for it.
    pub dma_write_ps: u64,
    /// From an interrupt to its handler (section 3.2.3).
    pub interrupt_ps: u64,
    /// The host polls a register of the card (table 4).
    pub register_poll_ps: u64,
    /// The card writes a flag to the host's memory (table 4).
    pub flag_ps: u64,
    /// A lookup in the card's own table (section 4.2.4).
    pub near_ps: u64,
    /// A lookup in the host's table, over the bus (section 4.2.4).
    pub far_ps: u64,
    /// The bus, at its best (section 3.1).
    pub bus_bytes_per_s: u64,
    /// What each packet holds the source's bus for beside its bytes. Solved from table 6.
    pub bus_read_extra_ps: u64,
    /// The same of the destination's bus.
    pub bus_write_extra_ps: u64,
    /// The bus while the host writes a word to a register (table 3).
    pub word_write_ps: u64,
    /// The bus while the host reads a word from a register (table 3).
    pub word_read_ps: u64,
    /// Bytes of such a word.
    pub word_bytes: u64,
    /// Between FPGA and MAC (section 3.1); 0 where the MAC lies in the FPGA.
    pub pl4_bytes_per_s: u64,
    /// The link.
    pub link_bits_per_s: u64,
    /// What a frame is longer on the link than its payload.
    pub frame_extra_bytes: u64,
    /// The longest payload of a frame.
    pub mtu_bytes: u64,
    /// The near table.
    pub table_bytes: u64,
    /// One of its entries.
    pub entry_bytes: u64,
    /// What an entry is for.
    pub page_bytes: u64,
}

impl Nic {
    /// The paper's: PCI-X at 133 MHz, 10 Gigabit Ethernet, an external MAC.
    pub const fn paper() -> Nic {
        Nic {
            start_register_ps: 780_000,
            start_poll_ps: 760_000,
            dma_read_ps: 760_000,
            fpga_send_ps: 90_000,
            pl4_send_ps: 160_000,
            mac_ps: 1_560_000,
            pl4_receive_ps: 350_000,
            fpga_receive_ps: 150_000,
            dma_write_ps: 180_000,
            interrupt_ps: 4_990_000,
            register_poll_ps: 910_000,
            flag_ps: 180_000,
            near_ps: 40_000,
            far_ps: 320_000,
            bus_bytes_per_s: 1_066_000_000,
            // 4.02 and 3.89 us for 4096 bytes, of which the bus at its best takes 3.842402.
            bus_read_extra_ps: 4_020_000 - 3_842_402,
            bus_write_extra_ps: 3_890_000 - 3_842_402,
            word_write_ps: 97_500,
            word_read_ps: 90_000,
            word_bytes: 8,
            pl4_bytes_per_s: 1_360_000_000,
            link_bits_per_s: 10_000_000_000,
            frame_extra_bytes: 38,
            mtu_bytes: 4096,
            table_bytes: 4 << 20,
            entry_bytes: 8,
            page_bytes: 4096,
        }
    }

    /// The same card on PCI Express: generation 1 to 5, 1 to 16 lanes. The rate is the lanes' after
    /// their line code, less 24 bytes for each packet of 256; all latencies stay.
    pub fn on_pci_express(self, generation: u32, lanes: u32) -> Result<Nic, String> {
        // Bytes per second of a lane, from 2.5, 5, 8, 16 and 32 GT/s.
        let lane = match generation {
            1 => 250_000_000u64,
            2 => 500_000_000,
            3 => 984_615_385,
            4 => 1_969_230_769,
            5 => 3_938_461_538,
            _ => return Err(format!("PCI Express has generations 1 to 5 here, not {generation}")),
        };
        if !matches!(lanes, 1 | 2 | 4 | 8 | 16) {
            return Err(format!("PCI Express has 1, 2, 4, 8 or 16 lanes, not {lanes}"));
        }
        Ok(Nic { bus_bytes_per_s: lane * u64::from(lanes) * 256 / 280, ..self })
    }

    /// The same card with its MAC inside the FPGA: the time of both PL4s goes (section 6.1); how much
    /// the MACs get faster the paper does not say.
    pub fn with_mac_inside(self) -> Nic {
        Nic { pl4_send_ps: 0, pl4_receive_ps: 0, pl4_bytes_per_s: 0, ..self }
    }

    /// Memory that the near table covers.
    pub fn near_reach_bytes(&self) -> u64 {
        (self.table_bytes / self.entry_bytes.max(1)).saturating_mul(self.page_bytes)
    }

    /// Whether it can be computed with: no rate and no length may be 0.
    pub fn check(&self) -> Result<(), String> {
        let positive = [
            ("the bus's rate", self.bus_bytes_per_s),
            ("the link's rate", self.link_bits_per_s),
            ("the MTU", self.mtu_bytes),
            ("a word", self.word_bytes),
            ("a table entry", self.entry_bytes),
            ("a page", self.page_bytes),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(format!("{name} is 0, and must be more")),
            None => Ok(()),
        }
    }

    fn link_bytes_per_s(&self) -> u64 {
        (self.link_bits_per_s / 8).max(1)
    }
}

fn check_bytes(bytes: u64) -> Result<(), String> {
    if (1..=BYTES_MAX).contains(&bytes) {
        Ok(())
    } else {
        Err(format!("{bytes} bytes are outside the limits: 1 to {BYTES_MAX}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_solved_from_table_6_gives_table_6_again() {
        let nic = Nic::paper();
        let bus = transfer_ps(4096, nic.bus_bytes_per_s);
        assert_eq!(nic.bus_read_extra_ps + bus, 4_020_000);
        assert_eq!(nic.bus_write_extra_ps + bus, 3_890_000);
        assert_eq!(nic.near_reach_bytes(), 2 << 30, "section 4.2.4: 4 MB are for 2 GB");
    }

    #[test]
    fn a_wider_bus_is_faster_and_an_impossible_one_is_refused() {
        let rate = |generation, lanes| {
            Nic::paper().on_pci_express(generation, lanes).unwrap().bus_bytes_per_s
        };
        assert_eq!(rate(1, 8), 1_828_571_428);
        assert!(rate(3, 8) > rate(2, 8) && rate(2, 16) > rate(2, 8));
        let why = Nic::paper().on_pci_express(6, 8).unwrap_err();
        assert!(why.contains("1 to 5"), "{why}");
        assert!(Nic::paper().on_pci_express(3, 3).unwrap_err().contains("lanes"));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let nic = Nic { mtu_bytes: 0, ..Nic::paper() };
        assert_eq!(nic.check().unwrap_err(), "the MTU is 0, and must be more");
        assert!(check_bytes(0).unwrap_err().contains("1 to 1073741824"));
        assert_eq!(transfer_ps(u64::MAX, 0), u64::MAX);
    }
}
