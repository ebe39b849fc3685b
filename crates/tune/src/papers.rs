//! What the papers measured, as far as their texts still hold it.
//!
//! Numbers are in the units of this crate: seconds, bits per second of 10^6, bytes. NetPIPE's "Mbps" are 2^20 bits per
//! second, which is undone here. The curves of most figures are lost; of these only what the text claims is
//! kept, as a [`Claim`], and never a point that nobody can check.

pub mod ip_san;

/// Where something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The paper.
    pub paper: Paper,
    /// Figure, table or section.
    pub place: &'static str,
}

/// Which paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Okuno et al., "Tuning and Evaluation of the Beowulf-Class Cluster ERATO-1".
    Erato1,
    /// Kamisaka, Yamaguchi, Oguchi and Kitsuregawa, "A study of traffic characteristics and I/O performance on an IP-SAN
    /// consolidated PC cluster".
    IpSan,
    /// Cha, Cho and Kim, "Installation and Performance of PVFS2 and Infiniband", KISTI 2007.
    Kisti,
    /// Ionkov, Minnich and others, "9P in high-performance computing", Los Alamos.
    Lanl,
    /// Nakashima and others, "Toward a Implementation of High Performance Communication Offload Engine UZURA".
    Uzura,
}

impl Paper {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Erato1 => "ERATO-1",
            Paper::IpSan => "IP-SAN",
            Paper::Kisti => "KISTI 2007",
            Paper::Lanl => "9P in HPC",
            Paper::Uzura => "UZURA",
        }
    }
}

/// How ERATO-1's nodes were joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Cisco Catalyst 5505, figure 5.
    Catalyst,
    /// Allied Telesis CentroCOM FS708XL, figure 6.
    CentroCom,
    /// A crossover cable, figure 7.
    Direct,
}

impl Join {
    /// All three.
    pub const ALL: [Join; 3] = [Join::Direct, Join::CentroCom, Join::Catalyst];

    /// What stands in the paper's caption.
    pub fn name(self) -> &'static str {
        match self {
            Join::Catalyst => "Catalyst 5505",
            Join::CentroCom => "CentroCOM FS708XL",
            Join::Direct => "crossover cable",
        }
    }

    /// The figure with the numbers.
    pub fn figure(self) -> &'static str {
        match self {
            Join::Catalyst => "figure 5",
            Join::CentroCom => "figure 6",
            Join::Direct => "figure 7",
        }
    }
}

/// A row of figures 5 to 7.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// How the nodes were joined.
    pub join: Join,
    /// TCP, MPI or PVM.
    pub protocol: &'static str,
    /// Bits per second.
    pub bandwidth_bits_per_s: f64,
    /// Seconds.
    pub latency_s: f64,
    /// Bytes.
    pub saturation_bytes: f64,
}

const fn link(join: Join, protocol: &'static str, netpipe: f64, ms: f64, bytes: f64) -> Link {
    let bandwidth_bits_per_s = netpipe * crate::netpipe::MEGABIT;
    Link { join, protocol, bandwidth_bits_per_s, latency_s: ms * 1e-3, saturation_bytes: bytes }
}

/// ERATO-1, figures 5 to 7.
pub const ERATO_LINKS: [Link; 9] = [
    link(Join::Catalyst, "TCP", 89.75, 0.069, 139.0),
    link(Join::Catalyst, "MPI", 82.67, 0.123, 262.0),
    link(Join::Catalyst, "PVM", 75.67, 0.140, 200.0),
    link(Join::CentroCom, "TCP", 89.75, 0.064, 140.0),
    link(Join::CentroCom, "MPI", 82.76, 0.118, 260.0),
    link(Join::CentroCom, "PVM", 75.39, 0.134, 200.0),
    link(Join::Direct, "TCP", 89.76, 0.057, 140.0),
    link(Join::Direct, "MPI", 82.66, 0.108, 280.0),
    link(Join::Direct, "PVM", 75.66, 0.123, 200.0),
];

/// The row of ERATO-1 for one way of joining and one protocol.
pub fn erato_link(join: Join, protocol: &str) -> Option<Link> {
    ERATO_LINKS.into_iter().find(|link| link.join == join && link.protocol == protocol)
}

