//! A paper's numbers beside ours, and whether what it claims of a lost curve is seen here too.
//!
//! A number stands beside one of the paper as a ratio. Of a claim there are three answers: it holds, it does
//! not, or it is not shown here, which is the answer whenever intervals overlap or a number is missing: a
//! claim is never refuted by noise.

use crate::papers::Claim;
use crate::statistics::Estimate;
use serde::{Deserialize, Serialize};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bits per second.
    BitsPerS,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerS,
    /// Floating-point operations per second.
    Flops,
    /// The same as NASA counts and writes them: in millions.
    OpsPerS,
    /// A part of something, or how many times it is another.
    Share,
}

/// One of our numbers beside the paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Where the paper has it.
    pub place: String,
    /// Of what: a join and a protocol, a file system and where its names are.
    pub of: String,
    /// Which number.
    pub what: String,
    /// What it counts.
    pub unit: Unit,
    /// Ours.
    pub ours: Estimate,
    /// The paper's.
    pub theirs: f64,
    /// Ours divided by theirs.
    pub ratio: f64,
}

impl Beside {
    /// Compares.
    pub fn new(
        place: &str,
        of: impl Into<String>,
        (what, unit): (&str, Unit),
        ours: Estimate,
        theirs: f64,
    ) -> Beside {
        let (place, what, ratio) = (place.to_string(), what.to_string(), ours.value / theirs);
        Beside { place, of: of.into(), what, unit, ours, theirs, ratio }
    }
}

/// Whether a claim is seen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Here too.
    Holds,
    /// Here it is otherwise.
    DoesNotHold,
    /// What was measured does not decide it.
    NotShown,
}

impl Outcome {
    /// What a person reads.
    pub fn words(self) -> &'static str {
        match self {
            Outcome::Holds => "holds",
            Outcome::DoesNotHold => "does not hold",
            Outcome::NotShown => "not shown here",
        }
    }
}

/// An answer with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it is seen.
    pub outcome: Outcome,
    /// From what that follows.
    pub because: String,
}

/// A claim and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// Where the paper has it.
    pub place: String,
    /// What it says.
    pub text: String,
    /// What is seen here.
    #[serde(flatten)]
    pub answer: Answer,
}

impl Judged {
    /// Joins them.
    pub fn new(claim: &Claim, answer: Answer) -> Judged {
        Judged { place: claim.source.place.to_string(), text: claim.text.to_string(), answer }
    }
}

impl Answer {
    /// An answer.
    pub fn new(outcome: Outcome, because: impl Into<String>) -> Answer {
        Answer { outcome, because: because.into() }
    }

    /// None, for this reason.
    pub fn not_shown(why: impl Into<String>) -> Answer {
        Answer::new(Outcome::NotShown, why)
    }

    /// Both of two: what does not hold decides, then what is not shown.
    #[must_use]
    pub fn and(self, other: Answer) -> Answer {
        let rank = |outcome| match outcome {
            Outcome::DoesNotHold => 2,
            Outcome::NotShown => 1,
            Outcome::Holds => 0,
        };
        let outcome =
            if rank(other.outcome) > rank(self.outcome) { other.outcome } else { self.outcome };
        Answer { outcome, because: format!("{}; {}", self.because, other.because) }
    }

    /// The same, unless the measurement cannot be believed.
    #[must_use]
    pub fn unless(self, doubt: Option<&str>) -> Answer {
        match doubt {
            None => self,
            Some(why) => Answer::not_shown(format!("{why} ({})", self.because)),
        }
    }
}

/// A number with its name.
pub type Named<'a> = (&'a str, Estimate);

