//! `covey stats`: what the servers do, and how long it takes.

pub mod files;
mod gather;
mod interval;
pub mod paths;

pub use interval::buckets;

use super::Context;
use super::mounted::is_on_mount;
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use crate::output::{quote, write_out};
use covey_cluster::reach;
use covey_ninep::tree::Errno;
use gather::{Answers, Missing, failure, names_of};
use rustix::fs::getxattr;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Show what the servers do: operations, latencies, clients, slow requests
///
/// Reads /stats of each node, a file that any 9P client can read. Numbers count from the server's
/// start, or from the last `reset` written to its /ctl; with --watch, those of operations and
/// clients are per interval. Latencies are the server's own, from the request's arrival to its
/// answer; p50 and p99, and with --watch the maximum, are accurate within a fifth.
///
/// With a path on a mount of this machine the mount tells what you have asked it for since it was
/// mounted, which needs no key: requests of FUSE, and how long until their answers. Nobody sees what
/// others asked.
///
/// All nodes are asked at the same time. One that does not answer within 3 s is named below the
/// others, in JSON as `servers_missing`; the exit code is 1 then, and --watch goes on.
///
/// EXAMPLES
///
///     covey stats
///     covey stats --watch io1
///     covey stats /mnt/covey                      your own requests through this mount
///     covey stats --slow                          the last slow requests of each node
///     covey stats --files                         who reads and writes what: the busiest files
///     covey stats --set 'slow 100'                /slow keeps requests of 100 ms and more
///     covey --json stats | jq '.meta'
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Only these nodes, or mounts of this machine by a path with a slash, or `.`
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Show what happens in each interval, until interrupted
    #[arg(long, conflicts_with_all = ["slow", "files", "set"])]
    watch: bool,
    /// Seconds of an interval
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    interval: f64,
    /// Show the slow requests
    #[arg(long, conflicts_with_all = ["files", "set"])]
    slow: bool,
    /// Show the files that are read and written most, by whom and at which server
    #[arg(long, conflicts_with = "set")]
    files: bool,
    /// Write a command to each node's /ctl: `slow MILLISECONDS`, `slow off`, `reset`; `copy` only
    /// to the metadata server's
    #[arg(long, value_name = "COMMAND")]
    set: Option<String>,
}

/// A line's name, and its values by name.
pub type Lines = BTreeMap<String, Map<String, Value>>;

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    if args.nodes.iter().any(|name| is_path(name)) {
        return tell(&of_mounts(&args)?, None, context);
    }
    let config = context.config()?;
    let names: Vec<String> = match args.nodes.is_empty() {
        // Only one server can do this.
        true if args.set.as_deref().is_some_and(is_for_meta) => vec![config.meta().name.clone()],
        true => config.nodes.iter().map(|node| node.name.clone()).collect(),
        false => args.nodes.clone(),
    };
    names.iter().try_for_each(|name| config.node(name).map(drop))?;
    if let Some(command) = &args.set {
        let set = async |name: &str| reach::write_ctl(&config, name, command).await;
        let set = gather::each(super::ping::LIMIT, &names, set).await;
        return failure(&set.missing, |names| format!("set {command:?} at {names}"))
            .map_err(|error| hint_at_commands(error, &set.missing));
    }
    if args.watch && !(0.1..=86_400.0).contains(&args.interval) {
        return Err(Error::user("cannot watch: --interval is 0.1 to 86400 s"));
    }
    if args.watch {
        return watch(&config, &names, Duration::from_secs_f64(args.interval), context).await;
    }
    let file = if args.slow { "slow" } else { "stats" };
    let what = |names: &str| format!("read /{file} of {names}");
    let read = gather::read(&config, &names, file).await.any(what)?;
    if args.slow {
        tell_slow(&read, context).await?;
        return failure(&read.missing, what);
    }
    let read = read.map(|text| parse(&text));
    if args.files {
        files::tell(&read, context).await?;
        return failure(&read.missing, what);
    }
    let Answers { shown, missing } = read;
    tell(&shown, Some(&missing), context)?;
    failure(&missing, what)
}

