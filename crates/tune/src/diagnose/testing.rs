//! Evidence of a link that is sound but for one thing.

use super::loss::segments;
use super::{Cause, Evidence, Verdict, diagnose};
use crate::curve::{Curve, Point};
use crate::schedule::sizes;

pub const SEGMENT: u64 = 1448;

/// A sound link of 100 Mbit/s on an idle machine, where `again` says how many segments of a thousand
/// are lost at a size.
pub fn link(again_per_mille: impl Fn(u64) -> f64) -> Evidence {
    let points = sizes(256 << 10, 3).into_iter().map(|bytes| {
        let time = 57e-6 + bytes as f64 * 8.0 / 94e6;
        let rounds = (100e-3 / time).clamp(9.0, 600.0) as usize;
        let mut point = Point::new(bytes, vec![time; rounds]);
        let sent = segments(&point, SEGMENT) as f64;
        point.retransmits = (again_per_mille(bytes) * sent / 1000.0).round() as u64;
        point
    });
    Evidence {
        curve: Curve::new(points),
        streams: Some([94e6, 94e6]),
        both_at_once: Some([93e6, 93e6]),
        segment_bytes: SEGMENT,
        machine_bits_per_s: Some(5e9),
        expected_bits_per_s: Some(94e6),
        cpu_pressure: Some(0.01),
        outside_cpus: Some(0.01),
        ..Evidence::default()
    }
}

/// What is concluded, where anything may be.
pub fn causes(evidence: &Evidence) -> Vec<Cause> {
    match diagnose(evidence) {
        Verdict::NotTrustworthy(why) => panic!("not trustworthy: {why}"),
        verdict => verdict.causes(),
    }
}
