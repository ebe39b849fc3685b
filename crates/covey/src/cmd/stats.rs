//! `covey stats`: what the servers do, and how long it takes.

mod interval;

pub use interval::buckets;

use super::Context;
use super::mounted::is_on_mount;
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use crate::output::{quote, write_out};
use covey_ninep::tree::Errno;
use rustix::fs::getxattr;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
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
/// EXAMPLES
///
///     covey stats
///     covey stats --watch io1
///     covey stats /mnt/covey                      your own requests through this mount
///     covey stats --slow                          the last slow requests of each node
///     covey stats --set 'slow 100'                /slow keeps requests of 100 ms and more
///     covey --json stats | jq '.meta'
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Only these nodes, or mounts of this machine by a path with a slash, or `.`
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Show what happens in each interval, until interrupted
    #[arg(long, conflicts_with_all = ["slow", "set"])]
    watch: bool,
    /// Seconds of an interval
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    interval: f64,
    /// Show the slow requests
    #[arg(long, conflicts_with = "set")]
    slow: bool,
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
        return tell(&of_mounts(&args)?, context);
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
        for name in &names {
            let written = covey_cluster::reach::write_ctl(&config, name, command).await;
            written.map_err(|error| refused(error, command, name))?;
        }
        return Ok(());
    }
    if args.watch && !(0.1..=86_400.0).contains(&args.interval) {
        return Err(Error::user("cannot watch: --interval is 0.1 to 86400 s"));
    }
    if args.watch {
        return watch(&config, &names, Duration::from_secs_f64(args.interval), context).await;
    }
    if args.slow {
        return tell_slow(&read(&config, &names, "slow").await?, context);
    }
    tell(&parsed(&read(&config, &names, "stats").await?), context)
}

/// No node's name has a slash.
fn is_path(name: &str) -> bool {
    name.contains('/') || [".", ".."].contains(&name)
}

/// What this user has asked the mounts for at these paths.
fn of_mounts(args: &Args) -> Result<Vec<(String, Lines)>> {
    let node = args.nodes.iter().find(|name| !is_path(name));
    let flags = [("--watch", args.watch), ("--slow", args.slow), ("--set", args.set.is_some())];
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

/// Tells what happens in each interval.
async fn watch(
    config: &Config,
    names: &[String],
    interval: Duration,
    context: &Context,
) -> Result<()> {
    let mut before = parsed(&read(config, names, "times").await?);
    loop {
        tokio::time::sleep(interval).await;
        let after = parsed(&read(config, names, "times").await?);
        let lines = before
            .iter()
            .zip(&after)
            .map(|((_, before), (name, after))| (name.clone(), interval::between(before, after)));
        tell(&lines.collect::<Vec<_>>(), context)?;
        before = after;
    }
}

/// A file of each node.
async fn read(config: &Config, names: &[String], file: &str) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for name in names {
        let text = covey_cluster::reach::read_of(config, name, file).await;
        all.push((name.clone(), text.map_err(|error| unread(error, name, file))?));
    }
    Ok(all)
}

/// Why a node's file cannot be read.
pub fn unread(error: Error, name: &str, file: &str) -> Error {
    let code = error.code();
    let told = Err::<(), _>(error).cannot(|| format!("read /{file} of {name}"));
    hint_at_owner(told.expect_err("it was an error"), code)
}

fn parsed(all: &[(String, String)]) -> Vec<(String, Lines)> {
    all.iter().map(|(name, text)| (name.clone(), parse(text))).collect()
}

/// 9P2000.L carries no reason.
fn refused(error: Error, command: &str, name: &str) -> Error {
    let code = error.code();
    let told = Err::<(), _>(error).cannot(|| format!("set {command:?} at {name}"));
    let told = told.expect_err("it was an error");
    match code {
        Some(Errno::EINVAL) => told.hint(
            "the commands are `slow MILLISECONDS`, `slow off`, `reset`, and for the metadata \
             server `copy`",
        ),
        code => hint_at_owner(told, code),
    }
}

fn hint_at_owner(told: Error, code: Option<u32>) -> Error {
    if is_refusal(code) { told.hint("only root and the servers' owner may") } else { told }
}

/// Whether an error says that we may not.
pub fn is_refusal(code: Option<u32>) -> bool {
    matches!(code, Some(Errno::EACCES | Errno::EPERM))
}

fn tell_slow(all: &[(String, String)], context: &Context) -> Result<()> {
    let lines = |(name, text): &(String, String)| {
        (name.clone(), Value::from(text.lines().map(str::to_owned).collect::<Vec<_>>()))
    };
    let value: Map<String, Value> = all.iter().map(lines).collect();
    context.output.result(&value, |out| {
        use std::io::Write;
        for (name, text) in all {
            text.lines().try_for_each(|line| writeln!(out, "{name}: {line}"))?;
        }
        Ok(())
    })
}

fn tell(parsed: &[(String, Lines)], context: &Context) -> Result<()> {
    let value: BTreeMap<&String, &Lines> = parsed.iter().map(|(name, of)| (name, of)).collect();
    if context.output.json {
        return context.output.one_of_many(&json!(value), |_| Ok(()));
    }
    let mut out = Vec::new();
    let mut rows = Vec::new();
    for (node, lines) in parsed {
        for (name, values) in lines.iter().filter(|(_, values)| values.contains_key("count")) {
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
    out.push(b'\n');
    write_out(&quote::lines(&out))
}

/// `KIND NAME key value key value ...`, or `name value`.
pub fn parse(text: &str) -> Lines {
    let mut lines = Lines::new();
    for line in text.lines() {
        let words = split(line);
        let (name, rest) = match &words[..] {
            [kind, part, name, rest @ ..] if kind == "client" || kind == "ended" => {
                (format!("{kind} {part} {name}"), rest)
            }
            [kind, name, rest @ ..] if kind == "op" || kind == "time" => {
                (format!("{kind} {name}"), rest)
            }
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
        // Several connections of one client are shown one by one.
        let mut unique = name.clone();
        let mut copy = 1;
        while lines.contains_key(&unique) {
            copy += 1;
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
        assert_eq!(parse("op a count 1 buckets 3:1,4:2")["op a"]["buckets"], json!("3:1,4:2"));
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