/// No node's name has a slash.
fn is_path(name: &str) -> bool {
    name.contains('/') || [".", ".."].contains(&name)
}

/// What this user has asked the mounts for at these paths.
fn of_mounts(args: &Args) -> Result<Vec<(String, Lines)>> {
    let node = args.nodes.iter().find(|name| !is_path(name));
    let flags = [
        ("--watch", args.watch),
        ("--slow", args.slow),
        ("--files", args.files),
        ("--set", args.set.is_some()),
    ];
    let flag = flags.iter().find(|(_, is_given)| *is_given);
    if let Some(other) = node.map(String::as_str).or(flag.map(|(flag, _)| *flag)) {
        let path = &args.nodes[0];
        let what =
            format!("cannot show {path} together with {other}: a mount tells its counts alone");
        return Err(Error::user(what).hint("ask for nodes and for mounts one after the other"));
    }
    args.nodes.iter().map(|path| Ok((path.clone(), parse(&of_mount(path)?)))).collect()
}

fn of_mount(path: &str) -> Result<String> {
    let what = || format!("show what was asked at {}", quote::text(path));
    if !is_on_mount(path.as_ref()).cannot(what)? {
        let not = format!("cannot {}: it is not on a mount of Covey", what());
        return Err(Error::user(not).hint("`covey stats` without a path shows the servers"));
    }
    let mut text = vec![0; TEXT_BYTES_MAX];
    match getxattr(path, covey_mount::STATS, &mut text[..]) {
        Ok(length) => {
            text.truncate(length);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {
            let not = format!("cannot {}: the mount does not count", what());
            Err(Error::work(not).hint(
                "only mounts of the file system do, since they were upgraded and mounted anew",
            ))
        }
        Err(error) => Err(error).cannot(what),
    }
}

/// The longest value that Linux takes of an attribute.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Whether a command is for the metadata server alone.
fn is_for_meta(command: &str) -> bool {
    command.split_whitespace().eq(["copy"])
}

/// Tells what happens in each interval. Who does not answer is named, and shown again from the second answer on.
async fn watch(
    config: &Config,
    names: &[String],
    interval: Duration,
    context: &Context,
) -> Result<()> {
    let what = |names: &str| format!("read /times of {names}");
    let look = async || gather::read(config, names, "times").await.map(|text| parse(&text));
    let mut before = look().await;
    // Who may not read it never will; who does not answer may come back.
    let is_ours = |one: &Missing| one.error.code().is_none() || is_refusal(one.error.code());
    if before.missing.iter().all(is_ours) {
        before = before.any(what)?;
    }
    loop {
        tokio::time::sleep(interval).await;
        let after = look().await;
        let lines = after.shown.iter().filter_map(|(name, after)| {
            let (_, before) = before.shown.iter().find(|(earlier, _)| earlier == name)?;
            Some((name.clone(), interval::between(before, after)))
        });
        tell(&lines.collect::<Vec<_>>(), Some(&after.missing), context)?;
        before = after;
    }
}

/// Why a node's file cannot be read.
pub fn unread(error: Error, name: &str, file: &str) -> Error {
    let code = error.code();
    let told = Err::<(), _>(error).cannot(|| format!("read /{file} of {name}"));
    hint_at_owner(told.expect_err("it was an error"), code)
}

/// 9P2000.L carries no reason.
fn hint_at_commands(error: Error, missing: &[Missing]) -> Error {
    if missing.iter().all(|one| one.error.code() != Some(Errno::EINVAL)) {
        return error;
    }
    error.hint(
        "the commands are `slow MILLISECONDS`, `slow off`, `reset`, and for the metadata server \
         `copy`",
    )
}

fn hint_at_owner(told: Error, code: Option<u32>) -> Error {
    if is_refusal(code) { told.hint("only root and the servers' owner may") } else { told }
}

/// Whether an error says that we may not.
pub fn is_refusal(code: Option<u32>) -> bool {
    matches!(code, Some(Errno::EACCES | Errno::EPERM))
}

/// Tells the slow requests of nodes, with the paths of their files as far as they are found: a dead metadata server keeps
/// no line back.
async fn tell_slow(read: &Answers<String>, context: &Context) -> Result<()> {
    let lines = read.shown.iter().flat_map(|(_, text)| text.lines());
    let numbers: BTreeSet<_> = lines.filter_map(paths::number).map(|(_, id)| id).collect();
    let found = paths::find(context, numbers).await;
    let path = |line: &str| {
        let (begin, id) = paths::number(line)?;
        Some((begin, id, found.get(&id)))
    };
    let shown = |line: &str| {
        let path = path(line);
        json!({
            "line": line, "file": path.map(|(_, id, _)| format!("{id:016x}")),
            "path": path.and_then(|(.., path)| path).map(|path| String::from_utf8_lossy(path)),
        })
    };
    let of_node = |(name, text): &(String, String)| {
        (name.clone(), text.lines().map(shown).collect::<Value>())
    };
    let mut value: Map<String, Value> = read.shown.iter().map(of_node).collect();
    value.insert(MISSING.into(), json!(names_of(&read.missing)));
    context.output.result(&value, |out| {
        use std::io::Write;
        for (name, text) in &read.shown {
            for line in text.lines() {
                match path(line) {
                    Some((begin, _, Some(path))) => {
                        writeln!(out, "{name}: {}", paths::with_path(line, begin, path))?;
                    }
                    _ => writeln!(out, "{name}: {line}")?,
                }
            }
        }
        gather::in_words(&read.missing).map_or(Ok(()), |words| writeln!(out, "{words}"))
    })
}

/// The key in JSON for those that gave no answer, as in `covey df`.
const MISSING: &str = "servers_missing";

/// Tells lines of nodes, and who is missing, or of mounts.
fn tell(shown: &[(String, Lines)], missing: Option<&[Missing]>, context: &Context) -> Result<()> {
    if context.output.json {
        let mut value: Map<String, Value> =
            shown.iter().map(|(name, lines)| (name.clone(), json!(lines))).collect();
        if let Some(missing) = missing {
            value.insert(MISSING.into(), json!(names_of(missing)));
        }
        return context.output.one_of_many(&value, |_| Ok(()));
    }
    let mut out = Vec::new();
    let mut rows = Vec::new();
    for (node, lines) in shown {
        // Files have a view of their own.
        let is_shown = |(name, values): &(&String, &Map<String, Value>)| {
            values.contains_key("count") && !name.starts_with("file ")
        };
        for (name, values) in lines.iter().filter(is_shown) {
            let text = |key: &str| {
                values.get(key).map_or("-".into(), |value| match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                })
            };
            if text("count") != "0" {
                let cells = ["count", "errors", "bytes", "mean_us", "p50_us", "p99_us", "max_us"];
                let mut row = vec![node.clone(), name.clone()];
                row.extend(cells.map(text));
                rows.push(row);
            }
        }
    }
    let heading = [
        "NODE", "WHAT", ">COUNT", ">ERRORS", ">BYTES", ">MEAN us", ">P50 us", ">P99 us", ">MAX us",
    ];
    crate::output::table(&mut out, &heading, &rows);
    if let Some(words) = missing.and_then(gather::in_words) {
        out.extend(format!("\n{words}\n").bytes());
    }
    out.push(b'\n');
    write_out(&quote::lines(&out))
}

