//! The documents against the code: `docs/architecture.md`, the lists, the links.

use crate::home::Home;
use crate::layers::{MACHINES, TABLE, read, workspace};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_crates_of_the_architecture_are_those_of_the_table() {
    let text = architecture();
    let crates = section(&text, "## The crates");
    let rows: Vec<(&str, &str)> = crates.lines().filter_map(row).collect();
    let named: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    for rule in TABLE {
        assert!(named.contains(&rule.name), "docs/architecture.md has no row for {}", rule.name);
    }
    for (name, imports) in rows {
        let rule = TABLE.iter().find(|rule| rule.name == name);
        let rule = rule.unwrap_or_else(|| panic!("{name} is not in the table of layers.rs"));
        let (mut said, mut permitted) = (expanded(imports), rule.may_import.to_vec());
        said.sort_unstable();
        permitted.sort_unstable();
        assert_eq!(said, permitted, "what {name} may import, in docs/architecture.md");
    }
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let text = architecture();
    let files: Vec<&str> = quoted(&text).filter(|word| is_file(word)).collect();
    assert!(files.len() >= 50, "only {} files in docs/architecture.md", files.len());
    for file in files {
        let places = [workspace().join(file), workspace().join("crates").join(file)];
        assert!(places.iter().any(|place| place.exists()), "docs/architecture.md names {file}");
    }
}

#[test]
fn a_walk_has_as_many_files_as_its_heading_says() {
    let text = architecture();
    let walks = section(&text, "## Four walks");
    let walks: Vec<&str> = walks.split("\n### ").skip(1).collect();
    assert_eq!(walks.len(), 4, "walks in docs/architecture.md");
    for walk in walks {
        let heading = walk.lines().next().expect("a heading");
        let steps = walk.lines().filter(|line| is_step(line)).count();
        let said = heading.rsplit_once(": ").expect("a heading ends with its count").1;
        assert_eq!(said, format!("{steps} files"), "{heading}");
    }
}

#[test]
fn every_page_stands_in_the_list() {
    let list = read(&workspace().join("docs/README.md"));
    for folder in ["manual", "protocol"] {
        for page in pages(&workspace().join("docs").join(folder)) {
            let name = page.file_name().expect("a page has a name").to_string_lossy();
            let link = format!("({folder}/{name})");
            assert!(list.contains(&link), "docs/README.md does not list {folder}/{name}");
        }
    }
}

#[test]
fn every_command_is_named_in_a_manual_page_or_the_readme() {
    let mut pages = pages(&workspace().join("docs/manual"));
    pages.push(workspace().join("README.md"));
    let text: String = pages.iter().map(|page| read(page)).collect();
    let help = Home::new().run(["--help"]).ok().stdout;
    let commands = section(&help, "\nCommands:");
    let names: Vec<&str> =
        commands.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 30, "only {} commands", names.len());
    for name in names.into_iter().filter(|name| *name != "help") {
        let is_named = text.match_indices(&format!("covey {name}")).any(|(at, found)| {
            let next = text[at + found.len()..].chars().next();
            next.is_none_or(|next| !next.is_alphanumeric() && next != '-')
        });
        assert!(is_named, "no manual page names `covey {name}`");
    }
}

#[test]
fn every_link_in_the_documents_leads_to_a_file() {
    let mut all = pages(&workspace());
    for folder in ["docs", "docs/manual", "docs/protocol", "docs/design"] {
        all.extend(pages(&workspace().join(folder)));
    }
    assert!(all.len() >= 50, "only {} documents", all.len());
    for page in all {
        // Between backquotes, brackets are notation.
        let text: String = read(&page).split('`').step_by(2).collect();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let target = page.parent().expect("a page lies in a folder").join(file);
            assert!(target.exists(), "{} links to {link}", page.display());
        }
    }
}

fn architecture() -> String {
    read(&workspace().join("docs/architecture.md"))
}

/// From a heading to the next one of the same depth, or to the next empty line where it is none.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, rest) = text.split_once(heading).unwrap_or_else(|| panic!("no {heading:?}"));
    let end = if heading.starts_with('#') { "\n## " } else { "\n\n" };
    rest.split(end).next().expect("a split has a first part")
}

/// Name and imports of a row of the table of crates.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
    Some((cells.next()?.strip_suffix('`')?, cells.last()?))
}

/// "the machines" are all of them, "nothing" is nothing.
fn expanded(imports: &str) -> Vec<&str> {
    let words = imports.split(", ").filter(|word| *word != "nothing");
    words
        .flat_map(|word| if word == "the machines" { MACHINES.to_vec() } else { vec![word] })
        .collect()
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_file(word: &str) -> bool {
    word.contains('/')
        && [".rs", ".md", ".sh", ".txt"].iter().any(|end| word.ends_with(end))
        && !word.contains("NAME")
}

/// A numbered item that begins with a file.
fn is_step(line: &str) -> bool {
    let number = line.split_once(". `").map(|(number, _)| number);
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}
