//! Papers measured again, in labs that go down whatever happens.

use crate::support::command::{Finished, covey, run_within};
use crate::support::{has_file, has_program, run, skip, until};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What stands in errors where labs are not permitted.
const FORBIDDEN: [&str; 3] =
    ["cannot make network cards", "user namespace", "mount /proc for the lab"];

/// Programs over MPI wait awake: two reproductions at once would only wait for each other.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs `covey --json reproduce WORDS --quick`, one at a time. None, with the reason told, where labs are not permitted.
fn reproduce(words: &[&str]) -> Option<Value> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
fn programs_on_simulated_nodes_stand_beside_those_of_the_launcher_s_paper() {
    let Some(found) = reproduce(&["lanl", "--only", "table2", "--only", "fig2", "--only", "fig3"])
    else {
        return;
    };
    assert_eq!(found["paper"], "9P in HPC");
    let parts = all(&found, "parts");
    let names: Vec<_> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(names, ["table2", "fig2", "fig3"]);
    let beside = all(&parts[0], "beside");
    assert_eq!(beside.len(), 8, "four sizes, two systems: {beside:?}");
    let ours = |at: usize| beside[at]["ours"]["value"].as_f64().unwrap();
    assert!(ours(0) > 0.0 && ours(0) < ours(6), "longer programs take longer: {beside:?}");
    assert_eq!(beside[7]["theirs"], 20.3);
    let told = |part: usize| serde_json::to_string(&parts[part]["measured"]).unwrap();
    assert!(told(0).contains("1.0") && told(0).contains("copies leave"), "{}", told(0));
    assert!(told(1).contains("64 nodes") && told(2).contains("16384 KiB"), "{}", told(1));
}

#[test]
fn the_card_s_model_and_this_machine_stand_beside_the_uzura_paper() {
    let Some(found) = reproduce(&["uzura"]) else { return };
    assert_eq!(found["paper"], "UZURA");
    let parts = all(&found, "parts");
    let names: Vec<_> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(names, ["table2", "table3", "fig5", "fig6", "table4", "table5", "table6"]);
    let messages = all(&parts[5], "beside");
    let is = |of: &str, who: &str| {
        messages.iter().any(|one| one["of"] == of && one["what"].as_str().unwrap().starts_with(who))
    };
    assert!(is("together", "model"), "{messages:?}");
    assert!(is("64 bytes by memory, one way", "Covey"), "{messages:?}");
    assert!(is("64 bytes by TCP on loopback, one way", "Covey"), "{messages:?}");
    let holds = |part: usize| parts[part]["claims"][0]["outcome"] == "holds";
    assert!(holds(2) && holds(6), "{parts:?}");
}

/// Sends SIGTERM to `covey --json reproduce WORDS` as soon as `is_time` says so of its process, and waits for its end. What
/// it told then; none, with the reason told, where labs are not permitted.
fn interrupted(words: &[&str], is_time: impl Fn(u32) -> bool) -> Option<Value> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command: Command = covey();
    command.args(["--json", "reproduce"]).args(words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let pid = rustix::process::Pid::from_raw(id as i32).unwrap();
    let mut is_over = false;
    until("the moment, or the end", || {
        // Without a lab it ends by itself.
        is_over = std::fs::read_to_string(format!("/proc/{id}/stat"))
            .is_ok_and(|stat| stat.contains(") Z "));
        is_over || is_time(id)
    });
    if !is_over {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if is_over && FORBIDDEN.iter().any(|words| stderr.contains(words)) {
        skip(format!("needs a lab: {}", stderr.lines().next().unwrap_or_default()));
        return None;
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
    assert!(!lab_of(id).exists(), "the lab is left");
    assert_eq!(scratches_of(id), Vec::<PathBuf>::new(), "its files are left");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Where a reproduction has its lab.
fn lab_of(id: u32) -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    format!("/var/tmp/covey-lab-{uid}/reproduce-{id}").into()
}

/// Where it has what measuring programs write.
fn scratches_of(id: u32) -> Vec<PathBuf> {
    let all = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten().map(|entry| entry.path());
    let mine = format!("covey-tune-{id}-");
    let is_mine = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&mine))
    };
    all.filter(is_mine).collect()
}

#[test]
fn a_signal_takes_the_lab_down_and_tells_what_there_was() {
    let words = ["erato", "--only", "fig5-7"];
    let told = interrupted(&words, |id| lab_of(id).join("keeper.pid").exists());
    let Some(told) = told else { return };
    assert!(!all(&told["parts"][0], "left_out").is_empty(), "{told:#}");
}

#[test]
fn a_signal_in_the_middle_of_mpi_keeps_what_there_was() {
    if libraries().is_empty() {
        return;
    }
    let has_records = |id| {
        let records = scratches_of(id).into_iter().map(|dir| dir.join("records"));
        records.filter_map(|file| std::fs::metadata(file).ok()).any(|file| file.len() > 0)
    };
    let Some(told) = interrupted(&["kisti", "--only", "fig3"], has_records) else { return };
    let part = &told["parts"][0];
    let left = part["left_out"].to_string();
    assert!(left.contains("the rest of myrinet2000") && left.contains("interrupted"), "{told:#}");
}

