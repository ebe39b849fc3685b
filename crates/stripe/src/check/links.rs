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
    /// Compares the links of all files below `end`, a window of files at a time.
    pub(super) async fn links(&mut self, end: Id) -> Result<()> {
        let mut low = ROOT;
        while low < end {
            let window = self.window(low, end).await?;
            let Some(last) = window.last() else { return Ok(()) };
            let high = last.id + 1;
            let mut counts = vec![0u32; window.len()];
            self.count_links(low, high, |id| {
                if let Ok(at) = window.binary_search_by_key(&id, |brief| brief.id) {
                    counts[at] += 1;
                }
            })
            .await?;
            let judged = window.iter().zip(&counts);
            let wrong = judged.filter(|(brief, links)| !fits(brief, **links));
            let suspects = wrong.map(|(brief, _)| (brief.id, 0)).take(SUSPECTS_MAX).collect();
            self.judge(low, high, suspects).await?;
            low = high;
        }
        Ok(())
    }

    /// The next files, in the order of their numbers. What is made from now on is not among them.
    async fn window(&self, low: Id, end: Id) -> Result<Vec<Brief>> {
        let (mut window, mut after) = (Vec::new(), Name::EMPTY);
        loop {
            let page = self.page(table::BRIEFS, after, (low, end)).await?;
            window.extend(page.briefs.0);
            if page.end || window.len() as u64 >= self.options.window {
                return Ok(window);
            }
            after = page.next;
        }
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
