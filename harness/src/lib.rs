//! Runs the tests of a program as Rust's harness does, with one difference: a test that finds that this machine
//! cannot run it says so by [`skip`] and returns, and is counted as ignored, not as passed.
//!
//! A library or test program changes to this harness by `harness = false` in its manifest, and at its root by
//!
//! ```text
//! #[cfg(test)]
//! #[macro_use]
//! extern crate covey_harness_macro;
//!
//! #[cfg(test)]
//! fn main() {
//!     covey_harness::run()
//! }
//! ```
//!
//! (a test program without the two `cfg`). `#[test]` means the harness's attribute then, everywhere in it.

pub use inventory;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::cell::RefCell;
use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A test as the attribute hands it over.
#[derive(Debug)]
pub struct Test {
    /// Its path, from the program's own name on.
    pub path: &'static str,
    /// Whether it runs only when asked for, with `--ignored` or `--include-ignored`.
    pub is_ignored: bool,
    pub run: fn(),
}

inventory::collect!(Test);

impl Test {
    fn name(&self) -> &'static str {
        self.path.split_once("::").map_or(self.path, |(_, name)| name)
    }

    /// On a thread of its own, with the test's name: whatever a test does to its thread ends with it. A test that does not
    /// end within `limit` has failed, and is left alone.
    fn trial(&self, limit: Option<Duration>) -> Trial {
        let (name, run) = (self.name(), self.run);
        let runner = move || {
            let (ends, ended) = mpsc::channel::<Infallible>();
            let body = move || {
                let _ends = ends;
                run();
                SKIPPED.take()
            };
            let begun = Instant::now();
            let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
            // Nothing is sent: that the sender is gone says that the test is over.
            if ended.recv_timeout(limit.unwrap_or(Duration::MAX)) == Err(RecvTimeoutError::Timeout)
            {
                let seconds = begun.elapsed().as_secs();
                return Err(
                    format!("it has not ended within {seconds} s, and is left alone").into()
                );
            }
            let ran = thread.join();
            if begun.elapsed() > SLOW {
                eprintln!("test {name} took {} s", begun.elapsed().as_secs());
            }
            Ok::<_, Failed>(match ran.unwrap_or_else(|panic| resume_unwind(panic)) {
                Some(reason) => Completion::ignored_with(reason),
                None => Completion::Completed,
            })
        };
        Trial::ignorable_test(name, runner).with_ignored_flag(self.is_ignored)
    }
}

/// Who takes longer is told of.
const SLOW: Duration = Duration::from_secs(20);

/// Says that this machine cannot run the test of this thread, or not all of it, and why. The test returns then.
pub fn skip(reason: impl AsRef<str>) {
    // Some reasons are what a command said.
    let reason = reason.as_ref().trim_end().replace('\n', " ");
    SKIPPED.with_borrow_mut(|first| {
        first.get_or_insert(reason);
    });
}

thread_local! {
    static SKIPPED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the tests of this program that its arguments name, and ends it.
///
/// The arguments are those of Rust's harness. `RUST_TEST_THREADS` says how many tests run at a time, `COVEY_TEST_SECONDS`
/// how long one may take; without that it may take as long as it likes, as a campaign does.
pub fn run() -> ! {
    let (filters, rest) = filters(std::env::args());
    let mut arguments = Arguments::from_iter(rest);
    if arguments.test_threads.is_none() {
        let asked = std::env::var("RUST_TEST_THREADS").ok();
        arguments.test_threads = asked.and_then(|count| count.parse().ok());
    }
    let is_asked = |test: &&Test| {
        filters.is_empty()
            || filters.iter().any(|filter| {
                if arguments.exact { test.name() == filter } else { test.name().contains(filter) }
            })
    };
    let tests = inventory::iter::<Test>();
    let limit = std::env::var("COVEY_TEST_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = limit.map(Duration::from_secs);
    let mut trials: Vec<Trial> = tests.filter(is_asked).map(|test| test.trial(limit)).collect();
    trials.sort_by(|one, other| one.name().cmp(other.name()));
    libtest_mimic::run(&arguments, trials).exit()
}

/// Splits arguments into words that choose tests, of which libtest-mimic knows one only, and the others.
fn filters(arguments: impl Iterator<Item = String>) -> (Vec<String>, Vec<String>) {
    const WITH_VALUE: [&str; 6] =
        ["--test-threads", "--skip", "--color", "--format", "--logfile", "-Z"];
    let (mut filters, mut rest) = (Vec::new(), Vec::new());
    for argument in arguments {
        let is_value = rest.last().is_some_and(|last: &String| WITH_VALUE.contains(&last.as_str()));
        if rest.is_empty() || is_value || argument.starts_with('-') {
            rest.push(argument);
        } else {
            filters.push(argument);
        }
    }
    (filters, rest)
}

#[cfg(test)]
mod tests {
    use super::filters;

    #[test]
    fn words_that_choose_tests_are_told_from_values_of_options() {
        let split = |text: &str| filters(text.split(' ').map(str::to_owned));
        let (chosen, rest) = split("program one --test-threads 2 two --exact --skip three");
        assert_eq!(chosen, ["one", "two"]);
        assert_eq!(rest, ["program", "--test-threads", "2", "--exact", "--skip", "three"]);
        assert_eq!(split("program").0, [""; 0]);
    }
}
