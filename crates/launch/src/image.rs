//! Images for machines that boot: served as files, and passed on by those who are still receiving them.
//!
//! A server offers each image as a directory. Who fetches one reads its sums, asks whom to read it from, and at
//! once serves what it has to others: as many as [`Limits::readers`] read from each, and so many machines are
//! served at the cost of a few copies. After Xbootfs, whose four files these are; sums, resuming, and the choice
//! by progress are ours.
//!
//! ```text
//!   IMAGE/ARCH/data    the bytes; a read beyond those that have arrived is held until they have
//!              sum     the hash of the image and of each chunk, see Sum
//!              redir   read: "[help SECONDS ]SOURCE 0", SOURCE is "me" or "HOST!PORT"; held while all are busy.
//!                      Kept open, it keeps the reader's place there; read again, it names another source;
//!                      written: "bad WHY", of the source that it has named
//!              avail   written and kept open: "PORT SECONDS [BYTES]", a volunteer serves these bytes for so long
//!   log                what was found wrong with volunteers
//! ```
//!
//! ```text
//!   fetch ── sum, redir, avail ──► Images (the first server: everything)     Roster: who serves, how many read
//!     │ └─── data ──► Images (a volunteer: what has arrived)                         from whom
//!     └──► Image::arrived ──► its own Images, for others
//! ```
//!
//! What always holds: a chunk is passed on, and written, only when its hash is right, so whoever sends wrong bytes
//! is the one who made them wrong; a client reads in order and holds at most [`CHUNKS_AHEAD`] chunks in memory;
//! an image that is replaced goes on under the files that hold it.

mod fetch;
mod held;
mod place;
mod roster;
mod source;
mod sum;
mod tree;

pub use fetch::{CHUNKS_AHEAD, Event, Failure, Host, Report, Want, fetch};
pub use held::{Content, Image};
pub use place::Source;
pub use roster::{Limits, Roster};
pub use sum::{Digest, IMAGE_BYTES_MAX, SUM_BYTES_MAX, Sum, Summer, hex, parse_hex};
pub use tree::{Catalogue, Images, Library, World};

use sha2::{Digest as _, Sha256};
use std::future::Future;
use std::pin::Pin;

/// A future of the thread that asks.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// The key to images and to nothing else, made from the cluster's: machines that boot are given it.
pub fn token(cluster_key: &[u8; 32]) -> [u8; 32] {
    // The input has one length, so no other input has this beginning.
    let hash = Sha256::new().chain_update(b"covey image token\0").chain_update(cluster_key);
    hash.finalize().into()
}

/// The user name that says in Tauth that the token is meant.
pub const TOKEN_USER: &str = "image";
/// Where a node serves its images.
pub const TREE: &str = "/boot";
