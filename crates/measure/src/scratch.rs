//! A directory for the time of a measurement, gone afterwards whatever happened.

use crate::error::{Cannot, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The directory.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one below the system's directory for such things. Names are short: sockets may lie in it.
    pub fn new() -> Result<Scratch> {
        Scratch::within(&std::env::temp_dir())
    }

    /// Makes one below another directory. It is for its owner alone, and was not there before.
    pub fn within(above: &Path) -> Result<Scratch> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = above.join(format!("covey-tune-{}-{number}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.cannot(|| format!("make directory {}", dir.display()))?;
        Ok(Scratch(dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
