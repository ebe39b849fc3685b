//! The times that a measuring program writes while it runs: a line for each size and pass, with the block's
//! bytes and then the nanoseconds of each round trip.

use crate::curve::Point;

/// What whole lines hold: a trial each. A last line without an end is still being written, and is left for
/// later; the second value says how many bytes of the text were used. The error names the line.
pub fn read(text: &str) -> Result<(Vec<Point>, usize), String> {
    let used = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..used].lines().enumerate();
    let points = lines.map(|(number, line)| {
        point(line).ok_or_else(|| format!("line {}: not a size and times", number + 1))
    });
    Ok((points.collect::<Result<_, _>>()?, used))
}

fn point(line: &str) -> Option<Point> {
    let mut words = line.split_ascii_whitespace();
    let bytes = words.next()?.parse().ok()?;
    // Half of a round trip is one way.
    let one_way = |word: &str| word.parse::<u64>().ok().map(|ns| ns as f64 / 2e9);
    let times_s: Vec<f64> = words.map(one_way).collect::<Option<_>>()?;
    (!times_s.is_empty()).then(|| Point::new(bytes, times_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_trial_and_the_last_may_be_unfinished() {
        let text = "1 144000 140000\n4 150000\n65536 1178111";
        let (points, used) = read(text).unwrap();
        assert_eq!(points.len(), 2);
        assert_eq!((points[0].bytes, points[0].times_s.as_slice()), (1, &[70e-6, 72e-6][..]));
        assert_eq!(&text[used..], "65536 1178111");
        assert_eq!(read("").unwrap(), (Vec::new(), 0));
        assert_eq!(read("12 3").unwrap(), (Vec::new(), 0));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for text in ["1 2\nquail 3\n", "1 2\n4\n", "1 2\n4 -5\n", "1 2\n\n"] {
            assert!(read(text).unwrap_err().contains("line 2"), "{text}");
        }
    }
}
