//! What a node says to the one below it, on the control file of the session there.
//!
//! ```text
//!   Begin  fan-out, the rest of the group, manifest   ──►  done: the files are made
//!   Report                                            ──►  when all chunks are here and the rest is served
//!   Chunk  number, hash, bytes                        ──►  done: checked and kept
//! ```

use super::Failure;
use super::manifest::{self, Manifest};
use covey_ninep::control::refuse;
use covey_ninep::tree::{Errno, Result};
use covey_wire::Bytes;
use sha2::{Digest, Sha256};

/// The hash of a chunk (SHA-256), made by the node that the session was on first.
pub type Hash = [u8; 32];

/// The hash of these bytes.
pub fn hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// An attempt to bring a session to a node. A node that was taken for dead may go on later: what it then sends to those
/// below it must not take the place of what another has brought them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which spread: another number each time.
    pub spread: u64,
    /// At each level from the first node, how many heads had failed before.
    pub attempts: Vec<u32>,
}

impl Turn {
    /// The beginning of a spread.
    pub fn first(spread: u64) -> Turn {
        Turn { spread, attempts: Vec::new() }
    }

    /// That of the level below, after so many heads that failed.
    #[must_use]
    pub fn after(&self, failed: u32) -> Turn {
        let mut attempts = self.attempts.clone();
        attempts.push(failed);
        Turn { spread: self.spread, attempts }
    }

    /// Whether this is what the other has superseded, or the other itself.
    pub fn is_superseded_by(&self, other: &Turn) -> bool {
        self.spread == other.spread && self.attempts <= other.attempts
    }

    fn text(&self) -> String {
        let attempts: Vec<String> = self.attempts.iter().map(u32::to_string).collect();
        format!("{} {}", self.spread, attempts.join(" "))
    }

    fn read(text: &str) -> Option<Turn> {
        let mut numbers = text.split(' ').filter(|word| !word.is_empty());
        let spread = numbers.next()?.parse().ok()?;
        let attempts = numbers.map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>()?;
        (attempts.len() <= LEVELS_MAX).then_some(Turn { spread, attempts })
    }
}

/// A chain, at its longest.
const LEVELS_MAX: usize = super::DESTINATIONS_MAX + 2;

/// A question to the node below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A session comes.
    Begin {
        /// How many copies a node makes at most.
        fan_out: usize,
        /// Whom the node below serves in turn: `NODE/SESSION`.
        rest: Vec<String>,
        /// Which attempt of which spread it is.
        turn: Turn,
        /// What comes.
        manifest: Manifest,
    },
    /// A part of its bytes.
    Chunk {
        /// Which.
        index: usize,
        /// What the bytes must hash to.
        hash: Hash,
        /// Its bytes.
        data: Bytes,
    },
    /// Who of the rest was not served, and why.
    Report,
    /// What it has, as [`sum`] makes it. Asked by the root: the hash of a chunk comes by the same nodes as the chunk.
    Sum,
}

/// One hash of what is spread: of the manifest, and of the hashes of its chunks.
pub fn sum(manifest: &Manifest, chunks: &[Hash]) -> Hash {
    let mut sum = Sha256::new();
    sum.update(hash(&manifest::join(&manifest.encode())));
    chunks.iter().for_each(|chunk| sum.update(chunk));
    sum.finalize().into()
}

impl Question {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        match self {
            Question::Begin { fan_out, rest, turn, manifest } => {
                let mut words = vec![b"spread".to_vec(), fan_out.to_string().into()];
                words.push(rest.join(",").into());
                words.push(turn.text().into());
                words.extend(manifest.encode());
                manifest::join(&words).into()
            }
            Question::Chunk { index, hash, data } => {
                let mut out = Vec::with_capacity(CHUNK_HEAD + data.len());
                out.push(CHUNK);
                out.extend((*index as u64).to_le_bytes());
                out.extend(hash);
                out.extend_from_slice(data);
                out.into()
            }
            Question::Report => Bytes::from_static(&[REPORT]),
            Question::Sum => Bytes::from_static(&[SUM]),
        }
    }

    /// A question from the node above.
    pub fn decode(body: Bytes) -> Result<Question> {
        match body.first() {
            Some(&REPORT) if body.len() == 1 => Ok(Question::Report),
            Some(&SUM) if body.len() == 1 => Ok(Question::Sum),
            Some(&CHUNK) => {
                let Some((number, rest)) = body[1..].split_first_chunk() else { return odd() };
                let Some((hash, _)) = rest.split_first_chunk() else { return odd() };
                let index =
                    usize::try_from(u64::from_le_bytes(*number)).map_err(|_| Errno::EINVAL)?;
                Ok(Question::Chunk { index, hash: *hash, data: body.slice(CHUNK_HEAD..) })
            }
            _ => begin(&body),
        }
    }
}

