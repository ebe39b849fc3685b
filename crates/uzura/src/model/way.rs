//! How the host and its card work together: what the paper weighs in section 4.2.

use super::pipeline::Poll;
use super::{Nic, transfer_ps};

/// How the card learns that there is something to send (table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The host writes a register. The paper's choice.
    Register,
    /// The card polls the host's memory, over the bus.
    Poll,
}

/// How the host learns that something has come (table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It polls the payload itself. The paper's choice for messages.
    Payload,
    /// It polls a flag that the card writes after the payload.
    Flag,
    /// It polls a register of the card, over the bus.
    Register,
    /// The card interrupts it.
    Interrupt,
}

/// How the card finds physical addresses (section 4.2.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Translation {
    /// It needs none, as the paper's predictions do.
    None,
    /// All are in its own table.
    Near,
    /// All are in the host's table.
    Far,
    /// So much memory is used evenly; what the near table holds is found there.
    Of {
        /// Bytes in use.
        working_set_bytes: u64,
    },
}

impl Translation {
    /// The share of lookups that go to the host's table, in thousandths.
    pub fn far_per_mille(self, nic: &Nic) -> u64 {
        match self {
            Translation::None | Translation::Near => 0,
            Translation::Far => 1000,
            Translation::Of { working_set_bytes } => {
                let (all, near) = (working_set_bytes.max(1), nic.near_reach_bytes());
                let far = u128::from(all.saturating_sub(near)) * 1000 / u128::from(all);
                u64::try_from(far).unwrap_or(1000)
            }
        }
    }
}

/// All choices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// To the card.
    pub start: Start,
    /// To the host.
    pub notice: Notice,
    /// Addresses.
    pub translation: Translation,
    /// Whether the register write that starts a block holds the bus, too. The paper leaves it out.
    pub counts_requests: bool,
}

impl Way {
    /// What the paper chose, and predicts with.
    pub const fn paper() -> Way {
        Way {
            start: Start::Register,
            notice: Notice::Payload,
            translation: Translation::None,
            counts_requests: false,
        }
    }

    /// Until the card knows that there is something to send.
    pub(super) fn start_ps(&self, nic: &Nic) -> u64 {
        match self.start {
            Start::Register => nic.start_register_ps,
            Start::Poll => nic.start_poll_ps,
        }
    }

    /// What is done again and again on the buses of both hosts.
    pub(super) fn polls(&self, nic: &Nic, source: usize, destination: usize) -> Vec<Poll> {
        let both = [self.source_poll(nic, source), self.destination_poll(nic, destination)];
        both.into_iter().flatten().collect()
    }

    /// What the card does again and again on the source's bus.
    fn source_poll(&self, nic: &Nic, resource: usize) -> Option<Poll> {
        // The next poll goes out when the answer to the last one is there.
        let hold_ps = nic.bus_read_extra_ps + transfer_ps(nic.word_bytes, nic.bus_bytes_per_s);
        let every_ps = nic.start_poll_ps.saturating_sub(hold_ps);
        (self.start == Start::Poll).then_some(Poll { resource, every_ps, hold_ps })
    }

    /// What the host does again and again on the destination's bus.
    fn destination_poll(&self, nic: &Nic, resource: usize) -> Option<Poll> {
        let hold_ps = nic.word_read_ps;
        let every_ps = nic.register_poll_ps.saturating_sub(hold_ps);
        (self.notice == Notice::Register).then_some(Poll { resource, every_ps, hold_ps })
    }
}

/// What moving bytes between a host and its card takes, both ways of doing it (section 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// To the card: the card reads the host's memory.
    pub dma_in_ps: u64,
    /// To the card: the host writes registers.
    pub register_in_ps: u64,
    /// From the card: the card writes the host's memory.
    pub dma_out_ps: u64,
    /// From the card: the host reads registers. At least this: no read overtakes another one, and
    /// here only the bus is counted for all but the first.
    pub register_out_ps: u64,
}

/// Compares both for a length. Figure 5 is lost; this follows from tables 3 to 5.
pub fn access(nic: &Nic, bytes: u64) -> Access {
    let beyond = transfer_ps(bytes.saturating_sub(super::CELL_BYTES), nic.bus_bytes_per_s);
    let words = bytes.div_ceil(nic.word_bytes.max(1)).saturating_sub(1);
    Access {
        dma_in_ps: nic.dma_read_ps.saturating_add(beyond),
        register_in_ps: words
            .saturating_mul(nic.word_write_ps)
            .saturating_add(nic.start_register_ps),
        dma_out_ps: nic.dma_write_ps.saturating_add(beyond),
        register_out_ps: words
            .saturating_mul(nic.word_read_ps)
            .saturating_add(nic.register_poll_ps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dma_is_faster_than_registers_at_every_size() {
        for bytes in (0..24).map(|power| 1 << power) {
            let found = access(&Nic::paper(), bytes);
            assert!(found.dma_in_ps < found.register_in_ps, "{bytes}: {found:?}");
            assert!(found.dma_out_ps < found.register_out_ps, "{bytes}: {found:?}");
        }
    }

    #[test]
    fn the_near_table_is_enough_for_2_gib() {
        let nic = Nic::paper();
        let share = |bytes| Translation::Of { working_set_bytes: bytes }.far_per_mille(&nic);
        assert_eq!(share(0), 0);
        assert_eq!(share(2 << 30), 0);
        assert_eq!(share(4 << 30), 500);
        assert_eq!(share(u64::MAX), 999);
        let larger = Nic { table_bytes: 8 << 20, ..nic };
        assert_eq!(Translation::Of { working_set_bytes: 4 << 30 }.far_per_mille(&larger), 0);
    }
}
