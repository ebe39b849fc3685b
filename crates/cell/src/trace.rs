//! What a worker did, event by event, and whether it does the same again.
//!
//! A trace is text, one event a line:
//!
//! ```text
//!   spawn 2            coroutine 2 was made
//!   ask 1 pread 3 8192 at 0
//!   done 1 8192 cbf29ce484222325      what came back, and a number made of the bytes read
//!   arrive 3 5 68656c6c6f             what coroutine 3 has asked of a file that waits was answered, and is taken now: so many
//!                                     bytes, and those that were read; or -32, the number of an error
//!   end 2              coroutine 2 has ended
//! ```
//!
//! All of it follows from the program and what it reads, but `arrive`: what somebody else writes into a pipe, when, and how
//! much of it is there, is an input. A replay takes it from the recording and asks nobody for it, and stops at the first
//! difference.

use std::fmt::{self, Write};
use std::io;
use std::str::FromStr;

/// Records events, or compares them with a recording.
#[derive(Default)]
pub struct Trace {
    /// What was recorded, and is not passed on.
    recorded: Option<String>,
    /// Where it is passed on to.
    sink: Option<Box<dyn io::Write>>,
    /// Why that does not work any more.
    failure: Option<io::Error>,
    expected: Option<Expected>,
    line: u64,
    scratch: String,
}

/// A recording, line by line.
struct Expected {
    next: Option<String>,
    rest: Box<dyn Iterator<Item = String>>,
}

impl Expected {
    fn new(mut rest: Box<dyn Iterator<Item = String>>) -> Expected {
        Expected { next: rest.next(), rest }
    }

    fn take(&mut self) -> Option<String> {
        std::mem::replace(&mut self.next, self.rest.next())
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("line", &self.line).finish_non_exhaustive()
    }
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
        write!(f, "replay differs at line {line}: recorded `{recorded}`, happened `{happened}`")?;
        if self.is_of_other_bytes() { f.write_str(OTHER_BYTES) } else { Ok(()) }
    }
}

impl Diverged {
    /// Whether the program did the same, and has read other bytes.
    fn is_of_other_bytes(&self) -> bool {
        let recorded = read_of(&self.recorded);
        recorded.is_some() && recorded == read_of(&self.happened)
    }
}

/// Who has read how much, where an event is that.
fn read_of(event: &str) -> Option<&str> {
    let (read, sum) = event.strip_prefix("done ")?.rsplit_once(' ')?;
    (sum.len() == SUM_DIGITS && read.contains(' ')).then_some(read)
}

const SUM_DIGITS: usize = 16;
/// Why a program that does the same each time may still read something else.
const OTHER_BYTES: &str = "; hint: other bytes were read. A trace has what came through pipes, but not what others \
                           write into a region or file while the program runs";

impl std::error::Error for Diverged {}

impl Trace {
    /// Records nothing.
    pub fn off() -> Trace {
        Trace::default()
    }

    /// Records, in memory: for short programs.
    pub fn record() -> Trace {
        Trace { recorded: Some(String::new()), ..Trace::default() }
    }

    /// Compares with a recording, and records as well, in memory.
    pub fn replay(recording: &str) -> Trace {
        let lines: Vec<String> = recording.lines().map(str::to_owned).collect();
        Trace { recorded: Some(String::new()), ..Trace::replay_of(lines.into_iter()) }
    }

    /// Compares with the lines of a recording, which are read as events happen.
    pub fn replay_of(lines: impl Iterator<Item = String> + 'static) -> Trace {
        Trace { expected: Some(Expected::new(Box::new(lines))), ..Trace::default() }
    }

    /// Records by writing to `sink`, so that a trace takes the same little memory however long it is.
    #[must_use]
    pub fn record_to(self, sink: impl io::Write + 'static) -> Trace {
        Trace { recorded: Some(String::new()), sink: Some(Box::new(sink)), ..self }
    }