fn begin(body: &[u8]) -> Result<Question> {
    let words = manifest::split(body)?;
    let [first, fan_out, rest, turn, manifest @ ..] = &words[..] else { return odd() };
    let fan_out = String::from_utf8_lossy(fan_out).parse();
    let (b"spread", Ok(fan_out)) = (&first[..], fan_out) else { return odd() };
    let rest = super::destinations(&String::from_utf8_lossy(rest))?;
    let Some(turn) = Turn::read(&String::from_utf8_lossy(turn)) else { return odd() };
    Ok(Question::Begin { fan_out, rest, turn, manifest: Manifest::decode(manifest)? })
}

fn odd<T>() -> Result<T> {
    refuse("a message from another node's launcher is cut off or of another version")
}

/// The answer to [`Question::Report`]: nothing when all were served.
pub fn encode_failures(failures: &[Failure]) -> Bytes {
    let words: Vec<Vec<u8>> = failures
        .iter()
        .flat_map(|failure| [failure.destination.clone().into(), failure.reason.clone().into()])
        .collect();
    manifest::join(&words).into()
}

/// See [`encode_failures`].
pub fn decode_failures(body: &[u8]) -> Result<Vec<Failure>> {
    let words = manifest::split(body)?;
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let failure = |two: &[Vec<u8>]| Failure { destination: text(&two[0]), reason: text(&two[1]) };
    match words.len() % 2 {
        0 => Ok(words.chunks_exact(2).map(failure).collect()),
        _ => odd(),
    }
}

/// No text begins with these.
const CHUNK: u8 = 1;
const REPORT: u8 = 2;
const SUM: u8 = 3;
const CHUNK_HEAD: usize = 1 + 8 + 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_attempt_supersedes_those_before_it_at_every_level() {
        let first = Turn::first(1);
        let (dead, below) = (first.after(0), first.after(0).after(4));
        let (next, beside) = (first.after(1), first.after(1).after(0));
        for old in [&dead, &below] {
            for new in [&next, &beside] {
                assert!(old.is_superseded_by(new) && !new.is_superseded_by(old));
            }
        }
        assert!(below.is_superseded_by(&below), "it comes once");
        assert!(!below.is_superseded_by(&Turn::first(2).after(9)), "another spread");
    }

    #[test]
    fn questions_are_read_back() {
        let questions = [
            Question::Begin {
                fan_out: 3,
                rest: vec!["a/1".into(), "b/22".into()],
                turn: Turn::first(7).after(0).after(3),
                manifest: Manifest { id: "1/2".into(), ..Manifest::default() },
            },
            Question::Begin {
                fan_out: 1,
                rest: vec![],
                turn: Turn::first(u64::MAX),
                manifest: Manifest::default(),
            },
            Question::Chunk { index: 7, hash: hash(b"quail"), data: Bytes::from_static(b"quail") },
            Question::Report,
            Question::Sum,
        ];
        for question in questions {
            assert_eq!(Question::decode(question.encode()).unwrap(), question);
        }
        for wrong in [&b""[..], b"\x01123", b"\x02x", b"spread", b"spread x '' '' '' '' ''"] {
            assert!(Question::decode(Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
        let failures = [Failure { destination: "n/1".into(), reason: "it's gone".into() }];
        assert_eq!(decode_failures(&encode_failures(&failures)).unwrap(), failures);
        assert_eq!(decode_failures(&encode_failures(&[])).unwrap(), []);
    }
}
