//! What is to be measured: a directory or a block device, and what it has room for.

use super::Plan;
use super::files::{FILE_BYTES, FILES_MAX};
use crate::config::size;
use crate::error::{Cannot, Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The directory or device.
    pub path: PathBuf,
    /// `directory` or `device`.
    pub kind: String,
    /// The file system's name, of a directory.
    pub file_system: Option<String>,
    /// What it is mounted from, of a directory.
    pub source: Option<String>,
    /// Bytes that are free, or that the device has.
    pub room_bytes: u64,
    /// Files that may still be made, of a directory whose file system counts them.
    pub room_files: Option<u64>,
    /// Main memory.
    pub memory_bytes: u64,
}

impl Place {
    /// Looks at it. Nothing is written.
    pub fn find(plan: &Plan) -> Result<Place> {
        let path = &plan.target;
        let shown = path.display();
        let data = std::fs::metadata(path).cannot(|| format!("measure {shown}"));
        // Nothing was tried: the command was wrong.
        let data = data.map_err(|error| {
            Error::user(error.message).hint("name a directory, a mount or a block device")
        })?;
        let kind = data.file_type();
        if kind.is_dir() {
            return Place::directory(path, data.dev());
        }
        if !kind.is_block_device() {
            let what = if kind.is_file() { "a file" } else { "something else" };
            return Err(Error::user(format!(
                "cannot measure {shown}: it is {what}, not a directory and not a block device"
            ))
            .hint("a directory tells of the file system that it is on"));
        }
        let mut device = open_device(path, plan.destroy)?;
        let room = device.seek(SeekFrom::End(0)).cannot(|| format!("measure {shown}"))?;
        Ok(Place {
            path: path.clone(),
            kind: "device".into(),
            room_bytes: room,
            memory_bytes: memory_bytes(),
            ..Place::default()
        })
    }

    fn directory(path: &Path, device: u64) -> Result<Place> {
        let shown = path.display();
        let room = rustix::fs::statvfs(path).cannot(|| format!("measure {shown}"))?;
        let (file_system, source) = mounted(path, device).unzip();
        Ok(Place {
            path: path.to_path_buf(),
            kind: "directory".into(),
            file_system,
            source,
            room_bytes: room.f_bavail.saturating_mul(room.f_frsize),
            // File systems without a limit answer 0 of 0.
            room_files: (room.f_files > 0).then_some(room.f_favail),
            memory_bytes: memory_bytes(),
        })
    }

    /// Whether it is a device.
    pub fn is_device(&self) -> bool {
        self.kind == "device"
    }

    /// Refuses a size that it has no room for.
    pub fn must_hold(&self, bytes: u64) -> Result<()> {
        let room = if self.is_device() {
            self.room_bytes
        } else {
            self.room_bytes.saturating_sub(SPARE_BYTES)
        };
        if bytes <= room {
            return Ok(());
        }
        let (path, has) =
            (self.path.display(), if self.is_device() { "it has" } else { "free are" });
        Err(Error::user(format!(
            "cannot measure {path} with {}: {has} {}",
            size::rounded(bytes),
            size::rounded(self.room_bytes)
        ))
        .hint(format!("--size takes up to {}", size::rounded(room))))
    }
}

/// How many small files a thread may make.
pub fn files_max(place: &Place, threads: u32) -> u64 {
    let by_bytes = place.room_bytes.saturating_sub(SPARE_BYTES) / FILE_BYTES as u64;
    let all = by_bytes.min(place.room_files.unwrap_or(u64::MAX));
    // Two sorts are made, and half is left for others.
    (all / 4 / u64::from(threads.max(1))).clamp(1, FILES_MAX)
}

/// Room that is left for others.
pub const SPARE_BYTES: u64 = 16 << 20;

/// Opens a device; one that is to be overwritten must not be in use.
pub fn open_device(path: &Path, destroy: bool) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let exclusive = if destroy { libc::O_EXCL } else { 0 };
    let opened = File::options().read(true).write(destroy).custom_flags(exclusive).open(path);
    let what = if destroy { "overwrite" } else { "read" };
    opened.cannot(|| format!("{what} {}", path.display())).map_err(|error| {
        if destroy { error.hint("it must not be mounted or used by anything else") } else { error }
    })
}

fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory(&text).unwrap_or(0)
}

fn memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Kind and source of the file system that a directory is on.
fn mounted(path: &Path, device: u64) -> Option<(String, String)> {
    let path = std::fs::canonicalize(path).ok()?;
    let text = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    mount_of(&text, &path, &number)
}

/// The mount with the longest path above this one. Where several are stacked, the last; the device's number
/// decides where it is known to the table (subvolumes have others).
fn mount_of(table: &str, path: &Path, device: &str) -> Option<(String, String)> {
    let rows = table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let mut right = right.split(' ');
        let point = left.get(4)?.replace("\\040", " ");
        path.starts_with(&point).then_some(())?;
        let same = left.get(2) == Some(&device);
        Some(((same, point.len()), (right.next()?.to_string(), right.next()?.to_string())))
    });
    rows.max_by_key(|(rank, _)| *rank).map(|(_, found)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        assert_eq!(memory("MemTotal:       24689920 kB\nMemFree: 1 kB\n"), Some(24_689_920 * 1024));
        assert_eq!(memory("nothing"), None);
        let table = "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:25 / /dev/shm rw shared:2 - tmpfs shm rw\n\
                     31 22 0:26 / /a\\040b rw - fuse.covey covey rw\n";
        let found = |path: &str, device: &str| mount_of(table, Path::new(path), device).unwrap().0;
        assert_eq!(found("/dev/shm/x", "0:25"), "tmpfs");
        assert_eq!(found("/a b/c", "0:26"), "fuse.covey");
        assert_eq!(found("/home", "254:0"), "ext4");
    }

    #[test]
    fn small_files_fit_into_what_is_free() {
        let place = |room_bytes, room_files| Place { room_bytes, room_files, ..Place::default() };
        assert_eq!(files_max(&place(1 << 40, None), 1), FILES_MAX);
        assert_eq!(files_max(&place(SPARE_BYTES + (16 << 20), None), 2), 512);
        assert_eq!(files_max(&place(1 << 40, Some(400)), 1), 100);
        assert_eq!(files_max(&place(0, Some(0)), 1), 1);
    }

    #[test]
    fn a_size_without_room_is_refused_with_the_limit() {
        let place = Place { room_bytes: 100 << 20, kind: "directory".into(), ..Place::default() };
        assert!(place.must_hold(84 << 20).is_ok());
        let error = place.must_hold(85 << 20).unwrap_err();
        assert!(error.message.contains("free are 100"), "{error}");
        assert!(error.hints[0].contains("84"), "{error:?}");
    }
}
