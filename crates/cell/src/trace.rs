//! What a worker did, event by event, and whether it does the same again.
//!
//! A trace is text, one event a line:
//!
//! ```text
//!   spawn 2            coroutine 2 was made
//!   ask 1 pread 3 8192 at 0
//!   done 1 8192 cbf29ce484222325      what came back, and a number made of the bytes read
//!   arrive 3           the request of coroutine 3 on a file that waits was answered, and is taken now
//!   end 2              coroutine 2 has ended
//! ```
//!
//! All of it follows from the program and what it reads, but `arrive`: when somebody else writes into a pipe is an input.
//! A replay takes arrivals where the recording had them, waits for them there, and stops at the first other difference.

use std::collections::VecDeque;
use std::fmt::{self, Write};

/// Records events, or compares them with a recording.
#[derive(Debug, Default)]
pub struct Trace {
    recorded: Option<String>,
    expected: Option<VecDeque<String>>,
    line: u64,
    scratch: String,
}

/// The program did something else than it had done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diverged {
    /// Line of the recording, from 1.
    pub line: u64,
    /// What was recorded; empty where the recording had ended.
    pub recorded: String,
    /// What happened.
    pub happened: String,
}

impl fmt::Display for Diverged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diverged { line, recorded, happened } = self;
        write!(f, "replay differs at line {line}: recorded `{recorded}`, happened `{happened}`")
    }
}

impl std::error::Error for Diverged {}

impl Trace {
    /// Records nothing.
    pub fn off() -> Trace {
        Trace::default()
    }

    /// Records.
    pub fn record() -> Trace {
        Trace { recorded: Some(String::new()), ..Trace::default() }
    }

    /// Compares with a recording, and records as well.
    pub fn replay(recording: &str) -> Trace {
        let expected = recording.lines().map(str::to_owned).collect();
        Trace { expected: Some(expected), ..Trace::record() }
    }

    /// Whether events are looked at.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.recorded.is_some()
    }

    /// What was recorded so far.
    pub fn text(&self) -> &str {
        self.recorded.as_deref().unwrap_or_default()
    }

    /// An event.
    #[inline]
    pub fn event(&mut self, event: fmt::Arguments<'_>) -> Result<(), Diverged> {
        if self.is_on() { self.put(event) } else { Ok(()) }
    }

    #[cold]
    fn put(&mut self, event: fmt::Arguments<'_>) -> Result<(), Diverged> {
        self.line += 1;
        self.scratch.clear();
        write!(self.scratch, "{event}").expect("a string takes all");
        if let Some(expected) = &mut self.expected {
            let recorded = expected.pop_front().unwrap_or_default();
            if recorded != self.scratch {
                let happened = self.scratch.clone();
                return Err(Diverged { line: self.line, recorded, happened });
            }
        }
        if let Some(recorded) = &mut self.recorded {
            recorded.push_str(&self.scratch);
            recorded.push('\n');
        }
        Ok(())
    }

    /// In a replay: the coroutine whose arrival the recording has next, if that is what it has next.
    pub fn arrival_due(&self) -> Option<u32> {
        let next = self.expected.as_ref()?.front()?;
        next.strip_prefix("arrive ")?.parse().ok()
    }

    /// Whether arrivals are taken from a recording.
    pub fn is_replay(&self) -> bool {
        self.expected.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_of_the_same_events_is_the_same_text_and_of_others_is_not() {
        let mut first = Trace::record();
        first.event(format_args!("spawn {}", 1)).unwrap();
        first.event(format_args!("arrive 4")).unwrap();
        let mut second = Trace::replay(first.text());
        assert_eq!(second.arrival_due(), None);
        second.event(format_args!("spawn 1")).unwrap();
        assert_eq!(second.arrival_due(), Some(4));
        let error = second.event(format_args!("end 1")).unwrap_err();
        assert_eq!((error.line, &*error.recorded, &*error.happened), (2, "arrive 4", "end 1"));
        let mut third = Trace::replay(first.text());
        third.event(format_args!("spawn 1")).unwrap();
        third.event(format_args!("arrive 4")).unwrap();
        assert_eq!(third.text(), first.text());
        assert_eq!(third.event(format_args!("end 9")).unwrap_err().recorded, "");
    }

    #[test]
    fn nothing_is_recorded_where_nobody_asked() {
        let mut trace = Trace::off();
        trace.event(format_args!("spawn 1")).unwrap();
        assert_eq!((trace.is_on(), trace.text()), (false, ""));
    }
}