/// The MPIs that compile and start programs here; those of other makers are not known to Covey.
fn libraries() -> Vec<&'static str> {
    let is_there = |library: &&str| {
        has_program(&format!("mpicc.{library}")) && has_program(&format!("mpiexec.{library}"))
    };
    let found: Vec<&str> = ["openmpi", "mpich"].into_iter().filter(is_there).collect();
    if found.is_empty() {
        skip("needs Open MPI or MPICH with its compiler");
    }
    found
}

/// The MPIs that have ScaLAPACK beside them; without any the test is skipped.
fn with_scalapack() -> Vec<&'static str> {
    let has_its_own = |library: &&str| has_file(&format!("/usr/lib/@/libscalapack-{library}.so"));
    let mut found = libraries();
    found.retain(|library| has_its_own(library) && has_file("/usr/lib/@/libblas.so.3"));
    if found.is_empty() {
        skip("needs libscalapack-openmpi-dev or libscalapack-mpich-dev, and a BLAS");
    }
    found
}

fn has_outcome(claim: &Value) {
    let outcomes = ["holds", "does-not-hold", "not-shown"];
    assert!(outcomes.iter().any(|outcome| claim["outcome"] == *outcome), "{claim:#}");
}

/// A whole is what wire and library make of it, wherever there are two libraries; and no result was wrong.
fn divides(part: &Value, libraries: usize) {
    let rows = all(part, "divided");
    assert_eq!(rows.is_empty(), libraries < 2, "{part:#}");
    for row in rows {
        let factor = |name: &str| row[name]["value"].as_f64().unwrap();
        let product = factor("wire") * factor("library");
        assert!((product / factor("whole") - 1.0).abs() < 1e-9, "{row:#}");
    }
    let wrong = all(part, "left_out").iter().find(|one| one["why"] == "its result was wrong");
    assert!(wrong.is_none(), "{wrong:#?}");
    all(part, "claims").iter().for_each(has_outcome);
}

#[test]
fn collectives_are_divided_into_wire_and_library() {
    let libraries = libraries();
    if libraries.is_empty() {
        return;
    }
    let Some(found) = reproduce(&["kisti", "--only", "fig3"]) else { return };
    let part = &found["parts"][0];
    divides(part, libraries.len());
    let named = |what: &str| part["divided"].to_string().contains(what);
    if libraries.len() == 2 {
        for what in ["barrier", "sendrecv", "bcast", "reduce", "allreduce", "allgather", "alltoall"]
        {
            assert!(named(&format!("{what}, 4 processes")), "{what}: {part:#}");
        }
    }
}

#[test]
fn kernels_give_right_results_on_every_network() {
    let libraries = libraries();
    if libraries.is_empty() {
        return;
    }
    let Some(found) = reproduce(&["kisti", "--only", "fig5"]) else { return };
    let part = &found["parts"][0];
    divides(part, libraries.len());
    let left = part["left_out"].to_string();
    assert!(left.contains("PTRANS"), "{part:#}");
    if libraries.len() == 2 {
        let whats: Vec<String> =
            all(part, "divided").iter().map(|row| row["what"].to_string()).collect();
        for what in ["bt", "ep", "cg", "ft", "is"] {
            assert!(whats.iter().any(|one| one.starts_with(&format!("\"{what},"))), "{part:#}");
        }
    }
}

#[test]
fn hpl_stands_beside_the_papers_gain() {
    let libraries = with_scalapack();
    if libraries.is_empty() {
        return;
    }
    let Some(found) = reproduce(&["kisti", "--only", "fig4"]) else { return };
    let part = &found["parts"][0];
    divides(part, libraries.len());
    if has_program("hpcc") && has_program("mpiexec.openmpi") {
        let row = &all(part, "beside")[0];
        assert!((row["theirs"].as_f64().unwrap() - 1.04).abs() < 1e-9, "{row:#}");
    } else {
        assert!(part["left_out"].to_string().contains("hpcc"), "{part:#}")
    }
}

#[test]
fn matrices_stand_beside_eratos_peaks() {
    if with_scalapack().is_empty() {
        return;
    }
    let Some(found) = reproduce(&["erato", "--only", "table1"]) else { return };
    let part = &found["parts"][0];
    let rows = all(part, "beside");
    // Two routines, two orders, of each the rate and its share.
    assert_eq!(rows.len(), 8, "{part:#}");
    for row in rows {
        let ours = row["ours"]["value"].as_f64().unwrap();
        assert!(ours > 0.0 && (row["unit"] != "share" || ours < 1.5), "{row:#}");
    }
}

