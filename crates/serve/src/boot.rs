//! Images that this node serves at `/boot`: a directory of them, looked at again when somebody asks.
//!
//! ```text
//!   DIR/IMAGE/ARCH/sum            its hashes; renamed into place last, so it says which data are meant
//!                  data-SHA256    the bytes, by the first 16 digits of their hash
//! ```
//!
//! `covey boot add` puts an image there, [`put`] is what it does. Readers keep the file that they have opened, so an
//! image can be replaced or removed at any time.

mod put;

pub use put::{Removed, list, put, remove};

use crate::lobby::Lobby;
use crate::node::wait_for_end;
use crate::{accept, config};
use covey_cluster::key::KeyFiles;
use covey_io::disk::{self, DiskFile};
use covey_io::os::file::DataFile;
use covey_io::os::limits;
use covey_io::os::net::Listener;
use covey_io::task;
use covey_launch::image::{
    Catalogue, Content, Image, Images, Library, Limits, LocalFuture, Sum, World, hex,
};
use covey_ninep::auth::KeyRing;
use covey_ninep::server::Guest;
use covey_ninep::tree::{Data, Errno, Outcome, Read, Result};
use covey_wire::{Bytes, Name};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Where a node keeps its images, in its store.
pub const DIR: &str = "boot";

/// The tree of the images in a directory, which is made when missing.
pub fn open(dir: PathBuf) -> io::Result<Images> {
    std::fs::create_dir_all(&dir)?;
    Ok(Images::new(Clock, Shared(Rc::new(Shelf::new(dir)))))
}

/// Serves the images of a directory, without any cluster, until the process is told to end. With a token, nobody
/// gets in without it; `say` is told where, once it listens.
pub async fn serve(
    dir: PathBuf,
    listen: &[config::Address],
    token: Option<[u8; 32]>,
    say: impl Fn(&str),
) -> anyhow::Result<()> {
    let tree = Rc::new(open(dir.clone())?);
    limits::raise_open_files()?;
    let lobby = Lobby::new(limits::open_files());
    for address in listen {
        let listener = Listener::bind(&address.to_string().parse()?, 0o666).await?;
        let whom = match token {
            Some(_) => "holders of the image token",
            None => "users of this machine",
        };
        say(&format!("serves images of {} at {} to {whom}", dir.display(), listener.address()));
        let keys = token.map(KeyFiles::fixed);
        let config = accept::Config { keys, require_key: token.is_some(), ..Default::default() };
        task::spawn(accept::serve_tree(listener, tree.clone(), config, lobby.clone()));
    }
    wait_for_end().await
}

/// Who has the image token, made from the cluster's key, may read images and nothing else.
pub fn guest(cluster_keys: KeyRing) -> Guest {
    let key = cluster_keys.map(covey_launch::image::token);
    let (uname, aname) = (covey_launch::image::TOKEN_USER, covey_launch::image::TREE);
    Guest { uname, key, aname, uid: NOBODY }
}

/// The clock and the log of this process.
struct Clock;

impl World for Clock {
    fn now(&self) -> Instant {
        task::now()
    }

    fn sleep(&self, time: Duration) -> LocalFuture<()> {
        Box::pin(task::sleep(time))
    }

    fn report(&self, line: &str) {
        tracing::warn!("image {line}");
    }
}

/// A shelf, as those who are still looking hold it.
struct Shared(Rc<Shelf>);

/// The images of a directory.
struct Shelf {
    dir: Arc<Path>,
    held: RefCell<Held>,
    /// Images so far.
    count: Cell<u64>,
    /// Who has asked since the last look began: one look at a time answers all who asked before it, so that an image
    /// that was put there is seen by everyone who asks afterwards.
    asking: RefCell<Vec<oneshot::Sender<Result<Rc<Catalogue>>>>>,
    is_looking: Cell<bool>,
}

#[derive(Default)]
struct Held {
    catalogue: Rc<Catalogue>,
    stamps: Stamps,
}

/// What tells whether an image is still the same, by image and architecture.
type Stamps = BTreeMap<(String, String), Stamp>;

/// When the file of the hashes was written, and its inode.
type Stamp = (Duration, u64);

/// An image that was found.
struct Found {
    place: (String, String),
    stamp: Stamp,
    /// None where it is known already.
    new: Option<(Sum, Arc<dyn DiskFile>)>,
}

impl Shelf {
    fn new(dir: PathBuf) -> Shelf {
        Shelf {
            dir: dir.into(),
            held: RefCell::default(),
            count: Cell::default(),
            asking: RefCell::default(),
            is_looking: Cell::default(),
        }
    }

