//! What lies on a mount of this machine: commands look at it there, as the user who runs them, so these need neither the
//! cluster's key nor its configuration.
//!
//! A path that begins with `:` or `covey:` is the cluster's own, and so is one that is not on a mount. One that leads to
//! nothing belongs to where it would be made.

use super::cluster::mounts;
use super::path::{Failures, Follow, below, inside, is_kind, kind, shown};
use super::{Context, Session, tree};
use crate::error::{Cannot, Error, Result};
use covey_stripe::client::Stat;
use covey_stripe::ops::{Inode, nanos_of};
use covey_wire::Name;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where a path of the command line leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a mount of this machine.
    Mounted(PathBuf),
    /// A path of the cluster.
    Inside(Vec<u8>),
}

impl Place {
    /// What is at the path and does not answer is an error: the cluster may have something else at the same path.
    pub fn of(path: &OsStr) -> Result<Place> {
        match is_on_mount(path) {
            Ok(true) => Ok(Place::Mounted(path.into())),
            Ok(false) => Ok(Place::Inside(inside(path))),
            Err(error) => {
                let path = path.display();
                let why = crate::error::reason(&error);
                Err(Error::work(format!("cannot look at {path} on this machine: {why}"))
                    .hint(format!("`:{path}` is the cluster's own path")))
            }
        }
    }

    /// Of several paths.
    pub fn all(paths: &[OsString]) -> Result<Vec<Place>> {
        paths.iter().map(|path| Place::of(path)).collect()
    }

    /// The path as it is shown.
    pub fn path(&self) -> &[u8] {
        match self {
            Place::Mounted(path) => path.as_os_str().as_bytes(),
            Place::Inside(path) => path,
        }
    }

    /// An entry of the directory here.
    pub fn below(&self, name: &[u8]) -> Place {
        let path = below(self.path(), name);
        match self {
            Place::Mounted(_) => Place::Mounted(OsString::from_vec(path).into()),
            Place::Inside(_) => Place::Inside(path),
        }
    }
}

/// Whether a path of the command line is on a mount of Covey.
///
/// # Errors
///
/// Something is there that does not answer.
pub fn is_on_mount(path: &OsStr) -> io::Result<bool> {
    let bytes = path.as_bytes();
    if bytes.is_empty() || bytes.starts_with(b":") || bytes.starts_with(b"covey:") {
        return Ok(false);
    }
    let is_ours = |device| mounts::kind_of(device).as_deref() == Some(super::mount::KIND);
    // A link may lead to a mount, and a link on a mount to nothing.
    for place in Path::new(path).ancestors() {
        let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
        for data in [std::fs::metadata(place), std::fs::symlink_metadata(place)] {
            match data {
                Ok(data) if is_ours(data.dev()) => return Ok(true),
                Err(error) if !LEADS_NOWHERE.contains(&error.kind()) => return Err(error),
                _ => {}
            }
        }
        if place.symlink_metadata().is_ok() {
            return Ok(false);
        }
    }
    Ok(false)
}

/// What commands look at: mounts of this machine, and the cluster where a path is its own.
pub struct Sight {
    session: Option<Session>,
}

impl Sight {
    /// Connects to the cluster if one of the places is there.
    pub async fn of(places: &[Place], context: &Context) -> Result<Sight> {
        let is_inside = |place: &Place| matches!(place, Place::Inside(_));
        let is_needed = places.iter().any(is_inside);
        let session = if is_needed { Some(context.session().await?) } else { None };
        Ok(Sight { session })
    }

    /// The session, for a place inside.
    pub fn session(&self) -> &Session {
        self.session.as_ref().expect("there is one where a place is inside")
    }

    /// The inode at a place, or an error that says what the command was about to do.
    pub async fn find(&self, verb: &str, place: &Place, follow: Follow) -> Result<Inode> {
        match place {
            Place::Inside(path) => self.session().find(verb, path, follow).await,
            Place::Mounted(path) => {
                let what = || format!("{verb} {}", shown(place.path()));
                stat(path, follow).map(|stat| stat.inode).cannot(what)
            }
        }
    }

