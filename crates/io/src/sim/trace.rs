//! What happened: the last lines for people, and a hash of everything for comparison.

use std::collections::VecDeque;
use std::time::Duration;

/// Lines that are kept.
const LINES_MAX: usize = 400;

/// A bounded history.
#[derive(Debug)]
pub struct Trace {
    lines: VecDeque<String>,
    hash: u64,
    echo: bool,
}

impl Trace {
    /// An empty one; with `echo` each line also goes to stderr at once.
    pub fn new(echo: bool) -> Trace {
        Trace { lines: VecDeque::new(), hash: 0xcbf2_9ce4_8422_2325, echo }
    }

    /// Takes in a number.
    pub fn number(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Takes in a line.
    pub fn line(&mut self, now: Duration, node: &str, text: &str) {
        text.bytes().for_each(|byte| self.number(u64::from(byte)));
        let line = format!("{:12.6} {node:<8} {text}", now.as_secs_f64());
        if self.echo {
            eprintln!("{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The last lines.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}
