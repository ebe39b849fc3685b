//! What packagers take from the program: manual pages, completions, the unit.

use crate::home::Home;
use crate::support::{Cluster, command, has_program, run, skip};
use std::process::Command;

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::new();
    home.run(["man", "pages"]).ok();
    let pages: Vec<String> = std::fs::read_dir(home.path("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    for name in
        ["covey.1", "covey-up.1", "covey-cp.1", "covey-9p.1", "covey-9p-ls.1", "covey-layout-set.1"]
    {
        assert!(pages.iter().any(|page| page == name), "{name} is missing in {pages:?}");
    }
    let page = std::fs::read_to_string(home.path("pages/covey-up.1")).unwrap();
    assert!(page.contains(".TH COVEY-UP 1"), "{page}");
    assert!(page.contains("EXAMPLES"), "{page}");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let text = Home::new().run(["completions", shell]).ok().stdout;
        assert!(text.contains("genconfig"), "{shell}");
    }
}

/// As bash calls it: COMP_WORDS are cut at colons, COMP_LINE is what was typed.
const COMPLETE: &str = r#"
source completions
for line in 'covey ping i' 'covey cp x :/di' 'covey ls /dist/' 'covey rm /a' 'covey cat re' 'covey serve --node=io' \
    'covey run -w io1,m' 'covey completions f'
do
    COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    read -ra COMP_WORDS <<<"${line//:/ : }"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _covey_values covey "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    (IFS='|'; echo "${COMPREPLY[*]}")
done
"#;

#[test]
fn bash_completes_nodes_and_paths_and_the_rest() {
    let cluster = Cluster::up(2);
    cluster.covey(&["mkdir", "-p", "/dist/deb", "/a b"]);
    cluster.covey(&["touch", "/dist2", "/report;reboot"]);
    let script = cluster.covey(&["completions", "bash"]);
    std::fs::write(cluster.scratch("completions"), script).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_covey"), cluster.scratch("covey")).unwrap();
    let place = cluster.scratch("");
    let mut bash = Command::new("bash");
    let path = format!("{}:{}", place.display(), std::env::var("PATH").unwrap());
    bash.args(["-c", COMPLETE]).env("PATH", path).env("COVEY_CONFIG", cluster.config());
    bash.current_dir(&place);
    let done = run(bash);
    // A file's name is no command.
    let file = "report\\;reboot";
    let expected =
        ["io1|io2", "/dist/|/dist2", "/dist/deb/", "/a b/", file, "io1|io2", "io1,meta", "fish"];
    assert_eq!(done.stdout.lines().collect::<Vec<_>>(), expected, "{done}");
    // Without a cluster there is nothing to complete, and nothing is said.
    let mut none = command::covey();
    none.args(["--config", "/nonexistent", "completions", "bash", "--", "ls", "/"]);
    let done = run(none);
    assert!(done.ok && done.stdout.is_empty() && done.stderr.is_empty(), "{done}");
}

#[test]
fn the_units_are_the_packaged_ones() {
    let packaged = include_str!("../../../../dist/covey@.service");
    assert_eq!(Home::new().run(["systemd"]).ok().stdout, packaged);
    assert!(
        packaged
            .contains("ExecStart=/usr/bin/covey --config /etc/covey/covey.toml serve --node %i")
    );
    let mount = include_str!("../../../../dist/covey-mount@.service");
    assert_eq!(Home::new().run(["systemd", "mount"]).ok().stdout, mount);
}

/// The settings of a unit's service.
fn settings(unit: &str) -> Vec<(&str, &str)> {
    let service = unit.split("[Service]\n").nth(1).unwrap();
    let lines = service.lines().take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')).collect()
}

/// What a process's children inherit and cannot get back, by the names of systemd.exec(5).
fn is_sandbox(name: &str) -> bool {
    let words = ["Protect", "Private", "Restrict", "SystemCall", "NoNewPrivileges", "ReadOnly"];
    let more =
        ["CapabilityBoundingSet", "MemoryDenyWriteExecute", "LockPersonality", "Inaccessible"];
    let is_one = words.iter().chain(&more).any(|word| name.starts_with(word));
    is_one && name != "RestartPreventExitStatus"
}

#[test]
fn programs_of_users_are_not_in_the_sandbox_of_the_servers() {
    let home = Home::new();
    let unit = home.run(["systemd"]).ok().stdout;
    let of_node = settings(&unit);
    let taken: Vec<_> = of_node.iter().filter(|(name, _)| is_sandbox(name)).collect();
    assert!(taken.is_empty(), "programs of `covey run` would miss {taken:?}");
    // Control groups are made below the unit's own, and a program that takes too much memory ends alone.
    for wanted in [("Delegate", "yes"), ("OOMPolicy", "continue"), ("TasksMax", "infinity")] {
        assert!(of_node.contains(&wanted), "{wanted:?} in {of_node:?}");
    }
    let drop_in = home.run(["systemd", "sandbox"]).ok().stdout;
    let taken = settings(&drop_in);
    for name in ["ProtectHome", "PrivateTmp", "SystemCallFilter", "CapabilityBoundingSet"] {
        assert!(taken.iter().any(|(taken, _)| *taken == name), "{name} in {taken:?}");
    }
    assert!(taken.contains(&("Environment", "COVEY_SANDBOX=yes")), "{taken:?}");
}