/// A rate that ERATO-1's table 1 or its section 4.4 has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// GEMM or LU.
    pub what: &'static str,
    /// The matrix has so many rows.
    pub rows: u32,
    /// Floating-point operations per second, wall clock, 32 nodes.
    pub flops: f64,
}

/// ERATO-1, table 1.
pub const ERATO_PEAKS: [Peak; 4] = [
    Peak { what: "GEMM", rows: 15_000, flops: 7.68e9 },
    Peak { what: "GEMM", rows: 4_800, flops: 5.04e9 },
    Peak { what: "LU", rows: 30_000, flops: 6.76e9 },
    Peak { what: "LU", rows: 4_800, flops: 2.43e9 },
];

/// DGEMM of one node, section 4.4. The text calls it 70.5 % of 446.54; it is 74.5 %.
pub const ERATO_NODE_FLOPS: f64 = 332.66e6;
/// So many nodes.
pub const ERATO_NODES: u32 = 32;

/// A column of KISTI's table 1: Bonnie with a file of 100 MB, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bonnie {
    /// PVFS or PVFS2.
    pub system: &'static str,
    /// Whether the metadata server is a fifth machine (4 I/O + 1), or one of four (3 I/O + 1 that does both).
    pub is_apart: bool,
    /// Gigabit, else Fast Ethernet.
    pub is_gigabit: bool,
    /// Written character by character.
    pub write_char: f64,
    /// Written in blocks.
    pub write_block: f64,
    /// Read character by character.
    pub read_char: f64,
    /// Read in blocks.
    pub read_block: f64,
}

const fn bonnie(system: &'static str, is_apart: bool, is_gigabit: bool, kb: [f64; 4]) -> Bonnie {
    let [write_char, write_block, read_char, read_block] =
        [kb[0] * 1e3, kb[1] * 1e3, kb[2] * 1e3, kb[3] * 1e3];
    Bonnie { system, is_apart, is_gigabit, write_char, write_block, read_char, read_block }
}

/// KISTI, table 1.
pub const KISTI_BONNIE: [Bonnie; 8] = [
    bonnie("PVFS", false, false, [8668.0, 10915.0, 8649.0, 11013.0]),
    bonnie("PVFS", false, true, [20901.0, 42466.0, 21032.0, 50585.0]),
    bonnie("PVFS", true, false, [8647.0, 10411.0, 8640.0, 10795.0]),
    bonnie("PVFS", true, true, [21046.0, 43420.0, 18640.0, 57322.0]),
    bonnie("PVFS2", false, false, [8939.0, 10501.0, 8990.0, 11107.0]),
    bonnie("PVFS2", false, true, [23953.0, 37822.0, 25480.0, 37523.0]),
    bonnie("PVFS2", true, false, [8946.0, 9630.0, 9061.0, 10445.0]),
    bonnie("PVFS2", true, true, [23289.0, 37690.0, 26297.0, 37990.0]),
];

/// The column of KISTI's table 1.
pub fn kisti_bonnie(system: &str, is_apart: bool, is_gigabit: bool) -> Option<Bonnie> {
    let is_it = |one: &Bonnie| {
        one.system == system && one.is_apart == is_apart && one.is_gigabit == is_gigabit
    };
    KISTI_BONNIE.into_iter().find(is_it)
}

/// A row of table 2 of "9P in HPC": a program spread to [`LANL_NODES`] nodes and started, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spawn {
    /// The program's length.
    pub bytes: u64,
    /// By B-Proc.
    pub bproc_s: f64,
    /// By XCPU.
    pub xcpu_s: f64,
}

const fn spawn(kib: u64, bproc_s: f64, xcpu_s: f64) -> Spawn {
    Spawn { bytes: kib << 10, bproc_s, xcpu_s }
}

/// "9P in HPC", table 2.
pub const LANL_SPAWNS: [Spawn; 4] =
    [spawn(64, 3.1, 2.5), spawn(1024, 4.6, 7.3), spawn(8192, 5.0, 13.5), spawn(16384, 5.5, 20.3)];
/// The nodes of Blue Steel that the authors could use.
pub const LANL_NODES: u32 = 245;

