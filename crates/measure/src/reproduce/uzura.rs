//! The tables and figures of the UZURA paper: its card by the model, and beside it what does the same work here.
//!
//! Tables 2 to 4 are what the model is made from; tables 5 and 6 are what the paper computes from them, and what the
//! simulation computes again.

use super::bench::Bench;
use super::told::Part;
use covey_tune::Estimate;
use covey_tune::papers::{
    Paper, UZURA_BLOCK_BYTES_PER_S, UZURA_MESSAGE_S, UZURA_NOTICES, UZURA_PACKET, UZURA_PACKET_S,
    UZURA_WORDS,
};
use covey_tune::reproduce::{Answer, Beside, Outcome, Unit};
use covey_uzura::model::{CELL_BYTES, Nic, Way, access, message, rdma, transfer_ps};
use serde_json::Value;

/// The parts.
pub const PARTS: [&str; 7] = ["table2", "table3", "fig5", "fig6", "table4", "table5", "table6"];

/// The block of table 6.
const BLOCK_BYTES: u64 = 4096;
/// How many times a flag in memory an interrupt takes at least, for it to be "large": in the paper it is 28 times.
const MUCH: f64 = 4.0;
/// A message to an end that sleeps, as `covey uzura bench` calls it.
const SLEEPING: &str = "pingpong-blocking-64";

/// Computes these parts, and measures what stands beside them.
pub async fn run(bench: &mut Bench, parts: &[&'static str]) -> Vec<Part> {
    let here = if parts.iter().any(|part| ["table4", "table5", "table6"].contains(part)) {
        bench.say(format!("{}, messages and blocks of this machine", Paper::Uzura.name()));
        Here::measure(bench).await
    } else {
        Ok(Here::default())
    };
    let nic = Nic::paper();
    let with = |part: Part, add: fn(&Here, &mut Part)| {
        let mut part = part;
        match &here {
            Ok(here) => add(here, &mut part),
            Err(why) => part.leave_out("this machine", why),
        }
        part
    };
    let one = |name: &&'static str| match *name {
        "table2" => packets(&nic),
        "table3" => words(&nic),
        "fig5" => moved(&nic),
        "fig6" => held(&nic),
        "table4" => with(notices(&nic), Here::notices),
        "table5" => with(latency(&nic), Here::messages),
        _ => with(throughput(&nic), Here::blocks),
    };
    parts.iter().map(one).collect()
}

fn part(name: &'static str, title: &'static str) -> Part {
    Part::new(Paper::Uzura, name, title)
}

fn model(place: &str, of: &str, ours_ps: u64, theirs_s: f64) -> Beside {
    let seconds = ("model", Unit::Seconds);
    Beside::new(place, of, seconds, exactly(ours_ps as f64 * 1e-12), theirs_s)
}

fn exactly(value: f64) -> Estimate {
    Estimate { value, low: value, high: value }
}

/// The model starts from these numbers.
const GIVEN: &str = "the model starts from these numbers: they are compared, not predicted";

fn packets(nic: &Nic) -> Part {
    let mut part = part("table2", "a packet of 64 bytes from card to card");
    let ours =
        [nic.fpga_send_ps, nic.pl4_send_ps, nic.mac_ps, nic.pl4_receive_ps, nic.fpga_receive_ps];
    for ((of, theirs), ours) in UZURA_PACKET.iter().zip(ours) {
        part.beside.push(model("table 2", of, ours, *theirs));
    }
    part.beside.push(model("table 2", "together", ours.iter().sum(), UZURA_PACKET_S));
    part.differs(GIVEN);
    part
}

fn words(nic: &Nic) -> Part {
    let mut part = part("table3", "the bus while the host reaches a word of a register");
    for ((of, theirs), ours) in UZURA_WORDS.iter().zip([nic.word_write_ps, nic.word_read_ps]) {
        part.beside.push(model("table 3", of, ours, *theirs));
    }
    part.differs(GIVEN);
    part
}

/// Lengths of figures 5 and 6.
fn lengths() -> impl Iterator<Item = u64> {
    (3..=12).map(|power| 1 << power)
}

fn moved(nic: &Nic) -> Part {
    let mut part =
        part("fig5", "bytes between host and card: moved by the card, or through registers");
    let us = |ps: u64| ps as f64 / 1e6;
    let mut is_faster = true;
    for bytes in lengths() {
        let found = access(nic, bytes);
        is_faster &=
            found.dma_in_ps < found.register_in_ps && found.dma_out_ps < found.register_out_ps;
        part.measured(format!(
            "{bytes:>4} bytes, model: to the card {:.2} us by DMA, {:.2} us by register; from it {:.2} and {:.2} us",
            us(found.dma_in_ps),
            us(found.register_in_ps),
            us(found.dma_out_ps),
            us(found.register_out_ps),
        ));
    }
    let outcome = if is_faster { Outcome::Holds } else { Outcome::DoesNotHold };
    part.judge(
        "DMA is faster",
        Answer::new(outcome, "the model has it so at all of these lengths"),
    );
    part.differs(LOST);
    part
}