#[test]
fn a_node_that_runs_programs_does_not_start_in_the_sandbox() {
    let cluster = Cluster::up(1);
    let mut serve = command::covey();
    serve.args(["--config", cluster.config().to_str().unwrap(), "serve", "--node", "io1"]);
    serve.env("COVEY_SANDBOX", "yes");
    let done = run(serve);
    assert_eq!(done.code, Some(2), "{done}");
    for words in ["role launch", "sandbox", "hint: remove", "roles of io1"] {
        assert!(done.stderr.contains(words), "{words}: {done}");
    }
}

#[test]
fn systemd_takes_the_units() {
    if !has_program("systemd-analyze") {
        return skip("needs systemd-analyze to check the units");
    }
    let home = Home::new();
    // The node's unit with the drop-in as well.
    std::fs::create_dir(home.path("covey@.service.d")).unwrap();
    let drop_in = home.run(["systemd", "sandbox"]).ok().stdout;
    std::fs::write(home.path("covey@.service.d/sandbox.conf"), drop_in).unwrap();
    let units = [("serve", "covey@io1.service"), ("mount", "covey-mount@mnt-covey.service")];
    for (kind, name) in units {
        // It looks for the program as well.
        let unit = home.run(["systemd", kind]).ok().stdout;
        let unit = unit.replace("/usr/bin/covey", env!("CARGO_BIN_EXE_covey"));
        std::fs::write(home.path(name), unit).unwrap();
        let mut command = Command::new("systemd-analyze");
        command.args(["--man=no", "verify"]).arg(home.path(name));
        let done = run(command);
        assert!(done.ok && done.stderr.is_empty(), "{name}: {done}");
    }
}

#[test]
fn systemd_makes_the_user_of_the_package() {
    if !has_program("systemd-sysusers") {
        return skip("needs systemd-sysusers to make users");
    }
    let home = Home::new();
    std::fs::create_dir(home.path("etc")).unwrap();
    let users = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/sysusers.d/covey.conf");
    let mut command = Command::new("systemd-sysusers");
    command.arg(format!("--root={}", home.path("").display())).arg(users);
    let done = run(command);
    assert!(done.ok, "{done}");
    let made = std::fs::read_to_string(home.path("etc/passwd")).unwrap();
    assert!(made.starts_with("covey:x:") && made.contains(":/var/lib/covey:"), "{made}");
}

#[test]
fn the_scripts_for_slurm_are_scripts() {
    let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/slurm/");
    for name in ["prolog", "epilog", "common"] {
        let mut bash = Command::new("bash");
        let done = run({
            bash.arg("-n").arg(format!("{dist}{name}"));
            bash
        });
        assert!(done.ok && done.stderr.is_empty(), "{name}: {done}");
    }
    // Slurm loads the Lua by itself, in launch/slurm.rs; here its functions are named as Slurm calls them.
    let lua = std::fs::read_to_string(format!("{dist}burst_buffer.lua")).unwrap();
    for name in ["job_process", "pools", "setup", "data_in", "paths", "pre_run", "data_out"] {
        assert!(lua.contains(&format!("slurm_bb_{name}")), "{name}");
    }
}

#[test]
fn make_makes_every_target_whatever_files_there_are() {
    let makefile = include_str!("../../../../Makefile");
    let phony = makefile.lines().find_map(|line| line.strip_prefix(".PHONY:")).unwrap();
    let phony: Vec<&str> = phony.split_whitespace().collect();
    let targets = makefile.lines().filter_map(|line| line.split_once(':'));
    for (target, _) in targets.filter(|(target, _)| target.bytes().all(|b| b.is_ascii_lowercase()))
    {
        assert!(phony.contains(&target), "{target} is not phony: a file of that name stops it");
    }
}

#[test]
fn each_line_of_the_list_of_packages_names_packages_targets_and_what_is_looked_for() {
    let makefile = include_str!("../../../../Makefile");
    let lines = include_str!("../../../../scripts/packages").lines();
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in rows {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, without, goes_on, first, ..] = words[..] else {
            panic!("a line of scripts/packages has too few words: {line}");
        };
        let targets = without.split(',').chain(goes_on.split(',')).filter(|target| *target != "-");
        for target in targets {
            let prepared = format!("scripts/prepare {target}");
            assert!(makefile.contains(&prepared), "the Makefile has no `{prepared}`: {line}");
        }
        assert!(!first.contains(','), "programs are separated by blanks: {line}");
    }
}