/// "9P in HPC", table 3: GB/s of reads and writes of a mapped file, by hand and with 1 to 7 coroutines,
/// for 1 to 8 workers.
pub const LANL_BANDWIDTHS: [[f64; 8]; 8] = [
    [8.19, 5.68, 10.63, 10.71, 10.75, 10.81, 10.78, 10.79],
    [15.59, 11.03, 20.48, 20.74, 20.79, 20.88, 20.89, 20.96],
    [20.05, 14.75, 23.20, 23.26, 23.27, 23.28, 23.29, 23.28],
    [20.48, 17.84, 23.28, 23.20, 23.32, 21.84, 23.32, 23.32],
    [21.63, 20.71, 23.26, 23.27, 23.28, 23.28, 23.28, 23.29],
    [21.82, 21.89, 23.26, 23.25, 23.26, 23.26, 23.26, 23.26],
    [23.05, 21.05, 23.24, 23.23, 22.05, 23.23, 23.24, 23.23],
    [22.34, 21.43, 23.22, 23.20, 23.21, 23.21, 23.21, 23.21],
];

/// A row of table 4 of "9P in HPC": [`LANL_MULTIPLICATIONS`] of two square matrices, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multiplied {
    /// Rows and columns.
    pub side: u32,
    /// Workers at once.
    pub workers: u32,
    /// Through files.
    pub files_s: f64,
    /// With two buffers by hand.
    pub by_hand_s: f64,
}

const fn multiplied(side: u32, workers: u32, files_s: f64, by_hand_s: f64) -> Multiplied {
    Multiplied { side, workers, files_s, by_hand_s }
}

/// "9P in HPC", table 4.
pub const LANL_MATRICES: [Multiplied; 12] = [
    multiplied(256, 1, 17.65, 15.56),
    multiplied(256, 2, 8.85, 7.81),
    multiplied(256, 4, 4.45, 3.91),
    multiplied(256, 8, 2.28, 1.98),
    multiplied(512, 1, 141.43, 124.22),
    multiplied(512, 2, 70.75, 62.16),
    multiplied(512, 4, 35.46, 31.09),
    multiplied(512, 8, 17.88, 15.57),
    multiplied(1024, 1, 1131.98, 993.00),
    multiplied(1024, 2, 566.38, 496.71),
    multiplied(1024, 4, 283.36, 248.40),
    multiplied(1024, 8, 142.54, 124.29),
];
/// How often table 4 multiplies.
pub const LANL_MULTIPLICATIONS: u32 = 10_000;

/// HPL on 4 nodes over InfiniBand by the same over Myrinet: KISTI, section 7.2.
pub const KISTI_HPL_GAIN: f64 = 1.04;

/// UZURA, table 2: a packet of 64 bytes from card to card, in seconds.
pub const UZURA_PACKET: [(&str, f64); 5] = [
    ("the sender's FPGA without PL4", 0.09e-6),
    ("the sender's PL4", 0.16e-6),
    ("both 10GbE MACs", 1.56e-6),
    ("the receiver's PL4", 0.35e-6),
    ("the receiver's FPGA without PL4", 0.15e-6),
];
/// Their sum in the same table.
pub const UZURA_PACKET_S: f64 = 2.31e-6;
/// UZURA, table 3: the bus while the host reaches a word of a register.
pub const UZURA_WORDS: [(&str, f64); 2] = [("a write", 97.5e-9), ("a read", 90e-9)];
/// UZURA, table 4: how host and card tell each other that there is something.
pub const UZURA_NOTICES: [(&str, f64); 5] = [
    ("to the card: the host writes a register", 0.78e-6),
    ("to the card: it polls the host's memory", 0.76e-6),
    ("to the host: an interrupt", 4.99e-6),
    ("to the host: it polls a register", 0.91e-6),
    ("to the host: the card writes to its memory", 0.18e-6),
];
/// UZURA, table 5: a message of 64 bytes, one way, as the paper predicts it.
pub const UZURA_MESSAGE_S: f64 = 4.03e-6;
/// UZURA, section 6.2: blocks of 4 KiB, as the paper predicts them.
pub const UZURA_BLOCK_BYTES_PER_S: f64 = 1.02e9;

