//! The latency of a message: table 5, and what other choices make of it.

use super::pipeline::{Step, run};
use super::{CELL_BYTES, Nic, Notice, Start, Translation, Way, check_bytes, transfer_ps};

/// Cells that are simulated. Longer messages go on as evenly as these do.
const CELLS_MAX: u64 = 16 * 1024;

/// A part of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What happens.
    pub name: &'static str,
    /// What it takes for the first cell.
    pub time_ps: u64,
    /// What it takes in the paper, where the paper has it.
    pub paper_ps: Option<u64>,
}

/// One way of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its parts, in order.
    pub lines: Vec<Line>,
    /// Their sum: the first cell.
    pub first_cell_ps: u64,
    /// When the last cell has come.
    pub arrival_ps: u64,
}

const SOURCE: usize = 0;
const FPGA_SEND: usize = 1;
const PL4_SEND: usize = 2;
const LINK: usize = 3;
const PL4_RECEIVE: usize = 4;
const FPGA_RECEIVE: usize = 5;
const DESTINATION: usize = 6;

/// The latency of a message of so many bytes, its header included.
pub fn message(nic: &Nic, way: &Way, bytes: u64) -> Result<Message, String> {
    nic.check()?;
    check_bytes(bytes)?;
    let lines = lines(nic, way);
    let first_cell_ps = lines.iter().map(|line| line.time_ps).sum();
    let cells = bytes.div_ceil(CELL_BYTES);
    let shown = cells.min(CELLS_MAX);
    let ways: Vec<Vec<Step>> = (0..shown).map(|at| cell(nic, at, bytes)).collect();
    let polls = way.polls(nic, SOURCE, DESTINATION);
    // Polls end with what they wait for: they hold up only what comes after the first cell.
    let polls = if cells > 1 { &polls[..] } else { &[] };
    let left = run(&ways, polls, usize::MAX);
    let (first, last) = (left.first().copied().unwrap_or(0), left.last().copied().unwrap_or(0));
    let behind = u128::from(last - first) * u128::from(cells - 1) / u128::from(shown.max(2) - 1);
    let behind = u64::try_from(behind).unwrap_or(u64::MAX);
    Ok(Message { lines, first_cell_ps, arrival_ps: first_cell_ps + behind })
}

fn lines(nic: &Nic, way: &Way) -> Vec<Line> {
    let line = |name, time_ps, paper_ps| Line { name, time_ps, paper_ps };
    let paper = Some;
    let start = match way.start {
        Start::Register => line("start, a register written", way.start_ps(nic), paper(780_000)),
        Start::Poll => line("start, the host's memory polled", way.start_ps(nic), None),
    };
    let mut lines = vec![start];
    let lookup = lookup_ps(nic, way.translation);
    if way.translation != Translation::None {
        lines.push(line("address lookup, source", lookup, None));
    }
    lines.extend([
        line("DMA, host to card", nic.dma_read_ps, paper(760_000)),
        line("sender's FPGA, without PL4", nic.fpga_send_ps, paper(90_000)),
        line("sender's PL4", nic.pl4_send_ps, paper(160_000)),
        line("both MACs", nic.mac_ps, paper(1_560_000)),
        line("receiver's PL4", nic.pl4_receive_ps, paper(350_000)),
        line("receiver's FPGA, without PL4", nic.fpga_receive_ps, paper(150_000)),
    ]);
    if way.translation != Translation::None {
        lines.push(line("address lookup, destination", lookup, None));
    }
    lines.push(line("DMA, card to host", nic.dma_write_ps, paper(180_000)));
    match way.notice {
        Notice::Payload => {}
        Notice::Flag => lines.push(line("notice, a flag written", nic.flag_ps, None)),
        Notice::Register => {
            lines.push(line("notice, a register polled", nic.register_poll_ps, None));
        }
        Notice::Interrupt => lines.push(line("notice, an interrupt", nic.interrupt_ps, None)),
    }
    lines
}

/// What a lookup takes on average.
fn lookup_ps(nic: &Nic, translation: Translation) -> u64 {
    if translation == Translation::None {
        return 0;
    }
    let far = translation.far_per_mille(nic);
    (nic.near_ps.saturating_mul(1000 - far).saturating_add(nic.far_ps.saturating_mul(far))) / 1000
}

