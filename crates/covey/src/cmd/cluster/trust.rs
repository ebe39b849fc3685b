//! Whether root may keep files in a cluster's directory. Of one that another user can change each name may become a link, and
//! what root writes to it would go to a file of root's, or a volume be mounted where that user wants it.

use super::{Cluster, Process};
use crate::cmd::job_fs::trust::user;
use crate::config::Config;
use crate::error::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
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
        let parts = [dir.clone(), dir.join("run"), dir.join("log")];
        parts.iter().all(|part| is_roots_alone(part)).then_some(Cluster { dir })
    }

    /// Refuses root to start what another user has described: the servers would be root's, and keep their files wherever
    /// that user has said.
    pub fn must_not_be_anothers(&self) -> Result<()> {
        let owner = std::fs::symlink_metadata(self.config_file()).ok().map(|found| found.uid());
        let other = owner.filter(|uid| *uid != 0 && !is_unmapped(*uid));
        match other.filter(|_| rustix::process::geteuid().is_root()) {
            None => Ok(()),
            Some(uid) => Err(Error::user(format!(
                "cannot start the cluster in {} as root: it belongs to {}",
                self.dir.display(),
                user(uid)
            ))
            .hint("start it as that user; root may stop it, and mount it")),
        }
    }
}

/// Where root notes which mounts it serves of a cluster in whose directory it keeps no files.
pub fn roots_run_dir(id: &str) -> PathBuf {
    Path::new("/run/covey").join(id)
}

/// A process that a run directory has on record.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The record.
    pub file: PathBuf,
    /// What it says.
    pub process: Process,
    /// Whom the record belongs to.
    pub owner: u32,
}

impl Recorded {
    /// What a record says. A link says nothing, nor does a file with several names: another user may have made that name.
    fn read(file: PathBuf) -> Option<Recorded> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = rustix::fs::open(&file, flags, Mode::empty()).ok()?;
        let found = rustix::fs::fstat(&open).ok()?;
        let is_file = FileType::from_raw_mode(found.st_mode).is_file() && found.st_nlink == 1;
        // By its descriptor, so that it is the same file.
        let name = format!("/proc/self/fd/{}", open.as_raw_fd());
        let process = is_file.then(|| Process::read(Path::new(&name)))??;
        Some(Recorded { file, process, owner: found.st_uid })
    }

    /// Whether the process may be ended on the record's word: it is its owner's. Else another user could have root end
    /// whatever he writes down.
    pub fn is_sound(&self) -> bool {
        !self.process.is_alive() || real_user(self.process.pid) == Some(self.owner)
    }
}

/// Who has started a process: whoever is not root may signal only what has his number there.
fn real_user(pid: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    // The program's name may be no text.
    let status = String::from_utf8_lossy(&status);
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().next()?.parse().ok()
}

/// What a run directory has on record. Nothing where it is a link, which may lead to the records of another cluster.
pub fn records(dir: &Path) -> Vec<Recorded> {
    if std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_symlink()) {
        return Vec::new();
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    files
        .filter(|file| file.extension().is_some_and(|extension| extension == "pid"))
        .filter_map(Recorded::read)
        .collect()
}

/// Whether nobody but root can change what the names in a directory lead to.
pub fn is_roots_alone(dir: &Path) -> bool {
    is_kept(dir, Shared::Never)
        && dir.ancestors().skip(1).all(|above| is_kept(above, Shared::IfSticky))
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
    fn a_record_stands_on_the_word_of_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut me = Process::now(std::process::id()).unwrap();
        me.note = "/mnt".into();
        me.write(&at("me.pid")).unwrap();
        let own = rustix::process::getuid().as_raw();
        let found = records(dir.path());
        assert_eq!((found.len(), found[0].owner, &found[0].process), (1, own, &me));
        assert!(found[0].is_sound());
        let theirs = Recorded { owner: own + 1, ..found[0].clone() };
        assert!(!theirs.is_sound());
        symlink(at("me.pid"), at("link.pid")).unwrap();
        let (fifo, mode) = (at("fifo.pid"), Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        assert_eq!(records(dir.path()).len(), 1);
        std::fs::hard_link(at("me.pid"), at("name.pid")).unwrap();
        assert_eq!(records(dir.path()).len(), 0);
        symlink(dir.path(), at("run")).unwrap();
        std::fs::remove_file(at("name.pid")).unwrap();
        assert_eq!((records(dir.path()).len(), records(&at("run")).len()), (1, 0));
    }

    #[test]
    fn where_everybody_makes_files_nobody_renames_another_s() {
        assert!(is_closed(0o1777, 0, Shared::IfSticky) && !is_closed(0o1777, 0, Shared::Never));
        assert!(!is_closed(0o777, 0, Shared::IfSticky));
        assert!(is_closed(0o775, 0, Shared::Never) && !is_closed(0o775, 100, Shared::Never));
    }
}
