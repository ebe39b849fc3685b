//! What the text claims of figures 10 to 13.

use super::measured::{Measured, PLAIN};
use super::{BLOCK, BLOCKS, Orders, Tools, case};
use crate::reproduce::told::{Part, number};
use covey_tune::Estimate;
use covey_tune::application::{Numbers, Routine};
use covey_tune::reproduce::{Answer, Named, Outcome, Unit, is_between, rises};
use covey_tune::trend::Trend;

/// The blocks that the claim calls best.
const BEST: [u64; 2] = [32, 64];
/// So many times the plain one is an optimised BLAS at least, or it is not indispensable.
const INDISPENSABLE: f64 = 1.5;
/// So far do two optimised ones differ that hardly do.
const HARDLY: (f64, f64) = (1.0 / 1.15, 1.15);
/// So far beside a line lies what is nearly on it,
const NEARLY: f64 = 0.1;
/// and so little of the line is left to what is far behind.
const FAR: f64 = 0.8;

/// The order of the paper's systems.
const SYSTEMS: u64 = 4800;

/// Judges what there is.
pub fn judge(
    part: &mut Part,
    found: &Measured,
    (orders, tools): (&Orders, &Tools),
    doubt: Option<&str>,
) {
    let (plain, best) = (tools.plain().0.name.as_str(), tools.best().0.name.as_str());
    let is_small = orders.systems < SYSTEMS;
    let mut say = |words: &str, answer: Option<Answer>| {
        if let Some(answer) = answer {
            part.judge(words, of_size(answer, is_small).unless(doubt));
        }
    };
    say("takes longer", types(found, plain, orders, true));
    say("single complex over", types(found, plain, orders, false));
    say("larger matrices", larger(found, best, orders));
    say("32 x 32", blocks(found, best, orders));
    let names: Vec<&str> = tools.blas.iter().map(|one| one.0.name.as_str()).collect();
    let rates = systems(found, &names, orders);
    say("indispensable", indispensable(&rates));
    say("hardly matters", hardly_matters(&rates));
    say("stay far behind", overhead(found, best, orders));
    tell(part, found, (orders, tools), &rates);
}

/// Small matrices wait for the wire, and what the wire hides refutes nothing.
fn of_size(answer: Answer, is_small: bool) -> Answer {
    match answer.outcome {
        Outcome::DoesNotHold if is_small => Answer::not_shown(format!(
            "small matrices wait for the wire most of the time ({})",
            answer.because
        )),
        _ => answer,
    }
}

fn flops(rate: f64) -> String {
    number(Unit::Flops, rate)
}

/// By how long it takes, or by the rate, the slowest first.
fn types(found: &Measured, blas: &str, orders: &Orders, is_time: bool) -> Option<Answer> {
    use Numbers::{C, D, S, Z};
    let of = |numbers| {
        let case = case(Routine::Gemm, numbers, orders.types, BLOCK);
        let name = match numbers {
            S => "single real",
            D => "double real",
            C => "single complex",
            Z => "double complex",
        };
        let number = if is_time { found.seconds(blas, case) } else { found.flops(blas, case) };
        Some((name, number?))
    };
    let order = if is_time { [S, D, C, Z] } else { [D, Z, S, C] };
    let all: Option<Vec<Named<'_>>> = order.into_iter().map(of).collect();
    let write = |value| if is_time { number(Unit::Seconds, value) } else { flops(value) };
    Some(with(blas, rises(&all?, &write)))
}

fn with(blas: &str, answer: Answer) -> Answer {
    Answer { because: format!("with {blas}: {}", answer.because), ..answer }
}

fn growing(
    found: &Measured,
    blas: &str,
    orders: &Orders,
    routine: Routine,
) -> Vec<(u64, Estimate)> {
    let rate =
        |order: &u64| Some((*order, found.flops(blas, case(routine, Numbers::D, *order, BLOCK))?));
    orders.growing.iter().filter_map(rate).collect()
}

/// From the smallest over the middle to the largest: neighbours may be too near to tell.
fn larger(found: &Measured, blas: &str, orders: &Orders) -> Option<Answer> {
    let rates = growing(found, blas, orders, Routine::Gemm);
    let chosen: Vec<(String, Estimate)> = [0, rates.len() / 2, rates.len().checked_sub(1)?]
        .map(|at| (format!("order {}", rates[at].0), rates[at].1))
        .to_vec();
    let named: Vec<Named<'_>> = chosen.iter().map(|(name, rate)| (name.as_str(), *rate)).collect();
    (rates.len() > 2).then(|| with(blas, rises(&named, &flops)))
}

