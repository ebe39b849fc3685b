//! Layouts of what lies on a mount: who may see or change it there needs no key of the cluster.

use crate::cmd::mounted::is_on_mount;
use crate::error::{Cannot, Error, Result};
use covey_stripe::client::LAYOUT;
use covey_stripe::distribution::wish::{self, Wish};
use covey_stripe::ops::{Striping, StripingHint};
use covey_wire::List;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A path on a mount of Covey.
pub struct Mounted {
    path: PathBuf,
    text: String,
}

/// What is known of its layout.
pub enum Layout {
    /// A file's.
    File(Striping),
    /// Of new files in a directory.
    Directory(StripingHint),
}

impl Mounted {
    /// What lies at a path of this machine, if that is on a mount of Covey. What is there and does not answer is an error: the
    /// cluster may have something else at the same path.
    pub fn at(path: &OsStr) -> Result<Option<Mounted>> {
        let failed = |why: &str| {
            let path = path.display();
            Error::work(format!("cannot find the layout of {path} on this machine: {why}"))
                .hint(format!("`:{path}` is the cluster's own path"))
        };
        if !is_on_mount(path).map_err(|error| failed(&crate::error::reason(&error)))? {
            return Ok(None);
        }
        let mut text = vec![0; TEXT_BYTES_MAX];
        let length = getxattr(path, LAYOUT, &mut text[..]).map_err(|error| match error {
            Errno::NODATA => failed("it is neither a regular file nor a directory"),
            error => failed(&crate::error::reason(&error.into())),
        })?;
        text.truncate(length);
        let text = String::from_utf8(text).map_err(|_| failed("its mount says no text"))?;
        Ok(Some(Mounted { path: path.into(), text }))
    }

    pub fn layout(&self) -> Result<Layout> {
        let told = |why: String| {
            let path = self.path.display();
            Error::work(format!(
                "cannot show the layout of {path}: its mount says `{}`: {why}",
                self.text
            ))
            .hint("upgrade covey, and mount anew")
        };
        let (words, servers) = match self.text.split_once(" on=") {
            Some((words, servers)) => (words, Some(servers)),
            None => (&*self.text, None),
        };
        let wish: Wish = words.parse().map_err(told)?;
        let hint =
            wish.of(StripingHint::simple_stripe(0, 0), 0).map_err(|why| told(why.to_string()))?;
        let Some(servers) = servers else { return Ok(Layout::Directory(hint)) };
        let servers: std::result::Result<Vec<u16>, _> =
            servers.split(',').map(str::parse).collect();
        let servers = servers.map_err(|error| told(error.to_string()))?;
        let StripingHint { kind, strip_bytes, params, .. } = hint;
        Ok(Layout::File(Striping { kind, strip_bytes, params, servers: List(servers) }))
    }

    /// The number and the size of what lies there.
    pub fn number_and_size(&self) -> Result<(u64, u64)> {
        let data = self.path.metadata().cannot(|| format!("look at {}", self.path.display()))?;
        Ok((data.ino(), data.len()))
    }

    pub fn set(&self, hint: &StripingHint) -> Result<()> {
        let set = setxattr(&self.path, LAYOUT, wish::text(hint).as_bytes(), XattrFlags::empty());
        set.map_err(|error| {
            let path = self.path.display();
            let what = |why: &str| Error::work(format!("cannot set the layout of {path}: {why}"));
            match error {
                Errno::NOTEMPTY => what("it holds data already")
                    .hint("set the layout of its directory, then copy the file"),
                Errno::INVAL => what("the cluster cannot lay files out like that")
                    .hint("`covey layout set --help` tells what each kind takes; --servers 0 takes all there are"),
                Errno::BUSY => what("it is open").hint("close it first"),
                Errno::PERM => what("it is another user's"),
                error => what(&crate::error::reason(&error.into())),
            }
        })
    }
}

/// More than any layout has.
const TEXT_BYTES_MAX: usize = 64 << 10;