fn held(nic: &Nic) -> Part {
    let mut part = part("fig6", "how long bytes hold the bus when the card moves them");
    for bytes in lengths() {
        let bus = transfer_ps(bytes, nic.bus_bytes_per_s);
        let ns = |extra: u64| (bus + extra) as f64 / 1e3;
        part.measured(format!(
            "{bytes:>4} bytes, model: {:.0} ns when the card reads, {:.0} ns when it writes",
            ns(nic.bus_read_extra_ps),
            ns(nic.bus_write_extra_ps),
        ));
    }
    part.differs(LOST);
    part
}

const LOST: &str = "the paper's curve is lost: this follows from tables 3, 5 and 6";

fn notices(nic: &Nic) -> Part {
    let mut part = part("table4", "how host and card tell each other that there is something");
    let ours = [
        nic.start_register_ps,
        nic.start_poll_ps,
        nic.interrupt_ps,
        nic.register_poll_ps,
        nic.flag_ps,
    ];
    for ((of, theirs), ours) in UZURA_NOTICES.iter().zip(ours) {
        part.beside.push(model("table 4", of, ours, *theirs));
    }
    part.differs(GIVEN);
    part
}

fn latency(nic: &Nic) -> Part {
    let mut part = part("table5", "a message of 64 bytes, one way");
    match message(nic, &Way::paper(), CELL_BYTES) {
        Ok(found) => {
            for line in &found.lines {
                if let Some(paper_ps) = line.paper_ps {
                    part.beside.push(model(
                        "table 5",
                        line.name,
                        line.time_ps,
                        paper_ps as f64 * 1e-12,
                    ));
                }
            }
            part.beside.push(model("table 5", "together", found.arrival_ps, UZURA_MESSAGE_S));
        }
        Err(why) => part.leave_out("the model", why),
    }
    part.differs("4.03 us are the paper's prediction from its parts, and so are ours");
    part
}

fn throughput(nic: &Nic) -> Part {
    let mut part = part("table6", "blocks of 4 KiB, one after another");
    match rdma(nic, &Way::paper(), BLOCK_BYTES) {
        Ok(found) => {
            for stage in &found.stages {
                if let Some(paper_ps) = stage.paper_ps {
                    part.beside.push(model(
                        "table 6",
                        stage.name,
                        stage.hold_ps,
                        paper_ps as f64 * 1e-12,
                    ));
                }
            }
            let rate = ("model", Unit::BytesPerS);
            let ours = exactly(found.bytes_per_s);
            let beside =
                Beside::new("section 6.2", "together", rate, ours, UZURA_BLOCK_BYTES_PER_S);
            part.beside.push(beside);
            let is_source = found.bottleneck == found.stages.first().map_or("", |stage| stage.name);
            let outcome = if is_source { Outcome::Holds } else { Outcome::DoesNotHold };
            let because = format!("the model is held up by: {}", found.bottleneck);
            part.judge("bus of the source", Answer::new(outcome, because));
        }
        Err(why) => part.leave_out("the model", why),
    }
    part.differs("1.02 GB/s are the paper's prediction; its 0.83 us on the wire are less than 10 Gbit/s allow, 3.28 us");
    part
}

/// What was measured of this machine: the output of `covey uzura bench`.
#[derive(Default)]
struct Here(Vec<Value>);

impl Here {
    async fn measure(bench: &mut Bench) -> Result<Here, String> {
        let quick = if bench.wish.is_quick { &["--quick"][..] } else { &["--rounds", "2"] };
        let words = [&["uzura", "bench", "--only", "memory", "--only", "tcp"], quick].concat();
        let found: Value =
            bench.covey(&words).await.map_err(|error| super::told::reason(&error))?;
        Ok(Here(found["figures"].as_array().cloned().unwrap_or_default()))
    }

    /// The time of a thing in the best tenth of its batches, in nanoseconds, and who did it.
    fn times(&self, over: &str, what: &str) -> Vec<(&str, f64)> {
        let is_it = |one: &&Value| one["over"] == over && one["what"] == what;
        let found = self.0.iter().filter(is_it);
        found.filter_map(|one| Some((one["who"].as_str()?, one["p10_ns"].as_f64()?))).collect()
    }

    fn least(&self, over: &str, what: &str) -> Option<f64> {
        self.times(over, what).into_iter().map(|(_, ns)| ns).min_by(f64::total_cmp)
    }

