//! `covey`: a few Linux machines as one computer that is driven through files.
//!
//! Each subcommand is one file under `cmd/`. What a node serves is in `covey_serve`, the FUSE mount in
//! `covey_mount`, labs in `covey_lab`, what measures in `covey_measure`. This file parses the command line, runs one command and turns its error into words and an
//! exit code: 0 done, 1 the work failed, 2 the command or configuration was wrong.
//!
//! The binary is `main.rs`, one call; everything is here so that tests reach it. Not a public interface:
//! what a program wants of Covey is in `covey_stripe` and `covey_ninep`.

#![forbid(unsafe_code)]

pub mod cmd;
pub mod output;

pub use covey_cluster::{config, error};

use clap::Parser;
use clap::error::ErrorKind;
use error::{Error, Kind};
use output::Output;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Runs the command line of this process.
pub fn run_process() -> ExitCode {
    covey_io::os::memory::keep_freed_buffers();
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(wrong) => {
            Output::default().tell(&wrong);
            return ExitCode::from(wrong.kind.exit_code());
        }
    };
    let arguments = match cmd::Cli::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let output = Output { json: arguments.global.json, verbose: arguments.global.verbose };
    start_log(output.verbose);
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.tell(&error);
            ExitCode::from(output.exit_code(&error))
        }
    }
}

/// The command line; that of `mount.covey`, as which mount(8) may run the program, in our own words.
fn arguments() -> error::Result<Vec<OsString>> {
    use cmd::mount::fstab;
    let mut given = std::env::args_os();
    let name = given.next().unwrap_or_default();
    let mut arguments = vec![name.clone()];
    if Path::new(&name).file_name().is_some_and(|name| name == fstab::NAME) {
        let given: Vec<OsString> = given.collect();
        for said in fstab::in_vain(&given) {
            let _ = writeln!(std::io::stderr(), "mount.covey: {said}");
        }
        let words = fstab::translate(given);
        arguments.extend(words.map_err(|why| Error::user(format!("cannot mount: {why}")))?);
    } else {
        arguments.extend(given);
    }
    Ok(arguments)
}

fn run(arguments: cmd::Cli) -> error::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder
        .enable_all()
        // What is started by a thread that has moved is not to stay there.
        .on_thread_start(covey_io::os::place::everywhere)
        .build()
        .map_err(|error| Error::work(format!("cannot start: {}", error::reason(&error))))?;
    let result = tokio::task::LocalSet::new().block_on(&runtime, cmd::run(arguments));
    // A blocking call that never returns (a dead NFS disk) must not keep a finished command.
    runtime.shutdown_background();
    result
}

/// Help and version are results; anything else was a wrong command, told in our own form.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match error.print() {
            // Whoever has read enough has closed the pipe.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                let what = format!("cannot write: {}", error::reason(&error));
                let error = Error::work(what);
                Output::default().tell(&error);
                ExitCode::from(error.kind.exit_code())
            }
            _ => ExitCode::SUCCESS,
        };
    }
    // `covey` alone: whoever types it wants to see what there is. A script is told by the exit code.
    if std::env::args_os().len() <= 1 {
        let _ = write!(std::io::stderr(), "{}", error.render());
        return ExitCode::from(Kind::User.exit_code());
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    let error = in_our_words(error);
    Output { json, verbose: 0 }.tell(&error);
    ExitCode::from(error.kind.exit_code())
}

fn in_our_words(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let is_missing = matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    );
    if is_missing {
        return Error::user("cannot guess what to do: a command is missing").hint(
            match group(&text) {
                Some(group) => format!("`{group} --help` lists the commands"),
                None => {
                    "`covey help` lists the commands; `covey up` starts a cluster on this machine"
                        .into()
                }
            },
        );
    }
    let mut parts = text.split("\n\n");
    let what = parts.next().unwrap_or_default().trim_start_matches("error: ");
    let what: Vec<&str> = what.lines().map(str::trim).collect();
    let mut ours = Error::user(format!("cannot understand the command: {}", what.join(" ")));
    for part in parts {
        let part: Vec<&str> = part.lines().map(str::trim).collect();
        let part = part.join(" ");
        if let Some(tip) = part.trim().strip_prefix("tip: ") {
            ours = ours.hint(tip);
        } else if let Some(usage) = part.trim().strip_prefix("Usage: ") {
            // The option that COVEY_CONFIG stands for is there unasked.
            let usage = usage.replace(" --config <FILE>", "");
            ours = ours.hint(format!("the form is `{usage}`"));
        }
    }
    ours.hint("--help after the command tells more")
}

/// The command whose own commands a help text lists, such as `covey lab`.
fn group(help: &str) -> Option<&str> {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: "))?;
    usage.split(" [").next().filter(|group| group.contains(' '))
}

/// Logs go to stderr: warnings, more with each -v, or what COVEY_LOG says.
fn start_log(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = tracing_subscriber::EnvFilter::try_from_env("COVEY_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let writer = || OneLine(std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).init();
}

/// Writes what is said at once as one line: a name in it may come from a stranger, who would write lines of his own.
struct OneLine<W>(W);

impl<W: std::io::Write> std::io::Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let mut line = Vec::with_capacity(event.len());
        for &byte in text {
            match byte {
                b'\n' => line.extend(b"\\n"),
                b'\r' => line.extend(b"\\r"),
                byte => line.push(byte),
            }
        }
        line.extend(&event[text.len()..]);
        self.0.write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    #[test]
    fn an_event_is_one_line_whatever_a_stranger_calls_himself() {
        let mut log = super::OneLine(Vec::new());
        log.write_all(b"user x\nmeta serves /fs\r is unknown\n").unwrap();
        assert_eq!(log.0, b"user x\\nmeta serves /fs\\r is unknown\n");
    }
}
