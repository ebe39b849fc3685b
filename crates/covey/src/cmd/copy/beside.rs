//! Directories and links of this machine, and where a copy may not write them.

use covey_wire::Name;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How files are written whose names must never stand for half of them.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Keeps the other names apart from those of another copy.
    pub tag: String,
    /// Places that go away: nothing may be written there, whatever links lead to them.
    pub avoid: Vec<PathBuf>,
}

impl Beside {
    /// Refuses a directory that a link has led to one of the places.
    pub fn check(&self, dir: &Path) -> std::io::Result<()> {
        let (real, device) = (dir.canonicalize()?, dir.metadata()?.dev());
        let is_mount_of = |place: &PathBuf| {
            let above = place.parent().and_then(|above| above.metadata().ok());
            place.metadata().is_ok_and(|meta| {
                meta.dev() == device && above.is_some_and(|above| above.dev() != device)
            })
        };
        match self.avoid.iter().find(|place| real.starts_with(place) || is_mount_of(place)) {
            None => Ok(()),
            Some(place) => Err(std::io::Error::other(format!(
                "it lies in {}, which goes away with the job",
                place.display()
            ))),
        }
    }
}

/// Makes a directory unless there is one.
pub fn local_mkdir(dir: &Path, mode: u32) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().mode(mode).create(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        other => other,
    }
}

/// An earlier try may have finished it: a directory that its owner may not write to.
pub fn make_writable(dir: &Path) -> std::io::Result<()> {
    let meta = dir.metadata()?;
    let is_ours = meta.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || meta.mode() & 0o700 == 0o700 {
        return Ok(());
    }
    std::fs::set_permissions(dir, PermissionsExt::from_mode(meta.mode() & 0o7777 | 0o700))
}

/// Makes a symbolic link, in the place of one that is there.
pub fn local_symlink(path: &Path, target: &Name) -> std::io::Result<()> {
    let target = OsStr::from_bytes(target.as_bytes());
    match std::os::unix::fs::symlink(target, path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            std::os::unix::fs::symlink(target, path)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_finished_becomes_writable_for_another_try() {
        let above = tempfile::tempdir().unwrap();
        std::fs::set_permissions(above.path(), PermissionsExt::from_mode(0o555)).unwrap();
        make_writable(above.path()).unwrap();
        assert_eq!(above.path().metadata().unwrap().mode() & 0o7777, 0o755);
    }

    #[test]
    fn a_link_does_not_lead_to_a_place_that_goes_away() {
        let above = tempfile::tempdir().unwrap();
        let real = above.path().canonicalize().unwrap();
        let (gone, out) = (real.join("gone"), real.join("out"));
        for dir in [&gone, &gone.join("deep"), &out] {
            std::fs::create_dir(dir).unwrap();
        }
        std::os::unix::fs::symlink(gone.join("deep"), out.join("sub")).unwrap();
        let beside = Beside { tag: String::new(), avoid: vec![gone] };
        assert!(beside.check(&out).is_ok());
        assert!(beside.check(&out.join("sub")).unwrap_err().to_string().contains("goes away"));
    }
}
