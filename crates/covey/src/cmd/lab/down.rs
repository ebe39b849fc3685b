//! `covey lab down`: a lab, taken away with everything in it.

use super::Which;
use crate::cmd::{Context, Process};
use crate::error::{Cannot, Error, Result};
use crate::lab::state::Lab;
use rustix::process::Signal;
use std::io::Write;
use std::time::{Duration, Instant};

/// How long what runs in a lab may take to end by itself.
const END_WAIT: Duration = Duration::from_secs(3);
/// How long the kernel may take to clear a lab away.
const CLEAR_WAIT: Duration = Duration::from_secs(60);

/// Take a lab down, and all that runs in it
///
/// What runs on its nodes is asked to end and then ended. The nodes, their network and the
/// directory of the lab go, and with it a cluster that `covey up` made inside. Doing it twice is no
/// error, and a lab whose keeper has died is cleared as well.
///
/// EXAMPLES
///
///     covey lab down
///     covey lab down --name other
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Runs the command.
pub async fn run(args: &Args, context: &Context) -> Result<()> {
    let lab = args.which.lab()?;
    if lab.is_around() {
        return Err(Error::user(format!("cannot take lab {} down from inside it", lab.name))
            .hint("leave it first"));
    }
    let was_there = lab.dir.exists();
    let ended = take_down(&lab).await?;
    let value = serde_json::json!({ "lab": lab.name, "was_there": was_there, "ended": ended });
    context.output.result(&value, |out| match (was_there, ended) {
        (false, _) => writeln!(out, "lab {} was not up", lab.name),
        (true, 0) => writeln!(out, "lab {} is down", lab.name),
        (true, 1) => writeln!(out, "lab {} is down; 1 process in it ended", lab.name),
        (true, count) => writeln!(out, "lab {} is down; {count} processes in it ended", lab.name),
    })
}

/// Ends what runs in it, its keeper, and removes its directory. Answers how many processes ran.
pub async fn take_down(lab: &Lab) -> Result<usize> {
    let mut ended = 0;
    if let Some(keeper) = lab.keeper() {
        ended = end_inside(&keeper).await;
        // Everything else in the lab goes with it.
        keeper.signal(Signal::KILL)?;
        if !keeper.wait(CLEAR_WAIT).await {
            return Err(Error::work(format!(
                "cannot end lab {}: pid {} does not go away",
                lab.name, keeper.pid
            ))
            .hint("something in it waits inside the kernel, mostly for a disk"));
        }
    }
    if lab.dir.exists() {
        let removed = std::fs::remove_dir_all(&lab.dir);
        removed.cannot(|| format!("remove {}", lab.dir.display()))?;
    }
    // Goes with the last of the user's labs.
    if let Some(home) = lab.dir.parent() {
        let _ = std::fs::remove_dir(home);
    }
    Ok(ended)
}

/// Asks what runs in the lab to end, and waits a while for it.
async fn end_inside(keeper: &Process) -> usize {
    let inside = inside(keeper);
    inside.iter().for_each(|process| {
        let _ = process.signal(Signal::TERM);
    });
    let begin = Instant::now();
    for process in &inside {
        process.wait(END_WAIT.saturating_sub(begin.elapsed())).await;
    }
    inside.len()
}

/// The processes in the keeper's namespace, without itself.
fn inside(keeper: &Process) -> Vec<Process> {
    let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(ours) = namespace(keeper.pid) else { return Vec::new() };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != keeper.pid && namespace(*pid).as_ref() == Some(&ours))
        .filter_map(Process::now)
        // One that has ended and that nobody has waited for yet is no program any more.
        .filter(Process::is_alive)
        .collect()
}