/// Whether numbers rise in this order. Neighbours whose intervals overlap show nothing.
pub fn rises(numbers: &[Named<'_>], write: &dyn Fn(f64) -> String) -> Answer {
    let because: Vec<String> =
        numbers.iter().map(|(name, one)| format!("{name} {}", write(one.value))).collect();
    let pairs = numbers.windows(2).map(|pair| (pair[0].1, pair[1].1));
    let outcome = match () {
        () if numbers.len() < 2 => Outcome::NotShown,
        () if pairs.clone().any(|(one, next)| next.high < one.low) => Outcome::DoesNotHold,
        () if pairs.clone().all(|(one, next)| one.high < next.low) => Outcome::Holds,
        () => Outcome::NotShown,
    };
    Answer::new(outcome, because.join(", "))
}

/// Whether a quotient lies between two limits. Where its interval crosses one of these, nothing is shown.
pub fn is_between(what: &str, of: Estimate, to: Estimate, (least, most): (f64, f64)) -> Answer {
    let quotient = quotient(of, to);
    let text = match (least > 0.0, most.is_finite()) {
        (true, true) => format!("looked for: {least:.2} to {most:.2}"),
        (true, false) => format!("looked for: {least:.2} at least"),
        _ => format!("looked for: {most:.2} at most"),
    };
    let because = format!(
        "{what} {:.2} ({:.2} to {:.2}; {text})",
        quotient.value, quotient.low, quotient.high
    );
    let outcome = match () {
        () if !quotient.value.is_finite() => Outcome::NotShown,
        () if quotient.low >= least && quotient.high <= most => Outcome::Holds,
        () if quotient.high < least || quotient.low > most => Outcome::DoesNotHold,
        () => Outcome::NotShown,
    };
    Answer::new(outcome, because)
}

/// One number divided by another, with the widest interval that theirs allow.
pub fn quotient(of: Estimate, to: Estimate) -> Estimate {
    Estimate { value: of.value / to.value, low: of.low / to.high, high: of.high / to.low }
}

/// Where one curve lies far below another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collapse {
    /// From this block on,
    pub from_bytes: u64,
    /// up to this one; none when the sizes end before.
    pub back_bytes: Option<u64>,
    /// The least share of the sound curve that is left.
    pub least: f64,
}

