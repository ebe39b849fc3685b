//! Whether root may keep files in a cluster's directory. Of one that another user can change each name may become a link, and
//! what root writes to it would go to a file of root's, or a volume be mounted where that user wants it.

use super::Cluster;
use crate::config::Config;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const STICKY: u32 = 0o1000;
const BY_GROUP: u32 = 0o020;
const BY_OTHERS: u32 = 0o002;

impl Cluster {
    /// The one whose configuration file this is ([`Cluster::of`]), as a place for files: none for root where another user
    /// could change its directory. Root then keeps its own in /run/covey and /var/log/covey.
    pub fn of_trusted(config: &Config) -> Option<Cluster> {
        let cluster = Cluster::of(config)?;
        if !rustix::process::geteuid().is_root() {
            return Some(cluster);
        }
        // Without links: one on the way could be another's.
        let dir = cluster.dir.canonicalize().ok()?;
        is_roots(&dir).then_some(Cluster { dir })
    }
}

/// Where root notes which mounts it serves of a cluster in whose directory it keeps no files.
pub fn roots_run_dir(id: &str) -> PathBuf {
    Path::new("/run/covey").join(id)
}

/// Whether nobody but root can change what the names in a directory lead to.
pub fn is_roots_alone(dir: &Path) -> bool {
    is_kept(dir, Shared::Never)
        && dir.ancestors().skip(1).all(|above| is_kept(above, Shared::IfSticky))
}

/// Whether nobody but root can change what the names in this cluster's directory lead to.
fn is_roots(dir: &Path) -> bool {
    let own = [dir.to_owned(), dir.join("run"), dir.join("log")];
    let mut above = dir.ancestors().skip(1);
    own.iter().all(|dir| is_kept(dir, Shared::Never))
        && above.all(|dir| is_kept(dir, Shared::IfSticky))
}

/// Whether others may make files of their own in a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shared {
    Never,
    /// As in /tmp, where nobody renames another's.
    IfSticky,
}

fn is_kept(dir: &Path, shared: Shared) -> bool {
    match std::fs::symlink_metadata(dir) {
        Ok(found) => {
            found.is_dir()
                && (found.uid() == 0 || is_unmapped(found.uid()))
                && is_closed(found.mode(), found.gid(), shared)
        }
        // Root makes it.
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

fn is_closed(mode: u32, gid: u32, shared: Shared) -> bool {
    let is_shared = mode & BY_OTHERS != 0 || (mode & BY_GROUP != 0 && gid != 0);
    !is_shared || (shared == Shared::IfSticky && mode & STICKY != 0)
}

/// Whether a user is none of this namespace's: in one where root is an ordinary user of the machine, / is such a one's.
fn is_unmapped(uid: u32) -> bool {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let has_all = read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    !has_all && read("/proc/sys/kernel/overflowuid").trim().parse() == Ok(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn a_directory_that_others_can_change_is_none_for_root() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("cluster");
        for part in ["run", "log"] {
            std::fs::create_dir_all(dir.join(part)).unwrap();
        }
        let file = dir.join("covey.toml");
        std::fs::write(dir.join("lock"), "").unwrap();
        let text = "version = 1\n[cluster]\nname = \"c\"\nid = \"00000000000000000000000000000000\"\n[[node]]\n\
                    name = \"meta\"\nroles = [\"meta\", \"data\"]\nlisten = [\"unix!/x/meta\"]\nstore = \"/x/meta.d\"\n";
        let config = || covey_cluster::config::parse(text, &file).unwrap();
        assert_eq!(Cluster::of_trusted(&config()).unwrap().dir, dir.canonicalize().unwrap());
        for part in [above.path().to_owned(), dir.clone(), dir.join("run"), dir.join("log")] {
            chown(&part, Some(1000), None).unwrap();
            assert!(Cluster::of_trusted(&config()).is_none(), "{} is another's", part.display());
            chown(&part, Some(0), None).unwrap();
            let mode = |mode| {
                std::fs::set_permissions(&part, std::fs::Permissions::from_mode(mode)).unwrap();
            };
            mode(0o777);
            assert!(Cluster::of_trusted(&config()).is_none(), "{} is everybody's", part.display());
            mode(0o755);
        }
        Cluster::of_trusted(&config()).unwrap();
        std::fs::remove_dir(dir.join("log")).unwrap();
        symlink("/etc", dir.join("log")).unwrap();
        assert!(Cluster::of_trusted(&config()).is_none(), "the logs are elsewhere");
    }

    #[test]
    fn where_everybody_makes_files_nobody_renames_another_s() {
        assert!(is_closed(0o1777, 0, Shared::IfSticky) && !is_closed(0o1777, 0, Shared::Never));
        assert!(!is_closed(0o777, 0, Shared::IfSticky));
        assert!(is_closed(0o775, 0, Shared::Never) && !is_closed(0o775, 100, Shared::Never));
    }
}
