//! Taking a lab down, with everything in it.

use crate::error::{Cannot, Error, Result};
use crate::state::Lab;
use covey_io::os::process::Process;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// How long programs in a lab may take to end before they are killed.
const END_WAIT: Duration = Duration::from_secs(3);
/// How long the kernel may take to clear a lab away.
const CLEAR_WAIT: Duration = Duration::from_secs(60);

/// Ends what runs in it, its keeper, and removes its directory. Answers how many processes ran.
pub async fn take_down(lab: &Lab) -> Result<usize> {
    let mut ended = 0;
    if let Some(keeper) = lab.keeper() {
        ended = end_inside(&keeper).await;
        // Everything else in the lab goes with it.
        keeper.signal(Signal::KILL).cannot(|| format!("signal process {}", keeper.pid))?;
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

/// Asks what runs in the lab to end, and kills what has not after a while: the kernel clears mounts away while it ends the
/// keeper, and who is to be asked by those would still be there and answer late.
async fn end_inside(keeper: &Process) -> usize {
    let inside = inside(keeper);
    inside.iter().for_each(|process| {
        let _ = process.signal(Signal::TERM);
    });
    let begin = Instant::now();
    for process in &inside {
        if !process.wait(END_WAIT.saturating_sub(begin.elapsed())).await {
            let _ = process.signal(Signal::KILL);
        }
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
