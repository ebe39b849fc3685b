//! What commands do to the whole cluster, as they report it to the metadata server through its `/ctl`: files on their way
//! to other I/O servers, and the last check of the file system. Shown in `/stats`; kept in memory only.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A command reports about once a second. One that has not for so long has ended.
const FRESH: Duration = Duration::from_secs(10);
/// Works that are kept.
const WORKS_MAX: usize = 16;
/// The longest name of a work, in characters.
const NAME_CHARS_MAX: usize = 100;

/// The reports of commands.
#[derive(Default)]
pub struct Works {
    moves: RefCell<BTreeMap<String, (Instant, Move)>>,
    checked: RefCell<Option<(jiff::Timestamp, Check)>>,
}

/// How far a command is that moves files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// What was moved so far.
    pub bytes: u64,
    /// What is to move in all; 0 where that is not known.
    pub bytes_total: u64,
    /// Since the command began.
    pub seconds: u64,
}

/// What a check of the file system came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Findings.
    pub found: u64,
    /// Those of them that were not repaired.
    pub left: u64,
    /// I/O servers that could not be asked.
    pub unasked: u64,
}

impl Works {
    /// A command reports how far it is.
    pub fn moves(&self, now: Instant, name: &str, report: Move) {
        let mut moves = self.moves.borrow_mut();
        moves.retain(|_, (at, _)| now.duration_since(*at) < FRESH);
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        if moves.len() < WORKS_MAX || moves.contains_key(&name) {
            moves.insert(name, (now, report));
        }
    }

    /// A command has moved what it wanted, or given up.
    pub fn moved(&self, name: &str) {
        self.moves.borrow_mut().remove(name);
    }

    /// A check has ended at this time.
    pub fn checked(&self, at: jiff::Timestamp, check: Check) {
        *self.checked.borrow_mut() = Some((at, check));
    }

    /// `moving NAME bytes N bytes_total N seconds N` and `checked at TIME found N left N unasked N`.
    pub fn text(&self, now: Instant) -> String {
        let mut out = String::new();
        for (name, (at, report)) in &*self.moves.borrow() {
            let Move { bytes, bytes_total, seconds } = report;
            if now.duration_since(*at) < FRESH {
                writeln!(
                    out,
                    "moving {name:?} bytes {bytes} bytes_total {bytes_total} seconds {seconds}"
                )
                .expect("writing into a string cannot fail");
            }
        }
        if let Some((at, Check { found, left, unasked })) = *self.checked.borrow() {
            writeln!(out, "checked at {at:.3} found {found} left {left} unasked {unasked}")
                .expect("writing into a string cannot fail");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_is_shown_as_long_as_its_command_reports_it() {
        let (works, begun) = (Works::default(), Instant::now());
        let report = |bytes| Move { bytes, bytes_total: 10, seconds: 2 };
        works.moves(begun, "drain io3", report(3));
        works.moves(begun + FRESH / 2, "rebalance", report(4));
        let text = works.text(begun + FRESH / 2);
        assert!(text.starts_with("moving \"drain io3\" bytes 3 bytes_total 10 seconds 2\n"));
        assert_eq!(text.lines().count(), 2);
        assert_eq!(works.text(begun + FRESH).lines().count(), 1, "the first is silent");
        works.moved("rebalance");
        assert_eq!(works.text(begun + FRESH / 2).lines().count(), 1);
    }

    #[test]
    fn works_and_their_names_are_bounded() {
        let (works, now) = (Works::default(), Instant::now());
        let report = Move { bytes: 0, bytes_total: 0, seconds: 0 };
        for number in 0..2 * WORKS_MAX {
            works.moves(now, &format!("{number} {}", "x".repeat(1000)), report);
        }
        let text = works.text(now);
        assert_eq!(text.lines().count(), WORKS_MAX);
        assert!(text.lines().all(|line| line.len() < 200), "{text}");
    }

    #[test]
    fn the_last_check_is_kept() {
        let works = Works::default();
        let at = "2026-11-28T01:02:03Z".parse().unwrap();
        works.checked(at, Check { found: 3, left: 1, unasked: 0 });
        let text = works.text(Instant::now());
        assert_eq!(text, "checked at 2026-11-28T01:02:03.000Z found 3 left 1 unasked 0\n");
    }
}