/// `KIND NAME key value key value ...`, or `name value`.
pub fn parse(text: &str) -> Lines {
    let (mut lines, mut copies) = (Lines::new(), HashMap::<String, usize>::new());
    for line in text.lines() {
        let words = split(line);
        let (name, rest) = match &words[..] {
            [kind, part, name, rest @ ..] if kind == "client" || kind == "ended" => {
                (format!("{kind} {part} {name}"), rest)
            }
            [kind, part, id, name, rest @ ..] if kind == "file" => {
                (format!("{kind} {part} {id} {name}"), rest)
            }
            [kind, name, rest @ ..]
                if ["op", "time", "moving", "volume"].contains(&kind.as_str()) =>
            {
                (format!("{kind} {name}"), rest)
            }
            [name, rest @ ..] if name == "checked" => (name.clone(), rest),
            [name, value] => {
                let value = value.parse::<u64>().map_or_else(|_| json!(value), |n| json!(n));
                lines.entry(name.clone()).or_default().insert("value".into(), value);
                continue;
            }
            _ => continue,
        };
        let pairs = rest.chunks_exact(2).map(|pair| {
            let value = pair[1].parse::<f64>().map_or_else(
                |_| json!(pair[1]),
                |n| match n.fract() {
                    0.0 => json!(n as u64),
                    _ => json!(n),
                },
            );
            (pair[0].clone(), value)
        });
        // Several connections of one client are shown one by one. There may be thousands, so each goes on counting.
        let mut unique = name.clone();
        let copy = copies.entry(name.clone()).or_insert(1);
        while lines.contains_key(&unique) {
            *copy += 1;
            unique = format!("{name} #{copy}");
        }
        lines.insert(unique, pairs.collect());
    }
    lines
}

