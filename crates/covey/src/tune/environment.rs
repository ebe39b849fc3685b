//! Whether others used the machine while something was measured.

use covey_tune::diagnose::PRESSURE_MAX;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The beginning of a measurement.
#[derive(Debug)]
pub struct Watch {
    begin: Instant,
    waited_us: Option<u64>,
}

/// How it was meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// How long it took in seconds.
    pub seconds: f64,
    /// The share of that time in which some task waited for a CPU; none where the kernel does not say.
    pub cpu_pressure: Option<f64>,
}

impl Watch {
    /// Begins now.
    pub fn begin() -> Watch {
        Watch { begin: Instant::now(), waited_us: waited_us() }
    }

    /// How it was until now.
    pub fn end(&self) -> Environment {
        let seconds = self.begin.elapsed().as_secs_f64();
        let waited = waited_us().zip(self.waited_us);
        let share =
            waited.map(|(now, then)| now.saturating_sub(then) as f64 / 1e6 / seconds.max(1e-3));
        Environment { seconds, cpu_pressure: share.map(|share| share.min(1.0)) }
    }
}

impl Environment {
    /// What a reader must know before believing the numbers.
    pub fn warning(&self) -> Option<String> {
        let pressure = self.cpu_pressure.filter(|pressure| *pressure > PRESSURE_MAX)?;
        Some(format!(
            "not trustworthy: programs waited for a CPU during {:.0} % of the time (limit {:.0} %), \
             so latency and saturation point are too high by an unknown amount",
            100.0 * pressure,
            100.0 * PRESSURE_MAX
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
        let at = |cpu_pressure| Environment { seconds: 1.0, cpu_pressure }.warning();
        assert_eq!((at(None), at(Some(0.05))), (None, None));
        assert!(at(Some(0.5)).unwrap().contains("50 %"));
    }
}
