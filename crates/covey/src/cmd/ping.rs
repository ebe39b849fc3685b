//! `covey ping`: is every server alive?

use super::Context;
use crate::config::{Config, Node};
use crate::error::{Error, Result};
use crate::output::duration;
use covey_cluster::reach::PingReport;
use covey_ninep::tree::Errno;
use futures_util::future::join_all;
use std::time::Duration;

/// How long a server may take.
pub const LIMIT: Duration = Duration::from_secs(3);

/// Ask every server whether it is alive, and how fast it answers
///
/// Servers are asked at the same time; one that has not answered within 3 s is dead, one that lives
/// but denies us is told as `refused`. Exit code 0 when all are alive, else 1.
///
/// EXAMPLES
///
///     covey ping
///     covey ping io1 io2
///     covey --json ping | jq '.[] | select(.alive | not).node'
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Only these nodes
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let nodes: Vec<&Node> = match args.nodes.is_empty() {
        true => config.nodes.iter().collect(),
        false => args.nodes.iter().map(|name| config.node(name)).collect::<Result<_>>()?,
    };
    let answers = join_all(nodes.iter().map(|node| ask(&config, node))).await;
    let value: Vec<_> =
        nodes.iter().zip(&answers).map(|(node, answer)| json(node, answer)).collect();
    context.output.result(&value, |out| {
        let rows: Vec<_> =
            nodes.iter().zip(&answers).map(|(node, answer)| row(node, answer)).collect();
        crate::output::table(
            out,
            &["NODE", "ROLE", "STATE", ">LATENCY", "ADDRESS", "REASON"],
            &rows,
        );
        Ok(())
    })?;
    match answers.iter().filter(|answer| answer.is_err()).count() {
        0 => Ok(()),
        dead => Err(dead_servers(dead, nodes.len())),
    }
}

/// Why a server gave no answer.
#[derive(Debug)]
pub struct Silence {
    /// It lives, but does not let us in.
    pub is_refusal: bool,
    /// In words.
    pub reason: String,
}

impl Silence {
    /// The word for the STATE column.
    pub fn state(&self) -> &'static str {
        if self.is_refusal { "refused" } else { "dead" }
    }
}

/// Asks one server, for at most [`LIMIT`].
pub async fn ask(config: &Config, node: &Node) -> std::result::Result<PingReport, Silence> {
    match tokio::time::timeout(LIMIT, covey_cluster::reach::ping(config, &node.name)).await {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(error)) => Err(silence(&error)),
        Err(_) => {
            let reason = format!("no answer within {} s", LIMIT.as_secs());
            Err(Silence { is_refusal: false, reason })
        }
    }
}

fn silence(error: &anyhow::Error) -> Silence {
    let errno = error.downcast_ref::<Errno>().map(|error| error.code);
    let is_refusal = matches!(errno, Some(Errno::EACCES | Errno::EPERM));
    Silence { is_refusal, reason: format!("{error:#}") }
}

fn dead_servers(dead: usize, all: usize) -> Error {
    let who = if dead == all {
        "none of the servers".to_string()
    } else {
        format!("{dead} of {all} servers")
    };
    let verb = if dead == all || dead == 1 { "answers" } else { "answer" };
    let message = if dead == all {
        format!("cannot reach the cluster: {who} {verb}")
    } else {
        format!("cannot reach {who}")
    };
    Error::work(message).hint(
        "`covey up` starts those of this machine; on another, \
         `systemctl status covey@NODE` tells more",
    )
}

fn json(node: &Node, answer: &std::result::Result<PingReport, Silence>) -> serde_json::Value {
    serde_json::json!({
        "node": node.name, "roles": node.roles, "alive": answer.is_ok(),
        "listen": node.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "latency_us": answer.as_ref().ok().map(|report| report.latency.as_micros() as u64),
        "reason": answer.as_ref().err().map(|silence| &silence.reason),
    })
}

fn row(node: &Node, answer: &std::result::Result<PingReport, Silence>) -> Vec<String> {
    let (state, latency, reason) = match answer {
        Ok(report) => ("alive", duration(report.latency), String::new()),
        Err(why) => (why.state(), "-".to_string(), why.reason.clone()),
    };
    let address = node.listen.first().map_or("-".to_string(), ToString::to_string);
    vec![node.name.clone(), node.roles_text(), state.to_string(), latency, address, reason]
}