/// Words, of which some are in double quotes. In these a backslash stands before a quote or a backslash, and control
/// characters are `\n`, `\u{1b}` and the like: names are chosen by clients, and must not end before their quotes do.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        match next {
            '\\' if is_quoted => match rest.next() {
                Some(plain @ ('"' | '\'' | '\\')) => word.push(plain),
                // It stays as it is written, so that it can be shown.
                Some(other) => word.extend(['\\', other]),
                None => {}
            },
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_names_and_values() {
        let lines = parse(
            "node io1\nop data.read errors 0 bytes 10 count 3 p50_us 1.5\n\
             client data \"unix!pid 7\" bytes 1 count 1\nclient data \"unix!pid 7\" bytes 2 count 1\n",
        );
        assert_eq!(lines["op data.read"]["p50_us"], json!(1.5));
        assert_eq!(lines["client data unix!pid 7 #2"]["bytes"], json!(2));
        assert_eq!(lines["node"]["value"], json!("io1"));
        let works = parse(
            "moving \"drain io3\" bytes 5 bytes_total 10 seconds 2\n\
             checked at 2026-11-28T01:02:03.000Z found 3 left 1 unasked 0\n",
        );
        assert_eq!(works["moving drain io3"]["bytes_total"], json!(10));
        assert_eq!(works["checked"]["at"], json!("2026-11-28T01:02:03.000Z"));
        assert_eq!(works["checked"]["left"], json!(1));
        assert_eq!(parse("op a count 1 buckets 3:1,4:2")["op a"]["buckets"], json!("3:1,4:2"));
    }

    /// Where each looks for a free name from the first one on, the time grows with the square of their number.
    #[test]
    fn many_connections_of_one_name_are_told_apart_soon() {
        let line = "client data \"a\" bytes 1 count 1\n";
        let lines = parse(&format!("client data \"a #3\" count 5\n{}", line.repeat(50_000)));
        assert_eq!(lines.len(), 50_001);
        assert_eq!(lines["client data a #3"]["count"], json!(5));
        assert!(lines.contains_key("client data a #50001"));
    }

    #[test]
    fn a_client_cannot_forge_figures_by_its_name() {
        for name in [
            "me\" bytes 9 count 9",
            "me\\",
            "me\\\" bytes 9 count 9 \"",
            "a\nop data.read errors 9 bytes 9 count 9",
            "\" \"\" '\u{1b}[2J",
            "",
        ] {
            let line = format!("client meta {name:?} bytes 3 count 2 sum_ns 5\n");
            let lines = parse(&line);
            assert_eq!(lines.len(), 1, "{lines:?}");
            let (shown, values) = lines.iter().next().expect("a line");
            assert!(shown.starts_with("client meta "), "{shown}");
            let expected = json!({ "bytes": 3, "count": 2, "sum_ns": 5 });
            assert_eq!(json!(values), expected, "{name:?}");
        }
        let line = format!("client meta {:?} bytes 1\n", "say \"hi\" \\ 'there'");
        assert!(parse(&line).contains_key("client meta say \"hi\" \\ 'there'"), "{line}");
    }
}
