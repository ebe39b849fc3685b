//! NetPIPE's own form of a curve: a line for each size with its bytes, its throughput in megabits of 2^20
//! bits per second, and its time in seconds.

use crate::curve::{Curve, Pick, Point};

/// NetPIPE divides bits by this and calls the result megabits.
pub const MEGABIT: f64 = 1_048_576.0;

/// Writes a curve.
pub fn write(curve: &Curve, pick: Pick) -> String {
    let line = |point: &Point| {
        let (throughput, time) = (point.bits_per_s(pick) / MEGABIT, point.time_s(pick));
        format!("{:8} {throughput:11.6} {time:.9}\n", point.bytes)
    };
    curve.points.iter().map(line).collect()
}

/// Reads a curve. Each size has one time. The error names the line.
pub fn read(text: &str) -> Result<Curve, String> {
    let mut points = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let wrong = || format!("line {}: not a size, a throughput and a time", number + 1);
        let (Some(bytes), Some(time)) = (words.first(), words.get(2)) else { return Err(wrong()) };
        let bytes = bytes.parse().map_err(|_| wrong())?;
        let time: f64 = time.parse().map_err(|_| wrong())?;
        if !(time.is_finite() && time > 0.0) {
            return Err(format!("line {}: {time} s is not a time", number + 1));
        }
        points.push(Point::new(bytes, vec![time]));
    }
    Ok(Curve::new(points))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nptcp_writes_is_read_and_written_again() {
        // Three lines of NPtcp 3.7.2.
        let text = "       1    0.134182   0.00005686\n       2    0.268201   0.00005689\n \
                    131072   88.480000   0.01130200\n";
        let curve = read(text).unwrap();
        assert_eq!(curve.points.len(), 3);
        assert_eq!(curve.points[2].bytes, 131_072);
        let again = read(&write(&curve, Pick::Best)).unwrap();
        for (one, other) in curve.points.iter().zip(&again.points) {
            assert!((one.time_s(Pick::Best) - other.time_s(Pick::Best)).abs() < 1e-9);
        }
        // 89.75 of NetPIPE's megabits are 94.11 million bits.
        assert!((89.75 * MEGABIT / 1e6 - 94.11).abs() < 0.01);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        assert!(read("1 2 3\nquail\n").unwrap_err().contains("line 2"));
        assert!(read("1 2 -3\n").unwrap_err().contains("line 1"));
        assert!(read("").unwrap().points.is_empty());
    }
}
