//! What packagers take from the program: manual pages, completions, the unit.

use crate::home::Home;

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

#[test]
fn the_unit_is_the_packaged_one() {
    let packaged = include_str!("../../../../dist/covey@.service");
    assert_eq!(Home::new().run(["systemd"]).ok().stdout, packaged);
    assert!(
        packaged
            .contains("ExecStart=/usr/bin/covey --config /etc/covey/covey.toml serve --node %i")
    );
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
