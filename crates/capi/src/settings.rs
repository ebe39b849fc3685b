//! What the environment says, read once when the library is loaded.

use std::ffi::CStr;
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
        report: is_on(variable(c"COVEY_PRELOAD_REPORT")),
        hard: is_on(variable(c"COVEY_PRELOAD_HARD")),
    })
}

/// A variable of the environment, without the lock that Rust's own way takes.
pub fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the name ends with a zero; what comes back is copied at once.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec())
    }
}

fn prefix(named: Option<Vec<u8>>) -> Vec<u8> {
    let named = named.filter(|path| path.starts_with(b"/"));
    let mut path = named.unwrap_or_else(|| b"/covey".to_vec());
    while path.ends_with(b"/") {
        path.pop();
    }
    // All of "/" cannot be ours: libc itself lives there.
    if path.is_empty() { b"/covey".to_vec() } else { path }
}

fn is_on(value: Option<Vec<u8>>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != b"0")
}
