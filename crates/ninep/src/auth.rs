//! The proof of the cluster key, as pure state: both sides show that they know 32 bytes without
//! sending them.
//!
//! It runs over the authentication file that Tauth opens:
//!
//! ```text
//!   client                                 server
//!   Twrite nonce_c (32)               ──►
//!                                     ◄──  Rread nonce_s (32),
//!                                          HMAC(key, "covey server" nonce_c nonce_s)
//!   (verifies, or gives up)
//!   Twrite HMAC(key,                  ──►  (verifies, or EACCES and the file is dead)
//!     "covey client" nonce_s nonce_c)
//! ```
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
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

const SERVER: &[u8] = b"covey server";
const CLIENT: &[u8] = b"covey client";

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
    key: Key,
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
    /// Awaits the client's nonce. `nonce` must never be used with the key again.
    pub fn new(key: Key, nonce: [u8; NONCE_BYTES]) -> Self {
        Server { key, nonce, state: State::Nonce(Vec::new()) }
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
                let mac = mac(&self.key, [CLIENT, &self.nonce, nonce_client]);
                // Compares in constant time.
                let is_right = mac.verify_slice(&proof).is_ok();
                self.state = if is_right { State::Proven } else { State::Dead };
                if is_right { Ok(()) } else { Err(wrong()) }
            }
            State::Proven => Err(Errno::because(Errno::EINVAL, "the key is proven already")),
            State::Dead => Err(wrong()),
        }
    }

    /// Tread on the file: the server's nonce and proof.
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
        let proof = mac(&self.key, [SERVER, &nonce_client, &self.nonce]).finalize().into_bytes();
        let answer = [&self.nonce[..], &proof[..]].concat().into();
        State::Proof { nonce_client, answer, proof: Vec::new() }
    }
}

/// The client's part: checks the server's answer and makes the proof to write, or EACCES.
pub fn prove(key: &Key, nonce_client: &[u8; NONCE_BYTES], answer: &[u8]) -> Result<Bytes> {
    let refuse = |why: &str| Errno::because(Errno::EACCES, why);
    let (nonce_server, proof) =
        answer.split_at_checked(NONCE_BYTES).ok_or_else(|| refuse("server's proof is short"))?;
    mac(key, [SERVER, nonce_client, nonce_server])
        .verify_slice(proof)
        .map_err(|_| refuse("the cluster keys here and at the server differ"))?;
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
