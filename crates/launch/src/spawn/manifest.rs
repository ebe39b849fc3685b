//! What is spread: a session's texts and files, as one run of bytes.
//!
//! The manifest names them; the bytes of all files follow one another in its order and are cut into chunks of
//! [`CHUNK_BYTES`]. Sender and receiver keep them in the files themselves: both find the same byte at the
//! same place of the same file.

use crate::session::words;
use covey_ninep::control;
use covey_ninep::tree::{Errno, Result};

/// A session without its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Arguments, environment and the job's id, as their files have them.
    pub argv: Vec<u8>,
    /// See `argv`.
    pub env: Vec<u8>,
    /// See `argv`.
    pub id: String,
    /// What was said with `cwd`.
    pub directory: Option<String>,
    /// Its files.
    pub entries: Vec<Entry>,
}

/// A file of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// Where in the session's directory; empty for the program.
    pub path: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Length of a program or file.
    pub bytes: u64,
}

/// What a file of a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The program: the file `exec`.
    Program,
    /// A file in the session's directory.
    File,
    /// A directory in it.
    Directory,
    /// A symbolic link in it, and its target.
    Link(Vec<u8>),
}

/// A part of a chunk: which entry, from which byte, how many.
pub type Piece = (usize, u64, usize);

impl Manifest {
    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// How many chunks they are.
    pub fn chunks(&self) -> usize {
        self.bytes().div_ceil(CHUNK_BYTES as u64) as usize
    }

    /// Where the bytes of a chunk are.
    pub fn pieces(&self, chunk: usize) -> Vec<Piece> {
        let (mut at, mut left) = (chunk as u64 * CHUNK_BYTES as u64, CHUNK_BYTES as u64);
        let mut pieces = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            if at >= entry.bytes {
                at -= entry.bytes;
                continue;
            }
            let count = left.min(entry.bytes - at);
            pieces.push((index, at, count as usize));
            (at, left) = (0, left - count);
            if left == 0 {
                break;
            }
        }
        pieces
    }

    /// E2BIG for more than may be spread.
    pub fn check(&self) -> Result<()> {
        let too_much = |what: String| Err(Errno::because(Errno::E2BIG, what));
        if self.entries.len() > ENTRIES_MAX {
            return too_much(format!(
                "the session has {} files, at most {ENTRIES_MAX} are spread",
                self.entries.len()
            ));
        }
        match self.entries.iter().try_fold(0u64, |sum, entry| sum.checked_add(entry.bytes)) {
            Some(bytes) if bytes <= BYTES_MAX => Ok(()),
            _ => too_much(format!("the session has more than {BYTES_MAX} bytes")),
        }
    }

    /// Its words, for [`Manifest::decode`].
    pub fn encode(&self) -> Vec<Vec<u8>> {
        let directory = self.directory.clone().unwrap_or_default();
        let mut words =
            vec![self.argv.clone(), self.env.clone(), self.id.clone().into(), directory.into()];
        for entry in &self.entries {
            let (kind, target) = match &entry.kind {
                EntryKind::Program => ("p", Vec::new()),
                EntryKind::File => ("f", Vec::new()),
                EntryKind::Directory => ("d", Vec::new()),
                EntryKind::Link(target) => ("l", target.clone()),
            };
            let numbers = format!("{kind} {} {}", entry.mode, entry.bytes);
            words.extend([numbers.into(), entry.path.clone(), target]);
        }
        words
    }

    /// A manifest from another node. EINVAL for one that leads out of the session's directory.
    pub fn decode(words: &[Vec<u8>]) -> Result<Manifest> {
        let [argv, env, id, directory, entries @ ..] = words else { return odd("it is cut off") };
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        if entries.len() % 3 != 0 {
            return odd("its list of files is cut off");
        }
        let entries = entries.chunks_exact(3).map(|three| entry(&three[0], &three[1], &three[2]));
        let manifest = Manifest {
            argv: argv.clone(),
            env: env.clone(),
            id: text(id),
            directory: Some(text(directory)).filter(|directory| !directory.is_empty()),
            entries: entries.collect::<Result<_>>()?,
        };
        let is_program = |entry: &&Entry| entry.kind == EntryKind::Program;
        if manifest.entries.iter().filter(is_program).count() > 1 {
            return odd("it has two programs");
        }
        manifest.check()?;
        Ok(manifest)
    }
}

