//! Files that the metadata server moves: what a command asks of it, and how far it is.

use crate::cmd::Context;
use crate::config::size;
use crate::error::{Error, Result};
use crate::output::{counted, knows_total};
use covey_ninep::tree::Errno;
use covey_stripe::check::Access;
use covey_stripe::client::{self, Fs};
use covey_stripe::ops::{Op, Reply, Task, task};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::pin::pin;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long the metadata server may be away while files move.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// As a shell says that ^C has ended a command.
const INTERRUPTED: u8 = 130;

/// How files move. The servers go on when the command has ended, until everything is done or `--stop` is given.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Moving {
    /// Copy at most so many bytes per second; given again, it changes the rate
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    rate: Option<u64>,
    /// Do not wait: `covey server ls` shows how far it is
    #[arg(long, conflicts_with_all = ["pause", "stop"])]
    detach: bool,
    /// Let nothing move for now
    #[arg(long, conflicts_with_all = ["resume", "stop"])]
    pause: bool,
    /// Go on after `--pause`
    #[arg(long, conflicts_with = "stop")]
    resume: bool,
    /// End it: what has moved stays where it is
    #[arg(long)]
    stop: bool,
}

impl Moving {
    fn act(self) -> u8 {
        match self {
            Moving { pause: true, .. } => task::PAUSE,
            Moving { resume: true, .. } => task::RESUME,
            Moving { stop: true, .. } => task::STOP,
            _ => task::BEGIN,
        }
    }
}

/// What has become of a task, as far as the command has looked.
pub enum Seen {
    /// It was asked for, and goes on in the servers, or was told not to.
    Told(Task),
    /// It has ended, or can do nothing for now.
    Settled(Task),
}

/// Asks for a task that is called so, and waits until it has ended or waits for something, unless that was not wanted.
pub async fn ask(
    fs: &Fs,
    (kind, server): (u8, u16),
    what: &str,
    moving: Moving,
    context: &Context,
) -> Result<Seen> {
    let (act, rate) = (moving.act(), moving.rate.map_or(0, |rate| rate.max(1)));
    let asked = Access::ask(fs, Op::AskTask { kind, server, act, rate }).await;
    let asked = asked.and_then(only).map_err(|error| refused(what, act, &error))?;
    if moving.detach || matches!(act, task::PAUSE | task::STOP) {
        return Ok(Seen::Told(asked));
    }
    let bar = context.output.progress(None);
    let watched = {
        let watching = pin!(watch(fs, &asked, &bar));
        let interrupt = pin!(tokio::signal::ctrl_c());
        tokio::select! {
            watched = watching => Some(watched),
            _ = interrupt => None,
        }
    };
    bar.finish_and_clear();
    match watched {
        Some(Ok(task)) => Ok(Seen::Settled(task)),
        Some(Err(error)) => {
            Err(Error::work(format!("cannot see how far it is to {what}: {error}"))
                .hint("the servers go on by themselves: `covey server ls` shows it"))
        }
        None => {
            context.output.say(format!(
                "the servers go on: `covey server ls` shows how far they are, `covey server {what} --stop` ends it"
            ));
            Err(Error::program(INTERRUPTED))
        }
    }
}

fn only(reply: Reply) -> client::Result<Task> {
    match reply {
        Reply::Tasks { tasks } if tasks.0.len() == 1 => Ok(tasks.0[0].clone()),
        _ => Err(client::Error::Odd("an odd answer to AskTask".into())),
    }
}

fn refused(what: &str, act: u8, error: &client::Error) -> Error {
    let verb = match act {
        task::PAUSE => "pause: ",
        task::RESUME => "resume: ",
        task::STOP => "stop: ",
        _ => "",
    };
    let error_text = error.to_string();
    let said = Error::work(format!("cannot {verb}{what}: {error_text}"));
    match error.code() {
        Errno::EBUSY if error_text.contains("paused") => {
            said.hint(format!("`covey server {what} --resume`"))
        }
        Errno::ENOENT => said.hint("`covey server moves` shows what is under way"),
        Errno::EIO => {
            said.hint("`covey files --on NODE` lists what lies there; it gets no new files")
        }
        _ => said.hint("`covey server ls` shows the I/O servers"),
    }
}

