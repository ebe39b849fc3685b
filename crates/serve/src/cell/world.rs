//! What the devices of a host need of Linux: memory in the area, and files.

use super::disk::{Found, OnDisk, number};
use super::log::LogQueue;
use super::mappings::Mappings;
use super::part::{Part, Pool};
use covey_cell::devices::{Access, Backing, Host};
use covey_io::task;
use covey_ninep::message::Qid;
use covey_ninep::tree::{Attr, Errno, Outcome, Result, S_IFMT, S_IFREG, Time};
use covey_wire::{Bytes, Name};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The world of one host.
pub(super) struct World {
    pool: Pool,
    owner: (u32, u32),
    /// Files that workers map.
    pub mappings: Rc<Mappings>,
    /// What workers write to the log.
    pub log: LogQueue,
}

impl World {
    pub fn new(pool: Pool, owner: (u32, u32), log: LogQueue) -> World {
        World { pool, owner, mappings: Rc::default(), log }
    }

    fn part(&self) -> Part {
        Part::new(self.pool.clone())
    }
}

impl Host for World {
    fn now(&self) -> Time {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { sec: now.as_secs(), nsec: now.subsec_nanos().into() }
    }

    fn owner(&self) -> (u32, u32) {
        self.owner
    }

    fn memory(&self) -> Result<Rc<dyn Backing>> {
        Ok(Rc::new(self.part()))
    }

    fn open(&self, path: &str, access: Access) -> Outcome<Rc<dyn Backing>> {
        let (mappings, path) = (self.mappings.clone(), host_path(path).to_owned());
        Outcome::later(async move {
            let found = task::blocking(move || Found::open(&path, access)).await?;
            Ok(Rc::new(OnDisk::new(found, &mappings)) as Rc<dyn Backing>)
        })
    }

    fn private(&self, path: &str) -> Outcome<Rc<dyn Backing>> {
        let (part, path) = (self.part(), host_path(path).to_owned());
        Outcome::later(async move {
            let opened = task::blocking(move || {
                let file = File::open(path)?;
                let found = file.metadata()?;
                Ok((Arc::new(file), found))
            });
            let (file, found) = opened.await?;
            part.resize(found.len()).wait().await?;
            let mut at = 0;
            loop {
                let read = file.clone();
                let block = task::blocking(move || {
                    let mut block = vec![0; BLOCK_BYTES];
                    let count = read.read_at(&mut block, at)?;
                    block.truncate(count);
                    Ok(block)
                });
                let block = block.await?;
                if block.is_empty() {
                    let part = part.copy_of(number(&found), file);
                    return Ok(Rc::new(part) as Rc<dyn Backing>);
                }
                let end = at + block.len() as u64;
                if end > part.size() {
                    part.resize(end).wait().await?;
                }
                part.write(at, &block)?;
                at = end;
            }
        })
    }

    fn attrs(&self, paths: Vec<String>) -> Outcome<Vec<Result<Attr>>> {
        apart(move || {
            let attr = |path: &String| std::fs::metadata(host_path(path)).map(|found| attr(&found));
            Ok(paths.iter().map(attr).collect::<Vec<io::Result<Attr>>>())
        })
        .map(|attrs| attrs.into_iter().map(|attr| attr.map_err(Errno::from)).collect())
    }

    fn list(&self, path: &str) -> Outcome<Vec<Name>> {
        let path = host_path(path).to_owned();
        apart(move || {
            let entries = std::fs::read_dir(path)?;
            let mut names: Vec<Vec<u8>> = entries
                .take(ENTRIES_MAX)
                .filter_map(|entry| Some(entry.ok()?.file_name().into_vec()))
                .collect();
            // A listing goes on by its numbers: the same order each time.
            names.sort();
            Ok(names)
        })
        .map(|names| names.iter().map(|name| Name::from(&name[..])).collect())
    }

    fn make(&self, path: &str, mode: u32) -> Outcome<()> {
        let path = host_path(path).to_owned();
        apart(move || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode).open(path).map(drop)
        })
    }

    fn remove(&self, path: &str) -> Outcome<()> {
        let path = host_path(path).to_owned();
        apart(move || std::fs::remove_file(path))
    }

    fn share(&self, mapping: u32, worker: u32) -> Result<()> {
        self.mappings.share(mapping, worker)
    }

    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
        tokio::task::spawn_local(work);
    }

    fn log(&self, text: Bytes) -> Outcome<()> {
        self.log.put(text)
    }
}

/// What may take time: others are served meanwhile.
fn apart<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Outcome<T> {
    Outcome::later(async move { Ok(task::blocking(work).await?) })
}

/// Of a file that is read in for `#R`, at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Names of one directory that are listed.
const ENTRIES_MAX: usize = 1 << 20;

fn host_path(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

fn attr(found: &Metadata) -> Attr {
    let time = |sec: i64, nsec: i64| Time { sec: sec as u64, nsec: nsec as u64 };
    let mtime = time(found.mtime(), found.mtime_nsec());
    let attr = Attr::new(number(found), found.mode(), found.uid(), found.gid(), mtime);
    let version = found.mtime() as u32 ^ found.mtime_nsec() as u32 ^ found.size() as u32;
    Attr {
        qid: Qid { version, ..attr.qid },
        nlink: found.nlink(),
        size: if found.mode() & S_IFMT == S_IFREG { found.size() } else { 0 },
        blocks: found.blocks(),
        atime: time(found.atime(), found.atime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        ..attr
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::part::tests::pool;

    fn world() -> World {
        World::new(pool(), (1, 1), LogQueue::new(|_| ()).expect("a thread"))
    }

    #[test]
    fn a_private_file_has_the_bytes_of_its_original_and_keeps_them_from_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
        std::fs::write(file.path(), &content).expect("written");
        let world = world();
        let path = file.path().to_str().expect("a path");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let part = runtime.block_on(world.private(path).wait()).expect("read in");
        let mut bytes = vec![0; content.len()];
        part.read(0, &mut bytes).expect("read");
        assert!(bytes == content);
        part.write(0, b"changed").expect("written");
        assert_eq!(part.number(), number(&file.path().metadata().expect("found")));
        assert!(std::fs::read(path).expect("read") == content);
    }

    #[test]
    fn files_that_the_kernel_makes_up_are_read_though_they_have_no_size() {
        let world = world();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let opened = world.open("/proc/self/status", Access::Read).wait();
        let file = runtime.block_on(opened).expect("open");
        let read = |at| runtime.block_on(file.fetch(at, 16 << 10).expect("not at once").wait());
        let bytes = read(0).expect("read");
        assert!(bytes.starts_with(b"Name:"), "{}", bytes.len());
        assert_eq!((file.has_size(), file.place()), (false, None));
        assert!(read(bytes.len() as u64).expect("the end").is_empty());
    }
}
