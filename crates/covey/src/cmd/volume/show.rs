//! Commands that tell of volumes.

use super::{Volume, all, find};
use crate::cmd::Context;
use crate::config::{Config, size};
use crate::error::{Error, Result};
use covey_cluster::reach::read_of;
use serde_json::{Map, Value, json};
use std::io::Write;

/// List the volumes of all nodes
///
/// Ends with 1 where a node's list could not be read: what is shown are the others' volumes then.
#[derive(clap::Args, Debug)]
pub struct Ls {}

/// Show what a volume is, who may use it and where it is served
#[derive(clap::Args, Debug)]
pub struct Show {
    /// The volume
    name: String,
    /// The node that has it, where nodes have different volumes of this name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Show what has been read and written, in all and by each session
#[derive(clap::Args, Debug)]
pub struct Stats {
    /// The volume
    name: String,
    /// The node that has it, where nodes have different volumes of this name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Lists volumes.
pub async fn ls(config: &Config, context: &Context) -> Result<()> {
    let (volumes, unread) = all(config, context).await;
    context.output.result(&volumes, |out| {
        let rows: Vec<_> = volumes.iter().map(row).collect();
        crate::output::table(out, &["NAME", ">SIZE", "NODE", "KEPT IN", "PATH", "EXPORTS"], &rows);
        Ok(())
    })?;
    if unread.is_empty() {
        return Ok(());
    }
    Err(Error::work(format!("these are not all volumes: no list of {}", unread.join(", "))))
}

fn row(volume: &Volume) -> Vec<String> {
    let exports = match (&volume.closed, volume.exports.is_empty()) {
        _ if volume.stands_by => format!("stands by at {}", volume.exports.join(" ")),
        (Some(why), _) => format!("closed: {why}"),
        (None, true) => "-".to_owned(),
        (None, false) => volume.exports.join(" "),
    };
    let bytes = volume.bytes.map_or_else(|| "-".to_owned(), size::exact);
    let Volume { name, node, backing, path, .. } = volume.clone();
    vec![name, bytes, node, backing, path, exports]
}

/// Shows a volume.
pub async fn show(args: Show, config: &Config, context: &Context) -> Result<()> {
    let volume = find(config, &args.name, args.node.as_deref()).await?;
    let iqn = read_of(config, &volume.node, &format!("vol/{}/iqn", args.name)).await?;
    let iqn = iqn.trim();
    let mut value = serde_json::to_value(&volume)?;
    value["iqn"] = iqn.into();
    context.output.result(&value, |out| plain(out, &volume, iqn))
}

fn plain(out: &mut Vec<u8>, volume: &Volume, iqn: &str) -> std::io::Result<()> {
    let bytes = volume.bytes.map_or_else(|| "-".to_owned(), size::exact);
    writeln!(out, "volume      {}", volume.name)?;
    writeln!(out, "target      {iqn}")?;
    writeln!(out, "size        {bytes} in blocks of {}", volume.block_bytes)?;
    writeln!(out, "kept in     {} {} on {}", volume.backing, volume.path, volume.node)?;
    let flags = [
        (volume.read_only, "read-only"),
        (volume.removable, "removable"),
        (volume.write_through, "write-through"),
    ];
    for (_, flag) in flags.iter().filter(|(is_set, _)| *is_set) {
        writeln!(out, "            {flag}")?;
    }
    for address in &volume.exports {
        writeln!(out, "exported    iscsi://{address}/{iqn}/0")?;
    }
    for who in &volume.initiators {
        writeln!(out, "allowed     {who}")?;
    }
    if let Some(user) = &volume.chap {
        writeln!(out, "proof       CHAP as {user}")?;
    }
    if let Some(user) = &volume.mutual {
        writeln!(out, "proves      CHAP as {user}")?;
    }
    match &volume.closed {
        Some(why) => writeln!(out, "closed      {why}"),
        None => Ok(()),
    }
}

/// Shows counts.
pub async fn stats(args: Stats, config: &Config, context: &Context) -> Result<()> {
    let volume = find(config, &args.name, args.node.as_deref()).await?;
    let file = |name: &str| format!("vol/{}/{name}", args.name);
    let counts = read_of(config, &volume.node, &file("stats")).await?;
    let sessions = read_of(config, &volume.node, &file("sessions")).await?;
    let value = json!({
        "volume": volume.name,
        "counts": counts.lines().filter_map(|line| line.split_once(' ')).map(pair).collect::<Map<_, _>>(),
        "sessions": sessions.lines().map(session).collect::<Vec<_>>(),
    });
    context.output.result(&value, |out| write!(out, "{counts}{sessions}"))
}

fn pair((name, count): (&str, &str)) -> (String, Value) {
    (name.to_owned(), count.parse::<u64>().map_or(Value::Null, Value::from))
}

/// `session TSIH INITIATOR at ADDRESS connections N commands N ...`.
fn session(line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, number, initiator, _, address, counts @ ..] = &words[..] else { return Value::Null };
    let mut value: Map<String, Value> =
        counts.chunks_exact(2).map(|two| pair((two[0], two[1]))).collect();
    value.insert("tsih".into(), number.parse::<u16>().map_or(Value::Null, Value::from));
    value.insert("initiator".into(), (*initiator).into());
    value.insert("address".into(), (*address).into());
    Value::Object(value)
}
