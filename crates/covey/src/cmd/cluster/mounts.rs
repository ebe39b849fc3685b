//! FUSE mounts of this machine: which there are, which belong to a cluster, and how they end.

use super::trust::{Recorded, is_roots_alone, records, roots_run_dir};
use super::{Cluster, make_dir};
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_io::os::mount::Mounted;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an unmount may take, which includes writing back what the kernel holds.
const UMOUNT_WAIT: Duration = Duration::from_secs(30);

/// The mounts of a cluster that were started here.
pub fn of(cluster: &Cluster) -> Vec<Recorded> {
    let roots = cluster.config().ok().map(|config| roots_run_dir(&config.id));
    let dirs = [Some(cluster.run_dir()), roots.filter(|dir| is_roots_alone(dir))];
    let all = dirs.into_iter().flatten().flat_map(|dir| records(&dir));
    all.filter(|record| is_mounts(&record.file) && record.is_sound()).collect()
}

/// Whether a record is a mount's: the others are servers'.
pub fn is_mounts(record: &Path) -> bool {
    record.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount-"))
}

/// Whether a FUSE mount at a directory was made by the user whose record speaks of it.
pub fn is_fuse_of(mountpoint: &Path, uid: u32) -> bool {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    is_fuse_of_in(&String::from_utf8_lossy(&table), mountpoint, uid)
}

/// The pid file of a mount that this process serves; None where no list of mounts is kept. Root's is never in a directory
/// that another user can change: that one could have root write where a link leads.
pub fn own_pid_file(config: &Config, mountpoint: &Path) -> Result<Option<PathBuf>> {
    if let Some(cluster) = Cluster::of_trusted(config) {
        return Ok(Some(pid_file(&cluster, mountpoint)));
    }
    if Cluster::of(config).is_none() {
        return Ok(None);
    }
    let dir = roots_run_dir(&config.id);
    make_dir(&dir, 0o755)?;
    Ok(is_roots_alone(&dir).then(|| pid_file_in(&dir, mountpoint)))
}

/// The pid file of a mount.
pub fn pid_file(cluster: &Cluster, mountpoint: &Path) -> PathBuf {
    pid_file_in(&cluster.run_dir(), mountpoint)
}

fn pid_file_in(dir: &Path, mountpoint: &Path) -> PathBuf {
    let name = mountpoint.to_string_lossy().replace('%', "%%").replace('/', "%");
    dir.join(format!("mount-{name}.pid"))
}

/// The file system type at a directory, if something is mounted right there.
pub fn kind_at(mountpoint: &Path) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    kind_in(&String::from_utf8_lossy(&table), mountpoint)
}

fn is_fuse_of_in(table: &str, mountpoint: &Path, uid: u32) -> bool {
    let Some(line) = on_top(table, mountpoint) else { return false };
    let options = line.rsplit(' ').next().unwrap_or_default();
    let user = options.split(',').find_map(|option| option.strip_prefix("user_id="));
    kind_on(line).is_some_and(|kind| kind.starts_with("fuse"))
        && user.and_then(|user| user.parse().ok()) == Some(uid)
}

/// The type of the file system whose files have this device number.
pub fn kind_of(device: u64) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    kind_of_in(&String::from_utf8_lossy(&table), device)
}

/// The name of the cluster whose mount has this device number.
pub fn cluster_of(device: u64) -> Option<String> {
    let number = number_of(device);
    let mounts = covey_io::os::mount::mounts().ok()?;
    let here = mounts.iter().find(|mounted| mounted.device == number)?;
    cluster_name(here).map(str::to_owned)
}

/// Where a cluster is mounted on this machine.
pub fn of_cluster(config: &Config) -> Option<PathBuf> {
    // Clusters of this machine may have the same name: such a one has a list of its own.
    if let Some(cluster) = Cluster::of(config) {
        return of(&cluster).into_iter().map(|record| record.process.note.into()).next();
    }
    let mounts = covey_io::os::mount::mounts().ok()?;
    let is_it = |here: &Mounted| cluster_name(here) == Some(&config.name);
    mounts.into_iter().find(is_it).map(|here| here.target)
}

fn cluster_name(mounted: &Mounted) -> Option<&str> {
    let is_ours = mounted.kind == crate::cmd::mount::KIND;
    mounted.source.strip_prefix("covey:").filter(|_| is_ours)
}

/// A device number as the table of mounts has it.
fn number_of(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

fn kind_of_in(table: &str, device: u64) -> Option<String> {
    let number = number_of(device);
    kind_on(table.lines().find(|line| line.split(' ').nth(2) == Some(&number))?)
}

fn kind_in(table: &str, mountpoint: &Path) -> Option<String> {
    kind_on(on_top(table, mountpoint)?)
}

/// The last line wins: it is the one on top.
fn on_top<'a>(table: &'a str, mountpoint: &Path) -> Option<&'a str> {
    let escaped = escape(&mountpoint.to_string_lossy());
    table.lines().rfind(|line| line.split(' ').nth(4) == Some(&escaped))
}

/// The file system type on a line of the table.
fn kind_on(line: &str) -> Option<String> {
    line.split(" - ").nth(1)?.split(' ').next().map(str::to_string)
}

