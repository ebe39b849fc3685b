//! `covey lab exec` and `covey lab sh`: a program on a node.

use super::Which;
use crate::error::{Cannot, Error, Result};
use covey_lab::enter;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Run a program on a node
///
/// It inherits standard streams, directory and environment; signals are passed on. The exit code is
/// the program's, or 128 and the number of the signal that ended it.
///
/// EXAMPLES
///
///     covey lab exec n1 -- ping -c 3 n2
///     covey lab exec n2 -- iperf3 --server &
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// The node
    node: String,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Start a shell on a node
///
/// The shell is $SHELL, or /bin/sh.
///
/// EXAMPLES
///
///     covey lab sh n1
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct ShellArgs {
    #[command(flatten)]
    which: Which,
    /// The node
    node: String,
}

/// Runs a program.
pub async fn run(args: Args) -> Result<()> {
    execute(&args.which, &args.node, &args.command).await
}

/// Runs a shell.
pub async fn shell(args: ShellArgs) -> Result<()> {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    execute(&args.which, &args.node, &[shell.unwrap_or("/bin/sh".into())]).await
}

async fn execute(which: &Which, node: &str, words: &[OsString]) -> Result<()> {
    let lab = which.lab()?;
    lab.living_keeper()?;
    let way = enter::find(&lab, &lab.plan()?, node)?;
    let mut command = way.command(&words[0])?;
    command.args(&words[1..]);
    covey_io::os::namespaces::die_with_parent(&mut command);
    // Before the program runs, so that no signal is missed.
    let mut signals = Signals::new().cannot(|| "wait for signals")?;
    let program = words[0].to_string_lossy().into_owned();
    let started = tokio::process::Command::from(command).spawn();
    let mut child = started.map_err(|error| no_program(&program, node, &error))?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.cannot(|| format!("wait for {program}"))?,
            signal = signals.next() => {
                if let (Some(signal), Some(pid)) = (signal, child.id()) {
                    pass_on(pid, signal);
                }
            }
        }
    };
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    match code {
        Some(0) => Ok(()),
        code => std::process::exit(code.unwrap_or(1)),
    }
}

fn no_program(program: &str, node: &str, error: &std::io::Error) -> Error {
    let error =
        Error::work(format!("cannot run {program} on {node}: {}", crate::error::reason(error)));
    if program.contains(' ') {
        error.hint("give the program and its arguments as words of their own")
    } else {
        error.hint("nodes have this machine's programs: is it installed here?")
    }
}

fn pass_on(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// The terminal sends an interrupt to the program as well, so that one is not passed on; but it
/// must not end us before the program has ended.
struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    async fn next(&mut self) -> Option<rustix::process::Signal> {
        tokio::select! {
            _ = self.terminate.recv() => Some(rustix::process::Signal::TERM),
            _ = self.hang_up.recv() => Some(rustix::process::Signal::HUP),
            _ = self.interrupt.recv() => None,
            _ = self.quit.recv() => None,
        }
    }
}
