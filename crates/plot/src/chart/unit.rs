//! Numbers as people read them: three digits and the unit that suits.

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, in powers of 1024.
    Bytes,
    /// Seconds.
    Seconds,
    /// Bits per second.
    BitsPerSecond,
    /// Bytes per second, in powers of 1000.
    BytesPerSecond,
    /// Floating-point operations per second.
    FlopsPerSecond,
    /// Nothing in particular.
    Plain,
}

type Step = (f64, &'static str);

const BYTES: [Step; 4] =
    [(1.0, "B"), (1024.0, "KiB"), (1_048_576.0, "MiB"), (1_073_741_824.0, "GiB")];
const SECONDS: [Step; 4] = [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")];
const BITS: [Step; 4] = [(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")];
const RATE: [Step; 4] = [(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")];
const FLOPS: [Step; 3] = [(1e6, "Mflop/s"), (1e9, "Gflop/s"), (1e12, "Tflop/s")];

impl Unit {
    fn steps(self) -> &'static [Step] {
        match self {
            Unit::Bytes => &BYTES,
            Unit::Seconds => &SECONDS,
            Unit::BitsPerSecond => &BITS,
            Unit::BytesPerSecond => &RATE,
            Unit::FlopsPerSecond => &FLOPS,
            Unit::Plain => &[(1.0, "")],
        }
    }

    /// The largest step that does not exceed `value`: how much one is, and its name.
    pub fn step_of(self, value: f64) -> Step {
        let steps = self.steps();
        // Up to ten thousand, whole bytes say more than fractions of a KiB.
        let least = |step: &Step| match self {
            Unit::Bytes if step.0 > 1.0 => step.0 * 9.765_625,
            _ => step.0,
        };
        *steps.iter().rev().find(|step| value.abs() >= least(step) * 0.9995).unwrap_or(&steps[0])
    }

    /// A number with its unit.
    pub fn text(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_string();
        }
        let (one, name) = self.step_of(value);
        let number = match self {
            Unit::Bytes if one == 1.0 => format!("{value:.0}"),
            _ => three_digits(value / one),
        };
        if name.is_empty() { number } else { format!("{number} {name}") }
    }
}

/// Three digits, without zeros behind the point that say nothing.
pub fn three_digits(number: f64) -> String {
    let digits = match number.abs() {
        whole if whole >= 99.95 => 0,
        tens if tens >= 9.995 => 1,
        ones if ones >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_the_unit_that_suits_them() {
        assert_eq!(Unit::Seconds.text(57.25e-6), "57.3 µs");
        assert_eq!(Unit::Seconds.text(0.044), "44 ms");
        assert_eq!(Unit::Seconds.text(999.97e-6), "1 ms");
        assert_eq!(Unit::BitsPerSecond.text(94.134e6), "94.1 Mbit/s");
        assert_eq!(Unit::BitsPerSecond.text(941.4e6), "941 Mbit/s");
        assert_eq!(Unit::Bytes.text(189.0), "189 B");
        assert_eq!(Unit::Bytes.text(1533.0), "1533 B");
        assert_eq!(Unit::Bytes.text(24573.0), "24 KiB");
        assert_eq!(Unit::Bytes.text(1_048_576.0), "1024 KiB");
        assert_eq!(Unit::BytesPerSecond.text(8_668e3), "8.67 MB/s");
        assert_eq!(Unit::FlopsPerSecond.text(6.76e9), "6.76 Gflop/s");
        assert_eq!(Unit::Plain.text(0.97), "0.97");
        assert_eq!(Unit::Seconds.text(f64::NAN), "–");
        assert_eq!(Unit::Seconds.text(0.0), "0 ns");
    }
}
