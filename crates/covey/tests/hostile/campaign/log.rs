//! What a writer was about to do, and what became of it: lines in a local file that no crash of the
//! cluster touches.
//!
//! ```text
//!   I 7 write f3 55 1000 4096      it is about to write 4096 bytes of noise 55 at 1000
//!   A 7 12 1700000000000           that was acknowledged after 12 ms, at that time
//!   F 8 5                          number 8 failed with errno 5
//! ```
//!
//! From these lines [`Expected`] knows which files must be there and which of their bytes are certain.

use crate::support::bytes::noise;
use std::collections::BTreeMap;
use std::ops::Range;

/// One thing that a writer does to a file of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Create {
        name: String,
        seed: u64,
        length: usize,
    },
    Write {
        name: String,
        seed: u64,
        offset: usize,
        length: usize,
    },
    Append {
        name: String,
        seed: u64,
        length: usize,
    },
    Truncate {
        name: String,
        size: usize,
    },
    Rename {
        name: String,
        to: String,
    },
    Unlink {
        name: String,
    },
    Fsync {
        name: String,
    },
    /// A record of 64 bytes to the log that all writers share.
    Shared {
        record: String,
    },
}

impl Act {
    /// The file it is about.
    pub fn name(&self) -> &str {
        match self {
            Act::Create { name, .. }
            | Act::Write { name, .. }
            | Act::Append { name, .. }
            | Act::Truncate { name, .. }
            | Act::Rename { name, .. }
            | Act::Unlink { name }
            | Act::Fsync { name } => name,
            Act::Shared { .. } => "",
        }
    }

    pub fn line(&self) -> String {
        match self {
            Act::Create { name, seed, length } => format!("create {name} {seed} {length}"),
            Act::Write { name, seed, offset, length } => {
                format!("write {name} {seed} {offset} {length}")
            }
            Act::Append { name, seed, length } => format!("append {name} {seed} {length}"),
            Act::Truncate { name, size } => format!("truncate {name} {size}"),
            Act::Rename { name, to } => format!("rename {name} {to}"),
            Act::Unlink { name } => format!("unlink {name}"),
            Act::Fsync { name } => format!("fsync {name}"),
            Act::Shared { record } => format!("shared {record}"),
        }
    }

    fn parse(words: &[&str]) -> Act {
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let (name, size) = (words[1].to_owned(), |at| number(at) as usize);
        match words[0] {
            "create" => Act::Create { name, seed: number(2), length: size(3) },
            "write" => Act::Write { name, seed: number(2), offset: size(3), length: size(4) },
            "append" => Act::Append { name, seed: number(2), length: size(3) },
            "truncate" => Act::Truncate { name, size: size(2) },
            "rename" => Act::Rename { name, to: words[2].to_owned() },
            "unlink" => Act::Unlink { name },
            "fsync" => Act::Fsync { name },
            "shared" => Act::Shared { record: name },
            other => panic!("{other} is nothing that a writer does"),
        }
    }
}

/// What makes an act certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certain {
    /// Its acknowledgement: whoever dies after it.
    WhenAcknowledged,
    /// The next fsync of the file: whatever loses its power after it.
    WhenSynced,
}

/// What must be found of one file.
#[derive(Clone, Debug)]
pub struct File {
    /// Where it may be; one of them if `must_be`.
    pub names: Vec<String>,
    /// It was not made for certain, or is on its way out.
    pub may_be_gone: bool,
    /// All bytes, the last act's included.
    pub bytes: Vec<u8>,
    /// Bytes that may be anything.
    pub fuzzy: Vec<Range<usize>>,
    /// The sizes it may have.
    pub sizes: Range<usize>,
}

/// Everything that must be found of a writer's files.
#[derive(Debug, Default)]
pub struct Expected {
    pub files: Vec<File>,
    /// Names that are gone for certain, and when that was acknowledged, where it is known: see [`now_ms`].
    pub gone: BTreeMap<String, u64>,
    /// Records of the shared log: acknowledged, and those of which nobody knows.
    pub records: Vec<(String, bool)>,
    /// Acts that were acknowledged.
    pub acknowledged: usize,
    /// Acts that failed, or whose end was not seen.
    pub open: usize,
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970");
    since.as_millis() as u64
}

impl Expected {
    /// The mount was killed at that time: what it had removed just before it may not have said.
    pub fn is_cut_short(&mut self, killed_at: u64) {
        self.gone.retain(|_, at| *at + REMOVALS_KEPT_MS < killed_at);
    }
}

/// For how long removals may be kept: 5 ms, on a machine that may be busy.
const REMOVALS_KEPT_MS: u64 = 100;

