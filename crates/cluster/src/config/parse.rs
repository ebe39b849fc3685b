//! From the text of `covey.toml` to a checked [`Config`], or to all that is wrong with it.

use super::{
    Address, Config, Emulated, Node, Pacing, Place, Role, VERSION, View, check, hostlist,
    parse_strip, size,
};
use crate::error::{Error, Result, reason};
use crate::pace::WINDOW_BYTES_MIN;
use covey_ninep::client::WINDOW_BYTES;
use serde::Deserialize;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Largest file that is read, in bytes: thousands of nodes fit.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Line in the file, from 1, when it is known.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// Reads and checks a file that somebody has named.
pub fn load(file: &Path) -> Result<Config> {
    load_found(&Place::Named(file.to_path_buf()))
}

/// Reads and checks a file. One that was only found must belong to root or to this user, and nobody else
/// may have a way to write it: it says which servers are given data.
pub fn load_found(place: &Place) -> Result<Config> {
    let text = read(place)?;
    let config = parse(&text, place.file());
    let config = config.map_err(|problems| too_wrong(place.file(), &problems))?;
    Ok(Config { is_named: matches!(place, Place::Named(_)), ..config })
}

fn read(place: &Place) -> Result<String> {
    let file = place.file();
    let failed = |why: String| Error::config(format!("cannot read {}: {why}", file.display()));
    let unreadable = |error: std::io::Error| {
        failed(reason(&error)).hint("it must be readable by whoever runs covey")
    };
    // What is asked about and what is read is the same file, whatever happens to its name meanwhile.
    let mut options = std::fs::File::options();
    if let Place::Found(_) = place {
        // Where a pipe was put nobody waits for its writer.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    }
    let open = options.read(true).open(file).map_err(unreadable)?;
    let meta = open.metadata().map_err(unreadable)?;
    place.check_owner(&meta)?;
    place.check_name(&meta)?;
    if meta.len() > FILE_BYTES_MAX {
        let length = meta.len();
        return Err(failed(format!("it is {length} bytes, limit is {FILE_BYTES_MAX}")));
    }
    let mut bytes = Vec::new();
    open.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8 text".to_string()))
}

fn too_wrong(file: &Path, problems: &[Problem]) -> Error {
    let first = &problems[0];
    let place = match first.line {
        Some(line) => format!("{}:{line}", file.display()),
        None => file.display().to_string(),
    };
    let error = Error::config(format!("cannot use {place}: {}", first.message)).hint(&first.hint);
    match problems.len() {
        1 => error,
        count => error.hint(format!("`covey config check` lists all {count} problems")),
    }
}

#[derive(Deserialize)]
struct Version {
    version: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "version")]
    _version: u64,
    cluster: Cluster,
    #[serde(default)]
    node: Vec<RawNode>,
    #[serde(default)]
    view: Vec<RawView>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawView {
    name: Spanned<String>,
    nodes: Option<Spanned<String>>,
    cluster: Option<Spanned<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    name: Spanned<String>,
    id: Spanned<String>,
    nodes: Option<Spanned<usize>>,
    strip: Option<Spanned<String>>,
    #[serde(default)]
    pacing: bool,
    pacing_window: Option<Spanned<String>>,
    pacing_dscp: Option<Spanned<u8>>,
    key_file: Option<Spanned<PathBuf>>,
    user: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    name: Spanned<String>,
    #[serde(default)]
    roles: Vec<Spanned<String>>,
    listen: Vec<Spanned<String>>,
    store: Option<Spanned<PathBuf>>,
    arch: Option<Spanned<String>>,
    emulator: Option<Spanned<PathBuf>>,
}

