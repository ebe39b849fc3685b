//! `covey ps`: the processes of all nodes.

use super::Context;
use super::job::pick;
use super::job::tree::OnNode;
use crate::config::Config;
use crate::error::{Error, Result};
use covey_io::os::users;
use futures_util::future::join_all;
use procs::Process;

pub(super) mod procs;

/// Show the processes of jobs, on all nodes
///
/// Without -a those that `covey run` has started, and what they have started.
///
/// EXAMPLES
///
///     covey ps
///     covey ps -a -w node[1-4]
///     covey --json ps | jq '.[] | select(.job != "") | .node'
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// All processes of the nodes
    #[arg(short, long)]
    all: bool,
    /// Of this job
    #[arg(short, long, value_name = "JOB")]
    job: Option<String>,
    /// On these nodes only
    #[arg(short = 'w', long, value_name = "NODES")]
    nodes: Option<String>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let names = pick::nodes(&config, args.nodes.as_deref(), args.nodes.is_none())?;
    let (found, failed) = processes(&config, &names, context).await;
    let wanted: Vec<(String, Process)> = found
        .into_iter()
        .filter(|(_, process)| args.all || !process.job.is_empty())
        .filter(|(_, process)| args.job.as_ref().is_none_or(|job| process.is_of(job)))
        .collect();
    let json: Vec<_> = wanted.iter().map(|(node, process)| process.json(node)).collect();
    context.output.result(&json, |out| {
        let rows: Vec<_> = wanted.iter().map(|(node, process)| row(node, process)).collect();
        let heading = ["NODE", ">PID", "USER", "STATE", ">TIME", "JOB", "COMMAND"];
        crate::output::table(out, &heading, &rows);
        Ok(())
    })?;
    if failed { Err(Error::told()) } else { Ok(()) }
}

/// The processes of nodes, and whether some could not be asked, which is reported.
pub(super) async fn processes(
    config: &Config,
    names: &[String],
    context: &Context,
) -> (Vec<(String, Process)>, bool) {
    let asked = join_all(names.iter().map(|name| async move {
        let tree = super::job::tree::NodeTree::reach(config, name).await?;
        let text = tree.text("procs").await;
        text.on_node(|| format!("list the processes of {name}"))
    }));
    let (mut all, mut failed) = (Vec::new(), false);
    for (name, answer) in names.iter().zip(asked.await) {
        match answer {
            Ok(text) => {
                all.extend(procs::parse(&text).into_iter().map(|process| (name.clone(), process)));
            }
            Err(error) => {
                failed = true;
                context.output.tell(&error);
            }
        }
    }
    (all, failed)
}

fn row(node: &str, process: &Process) -> Vec<String> {
    let user = users::by_uid(process.uid).ok().flatten();
    let user = user.map_or_else(|| process.uid.to_string(), |account| account.name.clone());
    let seconds = process.cpu_ms / 1000;
    let time = format!("{}:{:02}", seconds / 60, seconds % 60);
    // A line of the table is to be a line of the terminal; --json has all of it.
    let mut command: String = process.command.chars().take(COMMAND_CHARS_MAX).collect();
    if command.len() < process.command.len() {
        command += "...";
    }
    let job = if process.job.is_empty() { "-" } else { &process.job };
    vec![
        node.to_owned(),
        process.pid.to_string(),
        user,
        process.state.clone(),
        time,
        job.to_owned(),
        command,
    ]
}

/// How much of a command line is shown.
const COMMAND_CHARS_MAX: usize = 100;
