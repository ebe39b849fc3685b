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

/// A question to the node below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A session comes.
    Begin {
        /// How many copies a node makes at most.
        fan_out: usize,
        /// Whom the node below serves in turn: `NODE/SESSION`.
        rest: Vec<String>,
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
}

impl Question {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        match self {
            Question::Begin { fan_out, rest, manifest } => {
                let mut words = vec![b"spread".to_vec(), fan_out.to_string().into()];
                words.push(rest.join(",").into());
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
        }
    }

    /// A question from the node above.
    pub fn decode(body: Bytes) -> Result<Question> {
        match body.first() {
            Some(&REPORT) if body.len() == 1 => Ok(Question::Report),
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
    let [first, fan_out, rest, manifest @ ..] = &words[..] else { return odd() };
    let fan_out = String::from_utf8_lossy(fan_out).parse();
    let (b"spread", Ok(fan_out)) = (&first[..], fan_out) else { return odd() };
    let rest = super::destinations(&String::from_utf8_lossy(rest))?;
    Ok(Question::Begin { fan_out, rest, manifest: Manifest::decode(manifest)? })
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
const CHUNK_HEAD: usize = 1 + 8 + 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_back() {
        let questions = [
            Question::Begin {
                fan_out: 3,
                rest: vec!["a/1".into(), "b/22".into()],
                manifest: Manifest { id: "1/2".into(), ..Manifest::default() },
            },
            Question::Begin { fan_out: 1, rest: vec![], manifest: Manifest::default() },
            Question::Chunk { index: 7, hash: hash(b"quail"), data: Bytes::from_static(b"quail") },
            Question::Report,
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