/// As the kernel writes paths in /proc/self/mountinfo.
fn escape(path: &str) -> String {
    path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

/// What becomes of a mount that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// It stays, and that is an error.
    IfUnused,
    /// It goes from the tree now, and ends when the last file is closed.
    Lazily,
}

impl Unmount {
    pub fn lazily_if(lazy: bool) -> Unmount {
        if lazy { Unmount::Lazily } else { Unmount::IfUnused }
    }
}

/// Unmounts, and waits until it has gone.
pub async fn umount(mountpoint: &Path, how: Unmount) -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    let mut reasons = Vec::new();
    for program in if root { ["umount", "fusermount3"] } else { ["fusermount3", "fusermount"] } {
        match run(program, mountpoint, how).await {
            Ok(()) => return gone(mountpoint).await,
            Err(why) => reasons.push(why),
        }
    }
    let why = reasons.first().cloned().unwrap_or_default();
    let error = Error::work(format!("cannot unmount {}: {why}", mountpoint.display()));
    Err(if why.contains("busy") {
        error.hint(format!(
            "`fuser -vm {}` shows who uses it; --lazy lets go of it anyway",
            mountpoint.display()
        ))
    } else {
        error.hint("only root and the user who mounted may unmount")
    })
}

async fn run(program: &str, mountpoint: &Path, how: Unmount) -> std::result::Result<(), String> {
    let mut command = tokio::process::Command::new(program);
    if program != "umount" {
        command.arg("-u");
    }
    if how == Unmount::Lazily {
        command.arg(if program == "umount" { "-l" } else { "-z" });
    }
    command.arg("--").arg(mountpoint).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(UMOUNT_WAIT, command.output()).await {
        Err(_) => return Err(format!("{program} took more than {} s", UMOUNT_WAIT.as_secs())),
        Ok(Err(error)) => return Err(format!("{program}: {}", crate::error::reason(&error))),
        Ok(Ok(output)) => output,
    };
    if output.status.success() { Ok(()) } else { Err(last_words(program, &output.stderr)) }
}

fn last_words(program: &str, stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    let line = line.trim_start_matches(&format!("{program}: ")).trim_end_matches('.');
    line.rsplit(": ").next().unwrap_or(line).to_lowercase()
}

/// A lazy or detached unmount may still be under way: wait until the table says so.
async fn gone(mountpoint: &Path) -> Result<()> {
    let begin = Instant::now();
    while kind_at(mountpoint).is_some_and(|kind| kind.starts_with("fuse")) {
        if begin.elapsed() > Duration::from_secs(5) {
            return Err(Error::work(format!(
                "cannot unmount {}: another mount is below it",
                mountpoint.display()
            ))
            .hint("repeat the command"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// One name for one place, however it was written. What is mounted there is not asked: it may be dead.
pub fn place_of(path: &Path) -> Result<PathBuf> {
    let what = || format!("find {}", path.display());
    let mut place = std::path::absolute(path).cannot(what)?;
    for _ in 0..LINKS_MAX {
        let (Some(above), Some(name)) = (place.parent(), place.file_name()) else {
            return place.canonicalize().cannot(what);
        };
        let above = match above.canonicalize() {
            // It is to be made, or the error is told when that fails.
            Err(_) => return Ok(place),
            Ok(above) => above,
        };
        let here = above.join(name);
        match std::fs::read_link(&here) {
            Ok(link) => place = above.join(link),
            Err(_) => return Ok(here),
        }
    }
    place.canonicalize().cannot(what)
}

/// Links that a place may lead through.
const LINKS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 21 0:40 / /mnt/a\\040b rw,nosuid - fuse.covey covey rw,user_id=0
31 21 0:41 / /mnt/c rw - tmpfs none rw
32 31 0:42 / /mnt/c rw,nosuid - fuse.covey covey rw,user_id=0
";

    #[test]
    fn the_mount_table_names_what_is_on_top() {
        assert_eq!(kind_in(TABLE, Path::new("/mnt/a b")).as_deref(), Some("fuse.covey"));
        assert_eq!(kind_in(TABLE, Path::new("/mnt/c")).as_deref(), Some("fuse.covey"));
        assert_eq!(kind_in(TABLE, Path::new("/")).as_deref(), Some("ext4"));
        assert_eq!(kind_in(TABLE, Path::new("/mnt")), None);
        let kind_of = |minor| kind_of_in(TABLE, rustix::fs::makedev(0, minor));
        assert_eq!(kind_of(40).as_deref(), Some("fuse.covey"));
        assert_eq!(kind_of(41).as_deref(), Some("tmpfs"));
        assert_eq!(kind_of(4), None);
        let is_of = |place: &str, uid| is_fuse_of_in(TABLE, Path::new(place), uid);
        assert!(is_of("/mnt/c", 0) && !is_of("/mnt/c", 7) && !is_of("/", 0) && !is_of("/x", 0));
    }

    #[test]
    fn the_reason_is_taken_from_the_last_line() {
        assert_eq!(last_words("umount", b"umount: /mnt/x: target is busy.\n"), "target is busy");
        assert_eq!(last_words("umount", b""), "no reason given");
    }
}
