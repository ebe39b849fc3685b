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
/// Servers are asked at the same time; one that has not answered within 3 s is dead, one that
/// denies us is reported as `refused`, and one that cannot be asked from here, such as without the
/// key, as `not asked`. Exit code 0 when all are alive, else 1.
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
    let nodes: Vec<&Node> = if args.nodes.is_empty() {
        config.nodes.iter().collect()
    } else {
        args.nodes.iter().map(|name| config.node(name)).collect::<Result<_>>()?
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
    verdict(nodes.len(), answers.iter().filter_map(|answer| answer.as_ref().err()))
}

/// Why a server gave no answer.
#[derive(Debug)]
pub struct Silence {
    /// What is known all the same.
    pub kind: SilenceKind,
    /// In words.
    pub reason: String,
}

/// What a server that gave no answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilenceKind {
    /// Nothing answers.
    Dead,
    /// It lives, but does not let us in.
    Refused,
    /// It was not asked, for want of what that takes here.
    NotAsked,
}

impl Silence {
    /// The word for the STATE column.
    pub fn state(&self) -> &'static str {
        match self.kind {
            SilenceKind::Dead => "dead",
            SilenceKind::Refused => "refused",
            SilenceKind::NotAsked => "not asked",
        }
    }
}

/// Asks one server, for at most [`LIMIT`].
pub async fn ask(config: &Config, node: &Node) -> std::result::Result<PingReport, Silence> {
    match tokio::time::timeout(LIMIT, covey_cluster::reach::ping(config, &node.name)).await {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(error)) => Err(silence(&error)),
        Err(_) => {
            let reason = format!("no answer within {} s", LIMIT.as_secs());
            Err(Silence { kind: SilenceKind::Dead, reason })
        }
    }
}

fn silence(error: &Error) -> Silence {
    // Such as a key that is not there: nobody was asked anything.
    let kind = match error.code() {
        None => SilenceKind::NotAsked,
        Some(Errno::EACCES) => SilenceKind::Refused,
        Some(_) => SilenceKind::Dead,
    };
    Silence { kind, reason: error.message.clone() }
}

/// What the answers come to.
fn verdict<'a>(all: usize, silent: impl Iterator<Item = &'a Silence>) -> Result<()> {
    let silent: Vec<_> = silent.collect();
    let of = |kind| silent.iter().filter(move |silence| silence.kind == kind);
    if let Some(first) = of(SilenceKind::NotAsked).next() {
        let count = of(SilenceKind::NotAsked).count();
        let message = format!("cannot ask {count} of {all} servers: {}", first.reason);
        return Err(Error::work(message).hint(
            "whether they live is not known: run as root or copy the cluster's key, \
             `covey help ping`",
        ));
    }
    match (of(SilenceKind::Dead).count(), of(SilenceKind::Refused).count()) {
        (0, 0) => Ok(()),
        (0, refused) => {
            let message = format!("{refused} of {all} servers are alive and refuse us");
            Err(Error::work(message).hint(
                "the key here differs from theirs, or this user may not read it: compare \
                 `sha256sum` of the key_file in covey.toml",
            ))
        }
        (dead, _) => Err(dead_servers(dead, all)),
    }
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
        "state": answer.as_ref().map_or_else(Silence::state, |_| "alive"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_not_asked_or_refuses_is_not_called_dead() {
        let said = |errors: &[Error]| {
            let all: Vec<_> = errors.iter().map(silence).collect();
            verdict(3, all.iter()).map_err(|error| error.message)
        };
        let (dead, refused) = (Errno::from(Errno::EIO), Errno::from(Errno::EACCES));
        let no_key = || Error::config("cannot read the key /k: no such file or directory");
        assert_eq!(said(&[]), Ok(()));
        assert_eq!(said(&[dead.clone().into()]), Err("cannot reach 1 of 3 servers".into()));
        let keyless =
            "cannot ask 2 of 3 servers: cannot read the key /k: no such file or directory";
        assert_eq!(said(&[no_key(), no_key(), dead.into()]), Err(keyless.into()));
        let refusing = "1 of 3 servers are alive and refuse us";
        assert_eq!(said(&[refused.into()]), Err(refusing.into()));
    }
}
