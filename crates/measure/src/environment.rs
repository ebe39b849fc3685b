//! Whether others used the machine while something was measured.

use super::usage::{Snapshot, Usage};
use covey_tune::diagnose::noise;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The beginning of a measurement.
#[derive(Debug)]
pub struct Watch {
    begin: Instant,
    waited_us: Option<u64>,
    snapshot: Option<Snapshot>,
}

/// How it was meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// How long it took in seconds.
    pub seconds: f64,
    /// The share of that time in which some task waited for a CPU; none where the kernel does not say.
    pub cpu_pressure: Option<f64>,
    /// How many CPUs others used, that belong neither to the measurement nor to what was measured.
    #[serde(default)]
    pub outside_cpus: Option<f64>,
    /// Share of the CPUs' time that a hypervisor gave to others.
    #[serde(default)]
    pub steal: Option<f64>,
}

impl Watch {
    /// Begins now.
    pub fn begin() -> Watch {
        Watch { begin: Instant::now(), waited_us: waited_us(), snapshot: Snapshot::now() }
    }

    /// How it was until now.
    pub fn end(&self) -> Environment {
        self.end_with_usage().0
    }

    /// The same, and who used the CPUs.
    pub fn end_with_usage(&self) -> (Environment, Usage) {
        let seconds = self.begin.elapsed().as_secs_f64();
        let waited = waited_us().zip(self.waited_us);
        let share =
            waited.map(|(now, then)| now.saturating_sub(then) as f64 / 1e6 / seconds.max(1e-3));
        let usage = self.snapshot.as_ref().and_then(Snapshot::usage);
        let environment = Environment {
            seconds,
            cpu_pressure: share.map(|share| share.min(1.0)),
            outside_cpus: usage.as_ref().map(|usage| usage.outside + usage.here),
            steal: usage.as_ref().map(|usage| usage.steal),
        };
        (environment, usage.unwrap_or_default())
    }
}

impl Environment {
    /// What a reader must know before believing the numbers.
    pub fn warning(&self) -> Option<String> {
        let why = noise(self.cpu_pressure, self.outside_cpus, self.steal)?;
        Some(format!(
            "not trustworthy: {why}, so latency and saturation point are too high by an unknown amount"
        ))
    }
}

/// Microseconds since boot in which some task waited for a CPU.
fn waited_us() -> Option<u64> {
    total_us(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn total_us(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_pressure_is_read() {
        let text = "some avg10=99.24 avg60=99.09 avg300=98.78 total=17809160049\nfull avg10=0.00 \
                    avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(total_us(text), Some(17_809_160_049));
        assert_eq!(total_us(""), None);
    }

    #[test]
    fn only_a_machine_that_others_use_is_warned_of() {
        let at = |cpu_pressure, outside_cpus| {
            Environment { seconds: 1.0, cpu_pressure, outside_cpus, steal: None }.warning()
        };
        assert_eq!(
            (at(None, None), at(Some(0.05), Some(1.0)), at(Some(0.5), Some(0.0))),
            (None, None, None)
        );
        assert!(at(Some(0.5), Some(1.0)).unwrap().contains("50 %"));
        assert!(at(Some(0.5), None).unwrap().contains("50 %"));
    }
}
