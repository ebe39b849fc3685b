//! Labs: clusters of namespaces on this machine.

use crate::support::bytes::noise;
use crate::support::command::covey;
use crate::support::lab::Lab;
use crate::support::{has_program, is_root, run, skip, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody has waited for yet has ended all the same.
    !stat.is_empty() && !stat.contains(") Z ")
}

fn pid_of(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("a number")).expect("a process")
}

#[test]
fn nodes_have_their_own_names_cards_and_addresses() {
    let Some(lab) = Lab::up("names", &["3", "--storage-link", "loopback"]) else { return };
    assert_eq!(lab.exec("n2", &["cat", "/proc/sys/kernel/hostname"]), "n2\n");
    let hosts = lab.exec("n3", &["cat", "/etc/hosts"]);
    assert!(hosts.contains("10.24.1.2 n2\n") && hosts.contains("10.24.2.2 n2-st\n"), "{hosts}");
    let cards = lab.exec("n1", &["cat", "/proc/net/dev"]);
    assert!(cards.contains("eth0:") && cards.contains("st0:"), "{cards}");
    assert_eq!(cards.lines().count(), 2 + 3, "nothing of the machine's own: {cards}");
    // From node to node without leaving the lab.
    let words = ["lab", "exec", "n3", "--", "cat", "/proc/sys/kernel/hostname"];
    assert_eq!(lab.covey("n1", &words), "n3\n");
}

#[test]
fn the_code_of_a_program_and_its_directory_are_those_it_would_have_had() {
    let Some(lab) = Lab::up("code", &["1"]) else { return };
    assert_eq!(lab.try_exec("n1", &["sh", "-c", "exit 42"]).code, Some(42));
    assert_eq!(lab.try_exec("n1", &["sh", "-c", "kill -9 $$"]).code, Some(128 + 9));
    assert_eq!(lab.exec("n1", &["pwd"]), "/\n");
    let unknown = lab.try_exec("n1", &["covey-no-such-program"]);
    assert!(unknown.stderr.contains("cannot run covey-no-such-program on n1"), "{unknown}");
    lab.try_exec("n7", &["true"]).says(&["cannot find node n7", "n1"]);
}

#[test]
fn nothing_is_left_when_a_lab_goes_down_and_doing_it_twice_is_no_error() {
    let Some(lab) = Lab::up("down", &["2"]) else { return };
    let status = lab.lab("status", &[]);
    let keeper = pid_of(&status["keeper"]);
    let dir = status["dir"].as_str().unwrap().to_string();
    let mut inside = sleeper(&lab, "n1");
    lab.lab("down", &[]);
    assert!(!is_alive(keeper));
    assert!(!Path::new(&dir).exists());
    inside.wait().unwrap();
    assert_eq!(lab.lab("down", &[])["was_there"], false);
    lab.try_exec("n1", &["true"]).says(&["it is not up"]);
}

/// A program on a node that has begun to run and would run for long.
fn sleeper(lab: &Lab, node: &str) -> std::process::Child {
    let mut words = covey();
    let name = lab.lab("status", &[])["lab"].as_str().unwrap().to_string();
    words.args(["lab", "exec", "--name", &name, node, "--", "sh", "-c", "echo; exec sleep 1000"]);
    let mut child = words.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    child
}

#[test]
fn a_killed_keeper_takes_everything_with_it_and_the_rest_is_cleared() {
    let Some(lab) = Lab::up("killed", &["2"]) else { return };
    let status = lab.lab("status", &[]);
    let mut inside = sleeper(&lab, "n2");
    let keeper = i32::try_from(pid_of(&status["keeper"])).unwrap();
    kill_process(Pid::from_raw(keeper).unwrap(), Signal::KILL).unwrap();
    inside.wait().unwrap();
    until("the keeper's end", || !is_alive(keeper.cast_unsigned()));
    lab.refused("status", &[]).says(&["its keeper has died", "covey lab down"]);
    lab.lab("up", &["1"]);
    assert_eq!(lab.exec("n1", &["echo", "again"]), "again\n");
}

