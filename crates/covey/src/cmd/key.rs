//! `covey key`: the cluster key while it is being replaced.

use super::Context;
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_cluster::key::{beside, read, read_beside};
use covey_cluster::net;
use covey_ninep::auth::{Key, fingerprint};
use covey_ninep::tree::Errno;
use futures_util::future::join_all;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Replace the cluster key while the cluster works
///
/// A server takes two keys: the one in the key_file of covey.toml, and the one in the file of the same name with `.next`
/// behind it. It looks at the files twice a second, so nothing is started anew, and mounts find the new key by
/// themselves.
///
/// EXAMPLES
///
/// On one node:
///
///     covey keygen --next               makes /etc/covey/key.next; copy it to every node, by scp
///     covey key ls                      which nodes take which key, asked one by one
///
/// When all take both, on each node, in any order:
///
///     covey key rotate                  the new key is the first; the old one is taken, too
///
/// When all nodes have done that, on each node, in any order:
///
///     covey key retire                  the old key is forgotten
///
/// EXIT CODES
///
/// 0 done; `ls`: all nodes take the key. 1 a node does not take it or does not answer. 2 nothing was tried.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show which nodes take which key
    Ls,
    /// Prove the next key from now on, on this node, and go on taking the one before
    Rotate {
        /// Also when a node does not answer, or does not take the next key yet
        #[arg(long)]
        force: bool,
    },
    /// Forget the key beside the cluster's, on this node
    Retire {
        /// Also when a node does not answer, or does not take the cluster's key
        #[arg(long)]
        force: bool,
    },
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    match args.command {
        Command::Ls => ls(&config, context).await,
        Command::Rotate { force } => rotate(&config, Checks::of(force), context).await,
        Command::Retire { force } => retire(&config, Checks::of(force), context).await,
    }
}

/// Whether other nodes are asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checks {
    Made,
    LeftOut,
}

impl Checks {
    fn of(force: bool) -> Checks {
        if force { Checks::LeftOut } else { Checks::Made }
    }
}

/// How long a node may take to answer.
const LIMIT: Duration = Duration::from_secs(4);
/// How often a server looks at its key files, and how many looks it is given to find a new key.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 4;

/// What a node says to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Takes,
    Refuses,
    /// It listens on this machine only, where the kernel says who comes.
    NeedsNone,
    Silent(String),
}

impl Answer {
    fn word(&self) -> &str {
        match self {
            Answer::Takes => "takes it",
            Answer::Refuses => "refuses it",
            Answer::NeedsNone => "needs none",
            Answer::Silent(_) => "no answer",
        }
    }

    fn is_good(&self) -> bool {
        matches!(self, Answer::Takes | Answer::NeedsNone)
    }
}

/// What all nodes say to a key, in the order of covey.toml.
async fn ask_all(config: &Config, key: Option<Key>) -> Option<Vec<Answer>> {
    let key = key?;
    Some(join_all(config.nodes.iter().map(|node| ask(config, &node.name, key))).await)
}

async fn ask(config: &Config, node: &str, key: Key) -> Answer {
    match tokio::time::timeout(LIMIT, net::takes_key(config, node, key)).await {
        Ok(None) => Answer::NeedsNone,
        Ok(Some(Ok(()))) => Answer::Takes,
        Ok(Some(Err(error))) if error.code == Errno::EACCES => Answer::Refuses,
        Ok(Some(Err(error))) => Answer::Silent(error.to_string()),
        Err(_) => Answer::Silent(format!("no answer within {} s", LIMIT.as_secs())),
    }
}

async fn ls(config: &Config, context: &Context) -> Result<()> {
    let (now, next) = keys(config)?;
    let said = ask_all(config, Some(now)).await.unwrap_or_default();
    let said_next = ask_all(config, next).await;
    let of_next = |at: usize| said_next.as_ref().map(|said: &Vec<Answer>| said[at].clone());
    let nodes: Vec<Value> = (0..said.len())
        .map(|at| {
            json!({
                "node": config.nodes[at].name, "key": said[at].word(),
                "next": of_next(at).as_ref().map(Answer::word),
                "reason": match &said[at] { Answer::Silent(why) => Some(why), _ => None },
            })
        })
        .collect();
    let value = json!({
        "key": fingerprint(&now), "next": next.as_ref().map(fingerprint), "nodes": nodes,
    });
    context.output.result(&value, |out| {
        let beside = next.as_ref().map_or_else(|| "-".to_owned(), fingerprint);
        writeln!(out, "key {}, next {beside}\n", fingerprint(&now))?;
        let row = |at: usize| {
            let next = of_next(at).as_ref().map_or("-", Answer::word).to_owned();
            let why = match &said[at] {
                Answer::Silent(why) => why.clone(),
                _ => String::new(),
            };
            vec![config.nodes[at].name.clone(), said[at].word().to_owned(), next, why]
        };
        let rows: Vec<_> = (0..said.len()).map(row).collect();
        crate::output::table(out, &["NODE", "KEY", "NEXT", "REASON"], &rows);
        Ok(())
    })?;
    match said.iter().filter(|answer| !answer.is_good()).count() {
        0 => Ok(()),
        count => Err(Error::work(format!("{count} of {} nodes do not take the key", said.len()))),
    }
}

