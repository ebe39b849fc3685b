//! The paths of the files on the page. They are found by a walk of the directories, which loads the metadata server: so what
//! was found is remembered for a while, and walks are short and far between.

use crate::cmd::stats::paths::{Found, find_in};
use covey_stripe::client::Fs;
use covey_stripe::ops::Id;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How long one walk may take.
const WALK: Duration = Duration::from_secs(1);
/// No other walk begins for this many times as long as the last one took.
const REST: u32 = 10;
/// How long a path, or that none was found, is taken to hold.
const HOLDS: Duration = Duration::from_secs(60);

/// When a file was looked for, and its path if it was found.
type Known = (Instant, Option<Vec<u8>>);

/// What is known of paths.
#[derive(Default)]
pub struct Paths {
    known: RefCell<BTreeMap<Id, Known>>,
    rests_until: Cell<Option<Instant>>,
}

impl Paths {
    /// A path of each of these files, as far as they are known or found now in a session.
    pub async fn find(&self, fs: &Fs, wanted: &BTreeSet<Id>) -> Found {
        let begun = Instant::now();
        let is_known = |id: &Id| {
            self.known.borrow().get(id).is_some_and(|(at, _)| begun.duration_since(*at) < HOLDS)
        };
        let unknown: BTreeSet<Id> = wanted.iter().copied().filter(|id| !is_known(id)).collect();
        let rests = self.rests_until.get().is_some_and(|until| begun < until);
        if !unknown.is_empty() && !rests {
            let mut found = Found::new();
            find_in(fs, unknown.clone(), begun + WALK, &mut found).await;
            let looked = unknown.into_iter().map(|id| (id, (begun, found.remove(&id))));
            self.known.borrow_mut().extend(looked);
            self.rests_until.set(Some(Instant::now() + begun.elapsed() * REST));
        }
        let mut known = self.known.borrow_mut();
        known.retain(|id, _| wanted.contains(id));
        let path = |(id, (_, path)): (&Id, &Known)| Some((*id, path.clone()?));
        known.iter().filter_map(path).collect()
    }
}
