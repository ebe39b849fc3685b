//! `covey nodes`: where programs can be run.

use super::Context;
use super::job::pick;
use super::job::tree::{NodeTree, OnNode};
use super::ps::procs;
use crate::config::Config;
use crate::error::{Error, Result};
use covey_launch::output::fold;
use futures_util::future::join_all;
use serde::Serialize;

/// Show the nodes: architecture, state, what runs there
///
/// Nodes that cannot be reached are shown as `down`, and the exit code is 1.
///
/// EXAMPLES
///
///     covey nodes
///     covey nodes --list
///     covey run -w $(covey nodes --list --up) uptime
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Only the names, as one list such as node[1-4]
    #[arg(long)]
    list: bool,
    /// Only those that can run programs
    #[arg(long)]
    up: bool,
    /// Only these
    #[arg(value_name = "NODES")]
    nodes: Option<String>,
}

/// What is known of a node.
#[derive(Serialize)]
struct Row {
    node: String,
    arch: String,
    state: String,
    /// Processes that run or wait for a CPU.
    load: Option<usize>,
    processes: Option<usize>,
    /// Parts of jobs.
    jobs: Option<usize>,
    reason: String,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let names = pick::nodes(&config, args.nodes.as_deref(), args.nodes.is_none())?;
    let mut rows = join_all(names.iter().map(|name| look(&config, name))).await;
    let down = rows.iter().filter(|row| row.load.is_none()).count();
    if args.up {
        rows.retain(|row| row.load.is_some());
    }
    context.output.result(&rows, |out| {
        if args.list {
            let names: Vec<&str> = rows.iter().map(|row| row.node.as_str()).collect();
            out.extend(format!("{}\n", fold(&names)).bytes());
            return Ok(());
        }
        let heading = ["NODE", "ARCH", "STATE", ">LOAD", ">PROCESSES", ">JOBS", "REASON"];
        let cells: Vec<_> = rows.iter().map(cells).collect();
        crate::output::table(out, &heading, &cells);
        Ok(())
    })?;
    match (down, args.up) {
        (0, _) | (_, true) => Ok(()),
        (down, false) => Err(Error::work(format!("cannot reach {down} of {} nodes", names.len()))
            .hint("`covey ping` shows which nodes answer; roles in covey.toml switch launch on and off")),
    }
}

async fn look(config: &Config, name: &str) -> Row {
    let node = name.to_owned();
    match ask(config, name).await {
        Ok(row) => row,
        Err(error) => Row {
            node,
            arch: String::new(),
            state: "down".to_owned(),
            load: None,
            processes: None,
            jobs: None,
            reason: error.message,
        },
    }
}

async fn ask(config: &Config, name: &str) -> Result<Row> {
    let tree = NodeTree::reach(config, name).await?;
    let what = || format!("ask {name}");
    let (arch, state) =
        (tree.text("arch").await.on_node(what)?, tree.text("state").await.on_node(what)?);
    let processes = procs::parse(&tree.text("procs").await.on_node(what)?);
    let parts = tree.parts().await.on_node(what)?;
    Ok(Row {
        node: name.to_owned(),
        arch: arch.trim().trim_start_matches('/').to_owned(),
        state: state.trim().to_owned(),
        load: Some(
            processes.iter().filter(|process| matches!(process.state.as_str(), "R" | "D")).count(),
        ),
        processes: Some(processes.len()),
        jobs: Some(parts.len()),
        reason: String::new(),
    })
}

fn cells(row: &Row) -> Vec<String> {
    let number =
        |number: Option<usize>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let text = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    vec![
        row.node.clone(),
        text(&row.arch),
        text(&row.state),
        number(row.load),
        number(row.processes),
        number(row.jobs),
        row.reason.clone(),
    ]
}
