//! How often something is said: strangers and failures must not fill the disk with log.

use std::time::{Duration, Instant};

/// Lines in the log per [`LOG_TIME`] about one thing.
const LOG_LINES_MAX: u32 = 20;
const LOG_TIME: Duration = Duration::from_secs(60);

/// What was said lately.
#[derive(Debug)]
pub struct Pace {
    /// Of what it is told how many there were.
    what: &'static str,
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

enum Step {
    Say,
    /// It is time again, after so many times that it was not said.
    SayAfter(u64),
    Count,
}

impl Pace {
    /// Nothing was said yet of `what` happens too often to say each.
    pub const fn new(what: &'static str) -> Pace {
        Pace { what, since: None, said: 0, unsaid: 0 }
    }

    /// Says something, unless it was said too often.
    pub fn complain(&mut self, text: impl FnOnce() -> String) {
        match self.step(Instant::now()) {
            Step::Say | Step::SayAfter(0) => tracing::warn!("{}", text()),
            Step::SayAfter(more) => {
                tracing::warn!("{more} more {}", self.what);
                tracing::warn!("{}", text());
            }
            Step::Count => tracing::debug!("{}", text()),
        }
    }

    fn step(&mut self, now: Instant) -> Step {
        if self.since.is_none_or(|since| now.duration_since(since) >= LOG_TIME) {
            let unsaid = self.unsaid;
            *self = Pace { what: self.what, since: Some(now), said: 1, unsaid: 0 };
            return Step::SayAfter(unsaid);
        }
        if self.said < LOG_LINES_MAX {
            self.said += 1;
            return Step::Say;
        }
        self.unsaid += 1;
        Step::Count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_do_is_said_so_often_and_then_counted() {
        let (mut pace, now) = (Pace::new("strangers"), Instant::now());
        let said = (0..1000).filter(|_| !matches!(pace.step(now), Step::Count)).count();
        assert_eq!(said, LOG_LINES_MAX as usize);
        assert!(matches!(pace.step(now + LOG_TIME), Step::SayAfter(980)));
        assert!(matches!(pace.step(now + LOG_TIME), Step::Say));
    }
}
