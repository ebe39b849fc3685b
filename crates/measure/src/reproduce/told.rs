//! What was reproduced, in words and as JSON.

use super::drawn::{Figure, Traffic};
use crate::environment::Environment;
use crate::error::Error;
use crate::provenance::Provenance;
use covey_lab::units::{rate_text, time_text};
use covey_plot::table;
use covey_tune::Estimate;
use covey_tune::papers::{self, Paper};
use covey_tune::reproduce::{Answer, Beside, Judged, Unit};
use covey_tune::split::{Source, Split};
use serde::Serialize;
use std::io::Write;

/// The result of `covey reproduce`.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// `reproduce`, by which results are told apart.
    pub kind: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// Whether it was measured shortly.
    pub is_quick: bool,
    /// What was measured.
    pub parts: Vec<Part>,
    /// How the machine was meanwhile.
    pub environment: Environment,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

/// A figure, a table, or several.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its name after `--only`.
    pub part: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Numbers beside the paper's.
    pub beside: Vec<Beside>,
    /// Numbers that the paper has not.
    pub measured: Vec<String>,
    /// Differences between networks, and whether they come from the wire or from the library.
    pub divided: Vec<Divided>,
    /// What went over the cables of a lab.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<Traffic>,
    /// Pictures, for the page.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Claims.
    pub claims: Vec<Judged>,
    /// What is different here, and why.
    pub differs: Vec<String>,
    /// What could not be measured.
    pub left_out: Vec<LeftOut>,
    #[serde(skip)]
    paper: Option<Paper>,
}

/// A difference between two networks through two libraries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divided {
    /// Of what.
    pub what: String,
    /// The networks.
    pub wires: [&'static str; 2],
    /// The libraries.
    pub libraries: [String; 2],
    /// Times over the first network and over the second, each through both libraries.
    pub times_s: [[Estimate; 2]; 2],
    /// The factors.
    #[serde(flatten)]
    pub split: Split,
    /// What makes the difference.
    pub source: Source,
}

/// What could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The part, as `--only` names it.
    pub what: String,
    /// The reason, in words.
    pub why: String,
}

impl Part {
    /// An empty one.
    pub fn new(paper: Paper, part: &'static str, title: &'static str) -> Part {
        Part {
            part,
            title,
            beside: Vec::new(),
            measured: Vec::new(),
            divided: Vec::new(),
            traffic: Vec::new(),
            figures: Vec::new(),
            claims: Vec::new(),
            differs: Vec::new(),
            left_out: Vec::new(),
            paper: Some(paper),
        }
    }