    /// Whether events are looked at.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.recorded.is_some() || self.expected.is_some()
    }

    /// Passes on what is left to be. The first error that there was.
    pub fn finish(&mut self) -> io::Result<()> {
        self.pass_on();
        if let (Some(sink), None) = (&mut self.sink, &self.failure) {
            self.failure = sink.flush().err();
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Where the program has ended: what the recording has besides.
    pub fn check_end(&self) -> Result<(), Diverged> {
        let next = self.expected.as_ref().and_then(|expected| expected.next.clone());
        let Some(recorded) = next else { return Ok(()) };
        let happened = "the program has ended".to_owned();
        Err(Diverged { line: self.line + 1, recorded, happened })
    }

    /// What was recorded so far, and is not passed on.
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
            let recorded = expected.take().unwrap_or_default();
            if recorded != self.scratch {
                let happened = self.scratch.clone();
                return Err(Diverged { line: self.line, recorded, happened });
            }
        }
        if let Some(recorded) = &mut self.recorded {
            recorded.push_str(&self.scratch);
            recorded.push('\n');
            if recorded.len() >= PART_BYTES {
                self.pass_on();
            }
        }
        Ok(())
    }

    fn pass_on(&mut self) {
        if let (Some(sink), Some(recorded)) = (&mut self.sink, &mut self.recorded) {
            if self.failure.is_none() {
                self.failure = sink.write_all(recorded.as_bytes()).err();
            }
            // What has no place is not kept: whoever records learns of it at the end.
            recorded.clear();
        }
    }

    /// In a replay: what has arrived, if the recording has that next.
    pub fn arrival_due(&self) -> Option<Arrival> {
        self.expected.as_ref()?.next.as_ref()?.parse().ok()
    }

    /// Whether arrivals are taken from a recording.
    pub fn is_replay(&self) -> bool {
        self.expected.is_some()
    }
}

/// The answer to a request on a file that waits, as an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The coroutine that has asked.
    pub cor: u32,
    /// Bytes that were transferred, or the number of an error.
    pub result: Result<u64, u32>,
    /// Those that were read.
    pub data: Vec<u8>,
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.result {
            Ok(count) => write!(f, "arrive {} {count}", self.cor)?,
            Err(code) => write!(f, "arrive {} -{code}", self.cor)?,
        }
        if !self.data.is_empty() {
            f.write_char(' ')?;
        }
        self.data.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The event is no arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoArrival;

impl FromStr for Arrival {
    type Err = NoArrival;

    fn from_str(event: &str) -> Result<Arrival, NoArrival> {
        let mut words = event.strip_prefix("arrive ").ok_or(NoArrival)?.split(' ');
        let mut word = || words.next().ok_or(NoArrival);
        let (cor, count) = (word()?.parse().map_err(|_| NoArrival)?, word()?);
        let result = match count.strip_prefix('-') {
            Some(code) => Err(code.parse().map_err(|_| NoArrival)?),
            None => Ok(count.parse().map_err(|_| NoArrival)?),
        };
        let (pairs, rest) = words.next().unwrap_or_default().as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let pair = str::from_utf8(pair).map_err(|_| NoArrival)?;
            u8::from_str_radix(pair, 16).map_err(|_| NoArrival)
        };
        let data = pairs.iter().map(byte).collect::<Result<Vec<u8>, NoArrival>>()?;
        let is_whole = data.is_empty() || result == Ok(data.len() as u64);
        let is_event = is_whole && rest.is_empty() && words.next().is_none();
        is_event.then_some(Arrival { cor, result, data }).ok_or(NoArrival)
    }
}

