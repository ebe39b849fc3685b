//! Results to stdout, talk to stderr: the only place that knows about terminals and JSON.

pub mod quote;

use crate::error::{Error, Kind, Result};
pub use covey_plot::table;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An error was told: whatever ends the command, it has failed.
static HAS_TOLD: AtomicBool = AtomicBool::new(false);

/// What is said goes to a log: each line has its time.
static IS_LOG: AtomicBool = AtomicBool::new(false);

/// From now on errors have the time in front, as a log's other lines do.
pub fn becomes_log() {
    IS_LOG.store(true, Ordering::Relaxed);
}

/// How this run talks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// Results and errors as JSON.
    pub json: bool,
    /// How much is said of the work: 0 only what matters.
    pub verbose: u8,
}

impl Output {
    /// Writes a result: JSON when asked for, else what `plain` writes. One write for all of it. That nobody
    /// reads it is no error: what the command was to find out decides its exit code.
    pub fn result<T: Serialize>(
        &self,
        value: &T,
        plain: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>,
    ) -> Result<()> {
        match self.one_of_many(value, plain) {
            Err(error) if error.kind == Kind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    /// A result after which others come: that nobody reads it is an error, which ends the command.
    pub fn one_of_many<T: Serialize>(
        &self,
        value: &T,
        plain: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>,
    ) -> Result<()> {
        let mut text = Vec::new();
        if self.json {
            serde_json::to_writer_pretty(&mut text, value)?;
            text.push(b'\n');
        } else {
            plain(&mut text)?;
            return write_out(&quote::lines(&text));
        }
        write_out(&text)
    }

    /// Something the reader should know that is no result. Lost rather than an error.
    pub fn say(&self, text: impl std::fmt::Display) {
        if !self.json {
            let _ = writeln!(std::io::stderr(), "{}", quote::talk(&text.to_string()));
        }
    }

    /// Something only a curious reader wants to know (`-v`).
    pub fn detail(&self, text: impl std::fmt::Display) {
        if self.verbose > 0 {
            self.say(text);
        }
    }

    /// Tells an error on stderr.
    pub fn tell(&self, error: &Error) {
        if matches!(error.kind, Kind::BrokenPipe | Kind::Told | Kind::Program(_)) {
            return;
        }
        HAS_TOLD.store(true, Ordering::Relaxed);
        let mut text = if self.json {
            format!("{}\n", error.json())
        } else {
            format!("covey: {}\n", quote::talk(&error.message))
        };
        if !self.json {
            error
                .hints
                .iter()
                .for_each(|hint| text.push_str(&format!("hint: {}\n", quote::talk(hint))));
        }
        if !self.json && IS_LOG.load(Ordering::Relaxed) {
            text = stamped(&text, jiff::Timestamp::now());
        }
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// The exit code of a command that has ended so. A closed pipe takes back nothing of what was told.
    pub fn exit_code(&self, error: &Error) -> u8 {
        match error.kind {
            Kind::BrokenPipe if HAS_TOLD.load(Ordering::Relaxed) => Kind::Told.exit_code(),
            kind => kind.exit_code(),
        }
    }

    /// Says what is being done, where there is a terminal to say it on.
    pub fn spinner(&self) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new_spinner()
        }
    }

    /// A spinner, and a function that says on it what is being done.
    pub fn told(&self) -> (ProgressBar, impl Fn(String) + Send + 'static) {
        let bar = self.spinner();
        let shown = bar.clone();
        let say = move |text| {
            shown.set_message(text);
            shown.tick();
        };
        (bar, say)
    }

    /// A bar for `bytes_total` bytes of work, unseen for 250 ms, off a terminal and with `--json`. Without a total
    /// it shows what is done, until [`knows_total`] says that the sum of its lengths is one.
    pub fn progress(&self, bytes_total: Option<u64>) -> ProgressBar {
        let length = bytes_total.unwrap_or(0);
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        if self.json || !std::io::stderr().is_terminal() {
            return bar;
        }
        bar.set_style(bar_style(if bytes_total.is_some() { SHARE } else { DONE }));
        let shown = bar.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(250)).await;
            if !shown.is_finished() {
                shown.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            }
        });
        bar
    }
}

/// What a bar shows of work whose total is known, and of other work.
const SHARE: &str =
    "{msg:.dim} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
const DONE: &str = "{msg:.dim} {spinner} {binary_bytes} {binary_bytes_per_sec}";

fn bar_style(form: &str) -> ProgressStyle {
    ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// From now on a bar shows which share of the work is done.
pub fn knows_total(bar: &ProgressBar) {
    bar.set_style(bar_style(SHARE));
}

/// Tells what a server does; that nobody reads it is none of its business. In a log each line has its time.
pub fn announce(text: impl std::fmt::Display) {
    let now = (!std::io::stdout().is_terminal()).then(jiff::Timestamp::now);
    let _ = write_out(announced(&text.to_string(), now).as_bytes());
}

/// Lines of an error as a log has them.
fn stamped(text: &str, now: jiff::Timestamp) -> String {
    text.lines().map(|line| format!("{now:.6} {ERROR}{line}\n")).collect()
}

/// A line of `stamped` as it was.
pub fn unstamped(line: &str) -> &str {
    match line.split_once(' ') {
        Some((time, rest)) if time.parse::<jiff::Timestamp>().is_ok() => {
            rest.strip_prefix(ERROR).unwrap_or(line)
        }
        _ => line,
    }
}

const ERROR: &str = "ERROR ";

fn announced(text: &str, now: Option<jiff::Timestamp>) -> String {
    now.map_or_else(|| format!("{text}\n"), |now| format!("{now:.6}  INFO {text}\n"))
}

/// Writes bytes to stdout, at once.
pub fn write_out(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

/// A number of things that one is called so: `1 file`, `2 files`, `0 directories`.
pub fn counted(count: impl Into<u64>, one: &str) -> String {
    match (count.into(), one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (count, Some(stem)) => format!("{count} {stem}ies"),
        (count, None) => format!("{count} {one}s"),
    }
}

/// A latency as a person reads it.
pub fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{:.0} us", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_a_log_begins_with_its_time_as_those_of_warnings_do() {
        let now = "2026-11-28T01:02:03.5Z".parse().unwrap();
        let line = announced("covey: io1 serves", Some(now));
        assert_eq!(line, "2026-11-28T01:02:03.500000Z  INFO covey: io1 serves\n");
        assert_eq!(announced("covey: io1 serves", None), "covey: io1 serves\n");
    }

    #[test]
    fn an_error_in_a_log_has_its_time_in_each_line_and_is_read_back() {
        let now = "2026-11-28T01:02:03.5Z".parse().unwrap();
        let told = "covey: cannot mount at /mnt\nhint: ERROR or not\n";
        let lines = stamped(told, now);
        assert!(lines.starts_with("2026-11-28T01:02:03.500000Z ERROR covey: cannot"), "{lines}");
        assert!(lines.lines().all(|line| line.starts_with("2026-")), "{lines}");
        assert!(lines.lines().map(unstamped).eq(told.lines()));
        assert_eq!(unstamped("hint: x"), "hint: x");
        let warning = "2026-11-28T01:02:03.500000Z  WARN covey: x";
        assert_eq!(unstamped(warning), warning);
    }

    #[test]
    fn durations_carry_the_unit_that_suits_them() {
        let text = [12, 1_500, 2_500_000].map(|us| duration(Duration::from_micros(us)));
        assert_eq!(text, ["12 us", "1.50 ms", "2.50 s"]);
    }
}
