//! Papers measured again, in labs that go down whatever happens.

mod support;

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::command::{Finished, covey, run_within};
use support::skip;
use support::{run, until};

/// What stands in errors where labs are not permitted.
const FORBIDDEN: [&str; 3] =
    ["cannot make network cards", "user namespace", "mount /proc for the lab"];

/// Runs `covey --json reproduce WORDS --quick`. None, with the reason told, where labs are not permitted.
fn reproduce(words: &[&str]) -> Option<Value> {
    let mut command = covey();
    command.args(["--json", "reproduce"]).args(words).args(["--quick", "--anyway"]);
    let done: Finished = run_within(command, Duration::from_secs(240));
    if !done.ok && FORBIDDEN.iter().any(|words| done.stderr.contains(words)) {
        skip(format!("needs a lab: {}", done.stderr.lines().next().unwrap_or_default()));
        return None;
    }
    assert!(done.ok, "{done}");
    Some(serde_json::from_str(&done.stdout).unwrap())
}

fn all<'a>(of: &'a Value, name: &str) -> &'a Vec<Value> {
    of[name].as_array().unwrap()
}

#[test]
fn tcp_over_three_ways_of_joining_stands_beside_eratos() {
    let Some(found) = reproduce(&["erato", "--only", "fig5-7"]) else { return };
    assert_eq!((&found["kind"], &found["paper"]), (&"reproduce".into(), &"ERATO-1".into()));
    let part = &found["parts"][0];
    let left: String = all(part, "left_out").iter().map(|one| one["what"].to_string()).collect();
    for join in ["crossover cable", "CentroCOM FS708XL", "Catalyst 5505"] {
        let of = format!("{join}, TCP");
        let rows: Vec<&Value> =
            all(part, "beside").iter().filter(|one| one["of"] == of.as_str()).collect();
        // On a busy machine longer blocks may take no longer: then it is left out and said.
        if rows.is_empty() {
            assert!(left.contains(&format!("TCP over {join}")), "{found:#}");
            continue;
        }
        for row in rows {
            let number = |name: &str| row[name].as_f64().unwrap();
            let ours = row["ours"]["value"].as_f64().unwrap();
            assert!((number("ratio") - ours / number("theirs")).abs() < 1e-9, "{row:#}");
        }
    }
}

#[test]
fn an_unknown_part_is_refused_and_a_missing_one_is_said() {
    let mut command = covey();
    command.args(["reproduce", "erato", "--only", "fig99"]);
    let done = run(command);
    done.says(&["fig99", "fig8-9"]);
    assert_eq!(done.code, Some(2));
    let mut command = covey();
    command.args(["reproduce", "kepler"]);
    assert_eq!(run(command).code, Some(2));
}

#[test]
fn a_signal_takes_the_lab_down_and_tells_what_there_was() {
    let mut command: Command = covey();
    command.args(["--json", "reproduce", "erato", "--only", "fig5-7"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let dir: PathBuf = format!("/var/tmp/covey-lab-{uid}/reproduce-{}", child.id()).into();
    let mut is_over = false;
    until("the lab, or the end", || {
        // Without a lab it ends by itself.
        is_over = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))
            .is_ok_and(|stat| stat.contains(") Z "));
        is_over || dir.join("keeper.pid").exists()
    });
    if !is_over {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if is_over && FORBIDDEN.iter().any(|words| stderr.contains(words)) {
        skip(format!("needs a lab: {}", stderr.lines().next().unwrap_or_default()));
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!all(&told["parts"][0], "left_out").is_empty(), "{told:#}");
    assert!(!dir.exists(), "the lab is left");
}

#[test]
fn basic_commands_are_timed_on_three_networks() {
    if let Some(why) = support::no_fuse() {
        skip(why);
        return;
    }
    let Some(found) = reproduce(&["kisti", "--only", "fig6"]) else { return };
    let part = &found["parts"][0];
    assert!(all(part, "left_out").is_empty(), "{found:#}");
    assert_eq!(all(part, "measured").len(), 3);
    let claim = &all(part, "claims")[0];
    let outcomes = ["holds", "does-not-hold", "not-shown"];
    assert!(outcomes.iter().any(|outcome| claim["outcome"] == *outcome), "{claim:#}");
    for network in ["myrinet2000", "infiniband-sdr", "gigabit"] {
        assert!(claim["because"].as_str().unwrap().contains(network), "{claim:#}");
    }
}
