//! What a reproduction is made with: labs of its own and this program's other commands, run one after
//! another. A signal ends the command that runs, and lets nothing new begin; the lab is always taken down.

use crate::environment::{Environment, Watch};
use crate::error::{Cannot, Error, Result};
use crate::hosts::Hosts;
use crate::stop::Stop;
use covey_io::os::namespaces::die_with_parent;
use covey_lab::down::take_down;
use covey_lab::enter::ourselves;
use covey_lab::keeper::Timing;
use covey_lab::state::Lab;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::de::DeserializeOwned;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};

/// How long a command may take to end that was asked to.
const END_WAIT: Duration = Duration::from_secs(10);
/// How long one act of clearing up may take, and how often it is tried.
const TIDY_WAIT: Duration = Duration::from_secs(20);
const TIDY_TRIES: u32 = 5;
/// What labs of reproductions are called, before the number of their process.
const NAME: &str = "reproduce-";

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Shortly.
    pub is_quick: bool,
    /// Also when others use the machine.
    pub is_anyway: bool,
    /// After so long, nothing new.
    pub budget: Option<Duration>,
}

/// Who is told how far it is.
pub type Say = Box<dyn Fn(&dyn std::fmt::Display)>;

/// One reproduction.
pub struct Bench {
    /// How to measure.
    pub wish: Wish,
    say: Say,
    deadline: Option<Instant>,
    signals: [Heard; 3],
    is_interrupted: bool,
    lab: Option<Lab>,
    /// Since the lab is up: its programs are known as long as it is there.
    watch: Option<Watch>,
    /// How the machine was while each lab was there.
    environments: Vec<Environment>,
}

/// A command that runs.
#[derive(Debug)]
pub struct Going {
    child: Child,
}

impl Bench {
    /// Without a lab yet.
    pub fn new(wish: Wish, say: Say) -> Result<Bench> {
        let hear = |kind| signal(kind).cannot(|| "wait for signals");
        let signals = [
            hear(SignalKind::interrupt())?,
            hear(SignalKind::terminate())?,
            hear(SignalKind::hangup())?,
        ];
        let deadline = wish.budget.map(|budget| Instant::now() + budget);
        let (lab, watch, environments) = (None, None, Vec::new());
        let is_interrupted = false;
        Ok(Bench { wish, say, deadline, signals, is_interrupted, lab, watch, environments })
    }

    /// How the machine was while there was a lab: the worst of all.
    pub fn environment(&self) -> Environment {
        let worst = |of: fn(&Environment) -> Option<f64>| {
            self.environments.iter().filter_map(of).reduce(f64::max)
        };
        Environment {
            seconds: self.environments.iter().map(|one| one.seconds).sum(),
            cpu_pressure: worst(|one| one.cpu_pressure),
            outside_cpus: worst(|one| one.outside_cpus),
            steal: worst(|one| one.steal),
        }
    }

    /// Why what was measured in the latest labs, so many of them, cannot be believed.
    pub fn doubt(&self, labs: usize) -> Option<String> {
        let latest = self.environments.iter().rev().take(labs);
        latest.filter(|_| !self.wish.is_anyway).find_map(Environment::warning)
    }

    /// Whether a signal came.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Notes that a signal came to work that was done elsewhere.
    pub fn interrupted_if(&mut self, was: bool) {
        self.is_interrupted |= was;
    }

    /// Tells how far it is.
    pub fn say(&self, text: impl std::fmt::Display) {
        (self.say)(&text);
    }

    /// Makes a lab in place of the one there is.
    pub async fn lab(&mut self, words: &[&str]) -> Result<()> {
        self.down().await?;
        self.may_begin()?;
        clear_forgotten().await;
        let name = format!("{NAME}{}", std::process::id());
        self.lab = Some(Lab::named(Some(&name))?);
        let mut up = vec!["lab", "up", "--name", &name];
        up.extend(words);
        self.covey::<serde_json::Value>(&up).await?;
        self.watch = Some(Watch::begin());
        Ok(())
    }

