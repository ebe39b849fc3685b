//! `covey net`: who sends what through which port, and the pacer.

use super::Context;
use crate::config::{Config, size};
use crate::error::{Cannot, Error, Result};
use covey_cluster::reach::{read_of, write_control};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Show and set how storage traffic yields to messages
///
/// In a cluster whose covey.toml has `pacing = true` below [cluster], each node counts what its
/// interfaces carry: storage (the file system, volumes, images and pushed programs: all
/// connections to the ports of nodes and targets), and messages, which are everything else.
/// While there are messages, storage is kept out of the queues of the switch: the node that
/// receives says what its port can take, and senders pace their connections. Without messages
/// storage is not paced.
///
/// Paced are the connections of `covey serve`, `covey mount`, `covey volume attach`, the commands and
/// the preload library. A link's rate is its driver's; `--rate` sets it where the driver knows none.
///
/// EXAMPLES
///
///     covey net show
///     covey net watch
///     covey net set --rate eth0=1G
///     covey net set --window 256K
///     covey net set off
///     covey --json net show | jq '.[].ports'
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Show(Show),
    Set(Set),
    Watch(Watch),
}

/// Show each port: its rate, what storage and messages take, and what storage may take
#[derive(clap::Args, Debug)]
struct Show {
    /// Only these nodes
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Each connection, too, with its class: storage, images or messages
    #[arg(long)]
    flows: bool,
}

/// Change how nodes pace, until they end
#[derive(clap::Args, Debug)]
struct Set {
    /// Whether storage yields to messages
    #[arg(value_name = "on|off", value_parser = ["on", "off"])]
    state: Option<String>,
    /// Percent of what messages leave that storage does not get: 1 to 50
    #[arg(long, value_name = "PERCENT")]
    margin: Option<f64>,
    /// Percent of a port that storage gets whatever messages take: 1 to 90
    #[arg(long, value_name = "PERCENT")]
    least: Option<f64>,
    /// The rate of a link in bits a second, such as eth0=10G; `auto` asks its driver
    #[arg(long, value_name = "INTERFACE=RATE")]
    rate: Vec<String>,
    /// Connections of this TCP port are storage, too: such as a target's that does not listen at 3260
    #[arg(long, value_name = "PORT")]
    bulk: Vec<u16>,
    /// Bytes that may be on their way on each connection of a client, such as 1M; `auto` is 32M.
    /// R2Ts ask each initiator of a volume for no more
    #[arg(long, value_name = "BYTES")]
    window: Option<String>,
    /// The mark of storage's packets for switches that look at it, 0 to 63; 8 is the default, 0 none
    #[arg(long, value_name = "NUMBER")]
    dscp: Option<u8>,
    /// Only these nodes
    #[arg(long = "node", value_name = "NODE")]
    nodes: Vec<String>,
}

/// Show the same again and again, until interrupted
#[derive(clap::Args, Debug)]
struct Watch {
    /// Only these nodes
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    match args.command {
        Command::Show(args) => show(&config, &args.nodes, args.flows, context).await,
        Command::Set(args) => set(args, &config).await,
        Command::Watch(args) => watch(args, &config, context).await,
    }
}

async fn watch(args: Watch, config: &Config, context: &Context) -> Result<()> {
    if !(0.1..=86_400.0).contains(&args.interval) {
        return Err(Error::user("cannot watch: --interval is 0.1 to 86400 s"));
    }
    loop {
        show(config, &args.nodes, true, context).await?;
        tokio::time::sleep(Duration::from_secs_f64(args.interval)).await;
    }
}

fn chosen(config: &Config, nodes: &[String]) -> Result<Vec<String>> {
    if nodes.is_empty() {
        return Ok(config.nodes.iter().map(|node| node.name.clone()).collect());
    }
    nodes.iter().map(|name| config.node(name).map(|node| node.name.clone())).collect()
}

