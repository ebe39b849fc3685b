//! The command behind a detached MPI job: what its ranks tell each other goes through a process of `covey run`, which
//! goes on without a terminal when the one that was typed has ended.

use crate::error::{Cannot, Error, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Set for the process that goes on.
const MARK: &str = "COVEY_RUN_BEHIND";

/// Whether this is the process that goes on.
pub fn is_here() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts this command again as one that goes on, and passes on what it says until the job has started.
pub fn start() -> Result<()> {
    let what = || "start the process that stays with the job".to_owned();
    let mut command = Command::new(std::env::current_exe().cannot(what)?);
    command.args(std::env::args_os().skip(1)).env(MARK, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().cannot(what)?;
    let mut said = Vec::new();
    let out = child.stdout.take();
    out.map_or(Ok(0), |mut out| out.read_to_end(&mut said)).cannot(what)?;
    if said.is_empty() {
        // It has told why.
        let code = child.wait().cannot(what)?.code().and_then(|code| u8::try_from(code).ok());
        return Err(Error::program(code.unwrap_or(1)));
    }
    std::io::stdout().write_all(&said).cannot(|| "write to stdout".to_owned())
}

/// The job has started: from here on nobody reads what this process says.
pub fn leave_terminal() -> Result<()> {
    let what = || "leave the terminal".to_owned();
    let null = File::options().read(true).write(true).open("/dev/null").cannot(what)?;
    std::io::stdout().flush().cannot(what)?;
    // Fails only for the leader of a process group, which no terminal's shell has made this one.
    let _ = rustix::process::setsid();
    rustix::stdio::dup2_stdout(&null).cannot(what)?;
    rustix::stdio::dup2_stderr(&null).cannot(what)
}
