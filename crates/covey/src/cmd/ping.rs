//! `covey ping`: is every server up?

use super::Context;
use super::cluster::Cluster;
use crate::config::{Config, Node};
use crate::error::{Error, Result};
use crate::output::duration;
use covey_cluster::reach::{PingReport, StoreWord};
use covey_ninep::tree::Errno;
use futures_util::future::join_all;
use std::io::Write;
use std::time::Duration;

/// How long a server may take.
pub const LIMIT: Duration = Duration::from_secs(3);

/// Ask every server whether it is up, and how fast it answers
///
/// Servers are asked at the same time; one that has not answered within 3 s is dead, one that
/// denies us is reported as `refused`, one that `covey down` stopped as `stopped`, and one that
/// cannot be asked from here as `not asked`. Exit code 0 when all are up, else 1; 2 when none
/// can be asked, such as without the key.
///
/// EXAMPLES
///
///     covey ping
///     covey ping io1 io2
///     covey --json ping | jq '.[] | select(.up | not).node'
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
    let logs: Vec<_> = nodes
        .iter()
        .zip(&answers)
        .map(|(node, answer)| log(&config, &node.name, state(answer)))
        .collect();
    let asked = nodes.iter().zip(&answers).zip(&logs);
    let value: Vec<_> =
        asked.map(|((node, answer), log)| json(node, answer, log.as_deref())).collect();
    // The one reason is the error: a table would only repeat it for each node.
    if !context.output.json
        && let Some(reason) = same_for_all(&answers)
    {
        return Err(nobody_asked(nodes.len(), reason));
    }
    context.output.result(&value, |out| {
        let rows: Vec<_> =
            nodes.iter().zip(&answers).map(|(node, answer)| row(node, answer)).collect();
        crate::output::table(
            out,
            &["NODE", "ROLE", "STATE", ">LATENCY", "ADDRESS", "REASON"],
            &rows,
        );
        let logs = nodes.iter().zip(&logs).filter_map(|(node, log)| Some((node, log.as_ref()?)));
        for (node, log) in logs {
            writeln!(out, "\nlog of {}: {}", node.name, log)?;
        }
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
    /// Nothing answers, and nothing is meant to: `covey down` stopped it.
    Stopped,
}

const DEAD: &str = "dead";

impl Silence {
    /// The word for the STATE column.
    pub fn state(&self) -> &'static str {
        match self.kind {
            SilenceKind::Dead => DEAD,
            SilenceKind::Refused => "refused",
            SilenceKind::NotAsked => "not asked",
            SilenceKind::Stopped => "stopped",
        }
    }
}

/// Asks one server, for at most [`LIMIT`].
pub async fn ask(config: &Config, node: &Node) -> std::result::Result<PingReport, Silence> {
    match tokio::time::timeout(LIMIT, covey_cluster::reach::ping(config, &node.name)).await {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(error)) => Err(match silence(&error) {
            // Who answers, if only to refuse, was not stopped.
            dead if dead.kind == SilenceKind::Dead => stopped(config, node).unwrap_or(dead),
            other => other,
        }),
        Err(_) => {
            let reason = format!("no answer within {} s", LIMIT.as_secs());
            Err(Silence { kind: SilenceKind::Dead, reason })
        }
    }
}

/// That a node of this machine's own cluster has no process on record: it was never started, or stopped in
/// good order. One that died leaves its record behind.
fn stopped(config: &Config, node: &Node) -> Option<Silence> {
    let cluster = Cluster::of(config)?;
    let is_on_record = cluster.pid_file(&node.name).exists();
    let reason = "`covey up` starts it".to_string();
    (!is_on_record).then_some(Silence { kind: SilenceKind::Stopped, reason })
}

/// Why no node at all was asked, if all have the same reason.
fn same_for_all(answers: &[std::result::Result<PingReport, Silence>]) -> Option<&str> {
    let mut reasons = answers.iter().map(|answer| match answer {
        Err(silence) if silence.kind == SilenceKind::NotAsked => Some(silence.reason.as_str()),
        _ => None,
    });
    let first = reasons.next()??;
    reasons.all(|reason| reason == Some(first)).then_some(first)
}

fn nobody_asked(all: usize, reason: &str) -> Error {
    Error::config(format!("cannot ask {}: {reason}", servers(all))).hint(KEYLESS)
}

const KEYLESS: &str = "whether they live is not known: run as root or copy the cluster's key, \
     `covey help ping`";

