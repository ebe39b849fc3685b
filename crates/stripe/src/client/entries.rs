//! Listings of directories, page by page or at once.

use super::session::{REFUSED, unexpected};
use super::small::REQUEST_BYTES;
use super::{Fs, Listing, Page};
use crate::distribution::INLINE_BYTES_DEFAULT;
use crate::error::{Error, Result};
use crate::ops::{Caller, DirEntry, Id, Op, Reply};
use covey_ninep::tree::Errno;

impl Fs {
    /// Entries after `cookie` (0: from the start, `.` and `..` first) up to `limit` (0 on the first call).
    pub async fn readdir(
        &self,
        who: &Caller,
        id: Id,
        cookie: u64,
        limit: u64,
        bytes_max: u32,
        listing: Listing,
    ) -> Result<Page> {
        let plus = listing == Listing::Inodes;
        // What comes with later pages would be old when it is read.
        if plus
            && cookie == 0
            && let Some(room) = self.room_beside_contents()
        {
            let (bytes_max, contents) = (bytes_max.min(room), room);
            let op = Op::ListContents { id, cookie, limit, bytes_max, contents };
            match self.ask(who, op).await {
                Ok(Reply::Listed { entries, end, limit, .. }) => {
                    return Ok(Page { entries: entries.0, end, limit });
                }
                Ok(other) => return Err(unexpected(&other)),
                // It says the same of what it does know.
                Err(error) if error.is_unknown() => {
                    let until = self.shared.net.now() + REFUSED;
                    self.shared.session.cache().refuses_contents(until);
                }
                // A new connection takes less.
                Err(error) if error.code() == Errno::EOVERFLOW => {}
                Err(error) => return Err(error),
            }
        }
        match self.ask(who, Op::Readdir { id, cookie, limit, bytes_max, plus }).await? {
            Reply::Entries { entries, end, limit } => Ok(Page { entries: entries.0, end, limit }),
            other => Err(unexpected(&other)),
        }
    }

    /// Bytes that a listing has room for where what small files hold is wanted with it, which has as much.
    fn room_beside_contents(&self) -> Option<u32> {
        let session = &self.shared.session;
        let is_wanted = session.cache().wants_contents(self.shared.net.now());
        let room = session.payload_max().saturating_sub(REQUEST_BYTES) / 2;
        (is_wanted && room >= INLINE_BYTES_DEFAULT).then_some(room)
    }

    /// All entries of a directory without `.` and `..`, with their inodes, in the server's order.
    pub async fn entries(&self, who: &Caller, dir: Id) -> Result<Vec<DirEntry>> {
        let (mut entries, mut cookie, mut limit) = (Vec::new(), 0, 0);
        loop {
            let page = self.readdir(who, dir, cookie, limit, PAGE_BYTES, Listing::Inodes).await?;
            limit = page.limit;
            let Some(last) = page.entries.last() else { return Ok(entries) };
            // A server that goes backwards would keep us here for ever.
            if last.cookie <= cookie {
                return Err(Error::Odd("the directory's cookies do not grow".into()));
            }
            cookie = last.cookie;
            for entry in page.entries {
                match entry.name.as_bytes() {
                    b"." | b".." => {}
                    // A name with a slash would lead elsewhere when it is used as a path.
                    odd if odd.is_empty() || odd.contains(&b'/') => {
                        return Err(Error::Odd("the directory holds an impossible name".into()));
                    }
                    _ => entries.push(entry),
                }
            }
            if page.end {
                return Ok(entries);
            }
        }
    }
}

/// Bytes of one page of a directory.
const PAGE_BYTES: u32 = 256 << 10;