/// Of a recording that is passed on, at once.
const PART_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn a_replay_that_reads_other_bytes_says_why_that_may_be_and_another_difference_does_not() {
        let replay = |happened: &str| {
            let mut trace = Trace::replay("done 1 64 cbf29ce484222325\n");
            trace.event(format_args!("{happened}")).unwrap_err().to_string()
        };
        let said = replay("done 1 64 af63bd4c8601b7df");
        assert!(said.ends_with("write into a region or file while the program runs"), "{said}");
        for other in ["done 2 64 af63bd4c8601b7df", "done 1 32 af63bd4c8601b7df", "done 1 64"] {
            assert!(!replay(other).contains("hint"), "{other}");
        }
    }

    /// Takes so many bytes.
    #[derive(Clone)]
    struct Sink(Rc<RefCell<Vec<u8>>>, usize);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut taken = self.0.borrow_mut();
            let room = self.1 - taken.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            taken.extend_from_slice(&bytes[..bytes.len().min(room)]);
            Ok(bytes.len().min(room))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn long(trace: &mut Trace) {
        for number in 0..100_000 {
            trace.event(format_args!("ask 1 pread 3 8192 at {number}")).unwrap();
            assert!(trace.text().len() < 2 * PART_BYTES);
        }
    }

    #[test]
    fn a_long_trace_takes_little_memory_and_is_whole_where_it_goes() {
        let sink = Sink(Rc::default(), usize::MAX);
        let mut trace = Trace::off().record_to(sink.clone());
        long(&mut trace);
        trace.finish().unwrap();
        let text = String::from_utf8(sink.0.take()).unwrap();
        assert_eq!(text.lines().count(), 100_000);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut again = Trace::replay_of(lines.into_iter());
        long(&mut again);
        again.check_end().unwrap();
        assert_eq!(again.text(), "");
    }

    #[test]
    fn a_full_store_is_an_error_at_the_end_and_takes_no_memory_meanwhile() {
        let mut trace = Trace::off().record_to(Sink(Rc::default(), PART_BYTES * 3 / 2));
        long(&mut trace);
        assert_eq!(trace.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_program_that_ends_before_its_recording_does_something_else() {
        let mut trace = Trace::replay("spawn 1\nend 1\n");
        trace.event(format_args!("spawn 1")).unwrap();
        let error = trace.check_end().unwrap_err();
        assert_eq!((error.line, &*error.recorded), (2, "end 1"));
        trace.event(format_args!("end 1")).unwrap();
        trace.check_end().unwrap();
    }

    #[test]
    fn a_replay_of_the_same_events_is_the_same_text_and_of_others_is_not() {
        let mut first = Trace::record();
        first.event(format_args!("spawn {}", 1)).unwrap();
        let arrival = Arrival { cor: 4, result: Ok(3), data: b"abc".to_vec() };
        first.event(format_args!("{arrival}")).unwrap();
        let mut second = Trace::replay(first.text());
        assert_eq!(second.arrival_due(), None);
        second.event(format_args!("spawn 1")).unwrap();
        assert_eq!(second.arrival_due(), Some(arrival));
        let error = second.event(format_args!("end 1")).unwrap_err();
        assert_eq!(
            (error.line, &*error.recorded, &*error.happened),
            (2, "arrive 4 3 616263", "end 1")
        );
        let mut third = Trace::replay(first.text());
        third.event(format_args!("spawn 1")).unwrap();
        third.event(format_args!("arrive 4 3 616263")).unwrap();
        assert_eq!(third.text(), first.text());
        assert_eq!(third.event(format_args!("end 9")).unwrap_err().recorded, "");
    }

    #[test]
    fn an_arrival_comes_back_as_it_was_written_and_nothing_else_is_one() {
        for (result, data) in
            [(Ok(0), &b""[..]), (Ok(70_000), b""), (Err(32), b""), (Ok(3), b"\n\0\xff")]
        {
            let arrival = Arrival { cor: 7, result, data: data.to_vec() };
            assert_eq!(arrival.to_string().parse(), Ok(arrival));
        }
        for event in [
            "arrive 4",
            "arrive 4 x",
            "arrive 4 2 616263",
            "arrive 4 1 6",
            "arrive 4 1 61 1",
            "end 4",
        ] {
            assert_eq!(event.parse::<Arrival>(), Err(NoArrival), "{event}");
        }
    }

    #[test]
    fn nothing_is_recorded_where_nobody_asked() {
        let mut trace = Trace::off();
        trace.event(format_args!("spawn 1")).unwrap();
        assert_eq!((trace.is_on(), trace.text()), (false, ""));
    }
}
