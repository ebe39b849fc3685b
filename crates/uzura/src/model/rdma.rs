//! The throughput of RDMA: table 6, and what other choices make of it.

use super::pipeline::{Poll, Step, run};
use super::{Nic, Notice, Translation, Way, check_bytes, transfer_ps};

/// Packets that are simulated: the second half of them makes the rate.
const PACKETS: u64 = 512;

/// A stage that one packet at a time goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// What it is.
    pub name: &'static str,
    /// How long one packet holds it.
    pub hold_ps: u64,
    /// What table 6 has for 4096 bytes.
    pub paper_ps: Option<u64>,
}

/// One block after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Rdma {
    /// The stages, with the time of the first packet of a block.
    pub stages: Vec<Stage>,
    /// Payload, steadily.
    pub bytes_per_s: f64,
    /// The stage that holds the others up.
    pub bottleneck: &'static str,
    /// From the start of one block to its last byte in the other host's memory, alone.
    pub block_ps: u64,
}

/// Packets that the card has under way at once: more than there are stages.
const UNDER_WAY: usize = 16;

const SOURCE: usize = 0;
const PL4_SEND: usize = 1;
const LINK: usize = 2;
const PL4_RECEIVE: usize = 3;
const DESTINATION: usize = 4;
const TABLES: [usize; 2] = [5, 6];

/// Blocks of so many bytes, one after another without a pause.
pub fn rdma(nic: &Nic, way: &Way, block_bytes: u64) -> Result<Rdma, String> {
    nic.check()?;
    check_bytes(block_bytes)?;
    let packets_of_block = block_bytes.div_ceil(nic.mtu_bytes);
    let length = |index: u64| {
        let offset = index % packets_of_block * nic.mtu_bytes;
        nic.mtu_bytes.min(block_bytes - offset)
    };
    let far_per_mille = way.translation.far_per_mille(nic);
    let mut ends = [(0, SOURCE), (1, DESTINATION)].map(|(end, bus)| Lookups {
        table: TABLES[end],
        bus,
        far_per_mille,
        owed: 0,
    });
    let mut ways = Vec::new();
    for index in 0..PACKETS {
        let in_block = index % packets_of_block;
        let (is_first, is_last) = (in_block == 0, in_block + 1 == packets_of_block);
        ways.push(packet(nic, way, length(index), is_first, is_last, &mut ends));
    }
    let polls = way.polls(nic, SOURCE, DESTINATION);
    let left = run(&ways, &polls, UNDER_WAY);
    // A packet whose lookup was near may overtake one.
    let mut left: Vec<(u64, u64)> = left.into_iter().zip((0..PACKETS).map(length)).collect();
    left.sort_unstable();
    let late = &left[PACKETS as usize / 2..];
    let bytes: u64 = late[1..].iter().map(|(_, bytes)| bytes).sum();
    let time = late[late.len() - 1].0 - late[0].0;
    let stages = stages(nic, length(0));
    let bottleneck = bottleneck(&ways, &polls, &stages);
    Ok(Rdma {
        bytes_per_s: bytes as f64 * 1e12 / time.max(1) as f64,
        bottleneck,
        block_ps: alone(nic, way, &ways, packets_of_block),
        stages,
    })
}

fn stages(nic: &Nic, bytes: u64) -> Vec<Stage> {
    let is_paper_block = bytes == 4096;
    let paper = |time| is_paper_block.then_some(time);
    let stage = |name, hold_ps, paper_ps| Stage { name, hold_ps, paper_ps };
    vec![
        stage("source's bus", source_ps(nic, bytes), paper(4_020_000)),
        stage("sender's PL4", pl4_ps(nic, bytes), None),
        stage("link", link_ps(nic, bytes), paper(830_000)),
        stage("receiver's PL4", pl4_ps(nic, bytes), None),
        stage("destination's bus", destination_ps(nic, bytes), paper(3_890_000)),
    ]
}

fn source_ps(nic: &Nic, bytes: u64) -> u64 {
    nic.bus_read_extra_ps + transfer_ps(bytes, nic.bus_bytes_per_s)
}

fn destination_ps(nic: &Nic, bytes: u64) -> u64 {
    nic.bus_write_extra_ps + transfer_ps(bytes, nic.bus_bytes_per_s)
}

