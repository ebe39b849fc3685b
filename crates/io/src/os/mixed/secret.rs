//! The secret of a job: who cannot prove it does not become a peer.
//!
//! A launcher puts it into the environment of all its processes. Without one it is the user's own, in a file of the home
//! directory, so that programs of one user find each other on one machine, and on several that share the home.

use crate::boundary;
use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::{Mode, OFlags};
use sha2::Sha256;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;
/// The variable that holds a job's secret.
pub const SECRET_VARIABLE: &str = "COVEY_JOB_SECRET";

/// What all processes of a job know, and nobody else.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Any bytes.
    pub fn of(bytes: &[u8]) -> Secret {
        Secret(bytes.to_vec())
    }

    /// That of the environment, else that of the user.
    pub fn of_job() -> io::Result<Secret> {
        if let Some(secret) =
            boundary::variable(c"COVEY_JOB_SECRET").filter(|text| !text.is_empty())
        {
            return Ok(Secret(secret));
        }
        let mut refused = None;
        for folder in folders() {
            match of_folder(&folder) {
                Ok(secret) => return Ok(Secret(secret)),
                Err(error) => {
                    let text = format!("{}: {error}", folder.display());
                    refused.get_or_insert(io::Error::new(error.kind(), text));
                }
            }
        }
        Err(refused.unwrap_or_else(|| ErrorKind::NotFound.into()))
    }

    /// What proves it, for one side of one meeting.
    pub(super) fn proof(&self, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether it was proven. Compares in constant time.
    pub(super) fn is_proven(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.mac(parts).verify_slice(proof).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Where the user's own may be: the second one for a user without a home that can be written to.
fn folders() -> Vec<PathBuf> {
    let path = |name| boundary::variable(name).map(|text| PathBuf::from(OsString::from_vec(text)));
    let home = path(c"XDG_CONFIG_HOME").or_else(|| path(c"HOME").map(|home| home.join(".config")));
    let user = rustix::process::geteuid().as_raw();
    let temporary = std::env::temp_dir().join(format!("covey-{user}"));
    let home = home.filter(|home| home.is_absolute()).map(|home| home.join("covey"));
    home.into_iter().chain([temporary]).collect()
}

/// The secret that lies in a folder of ours, which is made when it is not there.
fn of_folder(folder: &Path) -> io::Result<Vec<u8>> {
    let file = folder.join("job-secret");
    match read(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        done => return done,
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || !is_private(&found, 0o022) {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "it is not ours alone to write to",
        ));
    }
    // Whoever comes first makes it; it appears as a whole.
    let new = folder.join(format!("job-secret.{}.{:016x}", std::process::id(), number()?));
    write(&new, &crate::os::random::bytes::<SECRET_BYTES>()?)?;
    let linked = fs::hard_link(&new, &file);
    fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => read(&file),
    }
}

fn number() -> io::Result<u64> {
    crate::os::random::bytes().map(u64::from_le_bytes)
}

fn write(file: &Path, secret: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(secret)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(file, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() || !is_private(&found, 0o077) {
        let text = "the secret there can be read by others: remove it";
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    let mut secret = Vec::new();
    Read::take(&mut file, SECRET_BYTES as u64 + 1).read_to_end(&mut secret)?;
    if secret.len() == SECRET_BYTES {
        return Ok(secret);
    }
    Err(io::Error::new(ErrorKind::InvalidData, "the secret there is not of 32 bytes: remove it"))
}

/// Whether it belongs to us and lacks the permissions.
fn is_private(found: &fs::Metadata, without: u32) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() && found.mode() & without == 0
}

const SECRET_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn all_that_come_find_one_secret_and_one_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let ours = folder.path().join("covey");
        let all: Vec<_> = (0..8)
            .map(|_| {
                let ours = ours.clone();
                std::thread::spawn(move || of_folder(&ours).expect("a secret"))
            })
            .map(|thread| thread.join().expect("it ends"))
            .collect();
        assert!(all.iter().all(|secret| *secret == all[0] && secret.len() == SECRET_BYTES));
        assert_eq!(fs::read_dir(&ours).expect("a folder").count(), 1);
        let file = ours.join("job-secret");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
        assert_eq!(of_folder(&ours).expect_err("refused").kind(), ErrorKind::PermissionDenied);
    }
}