async fn show(config: &Config, nodes: &[String], flows: bool, context: &Context) -> Result<()> {
    let (mut all, mut silent) = (Vec::new(), Vec::new());
    for node in chosen(config, nodes)? {
        match read_of(config, &node, "net/ports").await {
            Ok(text) => all.push(parse(&node, &text)),
            Err(error) => {
                context.output.say(format!("{node}: no answer: {error}"));
                silent.push(node);
            }
        }
    }
    context.output.one_of_many(&all, |out| {
        table(out, &all, flows);
        Ok(())
    })?;
    if silent.is_empty() {
        return Ok(());
    }
    Err(Error::work(format!("these are not all nodes: no answer of {}", silent.join(", "))))
}

/// `/net/ports` of a node: words and values.
fn parse(node: &str, text: &str) -> Value {
    let (mut ports, mut flows, mut state) = (Vec::new(), Vec::new(), Value::Null);
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["pacing", now] => state = (*now).into(),
            ["port", name, way, values @ ..] => ports.push(record(name, way, values)),
            ["flow", name, way, values @ ..] => flows.push(record(name, way, values)),
            // A newer server's.
            _ => {}
        }
    }
    json!({ "node": node, "pacing": state, "ports": ports, "flows": flows })
}

fn record(name: &str, way: &str, values: &[&str]) -> Value {
    let value = |text: &str| text.parse::<u64>().map_or_else(|_| text.into(), Value::from);
    let pairs = values.chunks_exact(2).map(|pair| (pair[0].to_owned(), value(pair[1])));
    let mut all: Map<String, Value> = pairs.collect();
    all.insert("interface".into(), name.into());
    all.insert("direction".into(), way.into());
    Value::Object(all)
}

