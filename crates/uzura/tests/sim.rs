//! Seeds of the simulated engines: messages and accesses between processes that die, over transports that refuse and
//! delay. `cargo run --release -p covey-uzura --example uzura_simulate -- --seeds 10000` runs more.

mod uzura;

#[test]
fn no_byte_is_lost_doubled_or_misplaced_in_two_hundred_seeds() {
    let mut sum = uzura::Report::default();
    for seed in 0..200 {
        let report = uzura::simulate(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        sum.add(&report);
    }
    // Everything that there is was done.
    assert!(sum.operations > 10_000, "{sum:?}");
    let parts = [sum.faults, sum.direct, sum.rendezvous, sum.unexpected];
    assert!(sum.helped > 20, "{sum:?}");
    assert!(parts.iter().all(|part| *part > 300), "{sum:?}");
    assert!(sum.mixed > 30 && sum.posted > 50, "{sum:?}");
    assert!(sum.words > 50 && sum.delivered > 300 && sum.glances > 20, "{sum:?}");
}
