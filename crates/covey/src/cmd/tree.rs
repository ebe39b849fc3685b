//! Whole trees at once: listing one, and doing one thing to many files with several requests in
//! flight.

use super::path::{below, is_kind, kind, shown};
use super::{Context, Session, path::Failures};
use crate::error::Cannot;
use covey_stripe::ops::Inode;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt};

/// Requests in flight for one command.
pub const IN_FLIGHT: usize = 32;

/// A file with its path.
pub type Entry = (Vec<u8>, Inode);

/// A file and everything below it, directories before what they hold. Directories that cannot be
/// read are told and left out.
pub async fn list(
    session: &Session,
    verb: &str,
    top: Entry,
    failures: &mut Failures,
    context: &Context,
) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut ahead = vec![top];
    let mut reading = FuturesUnordered::new();
    loop {
        while reading.len() < IN_FLIGHT {
            let Some(entry) = ahead.pop() else { break };
            if is_kind(&entry.1, kind::DIR) {
                reading.push(read(session, entry.clone()));
            }
            found.push(entry);
        }
        let Some((path, entries)) = reading.next().await else { break };
        match entries.cannot(|| format!("{verb} {}", shown(&path))) {
            Ok(entries) => ahead.extend(entries),
            Err(error) => failures.tell(&error, context),
        }
    }
    found
}

async fn read(
    session: &Session,
    (path, inode): Entry,
) -> (Vec<u8>, super::path::Found<Vec<Entry>>) {
    let entries = session.entries(inode.id).await;
    let entries = entries.map(|entries| {
        let mut entries: Vec<Entry> = entries
            .into_iter()
            .map(|(name, inode)| (below(&path, name.as_bytes()), inode))
            .collect();
        // Taken from the end: the listing's own order is kept.
        entries.reverse();
        entries
    });
    (path, entries)
}

/// Does one thing to each, many at a time; answers what came of each, in the order of the items.
pub async fn each<'a, I, T>(items: Vec<I>, act: impl FnMut(I) -> LocalBoxFuture<'a, T>) -> Vec<T> {
    stream::iter(items).map(act).buffered(IN_FLIGHT).collect().await
}
