//! Every number of the model, and where it comes from.

use super::Nic;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It stands there in the paper.
    Paper(&'static str),
    /// It follows from numbers of the paper.
    Derived(&'static str),
    /// The paper does not have it.
    Assumed(&'static str),
    /// It was changed.
    Changed,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Picoseconds.
    Picoseconds,
    /// Bytes per second.
    BytesPerSecond,
    /// Bits per second.
    BitsPerSecond,
    /// Bytes.
    Bytes,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// What it is.
    pub name: &'static str,
    /// How much.
    pub value: u64,
    /// Of what.
    pub unit: Unit,
    /// From where.
    pub origin: Origin,
}

type Get = fn(&mut Nic) -> &mut u64;

/// Name, unit, origin, place.
const ALL: [(&str, Unit, Origin, Get); 27] = {
    use Origin::{Assumed, Derived, Paper};
    use Unit::{BitsPerSecond, Bytes, BytesPerSecond, Picoseconds};
    [
        ("start by a register", Picoseconds, Paper("table 4"), |n| &mut n.start_register_ps),
        ("start by polling", Picoseconds, Paper("table 4"), |n| &mut n.start_poll_ps),
        ("DMA, host to card", Picoseconds, Paper("table 5"), |n| &mut n.dma_read_ps),
        ("sender's FPGA", Picoseconds, Paper("table 2"), |n| &mut n.fpga_send_ps),
        ("sender's PL4", Picoseconds, Paper("table 2"), |n| &mut n.pl4_send_ps),
        ("both MACs", Picoseconds, Paper("table 2"), |n| &mut n.mac_ps),
        ("receiver's PL4", Picoseconds, Paper("table 2"), |n| &mut n.pl4_receive_ps),
        ("receiver's FPGA", Picoseconds, Paper("table 2"), |n| &mut n.fpga_receive_ps),
        ("DMA, card to host", Picoseconds, Paper("table 5"), |n| &mut n.dma_write_ps),
        ("interrupt", Picoseconds, Paper("section 3.2.3"), |n| &mut n.interrupt_ps),
        ("register polled", Picoseconds, Paper("table 4"), |n| &mut n.register_poll_ps),
        ("flag written", Picoseconds, Paper("table 4"), |n| &mut n.flag_ps),
        ("near lookup", Picoseconds, Paper("section 4.2.4"), |n| &mut n.near_ps),
        ("far lookup", Picoseconds, Paper("section 4.2.4"), |n| &mut n.far_ps),
        ("bus", BytesPerSecond, Paper("section 3.1"), |n| &mut n.bus_bytes_per_s),
        (
            "bus, beside the bytes read",
            Picoseconds,
            Derived(
                "table 6's 4.02 us less 4096 bytes at 1066 MB/s; 4.02 rests on the lost figure 6",
            ),
            |n| &mut n.bus_read_extra_ps,
        ),
        (
            "bus, beside the bytes written",
            Picoseconds,
            Derived(
                "table 6's 3.89 us less 4096 bytes at 1066 MB/s; 3.89 rests on the lost figure 6",
            ),
            |n| &mut n.bus_write_extra_ps,
        ),
        ("a word written", Picoseconds, Paper("table 3"), |n| &mut n.word_write_ps),
        ("a word read", Picoseconds, Paper("table 3"), |n| &mut n.word_read_ps),
        ("a word", Bytes, Assumed("the paper does not say how long its words are"), |n| {
            &mut n.word_bytes
        }),
        ("PL4", BytesPerSecond, Paper("section 3.1"), |n| &mut n.pl4_bytes_per_s),
        ("link", BitsPerSecond, Paper("section 3.1"), |n| &mut n.link_bits_per_s),
        (
            "a frame beside its payload",
            Bytes,
            Assumed("Ethernet: preamble 8, header 14, checksum 4, gap 12"),
            |n| &mut n.frame_extra_bytes,
        ),
        ("MTU", Bytes, Paper("section 6.2"), |n| &mut n.mtu_bytes),
        ("near table", Bytes, Paper("section 3.1"), |n| &mut n.table_bytes),
        ("a table entry", Bytes, Derived("section 4.2.4: 4 MB are enough for 2 GB"), |n| {
            &mut n.entry_bytes
        }),
        ("a page", Bytes, Paper("section 4.2.4"), |n| &mut n.page_bytes),
    ]
};

impl Nic {
    /// Every number, and where it comes from.
    pub fn components(&self) -> Vec<Component> {
        let (mut ours, mut paper) = (self.clone(), Nic::paper());
        ALL.iter()
            .map(|(name, unit, origin, get)| {
                let (value, original) = (*get(&mut ours), *get(&mut paper));
                let origin = if value == original { *origin } else { Origin::Changed };
                Component { name, value, unit: *unit, origin }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Notice, Start, Translation, Way, access, message, rdma};

    /// Everything that the model says of a card.
    fn figures(nic: &Nic) -> Vec<f64> {
        let paper = Way::paper();
        let ways = [
            paper,
            Way { start: Start::Poll, notice: Notice::Flag, ..paper },
            Way { notice: Notice::Register, translation: Translation::Near, ..paper },
            Way { notice: Notice::Interrupt, translation: Translation::Far, ..paper },
            Way { translation: Translation::Of { working_set_bytes: 4 << 30 }, ..paper },
            Way { counts_requests: true, ..paper },
        ];
        let mut all = Vec::new();
        for way in &ways {
            for bytes in [64, 20_000] {
                let (message, rdma) =
                    (message(nic, way, bytes).unwrap(), rdma(nic, way, bytes).unwrap());
                all.extend([message.arrival_ps as f64, rdma.bytes_per_s, rdma.block_ps as f64]);
            }
        }
        let moved = access(nic, 256);
        let times =
            [moved.dma_in_ps, moved.register_in_ps, moved.dma_out_ps, moved.register_out_ps];
        all.extend(times.map(|time| time as f64));
        all
    }

    #[test]
    fn every_component_moves_some_figure() {
        let before = figures(&Nic::paper());
        for (name, _, _, get) in ALL {
            let mut nic = Nic::paper();
            *get(&mut nic) *= 2;
            assert_ne!(figures(&nic), before, "{name} changes nothing");
        }
    }

    #[test]
    fn what_was_changed_is_said() {
        let all = Nic::paper().components();
        assert!(all.iter().all(|one| one.origin != Origin::Changed));
        let wide = Nic::paper().on_pci_express(3, 8).unwrap().components();
        let changed: Vec<&str> =
            wide.iter().filter(|one| one.origin == Origin::Changed).map(|one| one.name).collect();
        assert_eq!(changed, ["bus"]);
    }
}
