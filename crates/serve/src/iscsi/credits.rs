//! The credits of the connections of initiators, by their ends: whoever knows what a port can take sets them here.

use covey_io::os::net::pacing::Ends;
use covey_iscsi::target::Credit;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Those of this process.
#[derive(Default)]
struct Credits {
    all: BTreeMap<Ends, Weak<Credit>>,
    window: Option<u64>,
}

static CREDITS: Mutex<Option<Credits>> = Mutex::new(None);

/// The credit of a connection that begins: this end and the other.
pub fn enter(ends: Ends) -> Arc<Credit> {
    let mut credits = credits();
    let credits = credits.get_or_insert_default();
    credits.all.retain(|_, credit| credit.strong_count() > 0);
    let credit = Arc::<Credit>::default();
    credit.set_window(credits.window);
    credits.all.insert(ends, Arc::downgrade(&credit));
    credit
}

/// How many bytes each initiator may be asked for at a time.
pub fn set_window(bytes: Option<u64>) {
    let mut credits = credits();
    let credits = credits.get_or_insert_default();
    credits.window = bytes;
    credits.all.values().filter_map(Weak::upgrade).for_each(|credit| credit.set_window(bytes));
}

/// How many bytes each of them is asked for in a second.
pub fn set_rates(rate_of: impl Fn(&Ends) -> Option<u64>) {
    let credits = credits();
    let Some(credits) = &*credits else { return };
    for (ends, credit) in &credits.all {
        if let Some(credit) = credit.upgrade() {
            credit.set_rate(rate_of(ends));
        }
    }
}

fn credits() -> MutexGuard<'static, Option<Credits>> {
    // Nothing is left half done by a holder that panics.
    CREDITS.lock().unwrap_or_else(PoisonError::into_inner)
}
