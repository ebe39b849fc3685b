//! From a number to a place on an axis, and where the axis has its ticks.

use super::unit::{Unit, three_digits};

/// How an axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Equal steps are equal differences, from zero.
    Linear,
    /// Equal steps are equal factors.
    Log,
}

/// One axis of a chart, before it is known how long it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows.
    pub name: String,
    /// Unit of the labels.
    pub unit: Unit,
    /// Linear or logarithmic.
    pub run: Run,
}

/// An axis with its ends, in numbers and on paper.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    run: Run,
    unit: Unit,
    low: f64,
    high: f64,
    from_px: f64,
    to_px: f64,
}

/// A line of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Its place.
    pub at_px: f64,
    /// What stands beside it.
    pub text: String,
}

impl Scale {
    /// An axis that holds all `values`, of which only finite ones count, and positive ones where it
    /// is logarithmic. None without any.
    pub fn over(axis: &Axis, values: impl Iterator<Item = f64>, px: (f64, f64)) -> Option<Scale> {
        let fits = |value: &f64| value.is_finite() && (axis.run == Run::Linear || *value > 0.0);
        let (low, high) = values
            .filter(fits)
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return None;
        }
        let (low, high) = match axis.run {
            Run::Linear => (low.min(0.0), if high > 0.0 { high * 1.06 } else { 1.0 }),
            Run::Log => {
                let pad = (high / low).powf(0.03).max(1.05);
                (low / pad, high * pad)
            }
        };
        Some(Scale { run: axis.run, unit: axis.unit, low, high, from_px: px.0, to_px: px.1 })
    }

    /// Where a number lies; numbers beyond the ends lie at the ends.
    pub fn px(&self, value: f64) -> f64 {
        let share = match self.run {
            Run::Linear => (value - self.low) / (self.high - self.low),
            Run::Log => {
                (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        self.from_px + share.clamp(0.0, 1.0) * (self.to_px - self.from_px)
    }

    /// Whether a number is on the axis.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The unit that stands beside the axis' name, where the ticks are bare numbers.
    pub fn unit_name(&self) -> Option<&'static str> {
        (self.run == Run::Linear).then(|| self.unit.step_of(self.high).1)
    }

    /// At most `room` ticks.
    pub fn ticks(&self, room: usize) -> Vec<Tick> {
        let (one, _) = self.unit.step_of(self.high);
        let tick = |value: f64| Tick {
            at_px: self.px(value),
            text: match self.run {
                Run::Linear => three_digits(value / one),
                Run::Log => self.unit.text(value),
            },
        };
        let values = match self.run {
            Run::Linear => linear(self.low, self.high, one, room.max(2)),
            Run::Log => log(self.unit, self.low, self.high, room.max(2)),
        };
        values.into_iter().map(tick).collect()
    }
}

/// Multiples of 1, 2 or 5 of a power of ten.
fn linear(low: f64, high: f64, one: f64, room: usize) -> Vec<f64> {
    let rough = (high - low) / one / room as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough).unwrap_or(10.0);
    let step = step * power * one;
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

fn log(unit: Unit, low: f64, high: f64, room: usize) -> Vec<f64> {
    let inside = |values: Vec<f64>| -> Vec<f64> {
        values.into_iter().filter(|value| (low..=high).contains(value)).collect()
    };
    let powers = |base: f64, step: i32| {
        let first = (low.ln() / base.ln()).floor() as i32;
        let last = (high.ln() / base.ln()).ceil() as i32;
        let values = (first..=last).filter(|power| power.rem_euclid(step) == 0);
        inside(values.map(|power| base.powi(power)).collect())
    };
    if unit == Unit::Bytes {
        let all = [1, 2, 3, 4, 6, 8, 10, 20].map(|step| powers(2.0, step));
        return all.into_iter().find(|values| values.len() <= room).unwrap_or_default();
    }
    let parts = |parts: &[f64]| {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let decades = first..=last;
        let values =
            decades.flat_map(|power| parts.iter().map(move |part| part * 10f64.powi(power)));
        inside(values.collect())
    };
    let fine = [parts(&[1.0, 2.0, 5.0]), parts(&[1.0, 3.0])];
    let coarse = [1, 2, 3, 4, 6].map(|step| powers(10.0, step));
    let mut all = fine.into_iter().chain(coarse);
    all.find(|values| values.len() <= room).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scale(run: Run, unit: Unit, values: [f64; 2]) -> Scale {
        let axis = Axis { name: String::new(), unit, run };
        Scale::over(&axis, values.into_iter(), (0.0, 100.0)).unwrap()
    }

    fn texts(scale: Scale, room: usize) -> Vec<String> {
        scale.ticks(room).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_are_the_numbers_that_a_person_would_choose() {
        let rate = scale(Run::Linear, Unit::BitsPerSecond, [0.0, 94e6]);
        assert_eq!(texts(rate, 6), ["0", "20", "40", "60", "80"]);
        assert_eq!(rate.unit_name(), Some("Mbit/s"));
        let bytes = scale(Run::Log, Unit::Bytes, [1.0, 4_194_304.0]);
        assert_eq!(texts(bytes, 7), ["1 B", "16 B", "256 B", "4096 B", "64 KiB", "1024 KiB"]);
        let time = scale(Run::Log, Unit::Seconds, [57e-6, 20e-3]);
        assert_eq!(texts(time, 6), ["100 µs", "300 µs", "1 ms", "3 ms", "10 ms"]);
        assert_eq!(texts(time, 4), ["100 µs", "1 ms", "10 ms"]);
    }

    #[test]
    fn nothing_has_no_scale_and_one_number_has_one() {
        let axis = Axis { name: String::new(), unit: Unit::Plain, run: Run::Log };
        assert!(Scale::over(&axis, [0.0, -1.0, f64::NAN].into_iter(), (0.0, 1.0)).is_none());
        let one = Scale::over(&axis, [5.0].into_iter(), (0.0, 100.0)).unwrap();
        assert!((one.px(5.0) - 50.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn ticks_rise_lie_inside_and_have_room(
            low in 1e-6..1e6f64, factor in 1.01..1e6f64, room in 2usize..12, is_log: bool,
        ) {
            let run = if is_log { Run::Log } else { Run::Linear };
            let ticks = scale(run, Unit::BitsPerSecond, [low, low * factor]).ticks(room);
            prop_assert!(ticks.len() <= room + 1);
            prop_assert!(ticks.windows(2).all(|pair| pair[0].at_px < pair[1].at_px));
            prop_assert!(ticks.iter().all(|tick| (0.0..=100.0).contains(&tick.at_px)));
        }
    }
}
