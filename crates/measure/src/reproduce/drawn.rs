//! What a part shows beside its tables: curves, and what went over each cable.

use covey_plot::table;
use covey_tune::reproduce::Unit;
use serde::{Deserialize, Serialize};
use std::io::Write;

/// A picture of curves. The paper's own numbers are curves of their own, where there are any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Unique among the figures of a paper.
    pub id: String,
    /// In a few words.
    pub title: String,
    /// In a sentence or two.
    pub about: String,
    /// From left to right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The curves.
    pub lines: Vec<Line>,
}

/// An axis of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it shows.
    pub name: String,
    /// Its unit; none for a number of things.
    pub unit: Option<Unit>,
    /// Whether equal steps are equal factors.
    pub is_log: bool,
}

/// A curve of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What it is called.
    pub name: String,
    /// Where its points are.
    pub points: Vec<(f64, f64)>,
    /// The paper's.
    pub is_theirs: bool,
}

/// What a run sent over the cables of a lab, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Of what: a way to write, a disk, a network.
    pub of: String,
    /// Cables that do the same, added up: from their nodes, and to them.
    pub sums: Vec<[CableWay; 2]>,
    /// One way of every cable that carried something.
    pub ways: Vec<CableWay>,
}

/// One way of a cable, or of several together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CableWay {
    /// The cable's name.
    pub cable: String,
    /// The end that sent.
    pub from: String,
    /// What it carried in each phase, in the order of the run.
    pub phases: Vec<PhaseBytes>,
}

/// What one way of a cable carried in a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseBytes {
    /// `steps`, `output`, `settle` or `read`.
    pub phase: String,
    /// How long all its pieces took together.
    pub seconds: f64,
    /// Messages, and everything else that is not storage.
    pub messages: Carried,
    /// Storage.
    pub storage: Carried,
}

/// Frames and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// How many frames.
    pub frames: f64,
    /// Their bytes, overhead included.
    pub bytes: f64,
    /// The greatest rate between two looks at the counters, in bytes per second.
    pub peak_bytes_per_s: f64,
}

impl Carried {
    /// Bytes of a frame on average; none without frames.
    pub fn frame_bytes(&self) -> Option<f64> {
        (self.frames >= 1.0).then(|| self.bytes / self.frames)
    }
}

/// The heading of a table of traffic.
pub const TRAFFIC_HEADING: [&str; 9] = [
    "CABLE",
    "FROM",
    "PHASE",
    ">SECONDS",
    ">MESSAGES MB",
    ">FRAME B",
    ">STORAGE MB",
    ">FRAME B",
    ">STORAGE AT MOST",
];

impl Traffic {
    /// A row for each group of cables, way and phase in which anything moved.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for way in self.sums.iter().flatten() {
            for one in way.phases.iter().filter(|one| one.messages.bytes + one.storage.bytes > 0.0)
            {
                let mega = |carried: &Carried| format!("{:.2}", carried.bytes / 1e6);
                let frame = |carried: &Carried| {
                    carried.frame_bytes().map_or("-".to_owned(), |bytes| format!("{bytes:.0}"))
                };
                rows.push(vec![
                    way.cable.clone(),
                    way.from.clone(),
                    one.phase.clone(),
                    format!("{:.2}", one.seconds),
                    mega(&one.messages),
                    frame(&one.messages),
                    mega(&one.storage),
                    frame(&one.storage),
                    format!("{:.1} MB/s", one.storage.peak_bytes_per_s / 1e6),
                ]);
            }
        }
        rows
    }

    /// In words.
    pub fn tell(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        writeln!(out, "traffic of {}\n", self.of)?;
        table(out, &TRAFFIC_HEADING, &self.rows());
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_moved_has_a_row() {
        let storage = Carried { frames: 10.0, bytes: 15_380.0, peak_bytes_per_s: 2e6 };
        let phases = ["steps", "read"].map(|name| PhaseBytes {
            phase: name.to_owned(),
            seconds: 1.0,
            storage: if name == "read" { storage } else { Carried::default() },
            ..PhaseBytes::default()
        });
        let way = |phases| CableWay { cable: "n1-sw1".into(), from: "sw1".into(), phases };
        let sums = vec![[way(phases.into()), way(Vec::new())]];
        let traffic = Traffic { of: "epio".into(), sums, ways: Vec::new() };
        let rows = traffic.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            rows[0],
            ["n1-sw1", "sw1", "read", "1.00", "0.00", "-", "0.02", "1538", "2.0 MB/s"]
        );
    }
}