    /// Leaves something out.
    pub fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let left = LeftOut { what: what.into(), why: why.into() };
        if !self.left_out.contains(&left) {
            self.left_out.push(left);
        }
    }

    /// Leaves something out because of an error, with what it hints at.
    pub fn fail(&mut self, what: impl Into<String>, error: &Error) {
        self.leave_out(what, reason(error));
    }

    /// Tells numbers that have nothing to stand beside.
    pub fn measured(&mut self, numbers: impl Into<String>) {
        self.measured.push(numbers.into());
    }

    /// Says what is different here.
    pub fn differs(&mut self, why: impl Into<String>) {
        self.differs.push(why.into());
    }

    /// Says why the numbers cannot be believed, if they cannot.
    pub fn doubt(&mut self, why: Option<String>) {
        self.differs.extend(why);
    }

    /// Answers the claim that has these words.
    pub fn judge(&mut self, words: &str, answer: Answer) {
        let claim = self.paper.and_then(|paper| papers::claim(paper, self.part, words));
        let claim = claim.unwrap_or_else(|| panic!("no claim of {} has `{words}`", self.part));
        self.claims.push(Judged::new(&claim, answer));
    }

    fn is_nothing(&self) -> bool {
        let numbers = self.beside.len() + self.measured.len() + self.divided.len();
        numbers + self.claims.len() + self.traffic.len() == 0
    }

    fn tell(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        writeln!(out, "{}: {}\n", self.part, self.title)?;
        let rows: Vec<Vec<String>> = self.beside.iter().map(row).collect();
        if !rows.is_empty() {
            let heading = ["OF", "", "IN", ">OURS", "95 % WITHIN", ">PAPER", ">RATIO"];
            table(out, &heading, &rows);
            writeln!(out)?;
        }
        for numbers in &self.measured {
            writeln!(out, "measured: {numbers}")?;
        }
        self.tell_divided(out)?;
        self.traffic.iter().try_for_each(|one| one.tell(out))?;
        for claim in &self.claims {
            let Judged { place, text, answer } = claim;
            writeln!(out, "{}: {text} ({place})", answer.outcome.words())?;
            writeln!(out, "  because {}", answer.because)?;
        }
        for why in &self.differs {
            writeln!(out, "differs: {why}")?;
        }
        for LeftOut { what, why } in &self.left_out {
            writeln!(out, "left out: {what}: {why}")?;
        }
        writeln!(out)
    }

    /// A table for each two networks.
    fn tell_divided(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for same in self.divided.chunk_by(|one, other| one.wires == other.wires) {
            let Divided { wires: [first, second], libraries: [a, b], .. } = &same[0];
            writeln!(
                out,
                "{second} against {first}, through {a} (A) and {b} (B). Factors are of the time: below 1 {second} \
                 is faster, or B.\n"
            )?;
            let over = |wire: &str, library: &str| format!(">{}, {library}", wire.to_uppercase());
            let heading = [
                "OF".to_string(),
                over(first, "A"),
                over(first, "B"),
                over(second, "A"),
                over(second, "B"),
                ">WIRE".to_string(),
                ">LIBRARY".to_string(),
                "COMES FROM".to_string(),
            ];
            let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
            table(out, &heading, &same.iter().map(Divided::row).collect::<Vec<_>>());
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Divided {
    fn row(&self) -> Vec<String> {
        let times = self.times_s.iter().flatten();
        let times = times.map(|time| number(Unit::Seconds, time.value));
        let factor = |one: Estimate| format!("{:.2} ({:.2}-{:.2})", one.value, one.low, one.high);
        let factors = [self.split.wire, self.split.library].map(factor);
        let last = std::iter::once(self.source.words().to_string());
        std::iter::once(self.what.clone()).chain(times).chain(factors).chain(last).collect()
    }
}

/// An error and what it hints at, in one line.
pub fn reason(error: &Error) -> String {
    let hints: String = error.hints.iter().map(|hint| format!(" ({hint})")).collect();
    format!("{}{hints}", error.message)
}

impl Reproduction {
    /// In words.
    pub fn tell(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let how = if self.is_quick { ", measured shortly" } else { "" };
        let has_no_lab = [Paper::Lanl, Paper::Uzura].iter().any(|paper| paper.name() == self.paper);
        let place = if has_no_lab { "" } else { " in labs" };
        writeln!(out, "{}{place} on this machine{how}\n", self.paper)?;
        self.parts.iter().try_for_each(|part| part.tell(out))?;
        match self.environment.warning() {
            Some(warning) => writeln!(out, "warning: {warning}"),
            None => Ok(()),
        }
    }

    /// Why nothing was measured; none when anything was.
    pub fn first_reason_of_nothing(&self) -> Option<String> {
        if self.parts.iter().any(|part| !part.is_nothing()) {
            return None;
        }
        let left = self.parts.iter().flat_map(|part| &part.left_out).next();
        Some(left.map_or("nothing was asked for".to_string(), |left| left.why.clone()))
    }
}

fn row(one: &Beside) -> Vec<String> {
    let text = |value: f64| number(one.unit, value);
    let interval = if one.ours.low < one.ours.high {
        format!("{} to {}", text(one.ours.low), text(one.ours.high))
    } else {
        "-".to_string()
    };
    vec![
        one.of.clone(),
        one.what.clone(),
        one.place.clone(),
        text(one.ours.value),
        interval,
        text(one.theirs),
        ratio(one.ratio),
    ]
}

/// Two digits that count, also of a small one.
fn ratio(value: f64) -> String {
    if value < 0.1 { format!("{value:.4}") } else { format!("{value:.2}") }
}

/// A number with its unit.
pub fn number(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds => time_text((value * 1e9).max(0.0).round() as u64),
        Unit::BitsPerS => rate_text(Some(value.max(0.0) as u64)),
        Unit::Bytes => format!("{value:.0} B"),
        Unit::BytesPerS => format!("{:.1} MB/s", value / 1e6),
        Unit::Flops => format!("{:.2} Gflop/s", value / 1e9),
        Unit::OpsPerS => format!("{:.0} Mop/s", value / 1e6),
        Unit::Share => format!("{:.1} %", 100.0 * value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_tune::Estimate;
    use covey_tune::reproduce::Outcome;

    fn part() -> Part {
        let mut part = Part::new(Paper::Erato1, "fig5-7", "links");
        let ours = Estimate { value: 60e-6, low: 59e-6, high: 61e-6 };
        let what = ("latency", Unit::Seconds);
        part.beside.push(Beside::new("figure 7", "cable, TCP", what, ours, 57e-6));
        part
    }

    fn told(parts: Vec<Part>) -> Reproduction {
        Reproduction {
            kind: "reproduce",
            paper: "ERATO-1",
            is_quick: true,
            parts,
            environment: Environment::default(),
            provenance: Provenance::default(),
        }
    }

    #[test]
    fn ours_stand_beside_theirs() {
        let mut part = part();
        part.leave_out("PVM", "it is not installed");
        part.leave_out("PVM", "it is not installed");
        part.fail("HPL", &Error::work("there is no hpcc").hint("apt-get install hpcc"));
        let mut out = Vec::new();
        told(vec![part]).tell(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("1.05") && text.contains("59 us to 61 us"), "{text}");
        assert!(text.contains("HPL: there is no hpcc (apt-get install hpcc)"), "{text}");
        assert_eq!(text.matches("left out: PVM: it is not installed").count(), 1, "{text}");
    }

    #[test]
    fn nothing_is_an_error_with_its_reason() {
        let mut empty = Part::new(Paper::Kisti, "fig4", "HPL");
        empty.leave_out("all of it", "no hpcc");
        assert_eq!(told(vec![empty.clone()]).first_reason_of_nothing().unwrap(), "no hpcc");
        assert_eq!(told(vec![empty, part()]).first_reason_of_nothing(), None);
    }

    #[test]
    fn differences_are_told_with_where_they_come_from() {
        let about = |value: f64| Estimate { value, low: 0.99 * value, high: 1.01 * value };
        let times_s = [[1e-3, 2e-3].map(about), [0.5e-3, 1e-3].map(about)];
        let split = Split::of(times_s).unwrap();
        let mut part = Part::new(Paper::Kisti, "fig3", "collectives");
        part.divided.push(Divided {
            what: "bcast".to_string(),
            wires: ["myrinet2000", "infiniband-sdr"],
            libraries: ["MPICH 4.0.2".to_string(), "Open MPI 4.1.4".to_string()],
            times_s,
            split,
            source: split.source(),
        });
        let json = serde_json::to_value(&part).unwrap();
        assert!((json["divided"][0]["wire"]["value"].as_f64().unwrap() - 0.5).abs() < 1e-9);
        let mut out = Vec::new();
        told(vec![part]).tell(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for words in
            ["INFINIBAND-SDR, B", "0.50 (0.49-0.51)", "through MPICH 4.0.2 (A)", "both, the"]
        {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_claim_is_found_by_its_words() {
        let mut part = Part::new(Paper::Erato1, "fig1-4", "curves");
        part.judge("four pairs", Answer::new(Outcome::Holds, "x"));
        assert_eq!(part.claims[0].place, "section 3");
    }
}
