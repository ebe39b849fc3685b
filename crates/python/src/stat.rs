//! What a file's inode says, as fsspec wants it told.

use crate::walk::is_link;
use covey_stripe::ops::{Inode, Nanos};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::OsStr;

/// A file, and what it leads to when it is a symbolic link that leads anywhere.
pub struct Entry {
    /// Itself.
    pub inode: Inode,
    /// Where it leads.
    pub target: Option<Inode>,
}

/// Whether a link to a directory is told as the directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It is, as by stat(2).
    Followed,
    /// Its type is `link`: who walks a tree must not go round in circles.
    Told,
}

/// The dictionary of an entry.
pub fn told<'py>(
    py: Python<'py>,
    name: &OsStr,
    entry: &Entry,
    links: Links,
) -> PyResult<Bound<'py, PyDict>> {
    let Entry { inode, target } = entry;
    let meant = target.as_ref().unwrap_or(inode);
    let is_file = meant.kind() == FILE;
    let kind = match (is_link(inode), meant.is_dir()) {
        (true, true) if links == Links::Told => "link",
        (_, true) => "directory",
        _ if is_file => "file",
        (true, _) if target.is_none() => "link",
        _ => "other",
    };
    let told = PyDict::new(py);
    told.set_item("name", name)?;
    told.set_item("size", if is_file { meant.size } else { 0 })?;
    told.set_item("type", kind)?;
    told.set_item("mode", meant.mode)?;
    told.set_item("uid", meant.uid)?;
    told.set_item("gid", meant.gid)?;
    told.set_item("nlink", meant.nlink)?;
    told.set_item("ino", meant.id)?;
    told.set_item("created", seconds(meant.btime))?;
    told.set_item("mtime", seconds(meant.mtime))?;
    told.set_item("ctime", seconds(meant.ctime))?;
    told.set_item("atime", seconds(meant.atime))?;
    told.set_item("islink", is_link(inode))?;
    if is_link(inode) {
        told.set_item("destination", crate::client::os(inode.target.as_bytes()))?;
    }
    Ok(told)
}

/// The dictionary of an entry of which only the name and the type are known.
pub fn named<'py>(py: Python<'py>, name: &OsStr, kind: u8) -> PyResult<Bound<'py, PyDict>> {
    let kind = match kind {
        FILE => "file",
        DIRECTORY => "directory",
        LINK => "link",
        _ => "other",
    };
    let told = PyDict::new(py);
    told.set_item("name", name)?;
    told.set_item("size", py.None())?;
    told.set_item("type", kind)?;
    Ok(told)
}

fn seconds(time: Nanos) -> f64 {
    time.cast_signed() as f64 / 1e9
}

/// Types as directory entries have them.
const FILE: u8 = 8;
const DIRECTORY: u8 = 4;
const LINK: u8 = 10;