    /// All that is known of the file at a place.
    pub async fn stat(&self, verb: &str, place: &Place, follow: Follow) -> Result<Stat> {
        let what = || format!("{verb} {}", shown(place.path()));
        match place {
            Place::Inside(path) => {
                let inode = self.session().find(verb, path, follow).await?;
                self.session().fs.stat(inode.id).await.cannot(what)
            }
            Place::Mounted(path) => stat(path, follow).cannot(what),
        }
    }

    /// All entries of a directory without `.` and `..`, with their inodes.
    pub async fn entries(
        &self,
        verb: &str,
        place: &Place,
        dir: &Inode,
    ) -> Result<Vec<(Name, Inode)>> {
        let what = || format!("{verb} {}", shown(place.path()));
        match place {
            Place::Inside(_) => self.session().entries(dir.id).await.cannot(what),
            Place::Mounted(path) => entries(path).cannot(what),
        }
    }

    /// A file and everything below it, directories before what they hold. Directories that cannot be read are told and left
    /// out.
    pub async fn tree(
        &self,
        verb: &str,
        (top, inode): (Place, Inode),
        failures: &mut Failures,
        context: &Context,
    ) -> Vec<(Place, Inode)> {
        if let Place::Inside(path) = top {
            let top = (path, inode);
            let listed = tree::list(self.session(), verb, top, failures, context).await;
            return listed.into_iter().map(|(path, of)| (Place::Inside(path), of)).collect();
        }
        let (mut found, mut ahead) = (Vec::new(), vec![(top, inode)]);
        while let Some((place, inode)) = ahead.pop() {
            if is_kind(&inode, kind::DIR) {
                let entries = self.entries(verb, &place, &inode).await;
                let entries = failures.take(entries, context).unwrap_or_default();
                let entries = entries.into_iter().rev();
                ahead.extend(entries.map(|(name, of)| (place.below(name.as_bytes()), of)));
            }
            found.push((place, inode));
        }
        found
    }

    /// Ends the session, if there is one, and passes a result on.
    pub async fn close<T>(self, result: Result<T>) -> Result<T> {
        match self.session {
            Some(session) => session.close(result).await,
            None => result,
        }
    }
}

/// A file as this machine's kernel shows it. What only the cluster knows stays empty.
fn stat(path: &Path, follow: Follow) -> io::Result<Stat> {
    let data = match follow {
        Follow::Last => std::fs::metadata(path),
        Follow::NotLast => std::fs::symlink_metadata(path),
    }?;
    let target = if data.is_symlink() { std::fs::read_link(path)? } else { PathBuf::new() };
    let time = |seconds: i64, nanos: i64| nanos_of(seconds, nanos as u64);
    let born = data.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
    let inode = Inode {
        id: data.ino(),
        mode: data.mode(),
        uid: data.uid(),
        gid: data.gid(),
        nlink: u32::try_from(data.nlink()).unwrap_or(u32::MAX),
        rdev: data.rdev(),
        size: data.size(),
        epoch: 0,
        version: 0,
        sparse: false,
        inline: 0,
        atime: time(data.atime(), data.atime_nsec()),
        mtime: time(data.mtime(), data.mtime_nsec()),
        ctime: time(data.ctime(), data.ctime_nsec()),
        btime: born.map_or(0, |born| time(born.as_secs() as i64, i64::from(born.subsec_nanos()))),
        target: target.into_os_string().into_vec().into(),
        striping: None,
        hint: None,
        parent: 0,
        has_xattrs: false,
        consistency: 0,
    };
    Ok(Stat::new(inode, data.blocks()))
}

fn entries(path: &Path) -> io::Result<Vec<(Name, Inode)>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name();
        match stat(&path.join(&name), Follow::NotLast) {
            Ok(stat) => entries.push((name.into_vec().into(), stat.inode)),
            // Removed since.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}

/// A path of the cluster need not be one of this machine, or one that its user may see.
const LEADS_NOWHERE: [ErrorKind; 3] =
    [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied];
