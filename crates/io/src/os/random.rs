//! Randomness from the kernel, for keys, nonces and ids.

use std::io;

/// `N` bytes that nobody can guess.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut out = [0; N];
    getrandom::fill(&mut out).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(out)
}

/// 32 such bytes: a key or a nonce.
pub fn nonce() -> io::Result<[u8; 32]> {
    bytes()
}
