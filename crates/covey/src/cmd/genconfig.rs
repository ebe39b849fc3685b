//! `covey genconfig`: describes a cluster of several machines.

use super::Context;
use crate::config::{
    Address, Config, Node, PORT_DEFAULT, Pacing, Role, STRIP_BYTES_DEFAULT, hostlist, new_id,
    parse, parse_strip, render, size,
};
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// Write covey.toml for a cluster of several machines
///
/// Without --io it asks: which hosts are I/O servers, which is the metadata server, the port, where
/// each keeps its data, the strip size. Hosts are a list such as `node[1-4,7]` or
/// `node[01-16],big`.
///
/// EXAMPLES
///
///     covey genconfig                                    asks
///     covey genconfig --io 'node[1-4,7]' --meta node1    node1 does both
///     covey genconfig --io 'n[01-16]' --meta head --store /scratch/covey --strip '1 MiB'
///
/// AFTERWARDS
///
///     covey keygen /etc/covey/key       on one node
///     copy covey.toml and the key to /etc/covey of every node
///     covey init --node NAME            on each node, once
///     systemctl enable --now covey@NAME on each node
///     covey ping
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The I/O servers, such as `node[1-4,7]`; their order can never change
    #[arg(long, value_name = "HOSTS")]
    io: Option<String>,
    /// The metadata server; may be one of the I/O servers [default: the first I/O server]
    #[arg(long, value_name = "HOST")]
    meta: Option<String>,
    /// Hosts that only serve /fs to other 9P clients
    #[arg(long, value_name = "HOSTS")]
    gateways: Option<String>,
    /// Where each node keeps its data: NODE is added to it [default: /var/lib/covey]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// TCP port of every server [default: 5640]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Strip size of new files [default: 64 KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_strip)]
    strip: Option<u32>,
    /// Name of the cluster [default: covey]
    #[arg(long)]
    name: Option<String>,
    /// Where each node keeps the cluster key [default: /etc/covey/key]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Where to write; `-` is stdout
    #[arg(long, short, value_name = "FILE", default_value = "covey.toml")]
    output: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

/// What the answers come to.
struct Plan {
    io: Vec<String>,
    meta: String,
    gateways: Vec<String>,
    store: PathBuf,
    port: u16,
    strip_bytes: Option<u32>,
    name: String,
    key_file: PathBuf,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    refuse_overwrite(&args)?;
    let plan = match &args.io {
        Some(io) => from_options(&args, io)?,
        None => ask(&args, &mut std::io::stdin().lock(), &mut std::io::stderr())?,
    };
    let config = lay_out(&plan, &args.output)?;
    let text = render(&config);
    // What was asked for may still be wrong together: two nodes with one name, say.
    let config = parse(&text, &args.output).map_err(|problems| {
        Error::user(format!("cannot make this cluster: {}", problems[0].message))
            .hint(&problems[0].hint)
    })?;
    if args.output == Path::new("-") {
        return crate::output::write_out(text.as_bytes());
    }
    write(&args, &text)?;
    tell(&config, context)
}

fn refuse_overwrite(args: &Args) -> Result<()> {
    if args.output != Path::new("-") && args.output.exists() && !args.force {
        Err(exists(&args.output))
    } else {
        Ok(())
    }
}

fn exists(file: &Path) -> Error {
    Error::user(format!("cannot write {}: it exists already", file.display()))
        .hint(
            "--force overwrites it; the new one has another cluster id and will not fit existing \
               stores",
        )
        .hint("--output FILE writes elsewhere")
}

fn hosts(option: &str, list: &str) -> Result<Vec<String>> {
    hostlist::expand(list).map_err(|why| {
        Error::user(format!("cannot read {option}: {why}"))
            .hint("write a list such as `node[1-4,7]` or `node[01-16],big`")
    })
}

fn from_options(args: &Args, io: &str) -> Result<Plan> {
    let io = hosts("--io", io)?;
    let meta = args.meta.clone().unwrap_or_else(|| io[0].clone());
    plan(args, io, meta)
}

fn plan(args: &Args, io: Vec<String>, meta: String) -> Result<Plan> {
    let gateways = args.gateways.as_ref().map(|list| hosts("--gateways", list)).transpose()?;
    Ok(Plan {
        io,
        meta,
        gateways: gateways.unwrap_or_default(),
        store: args.store.clone().unwrap_or("/var/lib/covey".into()),
        port: args.port.unwrap_or(PORT_DEFAULT),
        strip_bytes: args.strip,
        name: args.name.clone().unwrap_or("covey".into()),
        key_file: args.key_file.clone().unwrap_or("/etc/covey/key".into()),
    })
}

