//! The example of a tree of one's own: a clock. `/time/now` has the seconds since 1970, `/time/zone` the zone.

pub mod serve;

use covey_ninep::namespace::Namespace;
use covey_ninep::text::Text;
use covey_ninep::tree::Result;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The tree.
pub fn clock() -> Result<Namespace> {
    let time = Namespace::folder();
    time.bind("now", Rc::new(Text::new(now)))?;
    time.bind("zone", Rc::new(Text::new(|| "UTC\n")))?;
    Ok(time)
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    format!("{}\n", since.as_secs())
}
