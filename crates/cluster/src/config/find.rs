//! Which `covey.toml` is meant, and where the embedded cluster of this machine lives.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The file's name.
const FILE: &str = "covey.toml";

/// The configuration file: the one named, else the first that exists of the working directory's,
/// the embedded cluster's, the user's and the machine's.
pub fn find(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(file) = named {
        return match file.exists() {
            true => Ok(file.to_path_buf()),
            false => Err(Error::config(format!(
                "cannot read {}: no such file or directory",
                file.display()
            ))
            .hint("`covey genconfig` writes a new configuration")),
        };
    }
    let places = places();
    places.iter().find(|place| place.exists()).cloned().ok_or_else(|| none_found(&places))
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