/// Of both routines: which blocks may be the best.
fn blocks(found: &Measured, blas: &str, orders: &Orders) -> Option<Answer> {
    let of = |routine: Routine| {
        let rate = |block| {
            Some((block, found.flops(blas, case(routine, Numbers::D, orders.blocks, block))?))
        };
        let rates: Option<Vec<(u64, Estimate)>> = BLOCKS.into_iter().map(rate).collect();
        let rates = rates?;
        let text: Vec<String> =
            rates.iter().map(|(block, rate)| format!("{block} {}", flops(rate.value))).collect();
        Some((foremost(&rates), format!("{}: {}", routine.name(), text.join(", "))))
    };
    let all: Option<Vec<(Vec<u64>, String)>> =
        [Routine::Gemm, Routine::Gesv].into_iter().map(of).collect();
    let all = all?;
    let said: Vec<&str> = all.iter().map(|one| one.1.as_str()).collect();
    let best: Vec<&[u64]> = all.iter().map(|one| one.0.as_slice()).collect();
    Some(with(blas, Answer::new(often(&best), said.join("; "))))
}

/// Those whose interval reaches that of the best.
fn foremost(rates: &[(u64, Estimate)]) -> Vec<u64> {
    let best = rates.iter().map(|one| one.1).max_by(|one, other| one.value.total_cmp(&other.value));
    let reaches = |rate: &Estimate| best.is_some_and(|best| rate.high >= best.low);
    rates.iter().filter(|one| reaches(&one.1)).map(|one| one.0).collect()
}

/// Whether the claim's blocks are the best for at least half of them; who else may be best leaves it open.
fn often(foremost: &[&[u64]]) -> Outcome {
    let count =
        |is_it: &dyn Fn(&[u64]) -> bool| foremost.iter().filter(|blocks| is_it(blocks)).count();
    let yes = count(&|blocks| blocks.iter().all(|block| BEST.contains(block)));
    let no = count(&|blocks| !blocks.iter().any(|block| BEST.contains(block)));
    match foremost.len() {
        all if 2 * yes >= all => Outcome::Holds,
        all if 2 * no > all => Outcome::DoesNotHold,
        _ => Outcome::NotShown,
    }
}

fn systems<'a>(found: &Measured, names: &[&'a str], orders: &Orders) -> Vec<Named<'a>> {
    let of = |name: &&'a str| {
        Some((*name, found.flops(name, case(Routine::Gesv, Numbers::D, orders.systems, BLOCK))?))
    };
    names.iter().filter_map(of).collect()
}