/// Until a task has ended, or can do nothing for now.
async fn watch(fs: &Fs, asked: &Task, bar: &ProgressBar) -> client::Result<Task> {
    let mut away_since: Option<Instant> = None;
    let mut is_total_known = false;
    loop {
        match tasks(fs).await {
            Ok(tasks) => {
                away_since = None;
                let same = |one: &&Task| one.is_of(asked.kind, asked.server);
                let now = tasks.iter().find(same).filter(|one| one.number == asked.number);
                // Somebody has begun it anew, or the server was removed: that one is over.
                let Some(now) = now else {
                    return Ok(Task { state: task::STOPPED, ..asked.clone() });
                };
                let progress = &now.progress;
                if progress.bytes_total > 0 {
                    bar.set_length(progress.bytes_total);
                    if !std::mem::replace(&mut is_total_known, true) {
                        knows_total(bar);
                    }
                }
                bar.set_position(progress.bytes);
                if now.state != task::ON || !progress.waits.is_empty() {
                    return Ok(now.clone());
                }
            }
            Err(error) if error.is_away() => {
                let since = *away_since.get_or_insert_with(Instant::now);
                if since.elapsed() > AWAY_MAX {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The tasks of moving files; a metadata server of an earlier version has none.
pub async fn tasks(fs: &Fs) -> client::Result<Vec<Task>> {
    match Access::ask(fs, Op::Tasks {}).await {
        Ok(Reply::Tasks { tasks }) => Ok(tasks.0),
        Ok(_) => Err(client::Error::Odd("an odd answer to Tasks".into())),
        Err(error) if error.code() == Errno::EINVAL => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// What a task is called, as it is given to `covey server`.
pub fn name(one: &Task, servers: &[String]) -> String {
    one.called(servers.get(usize::from(one.server)).map(String::as_str))
}

fn state(one: &Task) -> &'static str {
    match one.state {
        task::ON if !one.progress.waits.is_empty() => "waits",
        task::ON => "moves",
        task::PAUSED => "paused",
        task::DONE => "done",
        _ => "stopped",
    }
}

/// A task in JSON.
pub fn json_of(one: &Task, servers: &[String]) -> Value {
    let progress = &one.progress;
    let waits = progress.waits.lossy();
    json!({
        "task": name(one, servers), "state": state(one),
        "waits": (state(one) == "waits").then_some(waits),
        "rate": (one.rate > 0).then_some(one.rate),
        "files_moved": progress.files, "bytes_copied": progress.bytes, "bytes_total": progress.bytes_total,
        "files_left": progress.left, "seconds": progress.millis as f64 / 1000.0,
        "seconds_left": seconds_left(one),
    })
}

/// How long it will take at the rate so far; None where nobody can say.
fn seconds_left(one: &Task) -> Option<u64> {
    let progress = &one.progress;
    if state(one) != "moves" || progress.bytes == 0 {
        return None;
    }
    let left = u128::from(progress.bytes_total.saturating_sub(progress.bytes));
    Some((left * u128::from(progress.millis) / u128::from(progress.bytes)).div_ceil(1000) as u64)
}

/// `drain io3: 3.00 GiB of 12.0 GiB copied, 812 files moved, 120 MiB/s, about 2 min left`.
pub fn in_words(one: &Task, servers: &[String]) -> String {
    let (name, progress) = (name(one, servers), &one.progress);
    let (bytes, total) = (size::rounded(progress.bytes), size::rounded(progress.bytes_total));
    let files = counted(progress.files, "file");
    let mut text = format!("{name}: {bytes} of {total} copied, {files} moved");
    match state(one) {
        "waits" => text += &format!("; waits: {}", progress.waits.lossy()),
        "moves" => {
            let per_s = u128::from(progress.bytes) * 1000 / u128::from(progress.millis.max(1));
            if progress.bytes > 0 {
                text += &format!(", {}/s", size::rounded(per_s as u64));
            }
            text +=
                &seconds_left(one).map_or_else(String::new, |left| format!(", {}", about(left)));
        }
        other => text += &format!("; {other}"),
    }
    text
}

fn about(seconds: u64) -> String {
    match seconds {
        0..90 => format!("about {seconds} s left"),
        90..5400 => format!("about {} min left", (seconds + 30) / 60),
        _ => format!("about {} h left", (seconds + 1800) / 3600),
    }
}

/// What was asked for, and is not waited for.
pub fn tell(one: &Task, fs: &Fs, context: &Context) -> Result<()> {
    let servers = fs.servers();
    context.output.result(&json_of(one, &servers), |_| Ok(()))?;
    context.output.say(in_words(one, &servers));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_stripe::ops::Progress;

    #[test]
    fn a_task_says_how_far_it_is_and_how_long_it_will_take() {
        let progress = Progress {
            files: 12,
            bytes: 3 << 30,
            bytes_total: 12 << 30,
            millis: 30_000,
            ..Progress::default()
        };
        let (kind, server, state) = (task::DRAIN, 1, task::ON);
        let mut one = Task { number: 1, kind, server, rate: 0, state, progress };
        let servers = ["io1".to_owned(), "io2".to_owned()];
        let words = |one: &Task| in_words(one, &servers);
        assert_eq!(
            words(&one),
            "drain io2: 3.00 GiB of 12.0 GiB copied, 12 files moved, 102 MiB/s, about 2 min left"
        );
        one.progress.waits = "a file is in use".into();
        assert!(
            words(&one).ends_with("12 files moved; waits: a file is in use"),
            "{}",
            words(&one)
        );
        assert_eq!(json_of(&one, &servers)["state"], "waits");
        one.state = task::PAUSED;
        assert!(words(&one).ends_with("; paused"), "{}", words(&one));
        one.kind = task::REBALANCE;
        assert!(words(&one).starts_with("rebalance: "));
        assert_eq!([about(89), about(90), about(7200)].map(|text| text.len()), [15, 16, 14]);
    }
}