/// Where `bad` has less than `share` of the throughput that `sound` has: the longest range of sizes in which it
/// is so. Both are sizes with throughputs, ascending; sizes that only one of them has do not count. One
/// size alone is none.
pub fn collapse(sound: &[(u64, f64)], bad: &[(u64, f64)], share: f64) -> Option<Collapse> {
    let left: Vec<(u64, f64)> = bad
        .iter()
        .filter_map(|(bytes, rate)| {
            let at = sound.binary_search_by_key(bytes, |point| point.0).ok()?;
            Some((*bytes, rate / sound[at].1))
        })
        .collect();
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (at, (_, part)) in left.iter().enumerate() {
        match ranges.last_mut() {
            _ if *part >= share => {}
            Some((_, end)) if *end == at => *end = at + 1,
            _ => ranges.push((at, at + 1)),
        }
    }
    let (begin, end) = ranges.into_iter().max_by_key(|(begin, end)| end - begin)?;
    let least = left[begin..end].iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    (end - begin > 1).then(|| Collapse {
        from_bytes: left[begin].0,
        back_bytes: left.get(end).map(|point| point.0),
        least,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::{self, Paper};

    fn about(value: f64, width: f64) -> Estimate {
        Estimate { value, low: value * (1.0 - width), high: value * (1.0 + width) }
    }

    fn plain(value: f64) -> String {
        format!("{value}")
    }

    #[test]
    fn an_order_holds_only_where_intervals_are_apart() {
        let of = |values: [f64; 3], width| {
            let named = ["a", "b", "c"].into_iter().zip(values.map(|value| about(value, width)));
            rises(&named.collect::<Vec<_>>(), &plain).outcome
        };
        assert_eq!(of([57.0, 64.0, 69.0], 0.01), Outcome::Holds);
        assert_eq!(of([57.0, 64.0, 69.0], 0.05), Outcome::NotShown);
        assert_eq!(of([57.0, 69.0, 64.0], 0.01), Outcome::DoesNotHold);
        assert_eq!(of([57.0, 64.1, 64.0], 0.01), Outcome::NotShown);
        assert_eq!(rises(&[("a", about(1.0, 0.1))], &plain).outcome, Outcome::NotShown);
    }

    #[test]
    fn a_limit_within_the_interval_decides_nothing() {
        let of = |value, width, limits| {
            is_between("x", about(value, width), about(1.0, 0.0), limits).outcome
        };
        assert_eq!(of(4.0, 0.05, (3.3, 5.3)), Outcome::Holds);
        assert_eq!(of(5.2, 0.05, (3.3, 5.3)), Outcome::NotShown);
        assert_eq!(of(9.0, 0.05, (3.3, 5.3)), Outcome::DoesNotHold);
        assert_eq!(of(f64::NAN, 0.0, (3.3, 5.3)), Outcome::NotShown);
        let said = is_between("gain", about(4.0, 0.0), about(1.0, 0.0), (3.3, f64::INFINITY));
        assert_eq!(said.because, "gain 4.00 (4.00 to 4.00; looked for: 3.30 at least)");
    }

    #[test]
    fn of_two_answers_the_worse_decides() {
        let of = |outcome| Answer::new(outcome, "x");
        let (yes, no, none) = (Outcome::Holds, Outcome::DoesNotHold, Outcome::NotShown);
        assert_eq!(of(yes).and(of(yes)).outcome, yes);
        assert_eq!(of(yes).and(of(none)).outcome, none);
        assert_eq!(of(none).and(of(no)).outcome, no);
        assert_eq!(of(no).and(of(yes)).outcome, no);
        assert_eq!(of(yes).unless(Some("busy")), Answer::not_shown("busy (x)"));
        assert_eq!(of(yes).unless(None).outcome, yes);
    }

    #[test]
    fn a_collapse_has_a_beginning_and_an_end() {
        let sizes: Vec<u64> = (0..20).map(|power| 1u64 << power).collect();
        let sound: Vec<(u64, f64)> = sizes.iter().map(|bytes| (*bytes, 90.0)).collect();
        let bad = |from: u64, back: u64| -> Vec<(u64, f64)> {
            let rate = |bytes: u64| if (from..back).contains(&bytes) { 9.0 } else { 88.0 };
            sizes.iter().map(|bytes| (*bytes, rate(*bytes))).collect()
        };
        let found = collapse(&sound, &bad(20_000, 200_000), 0.5).unwrap();
        assert_eq!((found.from_bytes, found.back_bytes), (32_768, Some(262_144)));
        assert!((found.least - 0.1).abs() < 1e-9);
        assert_eq!(collapse(&sound, &bad(20_000, 1 << 30), 0.5).unwrap().back_bytes, None);
        assert_eq!(collapse(&sound, &bad(16, 32), 0.5), None, "one size alone is chance");
        assert_eq!(collapse(&sound, &sound, 0.5), None);
        assert_eq!(collapse(&[], &bad(20_000, 200_000), 0.5), None);
    }

    #[test]
    fn a_ratio_is_ours_over_theirs() {
        let beside =
            Beside::new("table 1", "x", ("write", Unit::BytesPerS), about(30.0, 0.1), 10.0);
        assert!((beside.ratio - 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_papers_would_stand_up_to_their_own_claims() {
        let latency = |join| {
            let link = papers::erato_link(join, "TCP").unwrap();
            (join.name(), about(link.latency_s, 0.01))
        };
        let latencies: Vec<Named<'_>> = papers::Join::ALL.into_iter().map(latency).collect();
        assert_eq!(rises(&latencies, &plain).outcome, Outcome::Holds);
        let block = |is_gigabit| {
            about(papers::kisti_bonnie("PVFS2", true, is_gigabit).unwrap().read_block, 0.0)
        };
        let answer = is_between("gain", block(true), block(false), (3.3, 5.3));
        assert_eq!(answer.outcome, Outcome::Holds, "{answer:?}");
        let claim = papers::claim(Paper::Erato1, "fig1-4", "four pairs").unwrap();
        let judged = Judged::new(&claim, Answer::not_shown("x"));
        assert_eq!(judged.place, "section 3");
        assert_eq!(papers::claim(Paper::Kisti, "fig1-4", "four pairs"), None);
    }
}
