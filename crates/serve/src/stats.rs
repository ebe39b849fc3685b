//! Counters of a server, read through its tree's `stats` file.

use std::cell::Cell;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Counts `amount` more.
    pub fn add(&self, amount: u64) {
        self.0.set(self.0.get().wrapping_add(amount));
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.0.set(0);
    }

    /// The count.
    pub fn value(&self) -> u64 {
        self.0.get()
    }
}

macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $name { $($(#[$doc])* pub $field: Counter),* }

        impl $name {
            /// Names and values in the order of their declaration.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field.value())),*]
            }
        }
    };
}

counters! {
    /// What a data server counts.
    pub struct DataCounters {
        /// Read requests.
        reads,
        /// Bytes asked for.
        bytes_read,
        /// Write requests.
        writes,
        /// Bytes taken.
        bytes_written,
        /// Objects synced.
        fsyncs,
        /// Objects removed.
        objects_removed,
    }
}

counters! {
    /// What a metadata server counts.
    pub struct MetaCounters {
        /// Operations in all.
        operations,
        /// Operations that were logged.
        logged,
        /// Writes of the log: operations that came together share one.
        log_writes,
        /// Syncs of the log asked for by fsync.
        fsyncs,
        /// Times the store was brought to disk and the log begun anew.
        checkpoints,
        /// Truncations carried to the data servers.
        cuts,
        /// Files whose objects were removed.
        reclaimed,
        /// Objects without a file that were found and removed.
        orphan_objects,
        /// Sessions that ended because their client was gone for longer than the grace.
        sessions_expired,
    }
}

/// How long the log and the checkpoints of a metadata server take.
#[derive(Default)]
pub struct MetaTimes {
    /// Writing a batch to the log.
    pub log_write: super::watch::Histogram,
    /// Bringing the log to the disk.
    pub log_sync: super::watch::Histogram,
    /// Committing the map and beginning the log anew.
    pub checkpoint: super::watch::Histogram,
}

impl MetaTimes {
    /// Begins all of them anew.
    pub fn reset(&self) {
        let all = [&self.log_write, &self.log_sync, &self.checkpoint];
        all.iter().for_each(|times| times.reset());
    }

    /// A line for each.
    pub fn text(&self, detail: super::watch::Detail) -> String {
        let all = [
            ("log_write", &self.log_write),
            ("log_sync", &self.log_sync),
            ("checkpoint", &self.checkpoint),
        ];
        all.iter()
            .map(|(name, times)| format!("time meta.{name} {}\n", times.text(detail)))
            .collect()
    }
}
