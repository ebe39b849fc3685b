//! `covey attach`: follow a job that was left running.

use super::Context;
use super::job::find::{self, Found};
use super::job::follow::{self, Following, Rank};
use super::job::print::Form;
use super::job::stdin::Whom;
use super::job::tree::OnNode;
use crate::error::{Error, Result};
use covey_launch::job::{End, Ends};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Follow a job that was left running, to its end
///
/// Shows what the ranks write from now on, and what they wrote since they were left, as far as
/// their pipes hold it: 64 KiB each, then they wait. Signals are passed on as `covey run` does.
/// When all have ended, the job is removed.
///
/// EXAMPLES
///
///     covey attach 3f2a9c01
///     covey attach --label 3f2a9c01
///
/// EXIT CODES
///
/// As those of `covey run`.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Begin each line with the node, and the rank where a node has several
    #[arg(short, long, conflicts_with = "gather")]
    label: bool,
    /// When all have ended, show equal output once
    #[arg(short, long)]
    gather: bool,
    /// Of this user's job, where several users have one of this name
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// The job
    #[arg(value_name = "JOB")]
    job: String,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let found = find::parts(&config, context, &args.job, args.user.as_deref()).await?;
    let labels = labels(&found);
    let (mut ranks, mut sessions) = (Vec::new(), Vec::new());
    for Found { node, part } in &found {
        let what = || format!("attach to job {} on {}", args.job, node.name);
        let session = Rc::new(node.session(part.number).await.on_node(what)?);
        if let Some(rank) = find::rank(part.part) {
            ranks.push(Rank { rank, label: labels[&rank].clone(), session: session.clone() });
        }
        sessions.push(session);
    }
    let Some(size) = ranks.iter().map(|rank| rank.rank + 1).max() else {
        return Err(Error::work(format!("cannot attach to job {}: it has no rank", args.job))
            .hint("covey kill removes what is left of it"));
    };
    let mut ends = Ends::new(size);
    for rank in (0..size).filter(|rank| !labels.contains_key(rank)) {
        ends.note(rank, End::Lost("no node has it any more".into()));
    }
    let form = match (args.gather, args.label, ranks.len()) {
        (true, ..) => Form::Gathered,
        (_, true, _) => Form::Labelled,
        (.., 1) => Form::Raw,
        _ => Form::Lines,
    };
    let following = Following {
        ranks,
        ends,
        form,
        stdin: None::<Whom>,
        leaves_output: false,
        has_terminal: false,
        starters: None,
        needs_pmix: false,
        outlive_us: true,
    };
    let ends = follow::follow(following, context).await?;
    if ends.is_complete() {
        for session in &sessions {
            // It is removed by somebody else, then.
            let _ = session.command(&["wipe"]).await;
        }
    }
    let label = |rank| labels.get(&rank).cloned().unwrap_or_else(|| format!("rank {rank}"));
    follow::tell_ends(&ends, label, context);
    follow::verdict(&ends)
}

/// What each rank is called before its lines.
pub(super) fn labels(found: &[Found]) -> BTreeMap<u32, String> {
    let ranks: Vec<(u32, &str)> = found
        .iter()
        .filter_map(|found| Some((find::rank(found.part.part)?, found.node.name.as_str())))
        .collect();
    let shares = |name: &str| ranks.iter().filter(|(_, node)| *node == name).count() > 1;
    let is_shared = ranks.iter().any(|(_, node)| shares(node));
    let label = |(rank, node): &(u32, &str)| {
        if is_shared { (*rank, format!("{node}/{rank}")) } else { (*rank, (*node).to_owned()) }
    };
    ranks.iter().map(label).collect()
}