#[test]
fn a_program_on_a_node_ends_with_the_command_that_started_it() {
    let Some(lab) = Lab::up("ends", &["1"]) else { return };
    let mut inside = sleeper(&lab, "n1");
    inside.kill().unwrap();
    inside.wait().unwrap();
    let sleepers = || {
        let all = lab.exec("n1", &["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]);
        all.matches("sleep 1000").count()
    };
    until("the end of the program", || sleepers() == 0);
}

#[test]
fn a_delay_that_is_set_is_had_and_one_below_the_machines_own_is_refused() {
    let words = ["2", "--topology", "direct", "--link", "loopback"];
    let Some(lab) = Lab::up("delay", &words) else { return };
    lab.lab("set", &["n1-n2", "delay", "5ms"]);
    let mut server = covey();
    let name = lab.lab("status", &[])["lab"].as_str().unwrap().to_string();
    server.args(["lab", "exec", "--name", &name, "n2", "--"]);
    server.args([env!("CARGO_BIN_EXE_covey"), "lab", "floor"]);
    let mut server = server.spawn().unwrap();
    let floor = lab.covey("n1", &["lab", "floor", "10.24.1.2:5639"]);
    let floor: Value = serde_json::from_str(&floor).unwrap();
    let ns = floor["latency_ns"].as_u64().unwrap();
    server.wait().unwrap();
    assert!(ns >= 5_000_000, "{ns} ns one way");
    lab.refused("set", &["n1-n2", "latency", "1ns"]).says(&["this machine alone takes"]);
}

#[test]
fn a_cable_carries_what_its_settings_let_it_and_counts_the_rest() {
    let words = ["2", "--topology", "direct", "--link", "loopback"];
    let Some(lab) = Lab::up("settings", &words) else { return };
    lab.lab("set", &["n1-n2", "mtu", "1500", "rate", "10mbit", "loss", "0.5%", "--from", "n1"]);
    let way = |way: usize| lab.lab("status", &[])["links"][0]["ways"][way].clone();
    assert_eq!(way(0)["settings"]["bits_per_s"], 10_000_000);
    assert_eq!(way(0)["settings"]["loss_ppm"], 5_000);
    assert_eq!(way(1)["settings"]["loss_ppm"], 0);
    lab.lab("set", &["all", "state", "down"]);
    assert_eq!(way(1)["settings"]["is_down"], true);
    lab.refused("set", &["all", "rate", "fast"]).says(&["cannot set rate", "100mbit"]);
    lab.refused("set", &["all", "speed", "1"]).says(&["no such key", "rate"]);
    lab.refused("set", &["n1-n3", "rate", "1mbit"]).says(&["cannot find the link", "n1-n2"]);
    lab.refused("set", &["n1-n2", "loss", "1%", "--from", "n9"]).says(&["n1 and n2"]);
    lab.refused("set", &["n1-n2", "loss", "1%", "rate"]).says(&["its value is missing"]);
    assert_eq!(way(0)["settings"]["bits_per_s"], 10_000_000, "nothing was changed");
}

#[test]
fn covey_up_inside_makes_one_server_on_each_node() {
    let Some(lab) = Lab::up("cluster", &["3", "--storage-link", "gigabit"]) else { return };
    let up: Value = serde_json::from_str(&lab.covey("n1", &["--json", "up"])).unwrap();
    let listen: Vec<&str> =
        (0..3).map(|node| up["nodes"][node]["listen"][0].as_str().unwrap()).collect();
    assert_eq!(listen, ["tcp!10.24.2.1!5640", "tcp!10.24.2.2!5640", "tcp!10.24.2.3!5640"]);
    assert_eq!(up["nodes"][0]["roles"], serde_json::json!(["meta", "data", "launch"]));
    let dir = tempfile::tempdir().unwrap();
    let (local, back) = (dir.path().join("local"), dir.path().join("back"));
    std::fs::write(&local, noise(4, 1 << 20)).unwrap();
    lab.covey("n2", &["cp", local.to_str().unwrap(), ":/file"]);
    lab.covey("n3", &["cp", ":/file", back.to_str().unwrap()]);
    assert_eq!(std::fs::read(&back).unwrap(), noise(4, 1 << 20));
    // It went over the storage network.
    let status = lab.lab("status", &[]);
    let link = |name: &str| {
        let links = status["links"].as_array().unwrap();
        links.iter().find(|link| link["name"] == name).unwrap().clone()
    };
    assert!(link("n2-st1")["ways"][0]["counts"]["bytes"].as_u64().unwrap() > 600_000);
    assert_eq!(link("n3-sw1")["ways"][0]["counts"]["bytes"], 0);
    lab.covey("n1", &["down"]);
}

#[test]
fn fewer_servers_than_nodes_leave_the_names_alone_on_the_first() {
    let Some(lab) = Lab::up("apart", &["3"]) else { return };
    let up: Value = serde_json::from_str(&lab.covey("n1", &["--json", "up", "-n", "1"])).unwrap();
    assert_eq!(up["nodes"][0]["roles"], serde_json::json!(["meta", "launch"]));
    assert_eq!(up["nodes"].as_array().unwrap().len(), 2);
    let program = env!("CARGO_BIN_EXE_covey");
    let words = [program, "up", "-n", "9", "--dir", "/tmp/covey-never"];
    lab.try_exec("n1", &words).says(&["has 3 nodes"]);
    lab.covey("n1", &["down"]);
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is() {
    let refused = |words: &[&str]| {
        let mut command = covey();
        command.args(["lab", "up", "--lab", "never"]).args(words);
        let done = run(command);
        assert_eq!(done.code, Some(2), "{done}");
        done
    };
    assert!(refused(&["3", "--topology", "direct"]).stderr.contains("joins 2 nodes, not 3"));
    assert!(refused(&["2", "--link", "token-ring"]).stderr.contains("fast-ethernet"));
    assert!(refused(&["0"]).stderr.contains("1 to 250"));
    let mut named = covey();
    named.args(["lab", "up", "1", "--lab", "../../etc"]);
    run(named).says(&["cannot call a lab `../../etc`"]);
}

/// Runs a script as user 12345 with a program of its own at `$covey`, where the device that makes cards has
/// this mode. None where that cannot be done here.
fn as_user(mode: &str, script: &str) -> Option<crate::support::Finished> {
    if !is_root() || !has_program("setpriv") || !has_program("unshare") {
        skip("needs root, unshare and setpriv to become a user");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("covey");
    std::fs::copy(env!("CARGO_BIN_EXE_covey"), &program).unwrap();
    use std::os::unix::fs::PermissionsExt;
    for path in [dir.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = format!(
        "set -e; mount -t tmpfs none /dev/net; mknod /dev/net/tun c 10 200; chmod {mode} /dev/net/tun
         cd /; exec setpriv --reuid 12345 --regid 12345 --clear-groups sh -c 'covey={}
         {script}'",
        program.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let done = run(command);
    if done.stderr.contains("user namespace") || done.stderr.contains("mount:") {
        skip(format!("needs user namespaces: {}", done.stderr));
        return None;
    }
    Some(done)
}

#[test]
fn who_may_not_make_cards_is_told_how_and_leaves_nothing() {
    let name = format!("forbidden-{}", std::process::id());
    let script = format!("$covey lab up 2 --lab {name}");
    let Some(done) = as_user("600", &script) else { return };
    assert_eq!(done.code, Some(1), "{done}");
    let words = ["cannot make network cards", "/dev/net/tun", "chmod 666"];
    assert!(words.iter().all(|word| done.stderr.contains(word)), "{done}");
    assert!(!Path::new(&format!("/var/tmp/covey-lab-12345/{name}")).exists());
    // Somebody else's lab is none of this user's.
    let script = format!("$covey tune net n1 n2 --lab {name}");
    let Some(done) = as_user("600", &script) else { return };
    assert_eq!(done.code, Some(2), "{done}");
    assert!(done.stderr.contains("it is not up"), "{done}");
}

#[test]
fn a_user_makes_a_lab_without_root() {
    let name = format!("user-{}", std::process::id());
    let script = format!(
        "set -e; lab=\"$covey lab\"
         $lab up 2 --lab {name} >&2
         $lab exec --lab {name} n2 -- cat /proc/sys/kernel/hostname
         $lab exec --lab {name} n1 -- $covey up >&2
         $lab exec --lab {name} n2 -- $covey ls /
         $lab down --lab {name} >&2"
    );
    let Some(done) = as_user("666", &script) else { return };
    assert!(done.ok && done.stdout == "n2\n", "{done}");
    assert!(!Path::new(&format!("/var/tmp/covey-lab-12345/{name}")).exists());
}
