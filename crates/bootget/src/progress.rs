//! How far it is, on stderr: one line that changes on a terminal, a line now and then elsewhere.

use covey_launch::image::{Event, Source};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// What is shown.
pub struct Progress {
    quiet: bool,
    terminal: bool,
    begun: Instant,
    shown: Option<Instant>,
    total: u64,
    source: Option<Source>,
    /// What was said last of a server that does not answer.
    waiting: String,
}

impl Progress {
    pub fn new(quiet: bool) -> Progress {
        Progress {
            quiet,
            terminal: std::io::stderr().is_terminal(),
            begun: Instant::now(),
            shown: None,
            total: 0,
            source: None,
            waiting: String::new(),
        }
    }

    pub fn tell(&mut self, event: Event) {
        match event {
            Event::Found { arch, bytes } => {
                self.total = bytes;
                self.line(&format!("found, {bytes} bytes for {}", arch.lossy()));
            }
            Event::From(source) => self.source = Some(source),
            Event::Arrived(bytes) => self.arrived(bytes),
            Event::Left(source, why) => self.line(&format!("{}: {why}", name(&source))),
            Event::Waiting(why) if why != self.waiting => {
                self.line(&format!("{why}; trying again"));
                self.waiting = why;
            }
            Event::Waiting(_) => {}
            Event::Whole(serve) => {
                self.line(&format!("complete; serves others for {} s", serve.as_secs()));
            }
        }
    }

    fn arrived(&mut self, bytes: u64) {
        let (now, pause) = (Instant::now(), if self.terminal { SHOWN_EVERY } else { SAID_EVERY });
        let last = self.shown.unwrap_or(self.begun);
        // Nothing that is over soon is shown.
        if now < last + pause {
            return;
        }
        self.shown = Some(now);
        let rate = bytes as f64 / 1e6 / now.duration_since(self.begun).as_secs_f64().max(1e-3);
        let from = self.source.as_ref().map_or_else(String::new, name);
        let percent = bytes * 100 / self.total.max(1);
        let text =
            format!("{percent:3} % of {} MiB, {rate:.0} MB/s, from {from}", self.total >> 20);
        if self.terminal && !self.quiet {
            let _ = write!(std::io::stderr(), "\r\x1b[Kcovey-bootget: {text}");
        } else {
            self.line(&text)
        }
    }

    fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        let clear = if self.terminal && self.shown.is_some() { "\r\x1b[K" } else { "" };
        // What sources send is shown to people.
        let text: String = text.chars().filter(|c| !c.is_control()).take(400).collect();
        let _ = writeln!(std::io::stderr(), "{clear}covey-bootget: {text}");
    }
}

fn name(source: &Source) -> String {
    match source {
        Source::First => "the first server".to_owned(),
        other => other.to_string(),
    }
}

const SHOWN_EVERY: Duration = Duration::from_millis(250);
const SAID_EVERY: Duration = Duration::from_secs(2);
