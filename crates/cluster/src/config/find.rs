//! Which `covey.toml` is meant, and where the embedded cluster of this machine lives.

use crate::error::{Error, Result, reason};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file's name.
const FILE: &str = "covey.toml";

/// A configuration file, and how it came to be the one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Somebody has named it: it is as good as its name.
    Named(PathBuf),
    /// It was where files are looked for, and whose it is must be seen before it is believed.
    Found(PathBuf),
}

impl Place {
    /// The file.
    pub fn file(&self) -> &Path {
        match self {
            Place::Named(file) | Place::Found(file) => file,
        }
    }

    /// The same, wherever this process goes.
    #[must_use]
    pub fn absolute(&self) -> Place {
        let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        match self {
            Place::Named(file) => Place::Named(absolute(file)),
            Place::Found(file) => Place::Found(absolute(file)),
        }
    }

    /// Refuses a file that was only found, and that another user made or may change.
    pub(super) fn check_owner(&self, meta: &Metadata) -> Result<()> {
        let Place::Found(file) = self else { return Ok(()) };
        let own = rustix::process::geteuid().as_raw();
        self.check(meta.uid(), meta.mode(), own).map_err(|why| untrusted(file, &why))
    }

    /// Refuses a name that was only found, and that another user made: a link leads to a file that is trusted, but
    /// whose choice it is to use that one is the link's owner's. `meta`: of the file that was opened.
    pub(super) fn check_name(&self, meta: &Metadata) -> Result<()> {
        let Place::Found(file) = self else { return Ok(()) };
        let own = rustix::process::geteuid().as_raw();
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        for name in file.ancestors() {
            let found = match name.symlink_metadata() {
                Ok(found) => found,
                Err(error) => return Err(untrusted(&file, &reason(&error))),
            };
            if found.is_symlink() && found.uid() != 0 && found.uid() != own {
                let owner = found.uid();
                let why = format!(
                    "{} is a link that user {owner} made, neither root nor you",
                    name.display()
                );
                return Err(untrusted(&file, &why));
            }
            let is_same = (found.dev(), found.ino()) == (meta.dev(), meta.ino());
            if name == file && !found.is_symlink() && !is_same {
                return Err(untrusted(&file, "it was replaced while it was opened"));
            }
        }
        Ok(())
    }

    fn check(&self, owner: u32, mode: u32, own: u32) -> std::result::Result<(), String> {
        const OTHERS_WRITE: u32 = 0o022;
        if owner != 0 && owner != own {
            Err(format!("it belongs to user {owner}, neither root nor you"))
        } else if mode & OTHERS_WRITE != 0 {
            Err(format!("others may write it: its mode is {:04o}", mode & 0o7777))
        } else {
            Ok(())
        }
    }
}

fn untrusted(file: &Path, why: &str) -> Error {
    Error::config(format!("cannot trust {}: {why}", file.display())).hint(format!(
        "it says who gets your files; if it is right, name it: --config {0} or COVEY_CONFIG={0}",
        file.display()
    ))
}

/// The configuration file: the one named, else the first that exists of the working directory's,
/// the embedded cluster's, the user's and the machine's.
pub fn find(named: Option<&Path>) -> Result<Place> {
    if let Some(file) = named {
        return if file.exists() {
            Ok(Place::Named(file.to_path_buf()))
        } else {
            Err(Error::config(format!("cannot read {}: no such file or directory", file.display()))
                .hint("`covey genconfig` writes a new configuration"))
        };
    }
    let places = places();
    let found = places.iter().find(|place| place.exists()).cloned();
    found.map(Place::Found).ok_or_else(|| none_found(&places))
}

fn places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(FILE)];
    places.extend(embedded_dir().map(|dir| dir.join(FILE)));
    let config_home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config_home =
        config_home.filter(|dir| dir.is_absolute()).or(home().map(|dir| dir.join(".config")));
    places.extend(config_home.map(|dir| dir.join("covey").join(FILE)));
    places.push(Path::new("/etc/covey").join(FILE));
    places
}

fn none_found(places: &[PathBuf]) -> Error {
    let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Error::config("cannot find the cluster's configuration: there is no covey.toml")
        .hint(
            "`covey up` starts a cluster on this machine; \
               `covey genconfig` describes one of several",
        )
        .hint(format!(
            "looked at {}; --config FILE or COVEY_CONFIG names another",
            looked.join(", ")
        ))
}

/// Names the directory of the lab that a process is inside of.
pub const LAB_DIR: &str = "COVEY_LAB_DIR";

/// Where `covey up` keeps its cluster: inside a lab in the lab's directory; else root's in
/// /var/lib/covey, a user's in the data home.
pub fn embedded_dir() -> Option<PathBuf> {
    if let Some(lab) = std::env::var_os(LAB_DIR).map(PathBuf::from) {
        return Some(lab.join("cluster"));
    }
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/covey".into());
    }
    let data_home = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data_home = data_home.filter(|dir| dir.is_absolute());
    data_home.or(home().map(|dir| dir.join(".local/share"))).map(|dir| dir.join("covey"))
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|dir| dir.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_file_that_was_found_is_roots_or_ones_own_and_only_they_write_it() {
        let found = Place::Found("covey.toml".into());
        let check = |owner, mode: u32| found.check(owner, 0o100_000 | mode, 1000);
        assert_eq!(check(1000, 0o644), Ok(()));
        assert_eq!(check(0, 0o644), Ok(()));
        assert!(check(1001, 0o600).is_err_and(|why| why.contains("user 1001")));
        assert!(check(1000, 0o664).is_err_and(|why| why.contains("0664")));
        assert!(check(0, 0o646).is_err());
    }

    #[test]
    fn a_link_that_leads_to_a_trusted_file_must_be_trusted_too() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("real.toml"), dir.path().join("covey.toml"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let meta = file.metadata().unwrap();
        let check = |name: &std::path::Path| Place::Found(name.to_owned()).check_name(&meta);
        check(&file).unwrap();
        check(&link).unwrap();
        let below = dir.path().join("below");
        std::os::unix::fs::symlink(dir.path(), &below).unwrap();
        check(&below.join("covey.toml")).unwrap();
        std::fs::write(dir.path().join("other.toml"), "").unwrap();
        assert!(check(&dir.path().join("other.toml")).is_err(), "it is another file by now");
        if !rustix::process::geteuid().is_root() {
            return covey_harness::skip("giving links away is for root");
        }
        std::os::unix::fs::lchown(&link, Some(12_345), None).unwrap();
        let refused = check(&link).unwrap_err().to_string();
        assert!(refused.contains("user 12345"), "{refused}");
        std::os::unix::fs::lchown(&below, Some(12_345), None).unwrap();
        check(&below.join("real.toml")).unwrap_err();
    }
}
