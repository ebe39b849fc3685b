//! How many names lead to each file, counted for a window of files at a time.

use super::pages::TRIES;
use super::{Access, Check, Result, finding};
use crate::ops::check::{Brief, Class, table};
use crate::ops::{Id, ROOT};
use covey_wire::Name;
use std::collections::BTreeMap;

/// Suspects of one window that are looked at again; those beyond are found by the next check.
const SUSPECTS_MAX: usize = 4096;

impl<A: Access> Check<'_, A> {
    /// Compares the links of all files below `end`.
    pub(super) async fn links(&mut self, end: Id) -> Result<()> {
        let mut low = ROOT;
        while low < end {
            // What is made from now on is not in the window.
            let high = low.saturating_add(self.options.window).min(end);
            self.window(low, high).await?;
            low = high;
        }
        Ok(())
    }

    async fn window(&mut self, low: Id, high: Id) -> Result<()> {
        let mut counts = vec![0u32; (high - low) as usize];
        self.count_links(low, high, |id| counts[(id - low) as usize] += 1).await?;
        let mut suspects = BTreeMap::new();
        let mut after = Name::EMPTY;
        loop {
            let page = self.page(table::BRIEFS, after, (low, high)).await?;
            for brief in page.briefs.0 {
                let links = counts[(brief.id - low) as usize];
                if !fits(&brief, links) && suspects.len() < SUSPECTS_MAX {
                    suspects.insert(brief.id, 0);
                }
            }
            if page.end {
                break;
            }
            after = page.next;
        }
        self.judge(low, high, suspects).await
    }

    /// Counts the names that lead to the suspects until what is counted did not change meanwhile.
    async fn judge(&mut self, low: Id, high: Id, mut suspects: BTreeMap<Id, u32>) -> Result<()> {
        for _ in 0..TRIES {
            if suspects.is_empty() {
                return Ok(());
            }
            let before = self.briefs(&suspects).await?;
            suspects.values_mut().for_each(|count| *count = 0);
            self.count_links(low, high, |id| {
                if let Some(count) = suspects.get_mut(&id) {
                    *count += 1;
                }
            })
            .await?;
            for (id, brief) in self.briefs(&suspects).await? {
                if before.get(&id).is_none_or(|before| before.version != brief.version) {
                    continue;
                }
                let links = suspects.remove(&id).unwrap_or_default();
                if !fits(&brief, links) {
                    self.wrong_links(&brief, links).await;
                }
            }
            // Those that are gone are nobody's business.
            let still = self.briefs(&suspects).await?;
            suspects.retain(|id, _| still.contains_key(id));
        }
        self.report.busy += suspects.len() as u64;
        Ok(())
    }

    async fn wrong_links(&mut self, brief: &Brief, links: u32) {
        let class = if links == 0 { Class::Unreachable } else { Class::WrongLinks };
        let mut one = finding(class, brief.id);
        (one.found, one.wanted) = (u64::from(brief.nlink), u64::from(links));
        one.version = brief.version;
        // A directory with two names: which of them is right, its parent says, and that is found
        // from the name.
        if !brief.is_dir || links == 0 {
            self.found(one).await;
        }
    }

    async fn briefs(&self, suspects: &BTreeMap<Id, u32>) -> Result<BTreeMap<Id, Brief>> {
        let ids: Vec<Id> = suspects.keys().copied().collect();
        let (files, _) = self.look(&ids).await?;
        let brief = |inode: crate::ops::Inode| {
            let (nlink, is_dir, version) = (inode.nlink, inode.is_dir(), inode.version);
            (inode.id, Brief { id: inode.id, nlink, is_dir, version })
        };
        Ok(files.into_iter().filter_map(|looked| looked.inode.map(brief)).collect())
    }

    async fn count_links(&self, low: Id, high: Id, mut count: impl FnMut(Id)) -> Result<()> {
        let mut after = Name::EMPTY;
        loop {
            let page = self.page(table::LINKS, after, (low, high)).await?;
            page.links.0.into_iter().filter(|id| (low..high).contains(id)).for_each(&mut count);
            if page.end {
                return Ok(());
            }
            after = page.next;
        }
    }
}

/// Whether so many names are right. A directory has one; its links count other things.
fn fits(brief: &Brief, links: u32) -> bool {
    match (brief.id, brief.is_dir) {
        (ROOT, _) => links == 0,
        (_, true) => links == u32::from(brief.nlink > 0),
        _ => links == brief.nlink,
    }
}
