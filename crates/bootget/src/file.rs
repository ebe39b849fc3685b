//! The file that the image is put into.

use covey_launch::image::{Content, LocalFuture};
use covey_ninep::tree::{Data, Errno, Read, Result};
use covey_wire::Bytes;
use rustix::io::Errno as OsErrno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// An open file. Reads and writes go through threads: a disk may be slow, and others are served meanwhile.
pub struct ImageFile(Arc<File>);

impl ImageFile {
    /// Makes the file, or empties it, and takes the space that it will need; a block device is taken as it is.
    pub fn create(path: &Path, bytes: u64) -> io::Result<ImageFile> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
            reserve(&file, bytes)?;
        }
        Ok(ImageFile(Arc::new(file)))
    }
}

/// A disk that is too small is better noticed before anything is fetched.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // The initramfs's own file system cannot say.
        Err(OsErrno::OPNOTSUPP | OsErrno::NOSYS) => Ok(()),
        // Nothing is asked for.
        Err(OsErrno::INVAL) if bytes == 0 => Ok(()),
        other => Ok(other?),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Errno::because(Errno::EIO, error.to_string()))?;
    done.map_err(Errno::from)
}

impl Content for ImageFile {
    fn read(&self, read: Read<'_>) -> Data {
        let (file, offset, count) = (self.0.clone(), read.offset, read.count as usize);
        Data::later(blocking(move || {
            let mut buffer = vec![0; count];
            // All of it was written.
            file.read_exact_at(&mut buffer, offset)?;
            Ok(buffer.into())
        }))
    }

    fn write(&self, offset: u64, pieces: Vec<Bytes>) -> LocalFuture<Result<()>> {
        let file = self.0.clone();
        Box::pin(blocking(move || {
            let mut at = offset;
            for piece in pieces {
                file.write_all_at(&piece, at)?;
                at += piece.len() as u64;
            }
            Ok(())
        }))
    }

    fn sync(&self) -> LocalFuture<Result<()>> {
        let file = self.0.clone();
        Box::pin(blocking(move || file.sync_all()))
    }
}