fn table(out: &mut Vec<u8>, all: &[Value], flows: bool) {
    let rows: Vec<_> = all.iter().flat_map(port_rows).collect();
    let head = [
        "NODE",
        "PORT",
        "WAY",
        "STATE",
        ">RATE",
        ">STORAGE",
        ">OF IT IMAGES",
        ">MAY TAKE",
        ">MESSAGES",
        ">FRAMES/S",
        ">LATENCY",
    ];
    crate::output::table(out, &head, &rows);
    let rows: Vec<_> = all.iter().flat_map(flow_rows).collect();
    if flows && !rows.is_empty() {
        out.push(b'\n');
        let head = ["NODE", "PORT", "WAY", "WITH", "CLASS", "LOCAL", "PEER", ">RATE", ">LIMIT"];
        crate::output::table(out, &head, &rows);
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Bytes a second as bits.
fn rate_text(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(|| "-".to_owned(), |bytes| format!("{:.1} Mbit/s", bytes as f64 * 8e-6))
}

fn port_rows(node: &Value) -> Vec<Vec<String>> {
    let name = text_of(&node["node"]);
    let off = if node["pacing"] == "on" { None } else { Some("off") };
    let ports = node["ports"].as_array().into_iter().flatten();
    let mut rows: Vec<_> = ports
        .map(|port| {
            let rate = port["bits_per_s"].as_u64().map_or(Value::Null, |bits| (bits / 8).into());
            let latency = port["last_us"].as_u64().map_or("-".to_owned(), |us| format!("{us} us"));
            let frames = port["message_packets"].as_u64().map_or("-".to_owned(), |n| n.to_string());
            let mut row = vec![name.clone()];
            row.extend(["interface", "direction", "state"].map(|key| text_of(&port[key])));
            let rates =
                [&rate, &port["bulk"], &port["images"], &port["bulk_max"], &port["messages"]];
            row.extend(rates.map(rate_text));
            row.extend([frames, latency]);
            row
        })
        .collect();
    if rows.is_empty() {
        let mut row =
            vec![name, "-".into(), "-".into(), off.unwrap_or("no storage traffic").into()];
        row.resize(11, "-".into());
        rows.push(row);
    }
    rows
}

fn flow_rows(node: &Value) -> Vec<Vec<String>> {
    let name = text_of(&node["node"]);
    let flows = node["flows"].as_array().into_iter().flatten();
    // A direction in which nothing is sent and nothing paced says nothing.
    let flows = flows.filter(|flow| flow["bytes_per_s"] != 0 || flow["limit"] != "none");
    flows
        .map(|flow| {
            let mut row = vec![name.clone()];
            row.extend(
                ["interface", "direction", "node", "class", "local", "peer"]
                    .map(|key| text_of(&flow[key])),
            );
            row.extend([rate_text(&flow["bytes_per_s"]), rate_text(&flow["limit"])]);
            row
        })
        .collect()
}

async fn set(args: Set, config: &Config) -> Result<()> {
    let commands = commands_of(&args)?;
    if commands.is_empty() {
        return Err(Error::user("nothing to set")
            .hint("on, off, --margin, --least, --rate, --bulk, --window or --dscp; see `covey help net set`"));
    }
    for node in chosen(config, &args.nodes)? {
        for command in &commands {
            let told = write_control(config, &node, "net/ctl", command).await;
            told.cannot(|| format!("set `{command}` on {node}"))?;
        }
    }
    Ok(())
}

/// The lines for `/net/ctl`.
fn commands_of(args: &Set) -> Result<Vec<String>> {
    let mut commands: Vec<String> = args.state.clone().into_iter().collect();
    commands.extend(args.margin.map(|percent| format!("margin {percent}")));
    commands.extend(args.least.map(|percent| format!("least {percent}")));
    for rate in &args.rate {
        commands.push(rate_command(rate)?);
    }
    commands.extend(args.bulk.iter().map(|port| format!("bulk {port}")));
    if let Some(window) = &args.window {
        commands.push(window_command(window)?);
    }
    commands.extend(args.dscp.map(|mark| format!("dscp {mark}")));
    Ok(commands)
}

fn window_command(text: &str) -> Result<String> {
    if text == "auto" {
        return Ok("window auto".to_owned());
    }
    let bytes = size::parse(text).map_err(|why| {
        Error::user(format!("--window: {why}")).hint("such as 65536, 256K, 1 MiB or auto")
    })?;
    Ok(format!("window {bytes}"))
}

fn rate_command(text: &str) -> Result<String> {
    let wrong = || {
        Error::user(format!("rate {text:?} is not INTERFACE=RATE"))
            .hint("such as eth0=1G, eth0=100M or eth0=auto")
    };
    let (name, rate) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    if rate == "auto" {
        return Ok(format!("rate {name} auto"));
    }
    let (digits, unit) = match rate.as_bytes().last() {
        Some(b'G') => (&rate[..rate.len() - 1], 1e9),
        Some(b'M') => (&rate[..rate.len() - 1], 1e6),
        _ => (rate, 1.0),
    };
    let bits = digits.parse::<f64>().ok().filter(|number| *number > 0.0).ok_or_else(wrong)? * unit;
    Ok(format!("rate {name} {}", bits as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_written_with_a_unit_or_without() {
        for (text, command) in [
            ("eth0=1G", "rate eth0 1000000000"),
            ("eth0=2.5G", "rate eth0 2500000000"),
            ("n=100M", "rate n 100000000"),
            ("n=5000000", "rate n 5000000"),
            ("n=auto", "rate n auto"),
        ] {
            assert_eq!(rate_command(text).unwrap(), command);
        }
        for text in ["256K", "256k", "256 KiB", "262144"] {
            assert_eq!(window_command(text).unwrap(), "window 262144", "{text}");
        }
        assert_eq!(window_command("auto").unwrap(), "window auto");
        assert!(window_command("much").is_err());
        for wrong in ["", "eth0", "=1G", "eth0=", "eth0=G", "eth0=-1M", "eth0=fast"] {
            assert!(rate_command(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_node_says_becomes_values() {
        let text = "pacing on\nport eth0 in state paced bits_per_s 100 bulk 7\nlater 1\n\
                    flow eth0 in local 1.1.1.1:5 peer 1.1.1.2:6 node io1 bytes_per_s 9 limit none\n";
        let value = parse("io1", text);
        assert_eq!(value["pacing"], "on");
        assert_eq!(
            (&value["ports"][0]["bulk"], &value["ports"][0]["state"]),
            (&json!(7), &json!("paced"))
        );
        assert_eq!(
            (&value["flows"][0]["node"], &value["flows"][0]["limit"]),
            (&json!("io1"), &json!("none"))
        );
    }
}
