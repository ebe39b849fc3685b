//! The files that clients read and write most, in a list of a fixed length.
//!
//! It is kept by the space-saving algorithm: where the list is full, what is new takes the place of the entry with the
//! least weight, and inherits that weight. So whatever has more than a [`FILES_MAX`]th of all weight is in the list,
//! however many other files are touched meanwhile. Weights are halved every minute: what was busy long ago gives way.

use super::Carries;
use super::accounts::account;
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Entries of one part that are kept.
const FILES_MAX: usize = 64;
/// The weight of a request beside its bytes.
const REQUEST_WEIGHT: u64 = 4096;
/// How long until what was done weighs half.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// The busiest files of one part.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// By place in the list.
    weights: Vec<u64>,
    entries: Vec<Entry>,
    /// The places of files and accounts.
    places: HashMap<(u64, u64), usize>,
    halved: Option<Instant>,
}

/// What one account did with one file since it came into the list.
#[derive(Debug)]
struct Entry {
    id: u64,
    who: Who,
    bytes_read: u64,
    bytes_written: u64,
    requests: u64,
}

/// An account by a number that tells it from others, and by its name.
#[derive(Clone, Debug)]
pub(super) struct Who {
    number: u64,
    name: Rc<str>,
}

impl Who {
    /// The account of a client of this name.
    pub fn of(client: &str, hashing: &RandomState) -> Who {
        let (client, job) = account(client);
        let name = if job.is_empty() { client } else { format!("{client} job {job}") };
        Who { number: hashing.hash_one(&name), name: name.into() }
    }
}

impl Files {
    /// A file was read or written.
    pub fn note(&mut self, id: u64, who: &Who, carries: Carries, now: Instant) {
        self.halve(now);
        let place = match self.places.get(&(id, who.number)) {
            Some(place) => *place,
            None => self.make_place(id, who),
        };
        let (read, written) = carries.bytes();
        self.weights[place] = self.weights[place].saturating_add(read + written + REQUEST_WEIGHT);
        let entry = &mut self.entries[place];
        entry.bytes_read += read;
        entry.bytes_written += written;
        entry.requests += 1;
    }

    fn halve(&mut self, now: Instant) {
        let halved = *self.halved.get_or_insert(now);
        let lives = now.saturating_duration_since(halved).as_secs() / HALF_LIFE.as_secs();
        if lives > 0 {
            let lives = u32::try_from(lives).unwrap_or(u32::MAX);
            self.weights
                .iter_mut()
                .for_each(|weight| *weight = weight.checked_shr(lives).unwrap_or(0));
            self.halved = Some(now);
        }
    }

    /// A place for a new entry: one more, or that of the lightest.
    fn make_place(&mut self, id: u64, who: &Who) -> usize {
        let (who, key) = (who.clone(), (id, who.number));
        let entry = Entry { id, who, bytes_read: 0, bytes_written: 0, requests: 0 };
        let place = self.entries.len();
        if place < FILES_MAX {
            self.weights.push(0);
            self.entries.push(entry);
            self.places.insert(key, place);
            return place;
        }
        let lightest = (0..place).min_by_key(|at| self.weights[*at]).unwrap_or(0);
        let gone = std::mem::replace(&mut self.entries[lightest], entry);
        self.places.remove(&(gone.id, gone.who.number));
        self.places.insert(key, lightest);
        lightest
    }

    /// `file PART ID ACCOUNT bytes_read N bytes_written N count N`, the busiest first.
    pub fn text(&self, part: &str) -> String {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.weights[*at]));
        let mut out = String::new();
        for at in order {
            let Entry { id, who, bytes_read, bytes_written, requests } = &self.entries[at];
            let name = &who.name;
            writeln!(
                out,
                "file {part} {id:016x} {name:?} bytes_read {bytes_read} bytes_written {bytes_written} \
                 count {requests}"
            )
            .expect("writing into a string cannot fail");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(files: &Files) -> Vec<u64> {
        let text = files.text("data");
        let ids = text.lines().filter_map(|line| line.split(' ').nth(2));
        ids.map(|id| u64::from_str_radix(id, 16).unwrap()).collect()
    }

    #[test]
    fn what_is_busy_stays_among_any_number_of_small_files() {
        let (mut files, hashing, now) = (Files::default(), RandomState::new(), Instant::now());
        let who = Who::of("ann@n1 job 7 pid 3", &hashing);
        for other in 0..100_000 {
            files.note(1000 + other, &who, Carries::Written(100), now);
            // A twentieth of what is done.
            if other % 20 == 0 {
                files.note(1, &Who::of("ann@n1 job 7 pid 4", &hashing), Carries::Read(100), now);
            }
        }
        assert_eq!((files.entries.len(), files.places.len()), (FILES_MAX, FILES_MAX));
        let text = files.text("data");
        let line = "file data 0000000000000001 \"ann@n1 job 7\" bytes_read 500000 bytes_written 0 count 5000\n";
        assert!(text.starts_with(line), "{text}");
    }

    #[test]
    fn accounts_are_told_apart_and_a_hostile_name_ends_no_line() {
        let (mut files, hashing, now) = (Files::default(), RandomState::new(), Instant::now());
        for client in ["ann@n1 pid 3", "bob@n1 pid 3", "x\" \nfile data 1"] {
            files.note(1, &Who::of(client, &hashing), Carries::Written(1), now);
        }
        let text = files.text("data");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.contains(r#"file data 0000000000000001 "x\" \nfile data 1" bytes_read"#),
            "{text}"
        );
    }

    #[test]
    fn what_was_busy_long_ago_gives_way() {
        let (mut files, hashing, now) = (Files::default(), RandomState::new(), Instant::now());
        let who = Who::of("ann@n1", &hashing);
        files.note(1, &who, Carries::Read(1 << 40), now);
        files.note(2, &who, Carries::Read(1 << 20), now + Duration::from_secs(60 * 15));
        assert_eq!(ids(&files), [1, 2]);
        files.note(2, &who, Carries::Read(1 << 20), now + Duration::from_secs(60 * 40));
        assert_eq!(ids(&files), [2, 1]);
        files.note(2, &who, Carries::Read(1), now + Duration::from_secs(60 * 400));
        assert_eq!(ids(&files), [2, 1]);
    }
}