/// Checks the text of a file; `file` is for messages. Never answers an empty list of problems.
pub fn parse(text: &str, file: &Path) -> std::result::Result<Config, Vec<Problem>> {
    let lines = Lines(text);
    let syntax = |error: toml::de::Error| vec![syntax_problem(&lines, &error)];
    let version: Version = toml::from_str(text).map_err(syntax)?;
    version_is_known(&lines, version).map_err(|problem| vec![problem])?;
    let raw: File = toml::from_str(text).map_err(syntax)?;
    let mut problems = Vec::new();
    let config = convert(raw, file, &lines, &mut problems);
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn version_is_known(lines: &Lines, version: Version) -> std::result::Result<(), Problem> {
    let Some(version) = version.version else {
        let message = format!("version is missing, this covey knows version {VERSION}");
        let hint = format!("the first line must be `version = {VERSION}`");
        return Err(Problem { line: Some(1), message, hint });
    };
    match *version.get_ref() {
        VERSION => Ok(()),
        other => Err(Problem {
            line: lines.of(&version),
            message: format!("version is {other}, this covey knows version {VERSION}"),
            hint:
                "install the covey that wrote the file, or write a new one with `covey genconfig`"
                    .into(),
        }),
    }
}

fn syntax_problem(lines: &Lines, error: &toml::de::Error) -> Problem {
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    let mut letters = message.chars();
    let lower = letters.next().map_or(String::new(), |first| first.to_lowercase().to_string());
    Problem {
        line: error.span().map(|span| lines.at(span.start)),
        message: lower + letters.as_str(),
        hint:
            "the file may be cut short or edited wrongly: compare it with another node's, or see \
               `covey help config`"
                .into(),
    }
}

/// Finds lines from byte positions.
pub(super) struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn at(&self, position: usize) -> usize {
        let end = position.min(self.0.len());
        1 + self.0.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
    }

    /// The line a value stands on.
    pub(super) fn of<T>(&self, value: &Spanned<T>) -> Option<usize> {
        Some(self.at(value.span().start))
    }
}

fn convert(raw: File, file: &Path, lines: &Lines, problems: &mut Vec<Problem>) -> Config {
    let strip_bytes = strip(raw.cluster.strip.as_ref(), lines, problems);
    let pacing = pacing(&raw.cluster, lines, problems);
    check::cluster_name(raw.cluster.name.get_ref(), lines.of(&raw.cluster.name), problems);
    check::id(raw.cluster.id.get_ref(), lines.of(&raw.cluster.id), problems);
    if let Some(count) = &raw.cluster.nodes {
        check::count(*count.get_ref(), raw.node.len(), lines.of(count), problems);
    }
    if let Some(user) = &raw.cluster.user {
        check::user(user.get_ref(), lines.of(user), problems);
    }
    if let Some(key_file) = &raw.cluster.key_file {
        check::absolute("key_file", key_file.get_ref(), lines.of(key_file), problems);
    }
    let node_lines: Vec<_> = raw.node.iter().map(|node| lines.of(&node.name)).collect();
    let nodes: Vec<Node> =
        raw.node.into_iter().map(|node| convert_node(node, lines, problems)).collect();
    let views = convert_views(raw.view, &nodes, lines, problems);
    let config = Config {
        file: file.to_path_buf(),
        is_named: true,
        name: raw.cluster.name.into_inner(),
        id: raw.cluster.id.into_inner(),
        strip_bytes,
        pacing,
        key_file: raw.cluster.key_file.map(Spanned::into_inner),
        user: raw.cluster.user.map(Spanned::into_inner),
        nodes,
        views,
    };
    check::whole(&config, &node_lines, problems);
    config
}

fn strip(raw: Option<&Spanned<String>>, lines: &Lines, problems: &mut Vec<Problem>) -> Option<u32> {
    let raw = raw?;
    let wrong = |message| {
        let hint = "64 KiB suits small requests, 1 MiB streaming: strip = \"64 KiB\"".into();
        problems.push(Problem { line: lines.of(raw), message: format!("strip: {message}"), hint });
    };
    parse_strip(raw.get_ref()).map_err(wrong).ok()
}

fn pacing(raw: &Cluster, lines: &Lines, problems: &mut Vec<Problem>) -> Pacing {
    let mut wrong = |line, message: String, hint: &str| {
        problems.push(Problem { line, message, hint: hint.into() });
    };
    let window_bytes = raw.pacing_window.as_ref().and_then(|text| {
        let size = window_size(text.get_ref());
        size.map_err(|why| wrong(lines.of(text), format!("pacing_window: {why}"), WINDOW_HINT)).ok()
    });
    let dscp = raw.pacing_dscp.as_ref().and_then(|mark| match *mark.get_ref() {
        mark @ 0..64 => Some(mark),
        other => {
            let message = format!("pacing_dscp: {other} is no DSCP");
            wrong(lines.of(mark), message, "0 to 63; 8 is CS1, 0 no mark");
            None
        }
    });
    Pacing { is_on: raw.pacing, window_bytes, dscp }
}

fn window_size(text: &str) -> std::result::Result<usize, String> {
    let bytes = size::parse(text)?;
    let limits = WINDOW_BYTES_MIN..=WINDOW_BYTES;
    usize::try_from(bytes).ok().filter(|bytes| limits.contains(bytes)).ok_or_else(|| {
        let [low, high] = [*limits.start(), *limits.end()].map(|bytes| size::exact(bytes as u64));
        format!("`{text}` is outside the limits: {low} to {high}")
    })
}

