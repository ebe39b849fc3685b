//! Where the process of a mount is found: a socket in a directory of the mount's user, named after the mount's device.
//!
//! ```text
//!   /run/covey-mounts/0:57                       root's
//!   $XDG_RUNTIME_DIR/covey-mounts/0:57           else, or
//!   /tmp/covey-mounts-1000/0:57                  where there is no such directory
//! ```
//!
//! The kernel gives a device's number to one mount at a time; a process that was killed leaves a socket that the next one
//! replaces.

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket of a mount, which goes with this unless it was passed on.
pub struct Meeting {
    path: PathBuf,
    /// It is not at its place yet, or no longer ours.
    is_away: bool,
}

/// The device of what is mounted at a directory, without asking the file system.
pub fn device_at(mountpoint: &Path) -> io::Result<String> {
    let how = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = statx(CWD, mountpoint, how, StatxFlags::empty())?;
    Ok(format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor))
}

/// The socket that its mount's process listens at, connected.
///
/// # Errors
///
/// NotFound where nobody listens.
pub fn connect(device: &str) -> io::Result<UnixStream> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    for dir in directories() {
        if is_private(&dir).is_err() {
            continue;
        }
        match UnixStream::connect(dir.join(device)) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Its process was killed.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Meeting {
    /// Listens for successors, at a place that nobody knows until [`Meeting::open`].
    pub fn prepare(device: &str) -> anyhow::Result<(Meeting, UnixListener)> {
        for _ in 1..TRIES {
            match Meeting::try_prepare(device) {
                // The last mount that ended has taken the directory with it.
                Err(error) if is_not_found(&error) => {}
                prepared => return prepared,
            }
        }
        Meeting::try_prepare(device)
    }

    fn try_prepare(device: &str) -> anyhow::Result<(Meeting, UnixListener)> {
        let meeting = Meeting { path: made()?.join(device), is_away: true };
        let hidden = meeting.hidden();
        let _ = std::fs::remove_file(&hidden);
        let listener = UnixListener::bind(&hidden)
            .with_context(|| format!("cannot listen at {}", hidden.display()))?;
        Ok((meeting, listener))
    }

    /// From now on it is found, in place of the process before.
    pub fn open(&mut self) -> io::Result<()> {
        std::fs::rename(self.hidden(), &self.path)?;
        self.is_away = false;
        Ok(())
    }

    /// Another process listens there.
    pub fn pass_on(&mut self) {
        self.is_away = true;
    }

    /// Nobody listens there. The directory goes with the last socket in it.
    pub fn close(&mut self) {
        if !std::mem::replace(&mut self.is_away, true) {
            let _ = std::fs::remove_file(&self.path);
            let _ = self.path.parent().map(std::fs::remove_dir);
        }
    }

    fn hidden(&self) -> PathBuf {
        self.path.with_extension(format!("{}.new", std::process::id()))
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.hidden());
        self.close();
    }
}

/// How often a directory is made that others remove.
const TRIES: u32 = 5;

fn is_not_found(error: &anyhow::Error) -> bool {
    let found = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    found.is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The directories where sockets of this user's mounts may be.
fn directories() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    if uid == 0 {
        return vec![format!("/run/{NAME}").into()];
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.into_iter().chain([format!("/run/user/{uid}").into()]);
    let mut all: Vec<PathBuf> = runtime.map(|dir| dir.join(NAME)).collect();
    all.push(format!("/tmp/{NAME}-{uid}").into());
    all
}

/// The first that can be made.
fn made() -> anyhow::Result<PathBuf> {
    let mut why = Vec::new();
    for dir in directories() {
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                why.push(format!("{}: {error}", dir.display()));
                continue;
            }
            _ => {}
        }
        match is_private(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) => why.push(format!("{error:#}")),
        }
    }
    bail!("there is no directory for its socket: {}", why.join("; "))
}

/// Whether nobody else can have put a socket there.
fn is_private(dir: &Path) -> anyhow::Result<()> {
    let found = dir.symlink_metadata().with_context(|| dir.display().to_string())?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !is_ours || found.mode() & 0o077 != 0 {
        bail!("{} is not a directory of this user alone", dir.display());
    }
    Ok(())
}

const NAME: &str = "covey-mounts";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_may_enter_is_not_private() {
        let dir = tempfile::tempdir().unwrap();
        let set =
            |mode| std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
        set(0o700);
        is_private(dir.path()).unwrap();
        set(0o710);
        is_private(dir.path()).unwrap_err();
        let link = dir.path().join("link");
        set(0o700);
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        is_private(&link).unwrap_err();
    }
}
