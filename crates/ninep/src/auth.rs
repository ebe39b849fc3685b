//! The proof of the cluster key, as pure state: both sides show that they know 32 bytes without
//! sending them.
//!
//! It runs over the authentication file that Tauth opens:
//!
//! ```text
//!   client                                 server
//!   Twrite nonce_c (32)               ──►
//!                                     ◄──  Rread nonce_s (32),
//!                                          HMAC(key, "covey server" nonce_c nonce_s),
//!                                          the same with the other key, while there are two
//!   (verifies, or gives up)
//!   Twrite HMAC(key,                  ──►  (verifies, or EACCES and the file is dead)
//!     "covey client" nonce_s nonce_c)
//! ```
//!
//! While a cluster's key is replaced a server takes two: it shows a proof of each, the first for those who read one
//! only, and the client answers with the key that it has.
//!
//! HMAC is HMAC-SHA256. The two labels keep one side's proof from serving as the other's; both
//! nonces in both proofs keep a proof from serving twice. Nonces are arguments: nothing here makes
//! random numbers.

use crate::tree::{Errno, Result};
use covey_wire::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The cluster key.
pub type Key = [u8; 32];
/// The keys that a server takes: the cluster's, and the one before or after it while it is being replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRing {
    /// The key that is proven first.
    pub now: Key,
    /// The other one.
    pub other: Option<Key>,
}

/// The most keys that a server takes.
pub const KEYS_MAX: usize = 2;

impl KeyRing {
    /// The keys, the first first.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.now).chain(&self.other)
    }

    /// What is made of each key.
    #[must_use]
    pub fn map(&self, make: impl Fn(&Key) -> Key) -> KeyRing {
        KeyRing { now: make(&self.now), other: self.other.as_ref().map(make) }
    }
}

impl From<Key> for KeyRing {
    fn from(now: Key) -> KeyRing {
        KeyRing { now, other: None }
    }
}

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

const SERVER: &[u8] = b"covey server";
const CLIENT: &[u8] = b"covey client";

/// By which people tell keys apart; it says nothing of the key that could be used.
pub fn fingerprint(key: &Key) -> String {
    let hash = Sha256::new().chain_update(b"covey key\0").chain_update(key).finalize();
    hash[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(key: &Key, parts: [&[u8]; 3]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// A nonce for the `index`th authentication file of a connection whose own nonce is `nonce`.
pub fn derive_nonce(nonce: &[u8; NONCE_BYTES], index: u64) -> [u8; NONCE_BYTES] {
    Sha256::new().chain_update(nonce).chain_update(index.to_le_bytes()).finalize().into()
}

/// The server's side of one authentication file.
pub struct Server {
    keys: KeyRing,
    nonce: [u8; NONCE_BYTES],
    state: State,
}

enum State {
    /// Taking the client's nonce.
    Nonce(Vec<u8>),
    /// Showing the answer, taking the client's proof.
    Proof { nonce_client: [u8; NONCE_BYTES], answer: Bytes, proof: Vec<u8> },
    /// The client knows the key.
    Proven,
    /// It does not. Nothing more is done with this file.
    Dead,
}

impl Server {
    /// Awaits the client's nonce. `nonce` must never be used with the keys again.
    pub fn new(keys: impl Into<KeyRing>, nonce: [u8; NONCE_BYTES]) -> Self {
        Server { keys: keys.into(), nonce, state: State::Nonce(Vec::new()) }
    }

    /// Twrite on the file. Parts may come in pieces, in order; offsets mean nothing.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        match &mut self.state {
            State::Nonce(nonce) => {
                if let Some(nonce_client) = filled(nonce, data)? {
                    self.state = self.answer(nonce_client);
                }
                Ok(())
            }
            State::Proof { nonce_client, proof, .. } => {
                let Some(proof) = filled(proof, data)? else { return Ok(()) };
                let is_by = |key| {
                    // Compares in constant time.
                    mac(key, [CLIENT, &self.nonce, nonce_client]).verify_slice(&proof).is_ok()
                };
                let is_right = self.keys.keys().any(is_by);
                self.state = if is_right { State::Proven } else { State::Dead };
                if is_right { Ok(()) } else { Err(wrong()) }
            }
            State::Proven => Err(Errno::because(Errno::EINVAL, "the key is proven already")),
            State::Dead => Err(wrong()),
        }
    }

    /// Tread on the file: the server's nonce and its proofs.
    pub fn read(&self, offset: u64, count: u32) -> Result<Bytes> {
        match &self.state {
            State::Nonce(_) => {
                Err(Errno::because(Errno::EINVAL, "the client's nonce has not been written"))
            }
            State::Proof { answer, .. } => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(answer.len());
                let end = start.saturating_add(count as usize).min(answer.len());
                Ok(answer.slice(start..end))
            }
            State::Proven => Ok(Bytes::new()),
            State::Dead => Err(wrong()),
        }
    }

    /// Whether the client has proven the key.
    pub fn is_proven(&self) -> bool {
        matches!(self.state, State::Proven)
    }

    fn answer(&self, nonce_client: [u8; NONCE_BYTES]) -> State {
        let mut answer = self.nonce.to_vec();
        for key in self.keys.keys() {
            let mac = mac(key, [SERVER, &nonce_client, &self.nonce]);
            answer.extend_from_slice(&mac.finalize().into_bytes());
        }
        State::Proof { nonce_client, answer: answer.into(), proof: Vec::new() }
    }
}

/// The client's part: checks the server's answer and makes the proof to write, or EACCES.
pub fn prove(key: &Key, nonce_client: &[u8; NONCE_BYTES], answer: &[u8]) -> Result<Bytes> {
    let refuse = |why: &str| Errno::because(Errno::EACCES, why);
    let (nonce_server, proofs) =
        answer.split_at_checked(NONCE_BYTES).ok_or_else(|| refuse("server's proof is short"))?;
    let own = mac(key, [SERVER, nonce_client, nonce_server]);
    let is_own = |proof: &[u8]| own.clone().verify_slice(proof).is_ok();
    if !proofs.chunks(PROOF_BYTES).take(KEYS_MAX).any(is_own) {
        return Err(refuse("the cluster keys here and at the server differ"));
    }
    let proof = mac(key, [CLIENT, nonce_server, nonce_client]).finalize().into_bytes();
    Ok(Bytes::copy_from_slice(&proof))
}

fn filled(part: &mut Vec<u8>, data: &[u8]) -> Result<Option<[u8; 32]>> {
    if part.len() + data.len() > 32 {
        return Err(Errno::because(Errno::EINVAL, "nonce and proof are 32 bytes each"));
    }
    part.extend_from_slice(data);
    Ok(part.as_slice().try_into().ok())
}

fn wrong() -> Errno {
    Errno::because(Errno::EACCES, "its cluster key is another one")
}