/// The slowest that somebody has made fast by the one that nobody has.
fn indispensable(rates: &[Named<'_>]) -> Option<Answer> {
    let plain = rates.iter().find(|one| one.0 == PLAIN)?;
    let others = rates.iter().filter(|one| one.0 != PLAIN);
    let slowest = others.min_by(|one, other| one.1.value.total_cmp(&other.1.value))?;
    let what = format!("LU with {} by {}", slowest.0, plain.0);
    Some(is_between(&what, slowest.1, plain.1, (INDISPENSABLE, f64::INFINITY)))
}

/// The fastest by the slowest of those.
fn hardly_matters(rates: &[Named<'_>]) -> Option<Answer> {
    let mut others: Vec<&Named<'_>> = rates.iter().filter(|one| one.0 != PLAIN).collect();
    others.sort_by(|one, other| one.1.value.total_cmp(&other.1.value));
    let [slowest, .., fastest] = others[..] else { return None };
    let what = format!("LU with {} by {}", fastest.0, slowest.0);
    Some(is_between(&what, fastest.1, slowest.1, HARDLY))
}

fn overhead(found: &Measured, blas: &str, orders: &Orders) -> Option<Answer> {
    let rates = growing(found, blas, orders, Routine::Gesv);
    let answer = match Trend::of(&rates) {
        Some(trend) => judge_trend(&trend),
        None => Answer::not_shown(
            "a line through the larger matrices promises nothing to the small ones: the rates still grow faster than the \
             order, or not at all",
        ),
    };
    (rates.len() > 3).then(|| with(blas, answer))
}

/// The smallest of all has most to lose.
fn judge_trend(trend: &Trend) -> Answer {
    let smallest = &trend.behind[0];
    let ideal = Estimate { value: smallest.ideal, low: smallest.ideal, high: smallest.ideal };
    let behind = is_between(
        &format!("order {} by the line", smallest.size),
        smallest.rate,
        ideal,
        (0.0, FAR),
    );
    let nearly = if trend.bend <= NEARLY { Outcome::Holds } else { Outcome::DoesNotHold };
    let text =
        format!("from order {} on at most {:.0} % beside a line", trend.from, 100.0 * trend.bend);
    let all: Vec<String> = trend
        .behind
        .iter()
        .map(|one| format!("{} {} of {}", one.size, flops(one.rate.value), flops(one.ideal)))
        .collect();
    let rest = Answer::new(
        Outcome::Holds,
        format!("reached of what the line promises: {}", all.join(", ")),
    );
    Answer::new(nearly, text).and(behind).and(rest)
}

fn tell(
    part: &mut Part,
    found: &Measured,
    (orders, tools): (&Orders, &Tools),
    rates: &[Named<'_>],
) {
    let best = tools.best().0.name.as_str();
    let list = |all: Vec<String>| all.join(", ");
    if !rates.is_empty() {
        let all = rates.iter().map(|(name, rate)| format!("{name} {}", flops(rate.value)));
        part.measured(format!(
            "LU of order {}, blocks of {BLOCK}: {}",
            orders.systems,
            list(all.collect())
        ));
    }
    for (routine, name) in [(Routine::Gemm, "multiplying"), (Routine::Gesv, "LU")] {
        let rates = growing(found, best, orders, routine);
        if !rates.is_empty() {
            let all = rates.iter().map(|(order, rate)| format!("{order} {}", flops(rate.value)));
            part.measured(format!("{name} with {best} by order: {}", list(all.collect())));
        }
    }
    let cores = tools.blas.iter().map(|(blas, rate)| format!("{} {}", blas.name, flops(*rate)));
    part.measured(format!("one core, dgemm: {}", list(cores.collect())));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(value: f64) -> Estimate {
        Estimate { value, low: 0.98 * value, high: 1.02 * value }
    }

    #[test]
    fn the_best_blocks_are_those_that_cannot_be_told_from_the_best() {
        let rates = [(16, about(80.0)), (32, about(100.0)), (64, about(99.0)), (128, about(97.0))];
        assert_eq!(foremost(&rates), [32, 64, 128]);
        assert_eq!(foremost(&[]), [0u64; 0]);
        assert_eq!(often(&[&[32], &[16]]), Outcome::Holds, "half of them");
        assert_eq!(often(&[&[32, 64, 128], &[64, 128]]), Outcome::NotShown);
        assert_eq!(often(&[&[8], &[128]]), Outcome::DoesNotHold);
    }

    #[test]
    fn an_optimised_blas_is_judged_by_the_worst_and_by_the_spread() {
        let rates = [("reference", about(1e9)), ("ATLAS", about(2e9)), ("OpenBLAS", about(2.1e9))];
        assert_eq!(indispensable(&rates).unwrap().outcome, Outcome::Holds);
        assert_eq!(hardly_matters(&rates).unwrap().outcome, Outcome::Holds);
        let rates =
            [("reference", about(1e9)), ("ATLAS", about(1.1e9)), ("OpenBLAS", about(2.1e9))];
        assert_eq!(indispensable(&rates).unwrap().outcome, Outcome::DoesNotHold);
        assert_eq!(hardly_matters(&rates).unwrap().outcome, Outcome::DoesNotHold);
        assert_eq!(indispensable(&rates[1..]), None);
        assert_eq!(hardly_matters(&rates[..2]), None);
    }

    #[test]
    fn small_matrices_refute_nothing() {
        let of = |outcome, is_small| of_size(Answer::new(outcome, "x"), is_small).outcome;
        assert_eq!(of(Outcome::DoesNotHold, true), Outcome::NotShown);
        assert_eq!(of(Outcome::DoesNotHold, false), Outcome::DoesNotHold);
        assert_eq!(of(Outcome::Holds, true), Outcome::Holds);
    }

    #[test]
    fn small_ones_behind_the_line_are_the_overhead() {
        let rates = |small: f64| -> Vec<(u64, Estimate)> {
            let of = |order: u64| {
                let line = 1e9 + 1e6 * order as f64;
                (order, about(if order < 1000 { small * line } else { line }))
            };
            [250, 500, 1000, 2000, 3000, 4000].map(of).to_vec()
        };
        let judged = |small| judge_trend(&Trend::of(&rates(small)).unwrap());
        assert_eq!(judged(0.5).outcome, Outcome::Holds);
        assert_eq!(judged(1.0).outcome, Outcome::DoesNotHold);
        assert_eq!(judged(0.8).outcome, Outcome::NotShown);
        assert!(judged(0.5).because.contains("250"), "{:?}", judged(0.5));
    }
}