fn entry(numbers: &[u8], path: &[u8], target: &[u8]) -> Result<Entry> {
    let numbers = String::from_utf8_lossy(numbers).into_owned();
    let words: Vec<&str> = numbers.split(' ').collect();
    let [kind, mode, bytes] = words[..] else { return odd("a file without numbers") };
    let (Ok(mode), Ok(bytes)) = (mode.parse::<u32>(), bytes.parse::<u64>()) else {
        return odd("a file with odd numbers");
    };
    let kind = match kind {
        "p" => EntryKind::Program,
        "f" => EntryKind::File,
        "d" => EntryKind::Directory,
        "l" => EntryKind::Link(target.to_vec()),
        _ => return odd("a file of an unknown kind"),
    };
    let has_bytes = matches!(kind, EntryKind::Program | EntryKind::File);
    let is_program = kind == EntryKind::Program;
    if is_program != path.is_empty() || !is_program && !is_inside(path) || !has_bytes && bytes > 0 {
        return odd("a file outside the session's directory");
    }
    Ok(Entry { kind, path: path.to_vec(), mode: mode & 0o777, bytes })
}

/// Whether a path has names only, so that nothing leads up.
pub fn is_inside(path: &[u8]) -> bool {
    let is_name = |name: &[u8]| !name.is_empty() && name != b"." && name != b"..";
    !path.contains(&0) && path.len() < 4096 && path.split(|byte| *byte == b'/').all(is_name)
}

fn odd<T>(what: &str) -> Result<T> {
    control::refuse(format!("the description of a session from another node: {what}"))
}

/// Words as one text, and back.
pub(super) fn join(words: &[Vec<u8>]) -> Vec<u8> {
    words::render(words)
}

pub(super) fn split(text: &[u8]) -> Result<Vec<Vec<u8>>> {
    words::parse("a session from another node", text)
}

/// Bytes of a chunk but the last: long enough that a message costs little beside it, short enough that the
/// next node begins soon.
pub const CHUNK_BYTES: usize = 128 << 10;
/// Most files of a session that is spread.
pub const ENTRIES_MAX: usize = 4096;
/// Most bytes.
pub const BYTES_MAX: u64 = 64 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(path: &str, bytes: u64) -> Entry {
        let kind = if path.is_empty() { EntryKind::Program } else { EntryKind::File };
        Entry { kind, path: path.into(), mode: 0o644, bytes }
    }

    #[test]
    fn a_manifest_is_read_back_and_may_not_lead_out() {
        let link = EntryKind::Link(b"../up".to_vec());
        let entries = vec![
            file("", 5),
            Entry { kind: EntryKind::Directory, path: b"d".into(), mode: 0o755, bytes: 0 },
            file("d/two words", 0),
            Entry { kind: link, path: b"l".into(), mode: 0o777, bytes: 0 },
        ];
        let manifest = Manifest {
            argv: b"sh -c 'a''b'".into(),
            env: vec![0xff, b'=', b'\n'],
            id: "1/2".into(),
            directory: Some("/tmp".into()),
            entries,
        };
        let text = join(&manifest.encode());
        assert_eq!(Manifest::decode(&split(&text).unwrap()).unwrap(), manifest);
        for path in ["/etc/x", "../x", "a/../x", "a//x", ".", "a\0b", "", "a/"] {
            let mut wrong = manifest.clone();
            wrong.entries[2].path = path.into();
            wrong.entries[2].kind = EntryKind::File;
            assert!(Manifest::decode(&wrong.encode()).is_err(), "{path:?}");
        }
        let mut huge = manifest.clone();
        huge.entries[0].bytes = u64::MAX;
        huge.entries[2].bytes = u64::MAX;
        assert_eq!(Manifest::decode(&huge.encode()).unwrap_err().code, Errno::E2BIG);
    }

    proptest! {
        #[test]
        fn chunks_have_every_byte_of_every_file_once_and_in_order(
            lengths in proptest::collection::vec(0u64..1_000_000, 0..12),
        ) {
            let entries = lengths.iter().enumerate().map(|(n, bytes)| file(&format!("f{n}"), *bytes));
            let manifest = Manifest { entries: entries.collect(), ..Manifest::default() };
            let mut next = vec![0; lengths.len()];
            for chunk in 0..manifest.chunks() {
                let pieces = manifest.pieces(chunk);
                let bytes: usize = pieces.iter().map(|(_, _, count)| count).sum();
                prop_assert!(bytes == CHUNK_BYTES || chunk + 1 == manifest.chunks());
                for (index, at, count) in pieces {
                    prop_assert_eq!(next[index], at);
                    next[index] += count as u64;
                }
            }
            prop_assert_eq!(next, lengths);
            prop_assert!(manifest.pieces(manifest.chunks()).is_empty());
        }
    }
}