/// The steps of one cell. What a packet costs beside its bytes is held by its first cell, so that the
/// next one waits for it.
fn cell(nic: &Nic, index: u64, bytes: u64) -> Vec<Step> {
    let offset = index * CELL_BYTES;
    let length = CELL_BYTES.min(bytes - offset);
    let packet = nic.mtu_bytes.max(CELL_BYTES) / CELL_BYTES * CELL_BYTES;
    let is_first = offset.is_multiple_of(packet);
    let extra = |of: u64| if is_first { of } else { 0 };
    let bus = transfer_ps(length, nic.bus_bytes_per_s);
    let pl4 = match nic.pl4_bytes_per_s {
        0 => 0,
        rate => transfer_ps(length, rate),
    };
    let link = transfer_ps(length + extra(nic.frame_extra_bytes), nic.link_bytes_per_s());
    let step = |resource, hold_ps, through_ps| Step { resource, hold_ps, through_ps };
    vec![
        step(SOURCE, bus + extra(nic.bus_read_extra_ps), nic.dma_read_ps),
        // The FPGA works as wide as its PL4 takes it.
        step(FPGA_SEND, pl4, nic.fpga_send_ps),
        step(PL4_SEND, pl4, nic.pl4_send_ps),
        step(LINK, link, nic.mac_ps),
        step(PL4_RECEIVE, pl4, nic.pl4_receive_ps),
        step(FPGA_RECEIVE, pl4, nic.fpga_receive_ps),
        step(DESTINATION, bus + extra(nic.bus_write_extra_ps), nic.dma_write_ps),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(nic: &Nic, way: &Way, bytes: u64) -> u64 {
        message(nic, way, bytes).unwrap().arrival_ps
    }

    #[test]
    fn table_5_to_the_printed_digit() {
        let found = message(&Nic::paper(), &Way::paper(), 64).unwrap();
        let times: Vec<String> =
            found.lines.iter().map(|line| format!("{:.2}", line.time_ps as f64 / 1e6)).collect();
        assert_eq!(times, ["0.78", "0.76", "0.09", "0.16", "1.56", "0.35", "0.15", "0.18"]);
        assert!(found.lines.iter().all(|line| Some(line.time_ps) == line.paper_ps));
        assert_eq!(found.arrival_ps, 4_030_000);
    }

    #[test]
    fn every_choice_costs_what_table_4_and_section_4_say() {
        let nic = Nic::paper();
        let with = |way: Way| latency(&nic, &way, 64) as i64 - 4_030_000;
        let paper = Way::paper();
        assert_eq!(with(Way { start: Start::Poll, ..paper }), -20_000);
        assert_eq!(with(Way { notice: Notice::Flag, ..paper }), 180_000);
        assert_eq!(with(Way { notice: Notice::Register, ..paper }), 910_000);
        assert_eq!(with(Way { notice: Notice::Interrupt, ..paper }), 4_990_000);
        assert_eq!(with(Way { translation: Translation::Near, ..paper }), 80_000);
        assert_eq!(with(Way { translation: Translation::Far, ..paper }), 640_000);
        let half = Translation::Of { working_set_bytes: 4 << 30 };
        assert_eq!(with(Way { translation: half, ..paper }), 360_000);
    }

    #[test]
    fn longer_messages_take_as_long_as_the_slowest_part_lets_their_cells_through() {
        let (nic, way) = (Nic::paper(), Way::paper());
        let bus = |bytes| transfer_ps(bytes, nic.bus_bytes_per_s);
        assert_eq!(latency(&nic, &way, 1), latency(&nic, &way, 64));
        // 63 cells behind the first, on the bus; it held the bus a little longer.
        let found = latency(&nic, &way, 4096) - 4_030_000;
        let expected = nic.bus_read_extra_ps + bus(64) * 63;
        assert!(found.abs_diff(expected) < 1000, "{found} {expected}");
        // On a bus that is fast enough the link decides.
        let wide = nic.clone().on_pci_express(3, 8).unwrap().with_mac_inside();
        let slope = latency(&wide, &way, 1 << 20) - latency(&wide, &way, 1 << 19);
        let wire = (1u64 << 19) + (1 << 19) / 4096 * 38;
        assert!(slope.abs_diff(transfer_ps(wire, 1_250_000_000)) < 100_000, "{slope}");
    }

    #[test]
    fn a_mac_inside_saves_the_time_of_both_pl4s() {
        let inside = Nic::paper().with_mac_inside();
        assert_eq!(latency(&inside, &Way::paper(), 64), 4_030_000 - 510_000);
    }

    #[test]
    fn a_gigabyte_is_computed_from_its_beginning() {
        let (nic, way) = (Nic::paper(), Way::paper());
        let found = latency(&nic, &way, 1 << 30) as f64 * 1e-12;
        let packets = (1u64 << 30) as f64 / 4096.0 * 4.02e-6;
        assert!((found / packets - 1.0).abs() < 0.01, "{found} {packets}");
        assert!(message(&nic, &way, (1 << 30) + 1).is_err());
    }
}