/// A number of servers in words.
pub fn servers(count: usize) -> String {
    if count == 1 { "1 server".into() } else { format!("{count} servers") }
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
        if count == all {
            return Err(nobody_asked(all, &first.reason));
        }
        let message = format!("cannot ask {count} of {}: {}", servers(all), first.reason);
        return Err(Error::work(message).hint(KEYLESS));
    }
    let count = |kind| of(kind).count();
    let (dead, refused, stopped) =
        (count(SilenceKind::Dead), count(SilenceKind::Refused), count(SilenceKind::Stopped));
    match (dead, refused, stopped) {
        (0, 0, 0) => Ok(()),
        (0, 0, stopped) => Err(stopped_servers(stopped, all)),
        (0, refused, _) => {
            let (of, verb) = (servers(all), if refused == 1 { "is" } else { "are" });
            let refuse = if refused == 1 { "refuses" } else { "refuse" };
            let message = format!("{refused} of {of} {verb} up and {refuse} us");
            Err(Error::work(message).hint(
                "the key here differs from theirs, or this user may not read it: compare \
                 `sha256sum` of the key_file in covey.toml",
            ))
        }
        (dead, _, _) => Err(dead_servers(dead, all)),
    }
}

fn stopped_servers(stopped: usize, all: usize) -> Error {
    let message = if stopped == all {
        "cannot reach the cluster: it is stopped".to_string()
    } else {
        let verb = if stopped == 1 { "is" } else { "are" };
        format!("{stopped} of {} {verb} stopped", servers(all))
    };
    Error::work(message).hint("`covey up` starts it again, with all its data")
}

fn dead_servers(dead: usize, all: usize) -> Error {
    let message = if dead == all {
        "cannot reach the cluster: none of the servers answers".to_string()
    } else {
        format!("cannot reach {dead} of {}", servers(all))
    };
    Error::work(message).hint(
        "`covey up` starts those of this machine; on another, \
         `systemctl status covey@NODE` tells more",
    )
}

/// The word for a server, as `covey status` has it, too.
pub fn state(answer: &std::result::Result<PingReport, Silence>) -> &'static str {
    match answer {
        Err(silence) => silence.state(),
        Ok(report) => match report.store {
            StoreWord::Known => "up",
            StoreWord::Unmet(_) => "waiting",
            StoreWord::Unknown(_) => "unknown store",
        },
    }
}

/// The log of a node of this machine's own cluster, where nothing answers: why it died may stand there.
pub fn log(config: &Config, node: &str, state: &str) -> Option<String> {
    let log = Cluster::of(config).filter(|_| state == DEAD)?.log_file(node);
    log.exists().then(|| log.display().to_string())
}

fn json(
    node: &Node,
    answer: &std::result::Result<PingReport, Silence>,
    log: Option<&str>,
) -> serde_json::Value {
    serde_json::json!({
        "node": node.name, "roles": node.roles, "up": answer.is_ok(), "state": state(answer),
        "log": log,
        "listen": node.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "latency_us": answer.as_ref().ok().map(|report| report.latency.as_micros() as u64),
        "reason": answer.as_ref().err().map(|silence| &silence.reason),
    })
}

fn row(node: &Node, answer: &std::result::Result<PingReport, Silence>) -> Vec<String> {
    let (state, latency, reason) = match answer {
        Ok(report) => (state(answer), duration(report.latency), String::new()),
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
        let refusing = "1 of 3 servers is up and refuses us";
        assert_eq!(said(&[refused.into()]), Err(refusing.into()));
    }

    #[test]
    fn a_stopped_cluster_is_no_dead_one_and_a_missing_key_is_the_configurations_mistake() {
        let stopped = |count| {
            let reason = "`covey up` starts it".to_string();
            let one = Silence { kind: SilenceKind::Stopped, reason };
            verdict(3, std::iter::repeat_n(&one, count)).expect_err("they do not answer").message
        };
        assert_eq!(stopped(3), "cannot reach the cluster: it is stopped");
        assert_eq!(stopped(1), "1 of 3 servers is stopped");
        let all: Vec<_> =
            (0..3).map(|_| silence(&Error::config("cannot read the key /k"))).collect();
        let error = verdict(3, all.iter()).expect_err("nobody was asked");
        assert_eq!(error.message, "cannot ask 3 servers: cannot read the key /k");
        assert_eq!(error.kind.exit_code(), 2);
    }
}