fn pl4_ps(nic: &Nic, bytes: u64) -> u64 {
    if nic.pl4_bytes_per_s == 0 { 0 } else { transfer_ps(bytes, nic.pl4_bytes_per_s) }
}

fn link_ps(nic: &Nic, bytes: u64) -> u64 {
    transfer_ps(bytes + nic.frame_extra_bytes, nic.link_bytes_per_s())
}

/// Deals one end's lookups between both tables, evenly.
struct Lookups {
    table: usize,
    bus: usize,
    far_per_mille: u64,
    owed: u64,
}

impl Lookups {
    fn is_next_far(&mut self) -> bool {
        self.owed += self.far_per_mille;
        let is_far = self.owed >= 1000;
        self.owed -= if is_far { 1000 } else { 0 };
        is_far
    }

    /// The lookups of a packet's pages. A far one holds the host's bus, a near one the card's table.
    fn steps(&mut self, nic: &Nic, way: &Way, bytes: u64) -> Vec<Step> {
        if way.translation == Translation::None {
            return Vec::new();
        }
        let step = |resource, time| Step { resource, hold_ps: time, through_ps: time };
        (0..bytes.div_ceil(nic.page_bytes))
            .map(|_| {
                if self.is_next_far() {
                    step(self.bus, nic.far_ps)
                } else {
                    step(self.table, nic.near_ps)
                }
            })
            .collect()
    }
}

fn packet(
    nic: &Nic,
    way: &Way,
    bytes: u64,
    is_first: bool,
    is_last: bool,
    [source, destination]: &mut [Lookups; 2],
) -> Vec<Step> {
    // Each stage takes all of a packet before the next one begins, as in figure 9.
    let whole = |resource, time| Step { resource, hold_ps: time, through_ps: time };
    let mut steps = Vec::new();
    if is_first && way.counts_requests {
        steps.push(whole(SOURCE, nic.word_write_ps));
    }
    steps.extend(source.steps(nic, way, bytes));
    steps.extend([
        whole(SOURCE, source_ps(nic, bytes)),
        whole(PL4_SEND, pl4_ps(nic, bytes)),
        whole(LINK, link_ps(nic, bytes)),
        whole(PL4_RECEIVE, pl4_ps(nic, bytes)),
    ]);
    steps.extend(destination.steps(nic, way, bytes));
    steps.push(whole(DESTINATION, destination_ps(nic, bytes)));
    if is_last && way.notice == Notice::Flag {
        steps.push(whole(DESTINATION, destination_ps(nic, nic.word_bytes)));
    }
    steps
}

/// The resource that is held longest, by packets and polls.
fn bottleneck(ways: &[Vec<Step>], polls: &[Poll], stages: &[Stage]) -> &'static str {
    let busy = |at: usize| {
        let held = ways.iter().flatten().filter(|step| step.resource == at);
        let held: u128 = held.map(|step| u128::from(step.hold_ps)).sum();
        let polled = polls.iter().filter(|poll| poll.resource == at);
        let share: f64 =
            polled.map(|poll| poll.hold_ps as f64 / (poll.hold_ps + poll.every_ps) as f64).sum();
        held as f64 / (1.0 - share.min(0.99))
    };
    let longest = (0..stages.len()).max_by(|one, other| busy(*one).total_cmp(&busy(*other)));
    longest.map_or("", |at| stages[at].name)
}

