//! What programs over MPI write of whole calls: a line for each thing timed, with how many processes took part, how
//! many bytes it was about, whether its result was right, and the nanoseconds of each batch.

use crate::statistics::Estimate;
use serde::{Deserialize, Serialize};

/// One thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Its name.
    pub what: String,
    /// How many processes took part.
    pub ranks: u32,
    /// How many bytes it was about.
    pub bytes: u64,
    /// Whether its result was right: a wrong one has no time.
    pub is_right: bool,
    /// Seconds of a call, by batches.
    pub times_s: Vec<f64>,
}

impl Timed {
    /// The median of its batches.
    pub fn typical_s(&self) -> Estimate {
        Estimate::of_median(self.times_s.clone())
    }

    /// Whether it is the same thing.
    pub fn is_same(&self, other: &Timed) -> bool {
        let key = |one: &Timed| (one.ranks, one.bytes);
        self.what == other.what && key(self) == key(other)
    }
}

/// What whole lines hold, and how many bytes of the text were used; a last line without an end is still being
/// written. The error names the line.
pub fn read(text: &str) -> Result<(Vec<Timed>, usize), String> {
    let used = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..used].lines();
    let all =
        lines.map(|line| timed(line).ok_or_else(|| format!("`{line}` is no record of times")));
    Ok((all.collect::<Result<_, _>>()?, used))
}

fn timed(line: &str) -> Option<Timed> {
    let mut words = line.split_ascii_whitespace();
    let what = words.next()?.to_string();
    let (ranks, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let is_right = match words.next()? {
        "ok" => true,
        "wrong" => false,
        _ => return None,
    };
    let seconds = |word: &str| word.parse::<u64>().ok().map(|ns| ns as f64 / 1e9);
    let times_s: Vec<f64> = words.map(seconds).collect::<Option<_>>()?;
    let is_usable = !times_s.is_empty() && times_s.iter().all(|time| *time > 0.0);
    is_usable.then_some(Timed { what, ranks, bytes, is_right, times_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_read_and_the_rest_waits() {
        let text = "bcast 4 1024 ok 30000 20000 90000\nft 4 64 wrong 10\nis 4 6";
        let (all, used) = read(text).unwrap();
        assert_eq!(&text[used..], "is 4 6");
        assert_eq!((all[0].what.as_str(), all[0].ranks, all[0].bytes), ("bcast", 4, 1024));
        let typical = all[0].typical_s();
        assert_eq!((typical.value, typical.low, typical.high), (30e-6, 20e-6, 90e-6));
        assert!(all[0].is_right && !all[1].is_right);
        assert!(all[0].is_same(&all[0]) && !all[0].is_same(&all[1]));
        assert_eq!(read("").unwrap(), (Vec::new(), 0));
    }

    #[test]
    fn what_is_no_record_is_named() {
        for line in
            ["quail", "bcast 4 1024 ok", "bcast 4 1024 maybe 3", "bcast 4 1 ok 0", "", "a b 1 ok 1"]
        {
            let error = read(&format!("{line}\n")).unwrap_err();
            assert!(error.contains(line), "{error}");
        }
    }
}
