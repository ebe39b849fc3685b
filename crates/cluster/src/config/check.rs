//! What a configuration must fulfil beyond its form. Each check adds what it finds.

use super::{Config, NODES_MAX, Problem, Role};
use std::collections::HashMap;
use std::path::Path;

type Line = Option<usize>;

fn add(problems: &mut Vec<Problem>, line: Line, message: String, hint: &str) {
    problems.push(Problem { line, message, hint: hint.to_string() });
}

/// A name that is also a file name and a word of the command line.
pub fn is_name(name: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    !name.is_empty()
        && name.len() <= 64
        && !name.starts_with(['-', '.'])
        && name.chars().all(letter)
}

const NAME_HINT: &str = "up to 64 letters, digits, `-`, `_` and `.`, not beginning with `-` or `.`";

pub(super) fn cluster_name(name: &str, line: Line, problems: &mut Vec<Problem>) {
    if !is_name(name) {
        add(problems, line, format!("cluster name `{name}` is not a name"), NAME_HINT);
    }
}

pub(super) fn id(id: &str, line: Line, problems: &mut Vec<Problem>) {
    let digit = |letter: char| letter.is_ascii_digit() || ('a'..='f').contains(&letter);
    if id.len() != 32 || !id.chars().all(digit) {
        let message = format!("cluster id `{id}` is not 32 hexadecimal digits");
        add(
            problems,
            line,
            message,
            "`covey genconfig` makes one; never change that of a cluster with data",
        );
    }
}

/// A user's name, or its number.
pub(super) fn user(user: &str, line: Line, problems: &mut Vec<Problem>) {
    if !is_name(user) {
        let message = format!("user `{user}` is no user's name or number");
        add(problems, line, message, "the user whom the servers run as: user = \"covey\"");
    }
}

/// The count guards against a file that was cut between two nodes: servers would change their
/// index.
pub(super) fn count(said: usize, found: usize, line: Line, problems: &mut Vec<Problem>) {
    if said != found {
        let message = format!("cluster says nodes = {said}, the file has {found}");
        add(
            problems,
            line,
            message,
            "the file is cut short, or a node was added without raising `nodes`",
        );
    }
}

pub(super) fn absolute(what: &str, path: &Path, line: Line, problems: &mut Vec<Problem>) {
    if !path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") {
        let message = format!("{what} `{}` is not an absolute path", path.display());
        add(problems, line, message, "begin with `/`, without `..`");
    }
}

/// What concerns the nodes together. `lines` are those of the nodes' names.
pub(super) fn whole(config: &Config, lines: &[Line], problems: &mut Vec<Problem>) {
    each(config, lines, problems);
    twice(config, lines, problems);
    roles(config, problems);
    if config.needs_key() && config.key_file.is_none() {
        let message = "a node listens beyond this machine and there is no key_file";
        let hint = "add `key_file = \"/etc/covey/key\"` under [cluster] and make it with \
                    `covey keygen /etc/covey/key`";
        add(problems, None, message.to_string(), hint);
    }
}

fn roles(config: &Config, problems: &mut Vec<Problem>) {
    let count = |role| config.nodes.iter().filter(|node| node.is(role)).count();
    match count(Role::Meta) {
        1 => {}
        0 => add(
            problems,
            None,
            "no node has the role meta".into(),
            "give one node roles = [\"meta\"]",
        ),
        many => {
            add(
                problems,
                None,
                format!("{many} nodes have the role meta, limit is 1"),
                "keep it on the node that has the metadata",
            );
        }
    }
    if count(Role::Data) == 0 {
        add(
            problems,
            None,
            "no node has the role data".into(),
            "give at least one node roles = [\"data\"]",
        );
    }
    if config.nodes.len() > NODES_MAX {
        let message = format!("there are {} nodes, limit is {NODES_MAX}", config.nodes.len());
        add(problems, None, message, "make several clusters");
    }
}

fn each(config: &Config, lines: &[Line], problems: &mut Vec<Problem>) {
    for (node, line) in config.nodes.iter().zip(lines) {
        if !is_name(&node.name) {
            add(problems, *line, format!("node name `{}` is not a name", node.name), NAME_HINT);
        }
        if node.listen.is_empty() {
            add(
                problems,
                *line,
                format!("node {}: listen is empty", node.name),
                "write listen = [\"tcp!HOST!PORT\"]",
            );
        }
        if node.store.is_none() && (node.is_storage() || node.is(Role::Boot)) {
            let message = format!("node {}: store is missing", node.name);
            add(problems, *line, message, "write store = \"/var/lib/covey/NODE\"");
        }
    }
}

fn twice(config: &Config, lines: &[Line], problems: &mut Vec<Problem>) {
    let mut names = HashMap::new();
    let mut addresses = HashMap::new();
    let mut stores: HashMap<_, Vec<usize>> = HashMap::new();
    for (index, (node, line)) in config.nodes.iter().zip(lines).enumerate() {
        if names.insert(&node.name, index).is_some() {
            add(
                problems,
                *line,
                format!("node {} is there twice", node.name),
                "names tell nodes apart: rename one",
            );
        }
        for address in &node.listen {
            if let Some(other) = addresses.insert(address, index) {
                let message = format!(
                    "node {}: {address} is also an address of {}",
                    node.name, config.nodes[other].name
                );
                add(problems, *line, message, "give each its own port or socket");
            }
        }
        if let Some(store) = &node.store {
            let others = stores.entry(store).or_default();
            if let Some(other) = others.iter().find(|other| same_machine(config, **other, index)) {
                let other = &config.nodes[*other].name;
                let message = format!(
                    "node {}: store {} is also that of {other}",
                    node.name,
                    store.display()
                );
                add(problems, *line, message, "give each node its own directory");
            }
            others.push(index);
        }
    }
}

/// Whether two nodes may be on one machine: a common host, or one that says none or this machine.
fn same_machine(config: &Config, left: usize, right: usize) -> bool {
    let hosts = |index: usize| {
        let remote = config.nodes[index].listen.iter().filter(|address| !address.is_local());
        remote.filter_map(|address| address.host()).collect::<Vec<_>>()
    };
    let (left, right) = (hosts(left), hosts(right));
    left.is_empty() || right.is_empty() || left.iter().any(|host| right.contains(host))
}
