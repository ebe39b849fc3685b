//! Brings files to sessions on many nodes.
//!
//! One copy leaves this machine, to a session of one node. That node passes the chunks on to others while the rest
//! still comes, and so do they: the tree of [`covey_launch::spawn`], whose root is here. Sessions of one node have
//! their copies from the first of them there.

use super::tree::Session;
use covey_io::os::random;
use covey_launch::spawn::flow::{self, Below, Later, Net, Source};
use covey_launch::spawn::message::Turn;
use covey_ninep::client::Fid;
use covey_ninep::tree::{Errno, Result};
use covey_wire::Bytes;
use futures_util::future::join_all;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// Gives each of the sessions a copy. Answers those that got none, by their places in the list, and why.
pub async fn spread(
    source: &Rc<dyn Source>,
    sessions: &[Rc<Session>],
    fan_out: usize,
    bar: &indicatif::ProgressBar,
) -> HashMap<usize, String> {
    let mut nodes: Vec<Vec<usize>> = Vec::new();
    let mut of_node = HashMap::new();
    for (at, session) in sessions.iter().enumerate() {
        let node = *of_node.entry(session.node.name.as_str()).or_insert(nodes.len());
        nodes.resize_with(nodes.len().max(node + 1), Vec::new);
        nodes[node].push(at);
    }
    let firsts: Vec<Rc<Session>> = nodes.iter().map(|all| sessions[all[0]].clone()).collect();
    let spreading = to_nodes(source, &firsts, fan_out);
    let failed = match firsts.last() {
        Some(last) => tokio::select! {
            failed = spreading => failed,
            never = watch(last, bar) => match never {},
        },
        None => HashMap::new(),
    };
    let within = nodes.iter().map(|all| async {
        let name = name(&sessions[all[0]]);
        match failed.get(&name) {
            Some(why) => all.iter().map(|at| (*at, why.clone())).collect(),
            None => beside(sessions, all, fan_out).await,
        }
    });
    join_all(within).await.into_iter().flatten().collect()
}

/// A session as the nodes call it.
fn name(session: &Session) -> String {
    format!("{}/{}", session.node.name, session.number)
}

/// One session of each node. Those whom no other node could serve are served from here.
async fn to_nodes(
    source: &Rc<dyn Source>,
    firsts: &[Rc<Session>],
    fan_out: usize,
) -> HashMap<String, String> {
    let sessions = firsts.iter().map(|session| (name(session), session.clone())).collect();
    let net: Rc<dyn Net> = Rc::new(Reached(sessions));
    let names = firsts.iter().map(|session| name(session)).collect();
    let turn = Turn::first(net.unique());
    let (tree, direct) = (turn.after(0), turn.after(1));
    let failed = flow::hand_over_checked(net.clone(), source.clone(), names, fan_out, &tree).await;
    let names: Vec<String> = failed.into_iter().map(|failure| failure.destination).collect();
    let (count, mut last) = (names.len().max(1), HashMap::new());
    for failure in flow::spread(net, source.clone(), names, count, &direct).await {
        last.insert(failure.destination, failure.reason);
    }
    last
}

/// The other sessions of a node, from its first.
async fn beside(sessions: &[Rc<Session>], all: &[usize], fan_out: usize) -> Vec<(usize, String)> {
    let [first, others @ ..] = all else { return Vec::new() };
    let first = &sessions[*first];
    let list: Vec<String> = others.iter().map(|at| name(&sessions[*at])).collect();
    if list.is_empty() {
        return Vec::new();
    }
    let (order, list) = (fan_out.to_string(), list.join(","));
    let Err(error) = first.command(&["clone", &order, &list]).await else { return Vec::new() };
    let why = if error.reason.is_empty() { error.text().to_owned() } else { error.reason };
    let text = first.node.text(&format!("{}/ctl", first.number)).await.unwrap_or_default();
    let failed: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# failed ")?.split_once(' ')).collect();
    let reason = |at: &usize| match failed.get(name(&sessions[*at]).as_str()) {
        Some(reason) => Some((*reason).to_owned()),
        // It was refused as a whole.
        None if failed.is_empty() => Some(why.clone()),
        None => None,
    };
    others.iter().filter_map(|at| Some((*at, reason(at)?))).collect()
}

/// Shows how much of its copy the last of the tree has, for as long as somebody looks.
async fn watch(last: &Session, bar: &indicatif::ProgressBar) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        if bar.is_hidden() {
            continue;
        }
        let text = last.node.text(&format!("{}/ctl", last.number)).await.unwrap_or_default();
        let here = text.lines().find_map(|line| line.strip_prefix("# here "));
        let part = here.and_then(|here| {
            let (here, all) = here.strip_suffix(" chunks")?.split_once(" of ")?;
            Some(here.parse::<u64>().ok()? as f64 / all.parse::<u64>().ok()?.max(1) as f64)
        });
        if let (Some(part), Some(length)) = (part, bar.length()) {
            bar.set_position((part * length as f64) as u64);
        }
    }
}

/// The sessions that are at hand, by what the nodes call them.
struct Reached(HashMap<String, Rc<Session>>);

impl Net for Reached {
    fn reach(&self, destination: &str) -> Later<Result<Rc<dyn Below>>> {
        let session = self.0.get(destination).cloned();
        Box::pin(async move {
            let session = session.ok_or(Errno::ENOENT)?;
            // One of its own: what comes through it is one copy.
            let control = session.open("ctl", O_RDWR).await?;
            Ok(Rc::new(Control(Rc::new(control))) as Rc<dyn Below>)
        })
    }

    fn sleep(&self, time: Duration) -> Later<()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn unique(&self) -> u64 {
        // Without randomness two spreads of one process may look alike: a late sender is then not told from a new one.
        random::bytes().map_or(u64::from(std::process::id()), u64::from_le_bytes)
    }
}

/// A session's control file.
struct Control(Rc<Fid>);

impl Below for Control {
    fn ask(&self, question: Bytes) -> Later<Result<Bytes>> {
        let answer = self.0.ask(question);
        Box::pin(async move { Ok(answer.await?) })
    }
}

const O_RDWR: u32 = 2;
