//! `covey status`: the servers of the cluster at a glance.

use super::cluster::{Cluster, mounts};
use super::{Context, df, ping};
use crate::config::{Config, Node, Role, size};
use crate::error::Result;
use crate::output::{Output, duration};
use covey_cluster::reach::{PingReport, StoreWord};
use covey_cluster::tuned::{self, Source, TuneFile};
use covey_lab::units::rate_text;
use futures_util::future::join_all;
use serde::Serialize;
use std::path::Path;

/// Show every server: role, process, store, space, latency, version
///
/// Waits at most 3 s for a server. The exit code is 0 even when some are down: use `covey ping` to
/// test by exit code. With -v also stores, addresses and what each parameter is used by.
///
/// EXAMPLES
///
///     covey status
///     covey status -v
///     covey --json status
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {}

/// How much stands beside each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    /// What fits into 80 columns.
    Narrow,
    /// All that is known (`-v`).
    Wide,
}

impl Width {
    fn of(output: &Output) -> Width {
        if output.verbose > 0 { Width::Wide } else { Width::Narrow }
    }

    /// The columns of a table whose last `extra` are only for wide ones.
    fn keeps<T: Clone>(self, all: &[T], extra: usize) -> Vec<T> {
        let count = if self == Width::Wide { all.len() } else { all.len() - extra };
        all[..count].to_vec()
    }
}

/// What is known of one server.
#[derive(serde::Serialize)]
pub struct Row {
    /// The server's name.
    pub node: String,
    roles: Vec<Role>,
    /// The same for people.
    #[serde(skip)]
    role: String,
    pid: Option<u32>,
    /// Whether it answers.
    pub up: bool,
    state: &'static str,
    reason: Option<String>,
    /// Where a dead server of this machine's own cluster may say why.
    log: Option<String>,
    listen: Vec<String>,
    store: Option<String>,
    bytes_total: Option<u64>,
    bytes_used: Option<u64>,
    bytes_free: Option<u64>,
    /// What the metadata takes, and may grow to.
    metadata_bytes_used: Option<u64>,
    metadata_bytes_max: Option<u64>,
    latency_us: Option<u64>,
    /// The longest message that the server takes.
    msize: Option<u32>,
    version: Option<String>,
}

/// Runs the command.
pub async fn run(_args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let cluster = Cluster::of(&config);
    let rows = rows(&config).await;
    let mounts = cluster.as_ref().map(live_mounts).unwrap_or_default();
    let parameters = parameters(&config);
    let value = serde_json::json!({
        "cluster": config.name, "id": config.id, "config": config.file,
        "nodes": rows, "mounts": mounts,
        "parameters": match &parameters {
            Ok(found) => serde_json::json!(found),
            Err(error) => serde_json::json!({ "error": error.message }),
        },
    });
    context.output.result(&value, |out| {
        let width = Width::of(&context.output);
        write(out, &config, &rows, &mounts, width)?;
        tell_parameters(out, &parameters, width)
    })
}

/// Asks every server of the cluster, for at most 3 s.
pub async fn rows(config: &Config) -> Vec<Row> {
    let cluster = Cluster::of(config);
    let answers = join_all(config.nodes.iter().map(|node| ping::ask(config, node))).await;
    let nodes = config.nodes.iter().zip(answers);
    nodes.map(|(node, answer)| gather(config, cluster.as_ref(), node, answer)).collect()
}

fn gather(
    config: &Config,
    cluster: Option<&Cluster>,
    node: &Node,
    answer: std::result::Result<PingReport, ping::Silence>,
) -> Row {
    let (state, report) = (ping::state(&answer), answer.as_ref().ok());
    // A store on this machine can be measured even while its server is down.
    let local = cluster.and(node.store.as_deref()).and_then(space);
    let told = report.and_then(|report| {
        Some(Space {
            total: report.bytes_total?,
            used: report.bytes_used?,
            free: report.bytes_free?,
        })
    });
    let space = told.or(local);
    let metadata = report.and_then(|report| report.metadata);
    Row {
        node: node.name.clone(),
        roles: node.roles.clone(),
        role: node.roles_text(),
        pid: cluster.and_then(|cluster| cluster.process(&node.name)).map(|process| process.pid),
        up: report.is_some(),
        state,
        log: ping::log(config, &node.name, state),
        reason: match &answer {
            Err(silence) => Some(silence.reason.clone()),
            Ok(report) => match &report.store {
                StoreWord::Known => None,
                StoreWord::Unmet(why) | StoreWord::Unknown(why) => Some(why.clone()),
            },
        },
        listen: node.listen.iter().map(ToString::to_string).collect(),
        store: node.store.as_ref().map(|store| store.display().to_string()),
        bytes_total: space.map(|space| space.total),
        bytes_used: space.map(|space| space.used),
        bytes_free: space.map(|space| space.free),
        metadata_bytes_used: metadata.map(|(used, _)| used),
        metadata_bytes_max: metadata.map(|(_, max)| max),
        latency_us: report.map(|report| report.latency.as_micros() as u64),
        msize: report.map(|report| report.msize),
        version: report.map(|report| report.version.clone()),
    }
}