/// What a text says of a figure whose curve is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Short, for `--only`.
    pub part: &'static str,
    /// Where it stands.
    pub source: Source,
    /// What it says.
    pub text: &'static str,
}

const fn erato(part: &'static str, place: &'static str, text: &'static str) -> Claim {
    Claim { part, source: Source { paper: Paper::Erato1, place }, text }
}

const fn ip_san(part: &'static str, place: &'static str, text: &'static str) -> Claim {
    Claim { part, source: Source { paper: Paper::IpSan, place }, text }
}

const fn kisti(part: &'static str, place: &'static str, text: &'static str) -> Claim {
    Claim { part, source: Source { paper: Paper::Kisti, place }, text }
}

const fn uzura(part: &'static str, place: &'static str, text: &'static str) -> Claim {
    Claim { part, source: Source { paper: Paper::Uzura, place }, text }
}

/// All claims.
pub const CLAIMS: [Claim; 34] = [
    erato(
        "fig1-4",
        "figure 1",
        "a switch makes the curve rise later than a cable does; the bandwidth hardly changes",
    ),
    erato("fig1-4", "figure 3", "latency grows from the direct cable over CentroCOM to Catalyst"),
    erato("fig1-4", "section 3", "four pairs at once hardly change a pair's throughput"),
    erato(
        "fig1-4",
        "section 3",
        "MPI loses about 8 % of the bandwidth and has 1.8 times the latency of TCP; PVM 16 % and 2.0 times",
    ),
    erato("fig1-4", "figure 2", "TCP saturates first, MPI last"),
    erato(
        "fig8-9",
        "figures 8 and 9",
        "with the bad card, TCP collapses from about 20 kB, MPI from about 4 kB, and both are back at about 200 kB",
    ),
    erato(
        "fig8-9",
        "section 3.1",
        "the collapse appears when more than 4 nodes use the network; the remedy is to replace the card or cable",
    ),
    erato(
        "fig10-13",
        "figure 10",
        "multiplying takes longer from single real over double real and single complex to double complex",
    ),
    erato(
        "fig10-13",
        "figure 10",
        "Gflop/s fall from single complex over single real and double complex to double real",
    ),
    erato("fig10-13", "figure 10", "MPI is some 10 to 20 % faster than PVM"),
    erato("fig10-13", "section 4.4, of figure 11", "larger matrices reach more Gflop/s"),
    erato("fig10-13", "section 4.2", "32 x 32 or 64 x 64 is often the best block"),
    erato("fig10-13", "figure 12", "an optimised BLAS is indispensable"),
    erato("fig10-13", "figure 12", "which of the optimised BLAS it is hardly matters"),
    erato(
        "fig10-13",
        "figure 13",
        "large matrices gain nearly linearly with their order; small ones stay far behind that line, and this is the \
         overhead of the cluster",
    ),
    ip_san("fig5", "section 4.2", "the size of the blocks, 512 B to 8 KiB, makes no difference"),
    ip_san(
        "fig5",
        "section 4.2",
        "writing is slower than reading: 74 % of it on the local disk, 34 % over iSCSI",
    ),
    ip_san(
        "fig5",
        "section 4.2",
        "the local disk reads about twice and writes about four times as fast as iSCSI",
    ),
    ip_san(
        "fig8-9",
        "figures 8 and 9",
        "classes W and A take as long over iSCSI as on local disks: computing outweighs output",
    ),
    ip_san(
        "fig8-9",
        "section 5.3",
        "class B is hardly slower over iSCSI: 610 s by 585 s, though writing alone is four times slower",
    ),
    ip_san(
        "fig8-9",
        "section 5.3",
        "messages and storage share one network without loss, as long as each node has its own target",
    ),
    ip_san(
        "fig10-11",
        "section 5.4",
        "with simple class B takes longer than epio: 610 to 770 s by about 600",
    ),
    ip_san(
        "fig12-13",
        "section 5.4",
        "with fortran class B takes longer than epio: 610 to 770 s by about 600",
    ),
    ip_san(
        "fig14-15",
        "section 5.5",
        "one node is like four: iSCSI and the local disk do not differ much",
    ),
    kisti(
        "fig1",
        "figure 1 and section 5.3",
        "Gigabit is 3.3 to 5.3 times Fast Ethernet for blocks (per character 2.2 to 2.9 times by table 1)",
    ),
    kisti(
        "fig2",
        "figure 2 and section 5.3",
        "a metadata server apart changes rates by -9 % to 13 %",
    ),
    kisti("fig3", "figure 3", "MPI collectives follow the wire: InfiniBand ahead of Myrinet"),
    kisti("fig4", "figure 4", "HPL on 4 nodes is 4 % faster over InfiniBand than over Myrinet"),
    kisti("fig5", "figure 5", "programs with little communication hardly differ"),
    kisti(
        "fig5",
        "figure 5",
        "some NAS kernels are faster over Myrinet, presumably because of its MPI",
    ),
    kisti(
        "fig6",
        "figure 6",
        "basic commands are faster over InfiniBand and Myrinet than over Gigabit, Myrinet ahead",
    ),
    uzura("fig5", "figure 5 and section 4.2.1", "DMA is faster than registers, in both directions"),
    uzura(
        "table4",
        "section 4.2.2",
        "the delay of an interrupt is large, so the host polls its own memory instead",
    ),
    uzura("table6", "section 6.2", "the bus of the source holds blocks of 4 KiB up"),
];

