//! `covey server`: the I/O servers, and which of them get new files.

mod add;
mod chains;
mod drain;
mod moving;
mod rebalance;
mod remove;
mod replace;

use super::Context;
use crate::cmd::fsck::lost::{LostBytes, serve_again};
use crate::config::size;
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::Errno;
use covey_stripe::check::Access;
use covey_stripe::client::Fs;
use covey_stripe::meta::place;
use covey_stripe::ops::{Op, Place, Reply};
use moving::Moving;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;

/// Show the I/O servers, close one to new files, and move files among them
///
/// New files go to the I/O servers that serve, have space (5% of the disk at least) and are not closed; a file that
/// asks for more servers than those is laid out on fewer. Where no such server is left, full ones are taken, and then
/// closed ones. Files that exist stay where they are: `covey files --on NODE` lists those of a server, and `drain` moves
/// them to the others while the cluster works.
///
/// The metadata server finds out by itself who serves and how full the disks are; an I/O server that has not served for
/// 3 seconds gets no new files until it is back.
///
/// EXAMPLES
///
///     covey server ls
///     covey server close io3         its disk reports errors: no new files there
///     covey files --on io3           what lies there
///     covey server drain io3         closes it, and moves what lies there
///     covey server drain io3 --pause     nothing moves until --resume
///     covey server open io3
///     covey server add io5           it is at the end of covey.toml on all nodes, and runs
///     covey server remove io3        drained, it leaves the cluster for good
///     covey server rebalance --rate 50M    after a server was added: the old files, too
///     covey server replace io3 > lost.txt  its disk is lost: serve from an empty one
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the I/O servers: whether they serve, get new files, and how full they are
    Ls,
    /// Show which servers the parts of files lie on: the table of chains
    ///
    /// A file's striping names chains, and a chain the I/O server that holds its objects, with the identity of its store.
    /// The generation rises when another store takes a place, and requests of an older one are refused there. A server
    /// that is away is the `last` of its chain: nobody else has what it holds.
    Chains,
    /// Let an I/O server that covey.toml lists behind the others get new files
    ///
    /// Before: append its `[[node]]` to covey.toml, raise `nodes`, copy the file to all nodes, and `covey init` and start the
    /// new one. The metadata server takes it in without a restart, and mounts use it at once. `rebalance` moves old files there.
    Add {
        /// The I/O server
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Close an I/O server to new files
    Close {
        /// The I/O server
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Close an I/O server to new files, and move the files that are laid out there to the others
    ///
    /// The servers do it: the command shows how far they are, and they go on when it has ended, also after a restart, until
    /// nothing is left or `--stop` is given. What is open moves too, and programs wait for a moment; in clusters of earlier
    /// versions files move one by one, if nobody has changed them meanwhile or has them open. The command ends when nothing
    /// can be moved for now, and lists what is left; the servers try it again. `open` ends a drain, too.
    Drain {
        /// The I/O server
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        moving: Moving,
    },
    /// Move files until every I/O server holds its share, as after one was added
    ///
    /// A server's share of the bytes is by the size of its disk; 5% more or less is left. Closed, full and absent servers neither
    /// give nor get anything. Files move as with `drain`, by the servers, and it ends when no file is left that would help.
    Rebalance {
        #[command(flatten)]
        moving: Moving,
    },
    /// Show the files that the servers move: drains and rebalances, and the last ones that have ended
    Moves,
    /// Take an I/O server on which nothing lies out of the cluster, for good
    ///
    /// `drain` empties it before. What lies there still is listed, and the server stays. One that was removed gets no files, is
    /// not asked for anything any more, and does not come back; then take it out of covey.toml on all nodes, with nothing to
    /// restart. Its name is not free for another one.
    Remove {
        /// The I/O server
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Let an I/O server whose disk is lost serve from the empty one that it has now
    ///
    /// Lists all files that had bytes on the lost disk, by path. The server gets new files then. Reads and writes of the lost
    /// bytes fail (EIO) until the file is emptied, put back from a copy, or removed, or `accept-loss` accepts the loss. The
    /// node must run, with an empty store that `covey init` has made.
    Replace {
        /// The I/O server
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Accept that bytes of files were lost with a disk: they read as zeros then
    #[command(name = "accept-loss")]
    AcceptLoss {
        /// The I/O server whose disk was replaced
        #[arg(value_name = "NODE")]
        node: String,
        /// Files of which something was lost: `covey files --on NODE --lost` lists them
        #[arg(value_name = "PATH", required_unless_present = "all")]
        paths: Vec<OsString>,
        /// Accept it for all of them
        #[arg(long, conflicts_with = "paths")]
        all: bool,
    },
    /// Open an I/O server to new files again
    Open {
        /// The I/O server
        #[arg(value_name = "NODE")]
        node: String,
    },
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let fs = &session.fs;
    let result = match &args.command {
        Command::Ls => ls(fs, context).await,
        Command::Add { node } => add::add(fs, node, context).await,
        Command::Chains => chains::chains(fs, context).await,
        Command::Close { node } => set(fs, node, Door::Closed, context).await,
        Command::Drain { node, moving } => drain::drain(fs, node, *moving, context).await,
        Command::Moves => moves(fs, context).await,
        Command::Rebalance { moving } => rebalance::rebalance(fs, *moving, context).await,
        Command::Remove { node } => remove::remove(fs, node, context).await,
        Command::Replace { node } => serve_again(fs, node, LostBytes::Error, context).await,
        Command::AcceptLoss { node, paths, all } => {
            let paths = (!all).then_some(&paths[..]);
            replace::accept_loss(&session, node, paths, context).await
        }
        Command::Open { node } => set(fs, node, Door::Open, context).await,
    };
    session.close(result).await
}

/// Whether a server gets new files, as its owner wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Closed,
}

async fn ls(fs: &Fs, context: &Context) -> Result<()> {
    let mut places = places(fs).await?;
    let tasks = moving::tasks(fs).await.cannot(|| "ask for what is being moved")?;
    let servers = fs.servers();
    places.retain(|place| place.state & place::REMOVED == 0);
    let rows: Vec<Value> = places.iter().map(json_of).collect();
    context.output.result(&rows, |out| {
        let heading = ["SERVER", "STATE", "NEW FILES", ">SIZE", ">USED", ">AVAILABLE", ">USE"];
        let cells: Vec<_> = places.iter().map(cells).collect();
        crate::output::table(out, &heading, &cells);
        let mut on = tasks.iter().filter(|task| task.is_under_way());
        on.try_for_each(|task| writeln!(out, "{}", moving::in_words(task, &servers)))
    })
}

async fn moves(fs: &Fs, context: &Context) -> Result<()> {
    let tasks = moving::tasks(fs).await.cannot(|| "ask for what is being moved")?;
    let servers = fs.servers();
    let rows: Vec<Value> = tasks.iter().map(|task| moving::json_of(task, &servers)).collect();
    context.output.result(&rows, |out| {
        tasks.iter().try_for_each(|task| writeln!(out, "{}", moving::in_words(task, &servers)))
    })
}

/// What is done to a door, in words.
fn act(node: &str, door: Door) -> String {
    match door {
        Door::Open => format!("open {node} to new files"),
        Door::Closed => format!("close {node} to new files"),
    }
}

async fn set_door(fs: &Fs, node: &str, server: u16, door: Door) -> Result<()> {
    let what = || act(node, door);
    let set = Op::SetPlace { server, closed: (door == Door::Closed).into() };
    match Access::ask(fs, set).await {
        Err(error) if error.code() == Errno::EBUSY => {
            Err(Error::user(format!("cannot {}: {error}", what()))
                .hint("`covey server open` another one first"))
        }
        other => other.cannot(what).map(drop),
    }
}

async fn set(fs: &Fs, node: &str, door: Door, context: &Context) -> Result<()> {
    let server = index(fs, node, act(node, door)).await?;
    set_door(fs, node, server, door).await?;
    context
        .output
        .result(&json!({ "server": node, "closed": door == Door::Closed }), |_| Ok(()))?;
    context.output.say(match door {
        Door::Open => format!("{node} gets new files"),
        Door::Closed => {
            format!(
                "{node} gets no new files; `covey files --on {node}` lists those that lie there"
            )
        }
    });
    Ok(())
}

/// The index of an I/O server.
pub async fn index(fs: &Fs, node: &str, what: String) -> Result<u16> {
    let mut servers = fs.servers();
    match servers.iter().position(|server| server == node) {
        Some(at) if !node.is_empty() => Ok(at as u16),
        _ => {
            servers.retain(|name| !name.is_empty());
            Err(Error::user(format!("cannot {what}: it is no I/O server"))
                .hint(format!("the I/O servers are {}", servers.join(", "))))
        }
    }
}

/// All I/O servers, as new files see them.
pub async fn places(fs: &Fs) -> Result<Vec<Place>> {
    let cannot = || "ask for the I/O servers";
    match Access::ask(fs, Op::Places {}).await.cannot(cannot)? {
        Reply::Places { places } => Ok(places.0),
        _ => Err(Error::work("cannot ask for the I/O servers: an odd answer to Places")),
    }
}

/// Why a server gets no new files, in words.
fn reasons(place: &Place) -> Vec<&'static str> {
    let all = [
        (place::CLOSED, "closed"),
        (place::AWAY, "away"),
        (place::FULL, "nearly full"),
        (place::LEAVING, "leaving"),
    ];
    all.into_iter().filter(|(bit, _)| place.state & bit != 0).map(|(_, word)| word).collect()
}

/// A server as `ls` shows it.
pub fn json_of(place: &Place) -> Value {
    let reasons = reasons(place);
    json!({
        "server": place.server.lossy(), "serving": place.is_serving,
        "new_files": reasons.is_empty(), "reasons": reasons,
        "bytes_total": place.bytes_total,
        "bytes_used": place.bytes_total.saturating_sub(place.bytes_available),
        "bytes_available": place.bytes_available,
    })
}

fn cells(place: &Place) -> Vec<String> {
    let state = if place.is_serving { "serving" } else { "away" };
    let reasons = reasons(place);
    let new =
        if reasons.is_empty() { "yes".to_owned() } else { format!("no: {}", reasons.join(", ")) };
    let used = place.bytes_total.saturating_sub(place.bytes_available);
    let shown = |bytes: u64| match place.bytes_total {
        0 => "-".to_owned(),
        _ => size::rounded(bytes),
    };
    let percent = match place.bytes_total {
        0 => "-".to_owned(),
        total => format!("{}%", super::df::share(used, total)),
    };
    vec![
        place.server.lossy().into_owned(),
        state.to_owned(),
        new,
        shown(place.bytes_total),
        shown(used),
        shown(place.bytes_available),
        percent,
    ]
}