    /// The lab.
    pub fn now(&self) -> Result<&Lab> {
        self.lab.as_ref().ok_or_else(|| Error::work("cannot measure: there is no lab"))
    }

    /// Takes the lab down.
    pub async fn down(&mut self) -> Result<()> {
        self.environments.extend(self.watch.take().map(|watch| watch.end()));
        if let Some(lab) = &self.lab {
            take_down(lab).await?;
        }
        self.lab = None;
        Ok(())
    }

    /// The end.
    pub async fn close(&mut self) -> Result<()> {
        self.down().await
    }

    /// Changes a cable of the lab.
    pub async fn set(&mut self, words: &[&str]) -> Result<()> {
        let name = self.now()?.name.clone();
        let mut all = vec!["lab", "set", "--name", &name];
        all.extend(words);
        self.covey::<serde_json::Value>(&all).await.map(|_| ())
    }

    /// The first nodes of the lab, for programs over MPI.
    pub fn hosts(&self, count: usize) -> Result<Hosts> {
        let names: Vec<String> = (1..=count).map(|node| format!("n{node}")).collect();
        Hosts::find(Some(&self.now()?.name), &names)
    }

    /// What the lab's network says of itself, when it did not do what was set.
    pub async fn complaint(&mut self) -> Option<String> {
        let name = self.now().ok()?.name.clone();
        let status: serde_json::Value =
            self.covey(&["lab", "status", "--name", &name]).await.ok()?;
        serde_json::from_value::<Timing>(status["timing"].clone()).ok()?.warning()
    }

    /// Does blocking work. A signal asks it to stop; what it then answers is kept, and nothing new begins.
    pub async fn work<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.may_begin()?;
        let stop = Stop::default();
        let theirs = stop.clone();
        let mut going = tokio::task::spawn_blocking(move || work(&theirs));
        loop {
            let [interrupt, terminate, hang_up] = &mut self.signals;
            tokio::select! {
                done = &mut going => {
                    let panicked = |_| Err(Error::work("cannot measure: it panicked"));
                    return done.unwrap_or_else(panicked);
                }
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            self.is_interrupted = true;
            stop.ask();
        }
    }

    /// Runs `covey --json WORDS` and reads its result.
    pub async fn covey<T: DeserializeOwned>(&mut self, words: &[&str]) -> Result<T> {
        let going = self.start(words)?;
        let out = self.finish(going).await?;
        read(&out, words)
    }

    /// The same on a node of the lab.
    pub async fn covey_on<T: DeserializeOwned>(&mut self, node: &str, words: &[&str]) -> Result<T> {
        let going = self.start_on(node, words)?;
        let out = self.finish(going).await?;
        read(&out, words)
    }

