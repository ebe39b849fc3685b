//! How the same key reaches every node of a job: by a file, never on a command line.
//!
//! Without --key-file it is one in the user's home, which nodes of a job share. Whichever node comes first makes it, and
//! the first node of the list removes it when all have taken their copies; `covey down` where that never came.

use crate::cmd::keygen::write_new;
use crate::error::{Cannot, Error, Result};
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the key of a job is in the user's home. The cluster's ID keeps it apart from that of a job of the same name on
/// other nodes.
pub fn shared_file(job: &str, cluster: &str) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| {
        Error::user("cannot choose a place for the job's key: HOME is not set")
            .hint("--key-file FILE names a key that every node of the job can read")
    })?;
    Ok(home.join(".cache/covey").join(format!("job-{job}-{cluster}.key")))
}

/// Makes the shared file for a node unless another has; the file appears whole.
pub fn make_shared(file: &Path, node: &str) -> Result<()> {
    let what = || format!("write {}", file.display());
    let dir = file.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(dir).cannot(what)?;
    let draft = draft(file, node);
    // One that was killed may have left it.
    let _ = fs::remove_file(&draft);
    if file.exists() {
        return Ok(());
    }
    write_new(&draft)?;
    let linked = fs::hard_link(&draft, file);
    let _ = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error).cannot(what),
        _ => Ok(()),
    }
}

/// Removes the shared file, and what a node that was killed as it made it has left.
pub fn remove_shared(file: &Path, node: &str) {
    let _ = fs::remove_file(draft(file, node));
    let _ = fs::remove_file(file);
}

/// What a node calls the file until it is whole: whoever removes what the node has made knows the name.
fn draft(file: &Path, node: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{node}"));
    name.into()
}

/// Copies the key to this node's directory. The file must be of this user or root, and nobody else's to read.
pub fn take(from: &Path, to: &Path) -> Result<()> {
    let what = || format!("read the key {}", from.display());
    // Judged and read through one descriptor: nobody can change the file in between. Opening never waits for a fifo.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options().read(true).custom_flags(nonblock).open(from).cannot(what)?;
    let meta = file.metadata().cannot(what)?;
    let own = rustix::process::geteuid().as_raw();
    if meta.mode() & 0o077 != 0 || (meta.uid() != own && meta.uid() != 0) {
        return Err(Error::user(format!(
            "cannot use the key {}: other users may read it, or it is theirs",
            from.display()
        ))
        .hint(format!("chmod 600 {}", from.display())));
    }
    let mut key = Vec::new();
    file.read_to_end(&mut key).cannot(what)?;
    let what = || format!("write {}", to.display());
    let mut out = File::options().write(true).create_new(true).mode(0o600).open(to).cannot(what)?;
    out.write_all(&key).and_then(|()| out.sync_all()).cannot(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_maker_leaves_nothing_that_is_not_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("covey/job-7-c.key");
        let names = || {
            let all = fs::read_dir(dir.path().join("covey")).unwrap();
            all.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        make_shared(&file, "n1").unwrap();
        let key = fs::read(&file).unwrap();
        assert_eq!((names().len(), key.len()), (1, 65));
        // Killed before the file had its name, or just after.
        fs::write(draft(&file, "n1"), "half").unwrap();
        make_shared(&file, "n1").unwrap();
        assert_eq!((names().len(), fs::read(&file).unwrap()), (1, key));
        fs::remove_file(&file).unwrap();
        fs::write(draft(&file, "n1"), "half").unwrap();
        make_shared(&file, "n1").unwrap();
        assert_eq!((names().len(), fs::read(&file).unwrap().len()), (1, 65));
        fs::write(draft(&file, "n1"), "half").unwrap();
        remove_shared(&file, "n1");
        assert_eq!(names().len(), 0);
    }
}
