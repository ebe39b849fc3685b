//! Files put together from their objects.

use super::rows::{File as Known, Rows};
use super::stores::Stores;
use crate::cmd::touch::system_time;
use anyhow::Result;
use covey_stripe::distribution::{self, Distribution, INLINE};
use covey_stripe::ops::{Id, Striping};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// Bytes copied at once.
const CHUNK: u64 = 1 << 20;
/// Directories below one another; more are a circle.
const DEPTH_MAX: usize = 4096;

/// What is being done, and how it went.
pub struct Salvage<'a> {
    pub rows: &'a Rows,
    pub stores: &'a Stores,
    /// What is not whole, a line each.
    pub faults: Vec<String>,
    pub files: u64,
    pub bytes: u64,
}

impl Salvage<'_> {
    /// A directory and all below it.
    pub fn directory(&mut self, id: Id, to: &Path, depth: usize) -> Result<()> {
        const TYPE: u32 = 0o170_000;
        for (name, child) in self.rows.entries(id) {
            let path = to.join(OsStr::from_bytes(name));
            let is_plain = !matches!(&name[..], b"" | b"." | b"..") && !name.contains(&b'/');
            let Some(file) = self.rows.file(*child).filter(|_| is_plain && depth < DEPTH_MAX)
            else {
                self.faults.push(format!("{}: the metadata has no file {child}", path.display()));
                continue;
            };
            match file.mode & TYPE {
                0o040_000 => {
                    fs::create_dir_all(&path)?;
                    self.directory(*child, &path, depth + 1)?;
                }
                0o120_000 => symlink(OsStr::from_bytes(&file.target), &path)?,
                0o100_000 => self.regular(*child, file, &path)?,
                _ => self.faults.push(format!("{}: a special file is left out", path.display())),
            }
        }
        Ok(())
    }

    fn regular(&mut self, id: Id, known: &Known, path: &Path) -> Result<()> {
        let out = File::create_new(path)?;
        self.files += 1;
        match &known.striping {
            Some(striping) => self.bytes(id, striping, Some(known), &out, path)?,
            None => self.faults.push(format!("{}: it has no layout", path.display())),
        }
        out.set_modified(system_time(known.mtime))?;
        out.set_permissions(fs::Permissions::from_mode(known.mode & 0o777))?;
        Ok(())
    }

    /// A file of which nothing is known but its objects.
    pub fn unnamed(&mut self, id: Id, lost: &Path) -> Result<()> {
        let path = lost.join(format!("#{id:016x}"));
        let out = File::create_new(&path)?;
        self.files += 1;
        match self.rows.striping_guessed(id) {
            Some(striping) => self.bytes(id, &striping, None, &out, &path),
            None => {
                self.faults.push(format!("{}: its layout is not known", path.display()));
                Ok(())
            }
        }
    }

    fn bytes(
        &mut self,
        id: Id,
        striping: &Striping,
        known: Option<&Known>,
        out: &File,
        path: &Path,
    ) -> Result<()> {
        let map = match distribution::of(striping) {
            Ok(map) => map,
            Err(error) => {
                return {
                    self.faults.push(format!("{}: {error}", path.display()));
                    Ok(())
                };
            }
        };
        let moved =
            known.and_then(|known| self.stores.moved_to(id, &striping.servers.0, known.epoch));
        if let Some(to) = moved {
            let server = self.rows.servers.get(usize::from(to)).map_or("?", |name| name.as_str());
            let text = "it has moved since the metadata was copied, and is put together wrongly";
            let hint = "a later `covey fs-dump`, given with --dump, may know where it lies";
            let path = path.display();
            self.faults.push(format!("{path}: {text}; {server} has a part of it; {hint}"));
        }
        let mut objects = Vec::new();
        let mut end = known.map_or(0, |known| known.size);
        for (slot, &chain) in striping.servers.0.iter().enumerate() {
            let object = self.stores.object(chain, id, known.map(|known| known.epoch))?;
            if let Some((_, length)) = object.as_ref().filter(|(_, length)| *length > 0) {
                // What was written since the metadata was copied is beyond the size it tells.
                let last = map.logical(slot, length - 1);
                end = end.max(if last == u64::MAX { 0 } else { last + 1 });
            }
            objects.push(object);
        }
        out.set_len(end)?;
        // Of a file that may have holes only a store that is missing tells of a loss.
        let may_have_holes = known.is_some_and(|known| known.sparse);
        let is_away =
            |slot| striping.servers.0.get(slot).is_some_and(|&at| self.stores.lacks(at, id));
        let (mut at, mut lacking, mut lost) = (0, 0, 0);
        while at < end {
            let spot = map.locate(at);
            let run = spot.run.min(end - at).min(CHUNK);
            let copied = match spot.slot {
                INLINE => self.inline(id, spot.physical, run, out, at)?,
                slot => match objects.get(slot).and_then(Option::as_ref) {
                    Some((object, _)) => copy(object, spot.physical, run, out, at)?,
                    None => 0,
                },
            };
            lacking += run - copied;
            lost += if may_have_holes && !is_away(spot.slot) { 0 } else { run - copied };
            at += run;
        }
        self.bytes += end - lacking;
        if lost > 0 {
            let (path, most) = (path.display(), if may_have_holes { "up to " } else { "" });
            let text =
                format!("{path}: {most}{lost} of {end} bytes are missing, they are zeros now");
            self.faults.push(text);
        }
        Ok(())
    }

    fn inline(&self, id: Id, from: u64, length: u64, out: &File, at: u64) -> Result<u64> {
        let content = self.rows.content(id);
        let start = content.len().min(from as usize);
        let piece = &content[start..content.len().min((from + length) as usize)];
        out.write_all_at(piece, at)?;
        Ok(piece.len() as u64)
    }
}

/// Copies what there is; how much that was.
fn copy(object: &File, from: u64, length: u64, out: &File, at: u64) -> Result<u64> {
    let mut piece = vec![0; length as usize];
    let mut count = 0;
    while count < piece.len() {
        match object.read_at(&mut piece[count..], from + count as u64)? {
            0 => break,
            read => count += read,
        }
    }
    out.write_all_at(&piece[..count], at)?;
    Ok(count as u64)
}
