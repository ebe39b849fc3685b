//! All entries of a directory at once.

use super::{Fs, Listing};
use crate::error::{Error, Result};
use crate::ops::{Caller, DirEntry, Id};

impl Fs {
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