/// The claim of a part that has these words.
pub fn claim(paper: Paper, part: &str, words: &str) -> Option<Claim> {
    let is_it = |claim: &Claim| {
        claim.source.paper == paper && claim.part == part && claim.text.contains(words)
    };
    CLAIMS.into_iter().find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erato_1s_ratios_are_those_of_its_text() {
        let of = |protocol| erato_link(Join::Catalyst, protocol).unwrap();
        let (tcp, mpi, pvm) = (of("TCP"), of("MPI"), of("PVM"));
        assert!((1.0 - mpi.bandwidth_bits_per_s / tcp.bandwidth_bits_per_s - 0.08).abs() < 0.005);
        assert!((1.0 - pvm.bandwidth_bits_per_s / tcp.bandwidth_bits_per_s - 0.16).abs() < 0.005);
        assert!((mpi.latency_s / tcp.latency_s - 1.8).abs() < 0.05);
        assert!((pvm.latency_s / tcp.latency_s - 2.0).abs() < 0.05);
        // Its TCP reached the wire.
        let wire = crate::wire::Wire::ethernet(100e6, 1500).tcp_bits_per_s();
        assert!((tcp.bandwidth_bits_per_s / wire - 1.0).abs() < 0.001);
    }

    #[test]
    fn erato_1s_peaks_have_the_shares_of_its_text() {
        let ideal = ERATO_NODE_FLOPS * f64::from(ERATO_NODES);
        assert!((6.76e9 / ideal - 0.635).abs() < 0.001 && (7.68e9 / ideal - 0.72).abs() < 0.002);
    }

    #[test]
    fn kistis_blocks_gain_as_its_text_says() {
        let ratio = |of: fn(&Bonnie) -> f64| {
            let pairs = [("PVFS", false), ("PVFS", true), ("PVFS2", false), ("PVFS2", true)];
            let found: Vec<f64> = pairs
                .into_iter()
                .map(|(system, apart)| {
                    let of = |gigabit| of(&kisti_bonnie(system, apart, gigabit).unwrap());
                    of(true) / of(false)
                })
                .collect();
            let least = found.iter().copied().fold(f64::MAX, f64::min);
            (least, found.into_iter().fold(0.0, f64::max))
        };
        let (write, read) = (ratio(|one| one.write_block), ratio(|one| one.read_block));
        assert!((write.0.min(read.0) - 3.38).abs() < 0.02, "{write:?} {read:?}");
        assert!((write.1.max(read.1) - 5.31).abs() < 0.01, "{write:?} {read:?}");
        let chars = (ratio(|one| one.write_char), ratio(|one| one.read_char));
        assert!(chars.0.0.min(chars.1.0) > 2.15 && chars.0.1.max(chars.1.1) < 2.91, "{chars:?}");
    }
}