/// Reads a writer's log.
pub fn expected(text: &str, certain: Certain) -> Expected {
    let mut ends: BTreeMap<&str, (bool, u64)> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["A", number, _, at] => drop(ends.insert(number, (true, at.parse().unwrap_or(0)))),
            ["A", number, ..] => drop(ends.insert(number, (true, 0))),
            ["F", number, ..] => drop(ends.insert(number, (false, 0))),
            _ => {}
        }
    }
    let mut known = Expected::default();
    let mut live: BTreeMap<String, File> = BTreeMap::new();
    let mut leaving: Vec<File> = Vec::new();
    // The last line may be half a line.
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    for line in whole.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["I", number, ref act @ ..] = words[..] else { continue };
        let act = Act::parse(act);
        let (was_done, at) = ends.get(number).copied().unwrap_or_default();
        known.acknowledged += usize::from(was_done);
        known.open += usize::from(!was_done);
        if let Act::Shared { record } = act {
            known.records.push((record, was_done));
            continue;
        }
        let is_certain = was_done && certain == Certain::WhenAcknowledged;
        if was_done && matches!(act, Act::Fsync { .. }) {
            // The log of the metadata reaches the disk as a whole: what is gone is gone.
            let names = leaving.drain(..).flat_map(|file| file.names);
            known.gone.extend(names.map(|name| (name, 0)));
        }
        if let Some(file) = step(&mut live, &act, was_done, is_certain) {
            if is_certain {
                known.gone.extend(file.names.into_iter().map(|name| (name, at)));
            } else {
                leaving.push(file);
            }
        }
    }
    known.files = live.into_values().chain(leaving).collect();
    known
}

/// Takes one act into account; a file that it removes is answered.
fn step(
    live: &mut BTreeMap<String, File>,
    act: &Act,
    was_done: bool,
    is_certain: bool,
) -> Option<File> {
    let mut file = match act {
        Act::Create { name, seed, length } => File {
            names: vec![name.clone()],
            may_be_gone: !is_certain,
            bytes: noise(*seed, *length),
            fuzzy: (!is_certain).then_some(0..*length).into_iter().collect(),
            sizes: if is_certain { *length..*length + 1 } else { 0..*length + 1 },
        },
        other => live.remove(other.name())?,
    };
    let mut key = act.name().to_owned();
    match act {
        Act::Create { .. } => {}
        Act::Write { seed, offset, length, .. } => {
            file.put(*offset, &noise(*seed, *length), is_certain);
        }
        Act::Append { seed, length, .. } => {
            file.put(file.bytes.len(), &noise(*seed, *length), is_certain);
        }
        Act::Truncate { size, .. } => file.cut(*size, was_done, is_certain),
        Act::Rename { to, .. } => {
            if is_certain {
                file.names = vec![to.clone()];
            } else {
                file.names.push(to.clone());
            }
            if was_done {
                key = to.clone();
            }
        }
        Act::Unlink { .. } => {
            file.may_be_gone = true;
            // Asked for and perhaps not done: nobody touches it any more.
            return Some(file);
        }
        Act::Fsync { .. } if was_done => file.synced(&key),
        Act::Fsync { .. } | Act::Shared { .. } => {}
    }
    live.insert(key, file);
    None
}

impl File {
    fn put(&mut self, offset: usize, bytes: &[u8], is_certain: bool) {
        let (before, end) = (self.bytes.len(), offset + bytes.len());
        self.bytes.resize(before.max(end), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
        if is_certain {
            self.sizes = self.bytes.len()..self.bytes.len() + 1;
        } else {
            self.fuzzy.push(offset.min(before)..end);
            self.sizes = self.sizes.start..self.sizes.end.max(end + 1);
        }
    }

    fn cut(&mut self, size: usize, was_done: bool, is_certain: bool) {
        let before = self.bytes.len();
        if is_certain {
            self.bytes.truncate(size);
            self.sizes = size..size + 1;
            return;
        }
        self.fuzzy.push(size..before);
        self.sizes = self.sizes.start.min(size)..self.sizes.end;
        if was_done {
            // What comes back after a power loss is what was there before.
            self.bytes.truncate(size);
        }
    }

    /// All of it is on the disk, at this name.
    fn synced(&mut self, name: &str) {
        self.names = vec![name.to_owned()];
        self.may_be_gone = false;
        self.fuzzy.clear();
        self.sizes = self.bytes.len()..self.bytes.len() + 1;
    }

    /// What is wrong with these bytes, if anything.
    pub fn mismatch(&self, found: &[u8]) -> Option<String> {
        if !self.sizes.contains(&found.len()) {
            return Some(format!("{} bytes, {:?} wanted", found.len(), self.sizes));
        }
        let is_fuzzy = |at: usize| self.fuzzy.iter().any(|range| range.contains(&at));
        let common = self.bytes.len().min(found.len());
        let wrong = (0..common).find(|&at| found[at] != self.bytes[at] && !is_fuzzy(at))?;
        Some(format!(
            "byte {wrong} of {} is {}, not {}",
            found.len(),
            found[wrong],
            self.bytes[wrong]
        ))
    }
}
