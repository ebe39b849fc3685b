//! Images in a directory: putting one there, listing and removing them. All of it may block.

use super::{data_name, names};
use covey_io::os::directory::{sync_names, write_durably};
use covey_launch::image::{IMAGE_BYTES_MAX, SUM_BYTES_MAX, Sum, Summer};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Puts an image into `dir`, in place of one of the same name: for all who ask from then on. `tell` is called with
/// the bytes that were copied so far.
pub fn put(
    dir: &Path,
    image: &str,
    arch: &str,
    from: &Path,
    mut tell: impl FnMut(u64),
) -> io::Result<Sum> {
    check_name(image)?;
    check_name(arch)?;
    let mut source = File::open(from)?;
    let length = source.metadata()?.len();
    if length > IMAGE_BYTES_MAX {
        let what = format!("it is {length} bytes, limit is {IMAGE_BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    let at = dir.join(image).join(arch);
    fs::create_dir_all(&at)?;
    let sum = bring(&mut source, &at, length, &mut tell).inspect_err(|_| discard(&at))?;
    let data = data_name(&sum);
    // Those who read the one before have it open.
    for old in fs::read_dir(&at)?.filter_map(|entry| entry.ok()) {
        if old.file_name() != *data && old.file_name().to_string_lossy().starts_with("data-") {
            fs::remove_file(old.path())?;
        }
    }
    sync_names(&at)?;
    Ok(sum)
}

/// Makes what `source` has the image of directory `at`.
fn bring(source: &mut File, at: &Path, length: u64, tell: &mut impl FnMut(u64)) -> io::Result<Sum> {
    let new = at.join("new");
    let sum = copy(source, &new, length, tell)?;
    fs::rename(&new, at.join(data_name(&sum)))?;
    sync_names(at)?;
    write_durably(&at.join("sum.new"), &at.join("sum"), sum.text().as_bytes())?;
    Ok(sum)
}

/// Removes what a copy has left that did not fit. An image that was there before stays.
fn discard(at: &Path) {
    for name in ["new", "sum.new"] {
        let _ = fs::remove_file(at.join(name));
    }
    if !at.join("sum").exists() {
        let _ = fs::remove_dir_all(at);
    }
    // That of the image, unless it is there for other architectures.
    let _ = at.parent().map(fs::remove_dir);
}

fn copy(source: &mut File, new: &Path, length: u64, tell: &mut impl FnMut(u64)) -> io::Result<Sum> {
    let mut out = File::create(new)?;
    let (mut summer, mut done) = (Summer::new(length), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        summer.update(&buffer[..count]);
        out.write_all(&buffer[..count])?;
        done += count as u64;
        tell(done);
        if done > length {
            break;
        }
    }
    if done != length {
        return Err(io::Error::other("its length has changed while it was copied"));
    }
    out.sync_all()?;
    Ok(summer.finish())
}

/// An image of a directory: name, architecture, sums or why it cannot be used.
pub type Listed = (String, String, Result<Sum, String>);

/// The images in a directory.
pub fn list(dir: &Path) -> io::Result<Vec<Listed>> {
    let mut all = Vec::new();
    for image in names(dir)? {
        for arch in names(&dir.join(&image))? {
            let text = read_sum(&dir.join(&image).join(&arch)).map_err(|error| error.to_string());
            all.push((image.clone(), arch, text.and_then(|text| Sum::parse(&text))));
        }
    }
    all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    Ok(all)
}

/// Whether there was anything to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// There was.
    Yes,
    /// No image is called so.
    Nothing,
}

/// Removes an image, for one architecture or for all. Those who read it may go on.
pub fn remove(dir: &Path, image: &str, arch: Option<&str>) -> io::Result<Removed> {
    check_name(image)?;
    arch.map_or(Ok(()), check_name)?;
    let image = dir.join(image);
    let at = arch.map_or_else(|| image.clone(), |arch| image.join(arch));
    match fs::remove_dir_all(&at) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Removed::Nothing),
        removed => removed?,
    }
    // Empty now, perhaps.
    let _ = fs::remove_dir(&image);
    Ok(Removed::Yes)
}

pub(super) fn read_sum(at: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(at.join("sum"))?.take(SUM_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// A name that is also a file name and a word of the command line.
pub(super) fn check_name(name: &str) -> io::Result<()> {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_name = !name.is_empty()
        && name.len() <= 64
        && !name.starts_with(['-', '.'])
        && name.chars().all(letter)
        && name != "log";
    if is_name {
        return Ok(());
    }
    let what = format!(
        "{name:?} is not a name: up to 64 letters, digits, `-`, `_` and `.`, not beginning with `-` or `.`, and \
         not `log`"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
