//! A graph in text, for a terminal.

const WIDTH: usize = 64;
const HEIGHT: usize = 14;

/// What an axis is like.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Its name and unit.
    pub name: &'static str,
    /// Whether equal steps are equal factors.
    pub is_log: bool,
    /// How a number on it is written.
    pub write: fn(f64) -> String,
}

/// Draws points as stars.
pub fn plot(points: &[(f64, f64)], x: Axis, y: Axis) -> String {
    let scaled =
        |value: f64, axis: Axis| if axis.is_log { value.max(1e-12).log10() } else { value };
    let points: Vec<(f64, f64)> =
        points.iter().map(|point| (scaled(point.0, x), scaled(point.1, y))).collect();
    let Some((left, right)) = span(points.iter().map(|point| point.0)) else {
        return String::new();
    };
    let (bottom, top) = span(points.iter().map(|point| point.1)).unwrap_or((0.0, 1.0));
    let bottom = if y.is_log { bottom } else { 0.0 };
    let mut cells = vec![vec![' '; WIDTH]; HEIGHT];
    for (at_x, at_y) in points {
        let column = place(at_x, left, right, WIDTH);
        let row = HEIGHT - 1 - place(at_y, bottom, top, HEIGHT);
        cells[row][column] = '*';
    }
    let real =
        |value: f64, axis: Axis| (axis.write)(if axis.is_log { 10f64.powf(value) } else { value });
    let labels: Vec<String> = (0..HEIGHT)
        .map(|row| {
            let share = (HEIGHT - 1 - row) as f64 / (HEIGHT - 1) as f64;
            if row % 4 == 1 || row == HEIGHT - 1 {
                real(bottom + share * (top - bottom), y)
            } else {
                String::new()
            }
        })
        .collect();
    let margin = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let mut text = format!("{}\n", y.name);
    for (label, row) in labels.iter().zip(&cells) {
        let row: String = row.iter().collect();
        text.push_str(format!("{label:>margin$} |{row}").trim_end());
        text.push('\n');
    }
    text.push_str(&format!("{:margin$} +{}\n", "", "-".repeat(WIDTH)));
    let (first, last) = (real(left, x), real(right, x));
    let gap = WIDTH.saturating_sub(first.chars().count() + last.chars().count());
    let name = format!("{:^gap$}", x.name);
    text.push_str(&format!("{:margin$}  {first}{name}{last}\n", ""));
    text
}

fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    low.is_finite().then_some((low, if high > low { high } else { low + 1.0 }))
}

fn place(value: f64, low: f64, high: f64, cells: usize) -> usize {
    let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
    (share * (cells - 1) as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rising_line_goes_from_the_lower_left_to_the_upper_right() {
        let points: Vec<(f64, f64)> = (0..=10).map(|x| (f64::from(x), f64::from(x))).collect();
        let axis = |name| Axis { name, is_log: false, write: |value| format!("{value:.0}") };
        let text = plot(&points, axis("bytes"), axis("Mbit/s"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Mbit/s");
        assert!(lines[1].ends_with('*') && lines[1].len() > WIDTH, "{text}");
        assert!(lines[HEIGHT].contains("0 |*"), "{text}");
        assert!(lines[HEIGHT + 2].trim_start().starts_with('0'), "{text}");
        assert!(lines[HEIGHT + 2].ends_with("10"), "{text}");
    }

    #[test]
    fn nothing_and_one_point_are_no_trouble() {
        let axis = Axis { name: "", is_log: true, write: |value| format!("{value}") };
        assert_eq!(plot(&[], axis, axis), "");
        assert!(plot(&[(1.0, 1.0)], axis, axis).contains('*'));
    }
}