    /// Runs a program on a node of the lab; what it wrote.
    pub async fn on(&mut self, node: &str, words: &[&str]) -> Result<String> {
        let going = self.start_program_on(node, words)?;
        let out = self.finish(going).await?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Starts `covey --json WORDS`.
    pub fn start(&mut self, words: &[&str]) -> Result<Going> {
        let mut all = vec!["--json"];
        all.extend(words);
        self.spawn(&all, Stdio::piped())
    }

    /// The same on a node of the lab.
    pub fn start_on(&mut self, node: &str, words: &[&str]) -> Result<Going> {
        let (lab, program) = (self.now()?.name.clone(), ourselves().display().to_string());
        let mut all = vec!["lab", "exec", "--name", &lab, node, "--", &program, "--json"];
        all.extend(words);
        self.spawn(&all, Stdio::piped())
    }

    /// Starts a program on a node of the lab.
    pub fn start_program_on(&mut self, node: &str, words: &[&str]) -> Result<Going> {
        let lab = self.now()?.name.clone();
        let mut all = vec!["lab", "exec", "--name", &lab, node, "--"];
        all.extend(words);
        self.spawn(&all, Stdio::piped())
    }

    fn spawn(&mut self, words: &[&str], stdout: Stdio) -> Result<Going> {
        self.is_on()?;
        let mut command = std::process::Command::new(ourselves());
        command.args(words).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        die_with_parent(&mut command);
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        Ok(Going { child: command.spawn().cannot(|| format!("run covey {}", words.join(" ")))? })
    }

    /// Waits for a command; what it wrote.
    pub async fn finish(&mut self, going: Going) -> Result<Vec<u8>> {
        let pid = going.child.id();
        let output = going.child.wait_with_output();
        tokio::pin!(output);
        let ended = if self.is_interrupted {
            None
        } else {
            let [interrupt, terminate, hang_up] = &mut self.signals;
            tokio::select! {
                output = &mut output => Some(output),
                _ = interrupt.recv() => None,
                _ = terminate.recv() => None,
                _ = hang_up.recv() => None,
            }
        };
        let Some(ended) = ended else {
            self.is_interrupted = true;
            ask_to_end(pid);
            let _ = tokio::time::timeout(END_WAIT, output).await;
            return Err(interrupted());
        };
        let output = ended.cannot(|| "wait for a command")?;
        if output.status.success() { Ok(output.stdout) } else { Err(said(&output.stderr)) }
    }

    /// Runs a program on a node to clear up, also after a signal. Who is being ended may hold what it clears up a
    /// little longer, so it is tried again.
    pub async fn tidy_on(&self, node: &str, words: &[&str]) {
        let Ok(lab) = self.now() else { return };
        for _ in 0..TIDY_TRIES {
            let mut command = Command::new(ourselves());
            command.args(["lab", "exec", "--name", &lab.name, node, "--"]).args(words);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.kill_on_drop(true);
            let done = tokio::time::timeout(TIDY_WAIT, command.status()).await;
            if done.is_ok_and(|status| status.is_ok_and(|status| status.success())) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Ends a command that would run on.
    pub async fn end(&mut self, mut going: Going) {
        ask_to_end(going.child.id());
        let _ = tokio::time::timeout(END_WAIT, going.child.wait()).await;
    }

    /// An error when a signal came.
    fn is_on(&self) -> Result<()> {
        if self.is_interrupted { Err(interrupted()) } else { Ok(()) }
    }

    /// An error when nothing new may begin.
    pub fn may_begin(&self) -> Result<()> {
        self.is_on()?;
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Err(Error::work("the budget is spent"))
        } else {
            Ok(())
        }
    }
}

impl Drop for Bench {
    /// Only where the end was not reached, by a panic.
    fn drop(&mut self) {
        if let Some(lab) = &self.lab {
            let mut command = std::process::Command::new(ourselves());
            command.args(["lab", "down", "--name", &lab.name]).stdin(Stdio::null());
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

/// Labs whose reproduction was killed.
async fn clear_forgotten() {
    for lab in Lab::all() {
        let pid = lab.name.strip_prefix(NAME).and_then(|pid| pid.parse().ok());
        let is_gone = |pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if pid.and_then(Pid::from_raw).is_some_and(is_gone) {
            let _ = take_down(&lab).await;
        }
    }
}

fn interrupted() -> Error {
    Error::work("interrupted")
}

fn ask_to_end(pid: Option<u32>) {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
}

fn read<T: DeserializeOwned>(out: &[u8], words: &[&str]) -> Result<T> {
    // Some commands have nothing to say.
    let out = if out.is_empty() { b"null" } else { out };
    serde_json::from_slice(out).map_err(|why| {
        Error::work(format!("cannot use what `covey {}` says: {why}", words.join(" ")))
    })
}

/// What a command said instead of a result.
fn said(stderr: &[u8]) -> Error {
    let text = String::from_utf8_lossy(stderr);
    let told = text.lines().rev().find_map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(value["error"]["message"].as_str()?.to_string())
    });
    let last = || text.lines().last().unwrap_or("a command failed without a word").to_string();
    Error::work(told.unwrap_or_else(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_said_is_passed_on() {
        let text = b"going on\n{\"error\":{\"message\":\"cannot x: y\"}}\n";
        assert_eq!(said(text).message, "cannot x: y");
        assert_eq!(said(b"sh: quail\n").message, "sh: quail");
        assert!(said(b"").message.contains("without a word"));
    }
}