/// The disk under a store, in bytes. Used and free may be less than all of it: some is kept for root.
#[derive(Clone, Copy)]
struct Space {
    total: u64,
    used: u64,
    free: u64,
}

fn space(store: &Path) -> Option<Space> {
    let stat = rustix::fs::statvfs(store).ok()?;
    let bytes = |blocks: u64| blocks.checked_mul(stat.f_frsize);
    Some(Space {
        total: bytes(stat.f_blocks)?,
        used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree))?,
        free: bytes(stat.f_bavail)?,
    })
}

/// A parameter, its value, and where that comes from.
#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    value: u64,
    from: Source,
    /// What it does today.
    used: &'static str,
}

/// What holds in this cluster, and what was chosen from measurements.
fn parameters(config: &Config) -> Result<Vec<Parameter>> {
    let path = tuned::place(config);
    let tuned = TuneFile::load(&path)?;
    let (strip, from) = tuned::strip_by(config, tuned.as_ref());
    let mut all = vec![Parameter {
        name: "strip",
        value: strip.into(),
        from,
        used: "by the store when it is made; `covey layout DIR` says what new files get",
    }];
    let chosen = tuned.as_ref().map(|tuned| &tuned.choose);
    let is_msize_chosen = chosen.is_some_and(|chosen| chosen.msize.is_some());
    all.push(Parameter {
        name: "msize",
        value: tuned::msize(tuned.as_ref()).into(),
        from: if is_msize_chosen { Source::Tuned(path.clone()) } else { Source::Default },
        used: "by every server that has started since",
    });
    let is_fan_out_chosen = chosen.is_some_and(|chosen| chosen.fan_out.is_some());
    all.push(Parameter {
        name: "fan-out",
        value: tuned::fan_out(tuned.as_ref()) as u64,
        from: if is_fan_out_chosen { Source::Tuned(path.clone()) } else { Source::Default },
        used: "by `covey run` and `covey push`",
    });
    let Some(chosen) = chosen else { return Ok(all) };
    let kept = "kept for you; no part uses it yet";
    let others = [
        (
            "socket buffer",
            &chosen.socket_buffer,
            "the kernel grows buffers; servers warn when it may not",
        ),
        ("eager limit", &chosen.eager_limit, kept),
        ("block order", &chosen.block_order, kept),
        ("pacing", &chosen.pacing, kept),
    ];
    for (name, choice, used) in others {
        if let Some(choice) = choice {
            all.push(Parameter {
                name,
                value: choice.value,
                from: Source::Tuned(path.clone()),
                used,
            });
        }
    }
    Ok(all)
}

fn tell_parameters(
    out: &mut Vec<u8>,
    found: &Result<Vec<Parameter>>,
    width: Width,
) -> std::io::Result<()> {
    use std::io::Write;
    let found = match found {
        Ok(found) => found,
        Err(error) => return writeln!(out, "\nwarning: {}", error.message),
    };
    let value = |one: &Parameter| match one.name {
        "block order" => one.value.to_string(),
        "pacing" => rate_text(Some(one.value)),
        _ => size::exact(one.value),
    };
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|one| [one.name.into(), value(one), one.from.words(), one.used.into()])
        .map(|cells: [String; 4]| width.keeps(&cells, 1))
        .collect();
    writeln!(out)?;
    let heading = width.keeps(&["PARAMETER", ">VALUE", "FROM", "USED"], 1);
    crate::output::table(out, &heading, &rows);
    Ok(())
}

fn live_mounts(cluster: &Cluster) -> Vec<String> {
    let all = mounts::of(cluster).into_iter().map(|record| record.process);
    all.filter(|process| process.is_alive()).map(|process| process.note).collect()
}