#[test]
fn what_eratos_text_says_of_matrices_is_judged() {
    if with_scalapack().is_empty() {
        return;
    }
    let Some(found) = reproduce(&["erato", "--only", "fig10-13"]) else { return };
    let part = &found["parts"][0];
    let claims = all(part, "claims");
    claims.iter().for_each(has_outcome);
    let text = part["claims"].to_string();
    for words in ["double complex", "larger matrices", "best block", "behind that line"] {
        assert!(text.contains(words), "{words}: {part:#}");
    }
    assert!(part["left_out"].to_string().contains("packaged over MPI only"), "{part:#}");
}

#[test]
fn basic_commands_are_timed_on_three_networks() {
    if let Some(why) = crate::support::no_fuse() {
        skip(why);
        return;
    }
    let Some(found) = reproduce(&["kisti", "--only", "fig6"]) else { return };
    let part = &found["parts"][0];
    assert!(all(part, "left_out").is_empty(), "{found:#}");
    assert_eq!(all(part, "measured").len(), 3);
    let claim = &all(part, "claims")[0];
    has_outcome(claim);
    for network in ["myrinet2000", "infiniband-sdr", "gigabit"] {
        assert!(claim["because"].as_str().unwrap().contains(network), "{claim:#}");
    }
}

/// What the reproduction of volumes and file systems in a lab needs; the test is skipped without it.
fn can_have_disks() -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "needs root to mount file systems of volumes"
    } else if !["mkfs.ext4", "losetup"].into_iter().all(has_program) {
        "needs e2fsprogs and mount"
    } else if !std::path::Path::new("/dev/loop-control").exists() {
        "needs loop devices"
    } else if let Some(why) = crate::support::no_fuse() {
        skip(why);
        return false;
    } else {
        return !libraries().is_empty();
    };
    skip(why);
    false
}

#[test]
fn btio_on_local_disks_and_over_iscsi_stands_beside_the_ip_san_paper() {
    if !can_have_disks() {
        return;
    }
    let words = ["ip-san", "--only", "table2", "--only", "fig14-15", "--class", "S"];
    let Some(found) = reproduce(&words) else { return };
    assert_eq!(found["paper"], "IP-SAN");
    let parts = all(&found, "parts");
    for (row, bytes) in
        all(&parts[0], "beside").iter().zip([22_118_400, 419_430_400, 1_697_932_800])
    {
        assert_eq!(row["ours"]["value"], f64::from(bytes), "{row:#}");
        assert!((row["ratio"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{row:#}");
    }
    assert!(parts[0]["beside"].to_string().contains("length of the file"), "{found:#}");
    let part = &parts[1];
    assert!(all(part, "left_out").is_empty(), "{part:#}");
    let told = part["measured"].to_string();
    for words in [
        "epio, local disk, 1 node",
        "epio, 1:1 iSCSI, one network, 1 node",
        "epio, 1:1 iSCSI, one network:",
    ] {
        assert!(told.contains(words), "{words}: {part:#}");
    }
    all(part, "claims").iter().for_each(has_outcome);
    assert_eq!(all(part, "figures").len(), 2, "{part:#}");
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let left = devices
        .filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    let left: Vec<String> = left.filter(|file| file.contains("/reproduce-")).collect();
    assert!(left.is_empty(), "loop devices are left: {left:?}");
}

#[test]
fn storage_has_its_own_network_where_there_are_two() {
    if !can_have_disks() {
        return;
    }
    let Some(found) = reproduce(&["ip-san", "--only", "traffic", "--class", "S"]) else { return };
    let part = &all(&found, "parts")[0];
    assert!(all(part, "left_out").is_empty(), "{part:#}");
    let bytes = |traffic: &Value, network: &str, class: &str| -> f64 {
        let sums = all(traffic, "sums").iter().flat_map(|pair| pair.as_array().unwrap());
        let mine =
            sums.filter(|sum| sum["cable"].as_str().unwrap() == format!("n1 to n4, {network}"));
        let phases = mine.flat_map(|sum| all(sum, "phases"));
        phases.map(|phase| phase[class]["bytes"].as_f64().unwrap()).sum()
    };
    let traffic = all(part, "traffic");
    assert_eq!(traffic.len(), 4, "{part:#}");
    let (one, two) = (&traffic[0], &traffic[1]);
    // 0.83 MB are written, and read back, in phases of some milliseconds; what moves between two readings of the counters
    // counts for all that they lie between.
    assert!(bytes(one, "front", "storage") > 0.3e6, "{one:#}");
    assert!(bytes(one, "front", "messages") > 1e6, "{one:#}");
    assert!(bytes(two, "storage", "storage") > 0.3e6, "{two:#}");
    assert!(bytes(two, "front", "storage") < 0.1e6, "{two:#}");
    assert!(bytes(two, "storage", "messages") < 0.1e6, "{two:#}");
}

#[test]
fn a_class_is_for_btio_alone() {
    let mut command = covey();
    command.args(["reproduce", "kisti", "--class", "S"]);
    let done = run(command);
    done.says(&["class", "ip-san"]);
    assert_eq!(done.code, Some(2));
}