/// Asks for what the options left open. Questions go to stderr, so that stdout can be the file.
fn ask(args: &Args, answers: &mut impl BufRead, talk: &mut impl Write) -> Result<Plan> {
    let mut question = |text: &str, default: &str| -> Result<String> {
        let default_text = if default.is_empty() { String::new() } else { format!(" [{default}]") };
        write!(talk, "{text}{default_text}: ").and_then(|()| talk.flush()).cannot(|| "ask")?;
        let mut line = String::new();
        match answers.read_line(&mut line).cannot(|| "read the answer")? {
            0 => {
                // The prompt's line ends here, so that the error stands on its own.
                let _ = writeln!(talk);
                Err(Error::user(format!("cannot ask \"{text}\": the input has ended"))
                    .hint("--io HOSTS and the other options answer without questions"))
            }
            _ => Ok(if line.trim().is_empty() {
                default.to_string()
            } else {
                line.trim().to_string()
            }),
        }
    };
    let io = hosts("the I/O servers", &question("I/O servers, such as node[1-4,7]", "localhost")?)?;
    let meta = args.meta.clone().map_or_else(|| question("metadata server", &io[0]), Ok)?;
    let mut plan = plan(args, io, meta)?;
    if args.port.is_none() {
        let port = question("TCP port of every server", &PORT_DEFAULT.to_string())?;
        plan.port = port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| wrong("port", &port, "1 to 65535"))?;
    }
    if args.store.is_none() {
        plan.store =
            question("directory for the stores; the node's name is added", "/var/lib/covey")?
                .into();
    }
    if args.strip.is_none() {
        let strip = question("strip size of new files", &size::exact(STRIP_BYTES_DEFAULT.into()))?;
        let strip = parse_strip(&strip).map_err(|why| {
            Error::user(format!("cannot use this answer: {why}"))
                .hint("write a size such as 64 KiB")
        })?;
        plan.strip_bytes = (strip != STRIP_BYTES_DEFAULT).then_some(strip);
    }
    if args.name.is_none() {
        plan.name = question("name of the cluster", "covey")?;
    }
    Ok(plan)
}

fn wrong(what: &str, answer: &str, limit: &str) -> Error {
    Error::user(format!("cannot use {what} `{answer}`: limit is {limit}"))
        .hint("start again; Enter takes what is in brackets")
}

fn lay_out(plan: &Plan, file: &Path) -> Result<Config> {
    let mut nodes = Vec::new();
    if !plan.io.contains(&plan.meta) {
        nodes.push(node(plan, &plan.meta, vec![Role::Meta]));
    }
    for host in &plan.io {
        let both = *host == plan.meta;
        nodes.push(node(
            plan,
            host,
            if both { vec![Role::Meta, Role::Data] } else { vec![Role::Data] },
        ));
    }
    nodes.extend(plan.gateways.iter().map(|host| node(plan, host, vec![])));
    let mut config = Config {
        file: file.to_path_buf(),
        name: plan.name.clone(),
        id: new_id()?,
        strip_bytes: plan.strip_bytes,
        pacing: Pacing::default(),
        key_file: None,
        user: None,
        is_named: true,
        nodes,
        views: Vec::new(),
    };
    config.key_file = config.needs_key().then(|| plan.key_file.clone());
    Ok(config)
}

fn node(plan: &Plan, host: &str, mut roles: Vec<Role>) -> Node {
    let store = (!roles.is_empty()).then(|| plan.store.join(host));
    roles.push(Role::Launch);
    let socket = format!("/run/covey/{host}.sock");
    Node {
        name: host.to_string(),
        listen: vec![Address::Unix(socket.into()), Address::tcp(host, plan.port)],
        emulated: None,
        store,
        roles,
    }
}

fn write(args: &Args, text: &str) -> Result<()> {
    let file = &args.output;
    let mut options = std::fs::File::options();
    options.write(true).truncate(true);
    if args.force {
        options.create(true)
    } else {
        options.create_new(true)
    };
    let mut out = match options.open(file) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(exists(file));
        }
        other => other.cannot(|| format!("write {}", file.display()))?,
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.sync_all())
        .cannot(|| format!("write {}", file.display()))
}

fn tell(config: &Config, context: &Context) -> Result<()> {
    let names: Vec<&str> = config.nodes.iter().map(|node| node.name.as_str()).collect();
    let value = serde_json::json!({
        "file": config.file, "id": config.id, "nodes": names, "meta": config.meta().name,
        "io_servers": config.data().map(|node| &node.name).collect::<Vec<_>>(),
        "key_file": config.key_file,
    });
    context.output.result(&value, |out| {
        let (nodes, data) = (config.nodes.len(), config.data().count());
        writeln!(
            out,
            "wrote {}: {}, {}, metadata on {}\n\nnext:",
            config.file.display(),
            counted(nodes as u64, "node"),
            counted(data as u64, "I/O server"),
            config.meta().name
        )?;
        if let Some(key) = &config.key_file {
            writeln!(out, "  covey keygen {}       on one node", key.display())?;
            writeln!(
                out,
                "  copy the key and {} to /etc/covey of every node",
                config.file.display()
            )?;
        }
        writeln!(out, "  covey init --node NAME             on each node, once")?;
        writeln!(out, "  systemctl enable --now covey@NAME  on each node")?;
        writeln!(out, "  covey ping")
    })
}
