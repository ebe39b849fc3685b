//! The file by which a Unix socket is found.

use crate::os::credentials;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Goes with whoever listens there. Known by device and inode, so that nobody else's is removed.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl SocketFile {
    /// Removes what a dead server has left; a live one, or a file of another kind, is an error.
    pub(crate) fn clear(path: &Path) -> io::Result<()> {
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
        if !found.file_type().is_socket() {
            let what = "a file that is not a socket is there";
            return Err(io::Error::new(ErrorKind::AlreadyExists, what));
        }
        let busy = |who: String| {
            let what = format!("another server listens there{who}");
            Err(io::Error::new(ErrorKind::AddrInUse, what))
        };
        match UnixStream::connect(path) {
            Ok(other) => busy(match credentials::peer(&other) {
                Ok(credentials::Peer { pid: Some(pid), .. }) => format!(", process {pid}"),
                _ => String::new(),
            }),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
            // A full backlog is a live server, too.
            Err(error) if error.kind() == ErrorKind::WouldBlock => busy(String::new()),
            Err(error) => Err(error),
        }
    }

    /// Of a socket that is bound to `path`.
    pub(crate) fn of(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), id: id(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id(&self.path).is_ok_and(|there| there == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use crate::os::shm::{Settings, Shm};
    use std::io::ErrorKind;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_name_is_taken_over_from_the_dead_and_given_back_at_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("meet");
        drop(UnixListener::bind(&path).expect("bound by a process that has ended"));
        assert!(path.exists());
        let mut first = Shm::new(Settings::default()).expect("an endpoint");
        first.listen(&path).expect("what is left is no hindrance");
        let mut second = Shm::new(Settings::default()).expect("an endpoint");
        let error = second.listen(&path).expect_err("the first one is there");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(first);
        assert!(!path.exists());
        std::fs::write(&path, "no socket").expect("written");
        assert_eq!(second.listen(&path).expect_err("a file").kind(), ErrorKind::AlreadyExists);
        assert!(path.exists());
    }
}
