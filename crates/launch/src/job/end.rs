//! How ranks end, and what that comes to.

use std::fmt;

/// How one rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Code(u8),
    /// By this signal.
    Signal(u8),
    /// Nobody knows: its node is gone, or its session.
    Lost(String),
    /// It was never started.
    Unstarted(String),
}

impl End {
    /// What the text of a `wait` file says: the status that wait(2) gives, in decimal.
    pub fn from_wait(text: &str) -> Option<End> {
        let status: u32 = text.trim().parse().ok()?;
        let (low, high) = (status & 0x7f, (status >> 8) & 0xff);
        match low {
            0 => Some(End::Code(high as u8)),
            // Stopped or continued: no end.
            0x7f => None,
            signal => Some(End::Signal(signal as u8)),
        }
    }

    /// Whether all is well.
    pub fn is_success(&self) -> bool {
        *self == End::Code(0)
    }

    /// As a shell says it: the code, or 128 and the signal. A rank that is lost or was not started counts as
    /// 254.
    pub fn exit_code(&self) -> u8 {
        match self {
            End::Code(code) => *code,
            End::Signal(signal) => 128 | signal,
            End::Lost(_) | End::Unstarted(_) => LOST,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Code(code) => write!(f, "ended with exit code {code}"),
            End::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was ended by signal {signal} ({name})"),
                None => write!(f, "was ended by signal {signal}"),
            },
            End::Lost(why) => write!(f, "was lost: {why}"),
            End::Unstarted(why) => write!(f, "was not started: {why}"),
        }
    }
}

/// The ends of a job's ranks as they come in.
#[derive(Clone, Debug)]
pub struct Ends {
    ends: Vec<Option<End>>,
    open: usize,
    /// The code that a rank's abort asks for.
    aborted: Option<u8>,
    /// Ends from here on are our own doing.
    is_ending: bool,
    has_failed: bool,
    worst: u8,
}

impl Ends {
    /// Of a job of so many ranks.
    pub fn new(ranks: u32) -> Ends {
        let ends = vec![None; ranks as usize];
        Ends {
            open: ends.len(),
            ends,
            aborted: None,
            is_ending: false,
            has_failed: false,
            worst: 0,
        }
    }

    /// Notes a rank's end; the first one counts.
    pub fn note(&mut self, rank: u32, end: End) {
        let Some(slot) = self.ends.get_mut(rank as usize).filter(|slot| slot.is_none()) else {
            return;
        };
        // A rank that we have ended says nothing about the program.
        let is_ours = self.is_ending && matches!(end, End::Signal(_));
        if !is_ours {
            self.worst = self.worst.max(end.exit_code());
        }
        *slot = Some(end);
        self.open -= 1;
    }

    /// The job is being ended, since a rank has aborted with this code, or since one was lost: the signals that
    /// ranks die of from now on do not count. The first reason holds; an abort that comes later counts as a rank's end.
    pub fn end_all(&mut self, code: Option<u8>) {
        if self.is_ending {
            self.worst = self.worst.max(code.unwrap_or(0));
        } else {
            self.is_ending = true;
            self.aborted = code;
        }
    }

    /// The job as a whole has failed, whatever its ranks say.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Whether the job is being ended.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Whether every rank has ended.
    pub fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// How many have not.
    pub fn open(&self) -> usize {
        self.open
    }

    /// A rank's end, when it is known.
    pub fn of(&self, rank: u32) -> Option<&End> {
        self.ends.get(rank as usize)?.as_ref()
    }

    /// Every rank and its end.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Option<&End>)> {
        (0..).zip(self.ends.iter().map(Option::as_ref))
    }

    /// The job's exit code: that of an abort, else the largest of the ranks', and at least 1 when it has failed.
    pub fn exit_code(&self) -> u8 {
        self.aborted.unwrap_or(self.worst.max(u8::from(self.has_failed)))
    }
}

/// The names of the signals that end programs (signal(7), those whose number is the same on every machine).
fn signal_name(signal: u8) -> Option<&'static str> {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    };
    Some(name)
}

/// The exit code that stands for a rank of which nothing is known.
pub const LOST: u8 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_read_as_wait_2_writes_it() {
        assert_eq!(End::from_wait("0\n"), Some(End::Code(0)));
        assert_eq!(End::from_wait("768"), Some(End::Code(3)));
        assert_eq!(End::from_wait("9"), Some(End::Signal(9)));
        // With a core dump.
        assert_eq!(End::from_wait("139"), Some(End::Signal(11)));
        for none in ["", "x", "-1", "4991"] {
            assert_eq!(End::from_wait(none), None, "{none}");
        }
        assert_eq!(End::Signal(11).to_string(), "was ended by signal 11 (SIGSEGV)");
    }

    #[test]
    fn the_worst_rank_decides() {
        let mut ends = Ends::new(3);
        ends.note(0, End::Code(0));
        ends.note(1, End::Code(3));
        assert_eq!((ends.exit_code(), ends.is_complete(), ends.open()), (3, false, 1));
        ends.note(2, End::Signal(9));
        assert_eq!((ends.exit_code(), ends.is_complete()), (137, true));
        ends.note(2, End::Code(0));
        assert_eq!(ends.of(2), Some(&End::Signal(9)), "the first end counts");
        assert_eq!(End::Lost("its node is gone".into()).exit_code(), LOST);
    }

    #[test]
    fn ranks_that_we_end_after_an_abort_do_not_count() {
        let mut ends = Ends::new(3);
        ends.end_all(Some(7));
        ends.end_all(Some(9));
        ends.note(0, End::Signal(9));
        ends.note(1, End::Code(7));
        ends.note(2, End::Signal(15));
        assert_eq!(ends.exit_code(), 7);
    }

    #[test]
    fn an_abort_that_is_heard_of_after_the_rank_has_ended_counts() {
        let mut ends = Ends::new(2);
        ends.note(1, End::Code(42));
        ends.end_all(None);
        ends.end_all(Some(42));
        ends.note(0, End::Signal(15));
        assert_eq!(ends.exit_code(), 42);
    }

    #[test]
    fn a_lost_rank_counts_though_the_others_are_ended_for_it() {
        let mut ends = Ends::new(2);
        ends.note(0, End::Lost("the connection broke".into()));
        ends.end_all(None);
        ends.note(1, End::Signal(9));
        assert_eq!(ends.exit_code(), LOST);
    }

    #[test]
    fn a_job_that_has_failed_does_not_end_well_though_every_rank_did() {
        let mut ends = Ends::new(1);
        ends.fail();
        ends.note(0, End::Code(0));
        assert_eq!(ends.exit_code(), 1);
        let mut ends = Ends::new(1);
        ends.fail();
        ends.note(0, End::Code(7));
        assert_eq!(ends.exit_code(), 7);
    }
}