async fn rotate(config: &Config, checks: Checks, context: &Context) -> Result<()> {
    let file = key_file(config)?;
    let next_file = beside(&file);
    let (now, next) = keys(config)?;
    let Some(next) = next.filter(|next| *next != now) else {
        return Err(Error::user(format!(
            "cannot rotate the key: there is no {}",
            next_file.display()
        ))
        .hint("`covey keygen --next` makes it; copy it to every node"));
    };
    if checks == Checks::Made {
        if !is_newer(&next_file, &file) {
            let what = format!("cannot rotate the key: {} is the older one", next_file.display());
            return Err(Error::user(what).hint(
                "it was rotated already, perhaps: `covey key retire` forgets the older one",
            ));
        }
        must_take(config, next, "rotate the key", "the next key").await?;
    }
    exchange(&file, &next_file)?;
    context.output.result(
        &json!({ "key": fingerprint(&next), "old": fingerprint(&now) }),
        |out| {
            writeln!(
                out,
                "the key of this node is {}; {} is taken, too",
                fingerprint(&next),
                fingerprint(&now)
            )
        },
    )?;
    context.output.say("when all nodes have done this: `covey key retire` on each");
    Ok(())
}

async fn retire(config: &Config, checks: Checks, context: &Context) -> Result<()> {
    let file = beside(&key_file(config)?);
    let (now, next) = keys(config)?;
    let Some(next) = next else {
        return Err(Error::user(format!("cannot retire a key: there is no {}", file.display()))
            .hint("one key is taken, the cluster's"));
    };
    if checks == Checks::Made {
        if is_newer(&file, &key_file(config)?) {
            let what = format!("cannot retire the key: {} is the newer one", file.display());
            let hint =
                "`covey key rotate` makes it this node's key; to give it up, remove the file";
            return Err(Error::user(what).hint(hint));
        }
        must_take(config, now, "retire the key", "the cluster's key").await?;
    }
    std::fs::remove_file(&file).cannot(|| format!("remove {}", file.display()))?;
    sync_dir(&file);
    context.output.result(
        &json!({ "key": fingerprint(&now), "retired": fingerprint(&next) }),
        |out| {
            writeln!(
                out,
                "this node takes {} only; {} is forgotten",
                fingerprint(&now),
                fingerprint(&next)
            )
        },
    )
}

/// That all nodes take a key: whoever proved another one then would be shut out.
async fn must_take(config: &Config, key: Key, what: &str, which: &str) -> Result<()> {
    let said = ask_until_seen(config, key).await;
    let names = |wanted: fn(&Answer) -> bool| -> Vec<&str> {
        let nodes = config.nodes.iter().zip(&said);
        nodes.filter(|(_, answer)| wanted(answer)).map(|(node, _)| node.name.as_str()).collect()
    };
    let refuse = names(|answer| matches!(answer, Answer::Refuses));
    let silent = names(|answer| matches!(answer, Answer::Silent(_)));
    let why = match (&refuse[..], &silent[..]) {
        ([], []) => return Ok(()),
        ([], silent) => format!("{} not answer", do_not(silent)),
        (refuse, []) => format!("{} not take {which}", do_not(refuse)),
        (refuse, silent) => {
            format!("{} not take {which}, and {} not answer", do_not(refuse), do_not(silent))
        }
    };
    Err(Error::work(format!("cannot {what}: {why}")).hint(
        "a server looks at its key files twice a second; `covey key ls` shows all nodes, --force does it all the \
         same",
    ))
}

/// What all nodes say to a key, when each has had the time to look at its files: who has just written them need not wait.
async fn ask_until_seen(config: &Config, key: Key) -> Vec<Answer> {
    for _ in 0..LOOKS {
        let said = ask_all(config, Some(key)).await.unwrap_or_default();
        if !said.contains(&Answer::Refuses) {
            return said;
        }
        tokio::time::sleep(LOOK).await;
    }
    ask_all(config, Some(key)).await.unwrap_or_default()
}

/// Names, and the verb that goes with their number.
fn do_not(nodes: &[&str]) -> String {
    format!("{} {}", nodes.join(", "), if nodes.len() == 1 { "does" } else { "do" })
}

/// The cluster's key and the one beside it.
fn keys(config: &Config) -> Result<(Key, Option<Key>)> {
    let file = key_file(config)?;
    match read(config)? {
        Some(now) => Ok((now, read_beside(config)?)),
        None => Err(Error::user(format!("cannot read the key {}", file.display()))
            .hint("run as root, or as the user who owns the key")),
    }
}

fn key_file(config: &Config) -> Result<PathBuf> {
    config.key_file.clone().ok_or_else(|| {
        Error::user(format!("cannot use a key: {} names no key_file", config.file.display()))
            .hint("a cluster on one machine needs none: the kernel says who its users are")
    })
}

/// Whether a file was written after another: a key that was copied here to replace the other, and has not yet.
fn is_newer(one: &Path, other: &Path) -> bool {
    let written = |file: &Path| std::fs::metadata(file).and_then(|meta| meta.modified()).ok();
    written(one).zip(written(other)).is_some_and(|(one, other)| one > other)
}

/// In one step: whoever reads finds two keys at any time.
fn exchange(one: &Path, other: &Path) -> Result<()> {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(|error| {
        let why = std::io::Error::from(error);
        let text = format!("cannot exchange {} and {}: {why}", one.display(), other.display());
        Error::work(text).hint("exchange the two files by `mv`")
    })?;
    sync_dir(one);
    Ok(())
}

/// The change outlives a loss of power, where the file system can do that.
fn sync_dir(file: &Path) {
    if let Some(dir) = file.parent().and_then(|dir| File::open(dir).ok()) {
        let _ = dir.sync_all();
    }
}
