//! A session's files when it is sent to other nodes or comes from one. Everything is done as the session's user:
//! whatever the user's own programs do to the directory meanwhile, nothing is reached that the user could not.

use covey_io::os::credentials::{self, Identity};
use covey_io::os::file::DataFile;
use covey_launch::spawn::manifest::{ENTRIES_MAX, Entry, EntryKind};
use covey_ninep::tree::User;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A session's directory, for work that may block.
#[derive(Clone)]
pub(super) struct Files {
    /// The session's: `exec` and `fs` are in it.
    pub dir: PathBuf,
    pub user: User,
}

impl Files {
    fn act<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let User { uid, gid, groups } = &self.user;
        if !credentials::can_switch() || *uid == 0 {
            return work();
        }
        credentials::act_as(&Identity { uid: *uid, gid: *gid, groups }, work)?
    }

    fn path(&self, entry: &Entry) -> PathBuf {
        match entry.kind {
            EntryKind::Program => self.dir.join("exec"),
            _ => self.dir.join("fs").join(OsStr::from_bytes(&entry.path)),
        }
    }

    /// All of them, and what contains others first. Devices, sockets and FIFOs are left out.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        self.act(|| {
            let mut entries = Vec::new();
            if let Ok(found) = fs::symlink_metadata(self.dir.join("exec")) {
                let kind = EntryKind::Program;
                entries.push(Entry { kind, path: Vec::new(), mode: 0o700, bytes: found.len() });
            }
            list_below(&self.dir.join("fs"), &[], &mut entries)?;
            Ok(entries)
        })
    }

    pub fn make(&self, entries: &[Entry]) -> io::Result<()> {
        self.act(|| entries.iter().try_for_each(|entry| self.make_one(entry)))
    }

    fn make_one(&self, entry: &Entry) -> io::Result<()> {
        let path = self.path(entry);
        match &entry.kind {
            EntryKind::Directory => match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    fs::set_permissions(&path, Permissions::from_mode(0o700))
                }
                made => made,
            },
            EntryKind::Link(target) => {
                replace(&path)?;
                std::os::unix::fs::symlink(OsStr::from_bytes(target), &path)
            }
            EntryKind::Program | EntryKind::File => {
                replace(&path)?;
                let mut options = File::options();
                options.write(true).create_new(true).mode(0o600).open(&path).map(drop)
            }
        }
    }

    pub fn read(&self, entry: &Entry, offset: u64, count: usize) -> io::Result<Vec<u8>> {
        let open = || File::options().read(true).custom_flags(FLAGS).open(self.path(entry));
        let file = self.act(open)?;
        let mut data = vec![0; count];
        let mut have = 0;
        while have < count {
            match file.read_at(&mut data[have..], offset + have as u64)? {
                0 => break,
                more => have += more,
            }
        }
        data.truncate(have);
        Ok(data)
    }

    pub fn write(&self, entry: &Entry, offset: u64, data: &[u8]) -> io::Result<()> {
        let open = || File::options().write(true).custom_flags(FLAGS).open(self.path(entry));
        self.act(open)?.write_all_at(data, offset)
    }

    /// The program, to be read. What else its user has put in its place is refused, and nobody waits for it.
    pub fn open_program(&self) -> io::Result<DataFile> {
        let path = self.dir.join("exec");
        let file = self.act(|| File::options().read(true).custom_flags(FLAGS).open(path))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("a session's program is a regular file"));
        }
        DataFile::new(file)
    }

    /// Deepest first: a directory may be one that nothing can be changed in.
    pub fn finish(&self, entries: &[Entry]) -> io::Result<()> {
        self.act(|| {
            for entry in entries.iter().rev() {
                if matches!(entry.kind, EntryKind::Link(_)) {
                    continue;
                }
                fs::set_permissions(self.path(entry), Permissions::from_mode(entry.mode))?;
            }
            Ok(())
        })
    }
}

fn replace(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn list_below(dir: &Path, below: &[u8], entries: &mut Vec<Entry>) -> io::Result<()> {
    for found in fs::read_dir(dir)? {
        let found = found?;
        let (meta, name) = (found.path().symlink_metadata()?, found.file_name());
        let separator: &[u8] = if below.is_empty() { b"" } else { b"/" };
        let path = [below, separator, name.as_bytes()].concat();
        let (kind, bytes) = match meta.file_type() {
            kind if kind.is_dir() => (EntryKind::Directory, 0),
            kind if kind.is_file() => (EntryKind::File, meta.len()),
            kind if kind.is_symlink() => {
                (EntryKind::Link(fs::read_link(found.path())?.into_os_string().into_vec()), 0)
            }
            _ => continue,
        };
        if entries.len() > ENTRIES_MAX {
            // The manifest says that it is too many.
            return Ok(());
        }
        let is_dir = kind == EntryKind::Directory;
        entries.push(Entry { kind, path: path.clone(), mode: meta.mode() & 0o777, bytes });
        if is_dir {
            list_below(&found.path(), &path, entries)?;
        }
    }
    Ok(())
}

/// A link in a file's place is none of the session's files, and a FIFO would make its reader wait.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_puts_in_the_programs_place_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let user = User { uid, gid: rustix::process::getegid().as_raw(), groups: Vec::new() };
        let files = Files { dir: dir.path().to_owned(), user };
        let exec = dir.path().join("exec");
        // Nobody ever writes to it.
        rustix::fs::mknodat(rustix::fs::CWD, &exec, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert!(files.open_program().is_err());
        fs::remove_file(&exec).unwrap();
        std::os::unix::fs::symlink("/bin/sh", &exec).unwrap();
        assert!(files.open_program().is_err());
        fs::remove_file(&exec).unwrap();
        fs::write(&exec, "#!/bin/sh").unwrap();
        files.open_program().unwrap();
    }
}
