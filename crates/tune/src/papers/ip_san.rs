//! The numbers that the text of "A study of traffic characteristics and I/O performance on an IP-SAN consolidated PC
//! cluster" still holds: table 2, and what the prose says of figures 5 and 8 to 13. The figures are lost.

/// A row of table 2: BTIO's sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// NASA's letter.
    pub class: char,
    /// Points along each axis.
    pub side: u32,
    /// Written, in 10^6 bytes.
    pub written_mb: f64,
}

/// Table 2.
pub const SIZES: [Size; 3] = [
    Size { class: 'W', side: 24, written_mb: 22.12 },
    Size { class: 'A', side: 64, written_mb: 419.43 },
    Size { class: 'B', side: 102, written_mb: 1697.93 },
];

/// A sequential file of 1 GB, in bytes per second: figure 5, by section 4.2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Over iSCSI, else on the local disk.
    pub is_remote: bool,
    /// Read.
    pub read: f64,
    /// Written.
    pub write: f64,
    /// Writing by reading, as the text has it. Of the rounded rates over iSCSI it would be 36 %.
    pub share: f64,
}

/// Both disks of figure 5.
pub const STREAMS: [Stream; 2] = [
    Stream { is_remote: false, read: 27e6, write: 20e6, share: 0.74 },
    Stream { is_remote: true, read: 14e6, write: 5e6, share: 0.34 },
];

/// Class B on four nodes: seconds and million operations per second, as figures 8 to 13 have them by the prose. Where it
/// gives a range for both disks together, that is what is here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solved {
    /// NASA's word for the way of writing.
    pub io: &'static str,
    /// On which disk; none where the text does not tell them apart.
    pub is_remote: Option<bool>,
    /// The least and the greatest time, in seconds.
    pub seconds: (f64, f64),
    /// The least and the greatest rate, in 10^6 operations per second.
    pub mops: (f64, f64),
}

/// Sections 5.3 and 5.4.
pub const SOLVED: [Solved; 4] = [
    Solved { io: "epio", is_remote: Some(false), seconds: (585.0, 585.0), mops: (1200.0, 1200.0) },
    Solved { io: "epio", is_remote: Some(true), seconds: (610.0, 610.0), mops: (1152.0, 1152.0) },
    Solved { io: "simple", is_remote: None, seconds: (610.0, 770.0), mops: (930.0, 1150.0) },
    Solved { io: "fortran", is_remote: None, seconds: (610.0, 770.0), mops: (920.0, 1030.0) },
];

impl Solved {
    /// The middle of the times and of the rates, where there is a range.
    pub fn middle(&self) -> (f64, f64) {
        let middle = |(least, most): (f64, f64)| f64::midpoint(least, most);
        (middle(self.seconds), middle(self.mops))
    }
}

/// What the text has of class B, by the way of writing and the disk.
pub fn solved(io: &str, is_remote: bool) -> Option<Solved> {
    let is_it = |one: &Solved| one.io == io && one.is_remote.is_none_or(|own| own == is_remote);
    SOLVED.into_iter().find(is_it)
}

/// Steps of every class in table 2.
pub const STEPS: u32 = 200;
/// A solution is written after so many steps.
pub const STEPS_PER_OUTPUT: u32 = 5;

/// What a class writes, in bytes: five doubles of each point for each output.
pub fn written_bytes(side: u32, steps: u32) -> u64 {
    let points = u64::from(side).pow(3);
    points * 5 * 8 * u64::from(steps.div_ceil(STEPS_PER_OUTPUT))
}

/// Million operations per second, as NASA counts them: of so many steps that took so long.
pub fn mops(side: u32, steps: u32, seconds: f64) -> f64 {
    let n = f64::from(side);
    let operations = 3478.8 * n.powi(3) - 17655.7 * n.powi(2) + 28023.7 * n;
    operations * f64::from(steps) * 1e-6 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_2_is_what_a_class_writes() {
        for Size { class, side, written_mb } in SIZES {
            let ours = written_bytes(side, STEPS) as f64 * 1e-6;
            assert!((ours - written_mb).abs() < 0.005, "{class}: {ours} for {written_mb}");
        }
        assert_eq!(written_bytes(12, 60), 829_440);
    }

    #[test]
    fn shares_are_those_of_the_rates_but_for_one_slip() {
        let of = |stream: Stream| stream.write / stream.read;
        assert!((of(STREAMS[0]) - STREAMS[0].share).abs() < 0.005);
        // 5 by 14 is 36 %: the rates are rounded, or the share is a slip.
        assert!((of(STREAMS[1]) - 0.357).abs() < 0.001 && STREAMS[1].share < 0.35);
    }

    #[test]
    fn the_prose_s_times_and_rates_belong_together() {
        for io in ["epio", "simple", "fortran"] {
            for is_remote in [false, true] {
                let one = solved(io, is_remote).unwrap();
                let (seconds, rate) = one.middle();
                let ratio = mops(102, STEPS, seconds) / rate;
                assert!((0.9..1.1).contains(&ratio), "{io}: {ratio}");
            }
        }
        let (local, remote) = (solved("epio", false).unwrap(), solved("epio", true).unwrap());
        assert!((mops(102, STEPS, 585.0) / local.middle().1 - 1.0).abs() < 0.005);
        assert!((mops(102, STEPS, 610.0) / remote.middle().1 - 1.0).abs() < 0.005);
        assert_eq!(solved("full", false), None, "it could not be compiled there");
    }
}