/// One block alone: the start, its packets, and how the host learns of it.
fn alone(nic: &Nic, way: &Way, ways: &[Vec<Step>], packets: u64) -> u64 {
    let shown = packets.min(PACKETS) as usize;
    let left = run(&ways[..shown], &[], UNDER_WAY);
    let (first, last) = (left[0], left.iter().copied().max().unwrap_or(0));
    let each = (last - first) / (shown as u64 - 1).max(1);
    let notice = match way.notice {
        // The flag is among the packet's steps.
        Notice::Payload | Notice::Flag => 0,
        Notice::Register => nic.register_poll_ps,
        Notice::Interrupt => nic.interrupt_ps,
    };
    let fixed = nic.fpga_send_ps + nic.mac_ps + nic.fpga_receive_ps;
    let beyond = each.saturating_mul(packets - shown as u64);
    way.start_ps(nic) + fixed + last.saturating_add(beyond) + notice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Start;

    fn rate(nic: &Nic, way: &Way, bytes: u64) -> f64 {
        rdma(nic, way, bytes).unwrap().bytes_per_s
    }

    #[test]
    fn table_6_and_what_is_wrong_with_it() {
        let found = rdma(&Nic::paper(), &Way::paper(), 4096).unwrap();
        let of = |name| found.stages.iter().find(|stage| stage.name == name).unwrap();
        assert_eq!(of("source's bus").hold_ps, 4_020_000);
        assert_eq!(of("destination's bus").hold_ps, 3_890_000);
        // 4096 bytes at 10 Gbit/s are 3.28 us: the paper's 0.83 cannot be.
        assert!(of("link").hold_ps > 3_276_800);
        assert_eq!(of("link").paper_ps, Some(830_000));
        assert_eq!(format!("{:.2}", found.bytes_per_s / 1e9), "1.02");
        assert_eq!(found.bottleneck, "source's bus");
    }

    #[test]
    fn the_bus_at_its_best_is_never_reached_and_short_blocks_are_far_from_it() {
        let (nic, way) = (Nic::paper(), Way::paper());
        let rates: Vec<f64> = (6..21).map(|power| rate(&nic, &way, 1 << power)).collect();
        assert!(rates.windows(2).all(|pair| pair[0] <= pair[1] * 1.000_001), "{rates:?}");
        assert!(rates[0] < 0.3e9 && rates[14] < 1.066e9);
    }

    #[test]
    fn what_takes_the_bus_takes_throughput() {
        let nic = Nic::paper();
        let paper = Way::paper();
        let with = |way: Way| rate(&nic, &way, 4096) / 1e9;
        let close = |found: f64, expected: f64| (found - expected).abs() < 0.005;
        assert!(close(with(Way { translation: Translation::Near, ..paper }), 1.019));
        assert!(close(with(Way { translation: Translation::Far, ..paper }), 4.096 / 4.34));
        let half = Translation::Of { working_set_bytes: 4 << 30 };
        assert!(close(with(Way { translation: half, ..paper }), 4.096 / 4.18));
        assert!(close(with(Way { counts_requests: true, ..paper }), 4.096 / 4.1175));
        let polled = with(Way { start: Start::Poll, ..paper });
        assert!(polled < 0.99, "polling the host's memory costs the bus: {polled}");
        // A register that is polled takes the destination's bus, which has a little to spare.
        assert!(with(Way { notice: Notice::Register, ..paper }) <= 1.0191);
        assert!(close(with(Way { notice: Notice::Interrupt, ..paper }), 1.019));
    }

    #[test]
    fn on_a_wide_bus_the_link_decides_and_then_pl4() {
        let way = Way::paper();
        let wide = Nic::paper().on_pci_express(3, 8).unwrap();
        let found = rdma(&wide, &way, 4096).unwrap();
        assert_eq!(found.bottleneck, "link");
        assert!((found.bytes_per_s / 1.25e9 - 4096.0 / 4134.0).abs() < 1e-3);
        let fast = Nic { link_bits_per_s: 100_000_000_000, ..wide };
        assert!(rdma(&fast, &way, 4096).unwrap().bottleneck.ends_with("PL4"));
        let inside = fast.with_mac_inside();
        assert!(rdma(&inside, &way, 4096).unwrap().bottleneck.ends_with("bus"));
    }

    #[test]
    fn a_block_alone_takes_all_stages_one_after_another() {
        let (nic, way) = (Nic::paper(), Way::paper());
        let found = rdma(&nic, &way, 4096).unwrap();
        let sum: u64 = found.stages.iter().map(|stage| stage.hold_ps).sum();
        assert_eq!(found.block_ps, 780_000 + 90_000 + 1_560_000 + 150_000 + sum);
        let late = Way { notice: Notice::Interrupt, ..way };
        assert_eq!(rdma(&nic, &late, 4096).unwrap().block_ps, found.block_ps + 4_990_000);
        // A gibibyte is not simulated packet by packet.
        let long = rdma(&nic, &way, 1 << 30).unwrap().block_ps as f64 * 1e-12;
        assert!((long / ((1u64 << 30) as f64 / 1.0189e9) - 1.0).abs() < 0.01, "{long}");
    }
}
