//! The timing model of the UZURA card, as a user asks it.

use crate::home::Home;
use serde_json::Value;

fn model(words: &[&str]) -> Value {
    Home::new().run([&["--json", "uzura", "model"], words].concat()).ok().json()
}

#[test]
fn the_papers_predictions_come_out_to_the_printed_digit() {
    let found = model(&[]);
    assert_eq!(found["message"]["arrival_us"], 4.03);
    let rate = found["rdma"]["bytes_per_s"].as_f64().unwrap() / 1e9;
    assert_eq!(format!("{rate:.2}"), "1.02");
    let told = Home::new().run(["uzura", "model"]).ok().stdout;
    for line in ["one way                        4.03   4.03", "0.83  impossible", "an input here"]
    {
        assert!(told.contains(line), "{line}\n{told}");
    }
    let origins = Home::new().run(["uzura", "model", "--components"]).ok().stdout;
    assert!(origins.contains("assumed: ") && origins.contains("derived: "), "{origins}");
}

#[test]
fn what_is_changed_changes_the_answer() {
    let latency = |words: &[&str]| model(words)["message"]["arrival_us"].as_f64().unwrap();
    assert!((latency(&["--notice", "interrupt"]) - 9.02).abs() < 1e-9);
    assert!((latency(&["--mac-inside"]) - 3.52).abs() < 1e-9);
    assert!((latency(&["--mac", "560ns"]) - 3.03).abs() < 1e-9);
    let wide = model(&["--bus", "pcie:3:8"]);
    assert_eq!(wide["rdma"]["bottleneck"], "link");
    let told = Home::new().run(["uzura", "model", "--bus", "pcie:3:8"]).ok().stdout;
    assert!(!told.contains("impossible"), "the paper's numbers stand beside the paper's card only");
}

#[test]
fn a_sweep_is_a_row_for_each_step() {
    for (what, rows) in
        [("block", 15), ("mtu", 8), ("link", 7), ("pcie", 5), ("working-set", 9), ("table", 8)]
    {
        let found = model(&["--sweep", what]);
        assert_eq!(found.as_array().unwrap().len(), rows, "{what}");
    }
    let told = Home::new().run(["uzura", "model", "--sweep", "block"]).ok().stdout;
    assert!(told.contains("HELD UP BY") && told.contains('*'), "{told}");
}

#[test]
fn what_cannot_be_is_refused_with_the_limit() {
    for (words, why) in [
        (&["--mtu", "0"][..], "the MTU is 0"),
        (&["--message", "2GiB"], "1 to 1073741824"),
        (&["--bus", "pcie:9:8"], "1 to 5"),
        (&["--bus", "isa"], "pcie:GENERATION:LANES"),
        (&["--link", "none"], "a link has a rate"),
    ] {
        let told = Home::new().run([&["uzura", "model"], words].concat());
        assert_eq!(told.code, 2, "{words:?}");
        assert!(told.stderr.contains(why) && told.stderr.contains("hint: "), "{}", told.stderr);
    }
}
