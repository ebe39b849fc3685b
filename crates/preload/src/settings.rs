//! What the environment says, read once when the library is loaded.

use crate::boundary::say;
use covey_io::boundary::{is_on, variable};
use std::sync::OnceLock;

/// The settings of this process.
#[derive(Debug)]
pub struct Settings {
    /// Paths below it are ours: absolute, without a slash at the end.
    pub prefix: Vec<u8>,
    /// Say at the end what was served.
    pub report: bool,
    /// Wait for dead servers instead of EIO.
    pub hard: bool,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The settings.
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| Settings {
        prefix: prefix(variable(c"COVEY_PRELOAD_PREFIX")),
        report: is_on(c"COVEY_PRELOAD_REPORT"),
        hard: is_on(c"COVEY_PRELOAD_HARD"),
    })
}

fn prefix(named: Option<Vec<u8>>) -> Vec<u8> {
    let Some(named) = named.filter(|named| !named.is_empty()) else { return PREFIX.to_vec() };
    usable(&named).unwrap_or_else(|why| {
        say(&format!(
            "COVEY_PRELOAD_PREFIX is `{}`, which {why}: {} is used",
            String::from_utf8_lossy(&named),
            String::from_utf8_lossy(PREFIX)
        ));
        PREFIX.to_vec()
    })
}

/// A place without the slashes at its end, or why it cannot be one.
fn usable(named: &[u8]) -> Result<Vec<u8>, &'static str> {
    if !named.starts_with(b"/") {
        return Err("does not begin with a slash");
    }
    let end = named.iter().rposition(|byte| *byte != b'/');
    // libc itself lives there.
    let end = end.ok_or("is the whole file system")?;
    Ok(named[..=end].to_vec())
}

/// Where files are unless another place is named.
const PREFIX: &[u8] = b"/covey";

#[cfg(test)]
mod tests {
    use super::usable;

    #[test]
    fn a_place_is_absolute_and_not_everything() {
        assert_eq!(usable(b"/data//"), Ok(b"/data".to_vec()));
        assert_eq!(usable(b"/a/b"), Ok(b"/a/b".to_vec()));
        assert_eq!(usable(b"data"), Err("does not begin with a slash"));
        assert_eq!(usable(b"//"), Err("is the whole file system"));
    }
}