fn write(
    out: &mut Vec<u8>,
    config: &Config,
    rows: &[Row],
    mounts: &[String],
    width: Width,
) -> std::io::Result<()> {
    use std::io::Write;
    writeln!(out, "cluster {} ({})\n", config.name, config.file.display())?;
    out.extend(servers(rows, width));
    for row in rows {
        if let (Some(used), Some(max)) = (row.metadata_bytes_used, row.metadata_bytes_max) {
            let (share, used, max) =
                (df::share(used, max), size::rounded(used), size::rounded(max));
            let full = if share > 95 { ": full, new names are refused" } else { "" };
            writeln!(out, "\nmetadata of {}: {used} of {max} ({share}%){full}", row.node)?;
        }
    }
    for mount in mounts {
        writeln!(out, "\nmounted at {mount}")?;
    }
    if rows.iter().all(|row| row.state == STOPPED) {
        return writeln!(out, "\nthe cluster is stopped: `covey up` starts it, with all its data");
    }
    for row in rows {
        if let Some(reason) = &row.reason {
            let (node, state) = (&row.node, row.state);
            match state {
                "unknown store" => writeln!(out, "\n{node} serves nothing: {reason}")?,
                _ => writeln!(out, "\n{node} is {state}: {reason}")?,
            }
            if let Some(log) = &row.log {
                writeln!(out, "log of {node}: {log}")?;
            }
        }
    }
    Ok(())
}

/// The table of servers. A narrow one is without what its reader misses least, as far as it takes.
fn servers(rows: &[Row], width: Width) -> Vec<u8> {
    let cells: Vec<_> = rows.iter().map(|row| width.keeps(&cells(row), 2)).collect();
    let heading = width.keeps(&HEADING, 2);
    let mut table = Vec::new();
    for left_out in 0..=LEFT_OUT.len() {
        let keeps = |column: &usize| !LEFT_OUT[..left_out].contains(&HEADING[*column]);
        let columns: Vec<usize> = (0..heading.len()).filter(keeps).collect();
        let heading: Vec<&str> = columns.iter().map(|at| heading[*at]).collect();
        let row = |row: &Vec<String>| columns.iter().map(|at| row[*at].clone()).collect();
        let rows: Vec<Vec<String>> = cells.iter().map(row).collect();
        table.clear();
        crate::output::table(&mut table, &heading, &rows);
        let columns_of = |line: &str| line.chars().count();
        let widest = String::from_utf8_lossy(&table).lines().map(columns_of).max().unwrap_or(0);
        if width == Width::Wide || widest <= NARROW_COLUMNS {
            break;
        }
    }
    table
}

/// What a narrow table has at most, and what it does without first.
const NARROW_COLUMNS: usize = 80;
const LEFT_OUT: [&str; 4] = ["VERSION", ">LATENCY", ">PID", ">USED"];

/// Of the table of servers; the last two columns are wide.
const HEADING: [&str; 10] =
    ["NODE", "ROLE", ">PID", "STATE", ">LATENCY", ">USED", ">FREE", "VERSION", "STORE", "ADDRESS"];

/// The word for a server that is not meant to run.
const STOPPED: &str = "stopped";

fn cells(row: &Row) -> Vec<String> {
    let dash = || "-".to_string();
    vec![
        row.node.clone(),
        row.role.clone(),
        row.pid.map_or_else(dash, |pid| pid.to_string()),
        row.state.to_string(),
        row.latency_us.map_or_else(dash, |us| duration(std::time::Duration::from_micros(us))),
        row.bytes_used.map_or_else(dash, size::rounded),
        row.bytes_free.map_or_else(dash, size::rounded),
        row.version.clone().unwrap_or_else(dash),
        row.store.clone().unwrap_or_else(dash),
        row.listen.join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, roles: &str, state: &'static str) -> Row {
        Row {
            node: name.into(),
            roles: Vec::new(),
            role: roles.into(),
            pid: Some(1_234_567),
            up: true,
            state,
            reason: None,
            log: None,
            listen: vec!["tcp!10.0.0.1!5640".into()],
            store: Some("/srv/covey".into()),
            bytes_total: Some(u64::MAX >> 20),
            bytes_used: Some(1_098_437_885_952),
            bytes_free: Some(1_098_437_885_952),
            metadata_bytes_used: None,
            metadata_bytes_max: None,
            latency_us: Some(23_456),
            msize: None,
            version: Some("0.1.0".into()),
        }
    }

    #[test]
    fn a_table_of_long_names_fits_80_columns_and_keeps_what_matters_most() {
        let text = |rows: &[Row], width| String::from_utf8(servers(rows, width)).unwrap();
        let long = [row("storage-node-1", "meta+data+launch", "unknown store")];
        let narrow = text(&long, Width::Narrow);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        for word in ["storage-node-1", "meta+data+launch", "unknown store", "FREE"] {
            assert!(narrow.contains(word), "{narrow}");
        }
        let wide = text(&long, Width::Wide);
        assert!(wide.contains("VERSION") && wide.contains("tcp!10.0.0.1!5640"), "{wide}");
        // Nothing is left out where all of it fits.
        let short = text(&[row("io1", "data", "up")], Width::Narrow);
        for word in ["VERSION", "LATENCY", "PID", "USED"] {
            assert!(short.contains(word), "{short}");
        }
    }
}