const WINDOW_HINT: &str = "what may be on its way on each connection: pacing_window = \"256 KiB\"";

fn convert_views(
    raw: Vec<RawView>,
    nodes: &[Node],
    lines: &Lines,
    problems: &mut Vec<Problem>,
) -> Vec<View> {
    let mut views: Vec<View> = Vec::new();
    for view in raw {
        let (line, name) = (lines.of(&view.name), view.name.into_inner());
        let mut problem = |message: String, hint: &str| {
            let message = format!("view {name}: {message}");
            problems.push(Problem { line, message, hint: hint.into() });
        };
        if !check::is_name(&name) {
            problem("that is not a name".into(), "letters, digits, `-`, `_` and `.`");
        }
        if views.iter().any(|other| other.name == name) {
            problem("it is there twice".into(), "give each view a name of its own");
        }
        let listed = view.nodes.map(|list| hostlist::expand(list.get_ref()));
        let members = listed.unwrap_or_else(|| Ok(Vec::new())).unwrap_or_else(|why| {
            problem(format!("nodes: {why}"), "nodes = \"node[1-4],login\"");
            Vec::new()
        });
        let is_known = |member: &&String| nodes.iter().any(|node| node.name == **member);
        match (&view.cluster, members.iter().find(|member| !is_known(member))) {
            (None, Some(member)) => problem(
                format!("no node is called {member}"),
                "name nodes of this file, or the other cluster's file: cluster = \"/PATH\"",
            ),
            (Some(cluster), _) if !cluster.get_ref().is_absolute() => {
                problem(
                    "cluster is no absolute path".into(),
                    "cluster = \"/etc/covey/other.toml\"",
                );
            }
            _ => {}
        }
        let cluster = view.cluster.map(Spanned::into_inner);
        views.push(View { name, nodes: members, cluster });
    }
    views
}

fn convert_node(raw: RawNode, lines: &Lines, problems: &mut Vec<Problem>) -> Node {
    let name = raw.name.get_ref().clone();
    let emulated = convert_emulated((raw.arch, raw.emulator), &name, lines, problems);
    let mut problem = |line, message: String, hint: &str| {
        problems.push(Problem {
            line,
            message: format!("node {name}: {message}"),
            hint: hint.into(),
        });
    };
    let mut roles = Vec::new();
    for word in &raw.roles {
        match word.get_ref().as_str() {
            "meta" => roles.push(Role::Meta),
            "data" => roles.push(Role::Data),
            "launch" => roles.push(Role::Launch),
            "boot" => roles.push(Role::Boot),
            "fs" => {}
            other => problem(
                lines.of(word),
                format!("role `{other}` is unknown"),
                "roles are meta, data, launch, boot and fs",
            ),
        }
    }
    let mut listen = Vec::new();
    for text in &raw.listen {
        match text.get_ref().parse::<Address>() {
            Ok(address) => listen.push(address),
            Err(message) => problem(
                lines.of(text),
                format!("listen: {message}"),
                "write tcp!HOST!PORT or unix!/PATH",
            ),
        }
    }
    let store_line = raw.store.as_ref().and_then(|store| lines.of(store));
    if let Some(store) = &raw.store {
        check::absolute(&format!("node {name}: store"), store.get_ref(), store_line, problems);
    }
    let store = raw.store.map(Spanned::into_inner);
    Node { name: raw.name.into_inner(), roles, listen, store, emulated }
}

fn convert_emulated(
    raw: (Option<Spanned<String>>, Option<Spanned<PathBuf>>),
    name: &str,
    lines: &Lines,
    problems: &mut Vec<Problem>,
) -> Option<Emulated> {
    let line = match &raw {
        (Some(arch), _) => lines.of(arch),
        (None, Some(emulator)) => lines.of(emulator),
        (None, None) => return None,
    };
    let (Some(arch), Some(emulator)) = raw else {
        problems.push(Problem {
            line,
            message: format!("node {name}: arch and emulator belong together"),
            hint: "arch = \"s390x\" and emulator = \"/usr/bin/qemu-s390x-static\"; neither for what the machine is".into(),
        });
        return None;
    };
    let what = format!("node {name}: emulator");
    check::absolute(&what, emulator.get_ref(), lines.of(&emulator), problems);
    Some(Emulated { arch: arch.into_inner(), emulator: emulator.into_inner() })
}
