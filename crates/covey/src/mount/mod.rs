//! The FUSE mount. (A placeholder of this branch: the real one replaces this file.)

use crate::config::Config;
use std::path::Path;

/// How a mount behaves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Wait for dead servers instead of EIO after a while.
    pub hard: bool,
    /// Let other users in.
    pub allow_other: bool,
    /// Refuse every change.
    pub read_only: bool,
}

/// Mounts, and serves until unmounted or signalled.
pub fn mount(_config: &Config, _mountpoint: &Path, _options: &Options) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
