//! Every row once, and the entries of each directory.

use super::{Access, Check, Result, finding, odd};
use crate::meta::ENTRY_BYTES;
use crate::ops::check::{Class, Looked, Page, Tally, table};
use crate::ops::{Id, Nanos, Op, Reply};
use covey_wire::{List, Name};

/// How often something that changes while it is counted is counted again.
pub(super) const TRIES: usize = 5;

/// A directory's entries as counted so far.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    tally: Tally,
    /// Its version was the same on all pages.
    is_steady: bool,
}

impl<A: Access> Check<'_, A> {
    /// All rows; answers the number after the highest file's.
    pub(super) async fn rows(&mut self) -> Result<Id> {
        let (mut after, mut counting) = (Name::EMPTY, None);
        loop {
            let page = self.page(table::ALL, after, (0, 0)).await?;
            self.report.rows += page.rows;
            for finding in page.findings.0 {
                self.found(finding).await;
            }
            for tally in page.tallies.0 {
                if let Some(done) = count(&mut counting, tally) {
                    self.entries(done).await?;
                }
            }
            if page.end {
                if let Some(done) = counting {
                    self.entries(done).await?;
                }
                if let Some(census) = page.census {
                    self.report.files = census.files;
                    let files = census.files.wrapping_sub(census.files_kept);
                    let bytes = census.bytes.wrapping_sub(census.bytes_kept);
                    if (files, bytes) != (0, 0) {
                        let mut one = finding(Class::WrongTotals, 0);
                        (one.found, one.wanted) = (files, bytes);
                        self.found(one).await;
                    }
                }
                return Ok(page.id_next);
            }
            after = page.next;
        }
    }

    /// One directory's entries are counted.
    async fn entries(&mut self, mut counted: Counted) -> Result<()> {
        for _ in 0..TRIES {
            let Tally { id, entries, dirs, size, nlink, version } = counted.tally;
            let fits = (size, u64::from(nlink)) == (entries * ENTRY_BYTES, dirs + 2);
            if counted.is_steady && fits {
                return Ok(());
            }
            let again = match self.count_again(id).await? {
                Some(again) => again,
                None => return Ok(()),
            };
            if counted.is_steady && again.is_steady && again.tally == counted.tally {
                let mut one = finding(Class::WrongEntries, id);
                (one.found, one.wanted, one.version) = (size, entries * ENTRY_BYTES, version);
                if one.found != one.wanted {
                    self.found(one.clone()).await;
                }
                one.class = Class::WrongLinks as u8;
                (one.found, one.wanted) = (u64::from(nlink), dirs + 2);
                if one.found != one.wanted {
                    self.found(one).await;
                }
                return Ok(());
            }
            counted = again;
        }
        self.report.busy += 1;
        Ok(())
    }

    async fn count_again(&mut self, id: Id) -> Result<Option<Counted>> {
        let (mut after, mut counting) = (Name::EMPTY, None);
        loop {
            let page = self.page(table::TALLY, after, (id, id + 1)).await?;
            for tally in page.tallies.0 {
                count(&mut counting, tally);
            }
            if page.end {
                return Ok(counting);
            }
            after = page.next;
        }
    }

    pub(super) async fn page(&self, table: u8, after: Name, of: (Id, Id)) -> Result<Page> {
        let (low, high) = of;
        let op = Op::Check { table, after, rows_max: self.options.rows, low, high };
        match self.access.ask(op).await? {
            Reply::Checked { page } => Ok(page),
            _ => Err(odd("Check")),
        }
    }

    pub(super) async fn look(&self, ids: &[Id]) -> Result<(Vec<Looked>, Nanos)> {
        match self.access.ask(Op::Look { ids: List(ids.to_vec()) }).await? {
            Reply::Looked { files, now } if files.0.len() == ids.len() => Ok((files.0, now)),
            _ => Err(odd("Look")),
        }
    }
}

/// Puts a page's tally to what is counted already; answers the directory before, when it is another.
fn count(counting: &mut Option<Counted>, tally: Tally) -> Option<Counted> {
    match counting {
        Some(counted) if counted.tally.id == tally.id => {
            counted.is_steady &= counted.tally.version == tally.version;
            let (entries, dirs) = (counted.tally.entries, counted.tally.dirs);
            counted.tally = tally;
            counted.tally.entries += entries;
            counted.tally.dirs += dirs;
            None
        }
        _ => counting.replace(Counted { tally, is_steady: true }),
    }
}
