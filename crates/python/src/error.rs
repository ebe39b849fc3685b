//! Errors as Python knows them: OSError with its number, words and path, of which Python makes
//! FileNotFoundError, PermissionError and so on.

use covey_cluster::error::{self as cluster, Kind};
use covey_ninep::tree::Errno;
use covey_stripe::client;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What the system refused.
pub struct Failed(std::io::Error);

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Failed(error)
    }
}

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> Self {
        failed.0.into()
    }
}

/// The error of a call on a path.
pub fn raised(py: Python<'_>, error: client::Error, path: &OsStr) -> PyErr {
    by_errno(py, &error.into(), path)
}

/// The same of a number.
pub fn by_errno(py: Python<'_>, errno: &Errno, path: &OsStr) -> PyErr {
    let words = words(errno);
    match path.into_pyobject(py) {
        Ok(path) => PyOSError::new_err((errno.code, words, path.unbind())),
        Err(error) => error.into(),
    }
}

/// The error of a call on two paths.
pub fn between(error: client::Error, old: OsString, new: OsString) -> PyErr {
    let errno = Errno::from(error);
    PyOSError::new_err((errno.code, words(&errno), old, None::<i32>, new))
}

/// What libc says of the number, and the reason where that says more.
fn words(errno: &Errno) -> String {
    let known = errno.ename();
    let is_about_names = [
        Errno::ENOENT,
        Errno::EEXIST,
        Errno::ENOTDIR,
        Errno::EISDIR,
        Errno::ENOTEMPTY,
        Errno::EACCES,
        Errno::ELOOP,
        Errno::ENAMETOOLONG,
    ];
    if errno.reason.is_empty() || is_about_names.contains(&errno.code) {
        return known.to_owned();
    }
    format!("{known}: {}", errno.reason)
}

/// A call that the parent of a fork has begun and waits for.
pub fn forked() -> PyErr {
    let what = "the call was begun before the fork, and is the parent's: make it again";
    PyOSError::new_err((Errno::EIO, what))
}

/// The file names another cluster than the one whose files are meant.
pub fn another_cluster(file: &Path, named: &str, meant: &str) -> PyErr {
    PyValueError::new_err(format!(
        "{} names cluster {named}, and not {meant}, whose files are meant\n\
         hint: name the file of that cluster, or make a new file system for this one",
        file.display()
    ))
}

/// No cluster is found, its file is wrong, or it cannot be reached. The hints go with the words.
pub fn unusable(error: cluster::Error) -> PyErr {
    let hints = error.hints.iter().map(|hint| format!("\nhint: {hint}"));
    let words = format!("{}{}", error.message, hints.collect::<String>());
    let code = match error.code() {
        Some(code) => code,
        None if error.kind == Kind::Config => Errno::ENOENT,
        None => Errno::EIO,
    };
    PyOSError::new_err((code, words))
}
