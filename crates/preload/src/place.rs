//! Whether a path is ours.
//!
//! A path is ours when it is absolute and below the prefix, or relative to a directory of ours (a
//! descriptor, or the working directory) or to one above the prefix. It is judged as it is written: a symbolic link of this
//! machine that leads below the prefix is not seen. `..` that leads out of the prefix is.

use crate::boundary::{Answer, Quiet, Result, is_inside, serve_or};
use crate::report::COUNTS;
use crate::settings::settings;
use crate::{cwd, real, table};
use covey_stripe::ops::{Id, ROOT};
use std::ffi::{CStr, CString, c_char, c_int};

/// A path of ours: from a directory down.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where it starts.
    pub from: Id,
    /// The rest, relative to that; empty for the directory itself.
    pub path: Vec<u8>,
    /// The whole of it as the program would write it, without `.` and `..` as far as they can go.
    pub shown: Vec<u8>,
}

/// Where a path leads.
pub enum Where {
    /// To libc, with this path.
    Real(RealPath),
    /// To us.
    Ours(Place),
}

/// A path for libc.
pub struct RealPath {
    pointer: *const c_char,
    _owned: Option<CString>,
}

impl RealPath {
    /// For the call.
    pub fn pointer(&self) -> *const c_char {
        self.pointer
    }
}

impl From<CString> for RealPath {
    fn from(owned: CString) -> Self {
        RealPath { pointer: owned.as_ptr(), _owned: Some(owned) }
    }
}

/// Where a path leads that is relative to a directory's descriptor, or AT_FDCWD.
///
/// # Safety
///
/// `path` is null or ends with a zero.
pub unsafe fn locate(dirfd: c_int, path: *const c_char) -> Where {
    let real = Where::Real(RealPath { pointer: path, _owned: None });
    if path.is_null() || is_inside() {
        return real;
    }
    // A handler that asks for a path as well must not meet this thread in the middle of its allocation.
    let _quiet = Quiet::begin();
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if bytes.first() == Some(&b'/') {
        return match below_prefix(bytes) {
            Some(place) => Where::Ours(place),
            // Through the prefix and out again: the kernel may not have a directory of that name.
            None if has_dots(bytes) && strip(bytes, &settings().prefix).is_some() => {
                Where::Real(CString::new(normal(bytes)).unwrap_or_default().into())
            }
            None => real,
        };
    }
    if dirfd == libc::AT_FDCWD {
        // The empty path is nowhere, which libc knows to say.
        return match cwd::of_ours().filter(|_| !bytes.is_empty()) {
            Some((id, dir)) => relative(id, &dir, bytes),
            None => from_above(dirfd, bytes).map_or(real, Where::Ours),
        };
    }
    match table::find(dirfd) {
        Some(open) => relative(open.id(), &open.path(), bytes),
        None => from_above(dirfd, bytes).map_or(real, Where::Ours),
    }
}

/// A path that is relative to a directory of this machine, above the prefix, and leads into it: some
/// programs go down a path one name at a time.
fn from_above(dirfd: c_int, path: &[u8]) -> Option<Place> {
    let first = path.split(|byte| *byte == b'/').find(|part| !part.is_empty() && *part != b".")?;
    // Most names are decided here.
    if !settings().prefix.split(|byte| *byte == b'/').any(|part| part == first) {
        return None;
    }
    let base = match dirfd {
        libc::AT_FDCWD => c"/proc/self/cwd".to_owned(),
        fd => CString::new(format!("/proc/self/fd/{fd}")).ok()?,
    };
    let mut target = [0_u8; libc::PATH_MAX as usize];
    let room = target.len();
    // SAFETY: the buffer has the length that is passed.
    let length = unsafe { real::readlink()(base.as_ptr(), target.as_mut_ptr().cast(), room) };
    let base = target.get(..usize::try_from(length).ok()?)?;
    below_prefix(&[base, b"/", path].concat())
}

/// The same, of a path alone.
///
/// # Safety
///
/// `path` is null or ends with a zero.
pub unsafe fn locate_path(path: *const c_char) -> Where {
    // SAFETY: the caller's promise.
    unsafe { locate(libc::AT_FDCWD, path) }
}

/// Serves a call on a path, or passes it on.
///
/// # Safety
///
/// `path` is null or ends with a zero.
pub unsafe fn by_path<R: Answer>(
    dirfd: c_int,
    path: *const c_char,
    real: impl Fn(*const c_char) -> R,
    ours: impl FnOnce(&Place) -> Result<R>,
) -> R {
    // SAFETY: the caller's promise.
    match unsafe { locate(dirfd, path) } {
        Where::Real(path) => real(path.pointer()),
        Where::Ours(place) => {
            COUNTS.names.add(1);
            serve_or(|| ours(&{ place }), |outside| real(outside.as_ptr()))
        }
    }
}

/// An absolute path that a symbolic link names: ours, or of this machine.
pub fn below_prefix(path: &[u8]) -> Option<Place> {
    let prefix = &settings().prefix;
    // Most paths of a program are not ours, which is decided here.
    if path.first() != Some(&b'/') || !path.contains(prefix.last()?) {
        return None;
    }
    let rest = strip(path, prefix)?;
    if !has_dots(rest) {
        return Some(Place { from: ROOT, path: rest.to_vec(), shown: path.to_vec() });
    }
    let shown = normal(path);
    strip(&shown, prefix)?;
    Some(Place { from: ROOT, path: rest.to_vec(), shown })
}

/// The rest of a path after the prefix, component by component.
fn strip<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let mut rest = path;
    for wanted in prefix.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        loop {
            let at = rest.iter().position(|byte| *byte != b'/')?;
            let end =
                rest[at..].iter().position(|byte| *byte == b'/').map_or(rest.len(), |n| at + n);
            let part = &rest[at..end];
            rest = &rest[end..];
            if part == wanted {
                break;
            }
            if part != b"." {
                return None;
            }
        }
    }
    Some(rest)
}

fn has_dots(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part == b"..")
}

/// A path without `.`, `..` and double slashes, as far as that can be said without looking.
pub fn normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut out = Vec::with_capacity(path.len());
    for part in parts {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if out.is_empty() { b"/".to_vec() } else { out }
}

fn relative(from: Id, dir: &[u8], path: &[u8]) -> Where {
    let shown = normal(&[dir, b"/", path].concat());
    if has_dots(path) && strip(&shown, &settings().prefix).is_none() {
        let outside = CString::new(shown).unwrap_or_default();
        return Where::Real(outside.into());
    }
    Where::Ours(Place { from, path: path.to_vec(), shown })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_the_prefix_are_ours_however_they_are_written() {
        let rest = |path: &str| {
            below_prefix(path.as_bytes()).map(|place| String::from_utf8(place.path).unwrap())
        };
        assert_eq!(rest("/covey").as_deref(), Some(""));
        assert_eq!(rest("//./covey//a").as_deref(), Some("//a"));
        assert_eq!(rest("/covey/a/../b").as_deref(), Some("/a/../b"));
        for other in ["/coveys", "/cove", "/", "/a/covey", "/covey/..", "/covey/../etc", "covey/a"]
        {
            assert_eq!(rest(other), None, "{other}");
        }
    }

    #[test]
    fn dots_are_taken_out_and_never_lead_above_the_root() {
        let cases = [("/a/./b//c/..", "/a/b"), ("/../..", "/"), ("/a/b/../../../c", "/c")];
        for (path, wanted) in cases {
            assert_eq!(normal(path.as_bytes()), wanted.as_bytes());
        }
    }
}
