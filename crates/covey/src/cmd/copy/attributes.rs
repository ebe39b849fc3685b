//! Extended attributes, which `-p` keeps: `user.*`, and for root what only root may set. Access control lists are not kept: the
//! file system has none.

use super::super::Session;
use super::data::{Sink, Source};
use super::local;
use super::meta::Meta;
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::Errno;
use covey_stripe::ops::Id;
use covey_wire::{Bytes, Name};
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use std::fs::File;

/// Names and values.
pub type Attributes = Vec<(Name, Bytes)>;

/// The longest list of names, and the longest value, that Linux has.
const BYTES_MAX: usize = 64 << 10;

/// What a file has. `meta`: as it was when the copy began.
pub async fn of_file(session: &Session, source: &Source, meta: &Meta) -> Result<Attributes> {
    match source {
        Source::Local { file, name } => {
            let file = file.clone();
            let found = local::blocking(move || of_local(file.file())).await;
            found.cannot(|| format!("read the attributes of {name}"))
        }
        Source::Covey { name, .. } => of_covey(session, meta, name).await,
    }
}

/// What a file or directory of the file system has.
pub async fn of_covey(session: &Session, meta: &Meta, shown: &str) -> Result<Attributes> {
    let Some(id) = meta.id.filter(|_| meta.has_attributes) else { return Ok(Vec::new()) };
    let (fs, who, what) = (&session.fs, &session.who, || format!("read the attributes of {shown}"));
    let mut found = Vec::new();
    for name in fs.listxattr(who, id).await.cannot(what)? {
        if !is_kept(name.as_bytes()) {
            continue;
        }
        match fs.getxattr(who, id, &name).await {
            Ok(value) => found.push((name, value)),
            // Removed since.
            Err(error) if error.code() == Errno::ENODATA => {}
            Err(error) => return Err(error).cannot(what),
        }
    }
    Ok(found)
}

/// What a file or directory of this machine has: nothing where its file system has no attributes.
pub fn of_local(file: &File) -> std::io::Result<Attributes> {
    use rustix::io::Errno;
    let mut names = vec![0; BYTES_MAX];
    let length = match flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        length => length?,
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| is_kept(name)) {
        let mut value = vec![0; BYTES_MAX];
        match fgetxattr(file, name, &mut value[..]) {
            Ok(length) => found.push((Name::from(name), Bytes::copy_from_slice(&value[..length]))),
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Covey's own words about a file are none of what is in it.
fn is_kept(name: &[u8]) -> bool {
    let is_of_user = name.starts_with(b"user.") && !name.starts_with(b"user.covey.");
    let is_of_root = name.starts_with(b"trusted.") || name == b"security.capability";
    is_of_user || is_of_root && rustix::process::geteuid().is_root()
}

/// Gives them to a file.
pub async fn set(sink: &Sink, attributes: Attributes) -> Result<()> {
    match sink {
        _ if attributes.is_empty() => Ok(()),
        Sink::Local { file, name } => {
            let (file, name) = (file.clone(), name.clone());
            local::blocking(move || set_local(&file, &attributes, &name)).await
        }
        Sink::Covey { session, file, name } => {
            set_covey(session, file.id(), &attributes, name).await
        }
    }
}

/// Gives them to a file or directory of this machine.
pub fn set_local(file: &File, attributes: &Attributes, shown: &str) -> Result<()> {
    attributes.iter().try_for_each(|(name, value)| {
        let set = fsetxattr(file, name.as_bytes(), value, XattrFlags::empty());
        // Where there are none at all, as on a memory stick.
        let is_unknown = set == Err(rustix::io::Errno::OPNOTSUPP);
        explained(set.cannot(|| keeping(name, shown)), is_unknown)
    })
}

/// Gives them to a file or directory of the file system.
pub async fn set_covey(
    session: &Session,
    id: Id,
    attributes: &Attributes,
    shown: &str,
) -> Result<()> {
    for (name, value) in attributes {
        let set = session.fs.setxattr(&session.who, id, name, value.clone(), 0).await;
        let is_unknown = set.as_ref().is_err_and(|error| error.code() == Errno::EOPNOTSUPP);
        explained(set.cannot(|| keeping(name, shown)), is_unknown)?;
    }
    Ok(())
}

fn keeping(name: &Name, shown: &str) -> String {
    format!("keep the attribute {} of {shown}", String::from_utf8_lossy(name.as_bytes()))
}

fn explained(set: Result<()>, is_unknown: bool) -> Result<()> {
    set.map_err(|error: Error| {
        if is_unknown {
            error.hint("the file system there has no such attributes; without -p they are left out")
        } else {
            error
        }
    })
}