    fn tell(&self, part: &mut Part, over: &str, what: &str, words: &str) {
        let times = self.times(over, what);
        if times.is_empty() {
            part.leave_out(words, "`covey uzura bench` did not measure it here");
        }
        for (who, ns) in times {
            part.measured(format!("{words}, {who}: {:.2} us", ns / 1e3));
        }
    }

    /// What stands for a flag in memory, and for an interrupt.
    fn notices(&self, part: &mut Part) {
        self.tell(part, "memory", "line", "a line of memory that the other side polls");
        self.tell(part, "tcp", "pingpong-64", "64 bytes by TCP, polled");
        self.tell(part, "tcp", SLEEPING, "64 bytes by TCP, to one that sleeps");
        let answer = match (self.least("memory", "line"), self.least("tcp", SLEEPING)) {
            (Some(line), Some(sleeping)) => {
                let outcome =
                    if sleeping > MUCH * line { Outcome::Holds } else { Outcome::DoesNotHold };
                Answer::new(
                    outcome,
                    format!(
                        "a sleeper hears after {:.1} us, one that polls memory after {:.2} us",
                        sleeping / 1e3,
                        line / 1e3
                    ),
                )
            }
            _ => Answer::not_shown("one of the two was not measured"),
        };
        part.judge("interrupt is large", answer);
    }

    fn messages(&self, part: &mut Part) {
        self.beside(part, "memory", "pingpong-64", "64 bytes by memory, one way");
        self.beside(part, "tcp", "pingpong-64", "64 bytes by TCP on loopback, one way");
        part.differs("processes of one machine here, two machines and their cards there");
    }

    /// Everybody's time beside the paper's prediction of its card.
    fn beside(&self, part: &mut Part, over: &str, what: &str, words: &str) {
        let times = self.times(over, what);
        if times.is_empty() {
            part.leave_out(words, "`covey uzura bench` did not measure it here");
        }
        for (who, ns) in times {
            let unit = (who, Unit::Seconds);
            part.beside.push(Beside::new(
                "table 5",
                words,
                unit,
                exactly(ns * 1e-9),
                UZURA_MESSAGE_S,
            ));
        }
    }

    fn blocks(&self, part: &mut Part) {
        for (over, words) in
            [("memory", "by memory, one way"), ("tcp", "by TCP on loopback, one way")]
        {
            let what = format!("pingpong-{BLOCK_BYTES}");
            let times = self.times(over, &what);
            if times.is_empty() {
                part.leave_out(
                    format!("4 KiB {words}"),
                    "`covey uzura bench` did not measure it here",
                );
            }
            for (who, ns) in times {
                let (unit, ours) = ((who, Unit::BytesPerS), exactly(BLOCK_BYTES as f64 / ns * 1e9));
                let theirs = UZURA_BLOCK_BYTES_PER_S;
                part.beside.push(Beside::new("section 6.2", words, unit, ours, theirs));
            }
        }
        part.differs(
            "4 KiB are sent alone here, and waited for; the paper's blocks follow each other",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_stands_beside_every_number_that_the_paper_has() {
        let nic = Nic::paper();
        let all = [packets(&nic), words(&nic), notices(&nic), latency(&nic), throughput(&nic)];
        let counts = all.each_ref().map(|part| part.beside.len());
        assert_eq!(counts, [6, 2, 5, 9, 4]);
        for one in all.iter().flat_map(|part| &part.beside) {
            // The wire of table 6 is the paper's slip.
            let is_slip = one.place == "table 6" && one.theirs < 1e-6;
            assert!(is_slip || (one.ratio - 1.0).abs() < 0.01, "{one:?}");
        }
        assert!(all.iter().all(|part| part.left_out.is_empty()));
    }

    #[test]
    fn what_was_measured_is_found_by_its_name() {
        let figure = |over: &str, what: &str, who: &str, ns: f64| serde_json::json!({ "over": over, "what": what, "who": who, "p10_ns": ns });
        let here = Here(vec![
            figure("memory", "line", "the machine", 50.0),
            figure("memory", "pingpong-64", "Covey", 100.0),
            figure("memory", "pingpong-64", "Open MPI 4.1.4", 400.0),
            figure("tcp", SLEEPING, "a bare socket", 10_000.0),
        ]);
        let mut part = latency(&Nic::paper());
        here.messages(&mut part);
        let last: Vec<_> = part.beside.iter().rev().take(2).map(|one| one.ratio).collect();
        assert!((last[1] - 100.0 / 4030.0).abs() < 1e-6 && (last[0] - 400.0 / 4030.0).abs() < 1e-6);
        assert_eq!(part.left_out.len(), 1, "nothing of TCP was measured");
        let mut part = notices(&Nic::paper());
        here.notices(&mut part);
        assert_eq!(part.claims[0].answer.outcome, Outcome::Holds);
    }
}