    /// Looks until nobody asks.
    async fn answer(self: Rc<Shelf>) {
        let _looking = Looking(&self);
        loop {
            let asking = self.asking.take();
            if asking.is_empty() {
                return;
            }
            let (dir, known) = (self.dir.clone(), self.held.borrow().stamps.clone());
            let found = task::blocking(move || scan(&dir, &known)).await;
            let catalogue = found.map(|found| self.take(found)).map_err(Errno::from);
            for asker in asking {
                // One that has gone away wants no answer.
                let _ = asker.send(catalogue.clone());
            }
        }
    }

    fn take(&self, found: Vec<Found>) -> Rc<Catalogue> {
        let mut held = self.held.borrow_mut();
        let (mut catalogue, mut stamps) = (Catalogue::new(), Stamps::new());
        for Found { place, stamp, new } in found {
            let (name, arch) = (Name::from(place.0.as_str()), Name::from(place.1.as_str()));
            let known = held.catalogue.get(&name).and_then(|all| all.get(&arch));
            let image = match (new, known) {
                (Some((sum, file)), _) => {
                    self.count.set(self.count.get() + 1);
                    let content = Rc::new(FileContent { file });
                    Image::whole(self.count.get(), sum, content, Limits::default())
                }
                (None, Some(image)) => image.clone(),
                (None, None) => continue,
            };
            catalogue.entry(name).or_default().insert(arch, image);
            stamps.insert(place, stamp);
        }
        *held = Held { catalogue: Rc::new(catalogue), stamps };
        held.catalogue.clone()
    }
}

/// One look goes on. The next who asks begins another, however this one ends.
struct Looking<'a>(&'a Shelf);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.is_looking.set(false);
    }
}

impl Library for Shared {
    fn look(&self) -> Outcome<Rc<Catalogue>> {
        let (asker, answer) = oneshot::channel();
        self.0.asking.borrow_mut().push(asker);
        if !self.0.is_looking.replace(true) {
            task::spawn(self.0.clone().answer());
        }
        let gone = || Errno::because(Errno::EIO, "the server is ending");
        Outcome::later(async move { answer.await.unwrap_or_else(|_| Err(gone())) })
    }
}

/// Looks at what is in the directory. An image that cannot be used is left out, with a line in the log.
fn scan(dir: &Path, known: &Stamps) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for image in names(dir)? {
        for arch in names(&dir.join(&image))? {
            let at = dir.join(&image).join(&arch);
            match look_at(&at, (image.clone(), arch), known) {
                Ok(one) => found.push(one),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!("image {}: {error}", at.display()),
            }
        }
    }
    Ok(found)
}

fn look_at(at: &Path, place: (String, String), known: &Stamps) -> io::Result<Found> {
    let meta = std::fs::metadata(at.join("sum"))?;
    let stamp = (meta.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default(), {
        use std::os::unix::fs::MetadataExt;
        meta.ino()
    });
    let new = match known.get(&place) {
        Some(known) if *known == stamp => None,
        _ => Some(open_image(at)?),
    };
    Ok(Found { place, stamp, new })
}

fn open_image(at: &Path) -> io::Result<(Sum, Arc<dyn DiskFile>)> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let text = put::read_sum(at)?;
    let sum = Sum::parse(&text).map_err(wrong)?;
    let file = DataFile::new(std::fs::File::open(at.join(data_name(&sum)))?)?;
    let bytes = file.stat()?.bytes;
    if bytes != sum.bytes {
        return Err(wrong(format!("the data are {bytes} bytes, the sums say {}", sum.bytes)));
    }
    Ok((sum, Arc::new(file)))
}

/// Directories whose names people can say; none where there is nothing.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| put::check_name(name).is_ok()).collect())
}

fn data_name(sum: &Sum) -> String {
    format!("data-{}", &hex(&sum.sha256)[..16])
}

/// A file of this machine.
struct FileContent {
    file: Arc<dyn DiskFile>,
}

impl Content for FileContent {
    fn read(&self, mut read: Read<'_>) -> Data {
        let (file, offset, count) = (self.file.clone(), read.offset, read.count as usize);
        if read.takes_range()
            && let Ok(Some(range)) = file.range(offset, count)
        {
            return Data::Range(range);
        }
        if let Some(data) = read.fill(|out| Ok(file.append_now(offset, count, out)?)) {
            return data;
        }
        Data::later(async move { Ok(disk::read(file, offset, count).await?) })
    }

    fn write(&self, _: u64, _: Vec<Bytes>) -> LocalFuture<Result<()>> {
        Box::pin(async { Err(Errno::EROFS.into()) })
    }

    fn sync(&self) -> LocalFuture<Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// What Linux calls a user that has no number here.
const NOBODY: u32 = 65534;

#[cfg(test)]
mod tests;
