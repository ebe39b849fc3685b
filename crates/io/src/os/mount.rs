//! Mounting a FUSE file system and what belongs to it. The protocol itself is elsewhere.
//!
//! Root mounts by itself; others go through the setuid helper `fusermount3`, which passes the open
//! device back over a socket.

use super::net::error_text;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Other users than the one that mounts may use it. Who is not root needs `user_allow_other` in
    /// /etc/fuse.conf for that.
    pub allow_other: bool,
    /// The kernel checks modes and owners by itself.
    pub default_permissions: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// No program in it can be executed. Set-user-ID bits and device files never count.
    pub no_exec: bool,
    /// Largest read request in bytes.
    pub read_bytes_max: u32,
}

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub target: PathBuf,
    /// Device number, as `MAJOR:MINOR`.
    pub device: String,
    /// Type, such as `fuse.covey`.
    pub kind: String,
    /// What is mounted: its name in the list of mounts.
    pub source: String,
}

/// Mounts a FUSE file system on the directory `target` and answers the open device. The file system
/// answers nothing until somebody serves that device, so nobody should look at `target` before.
pub fn fuse_mount(
    target: &Path,
    fsname: &str,
    subtype: &str,
    options: &MountOptions,
) -> io::Result<OwnedFd> {
    if rustix::process::geteuid().is_root() {
        mount_as_root(target, fsname, subtype, options)
    } else {
        mount_by_helper(target, fsname, subtype, options)
    }
}

/// Takes a mount away at once; files that are open in it live on until they are closed.
pub fn umount(target: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?);
    }
    let mut helper = Command::new(HELPER);
    helper.args(["-u", "-z", "--"]).arg(target).stdin(Stdio::null());
    let output = helper.output().map_err(no_helper)?;
    if output.status.success() {
        return Ok(());
    }
    Err(helper_failed(&output.stderr))
}

/// Another descriptor for the same mount with a queue of its own, for another thread.
pub fn clone_fd(device: &OwnedFd) -> io::Result<OwnedFd> {
    let clone = open_device()?;
    let mut original = device.as_raw_fd().cast_unsigned();
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32, the number of a descriptor that is open here.
    let done = unsafe { libc::ioctl(clone.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw mut original) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(clone) }
}

/// How far the kernel reads ahead on this mount. Only root may say.
pub fn set_read_ahead(target: &Path, kib: u32) -> io::Result<()> {
    // By the table, not by stat: the latter waits for the file system's server, maybe the caller.
    let mounted = mounted_at(target)?.ok_or(io::ErrorKind::NotFound)?;
    std::fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device), kib.to_string())
}

/// What is mounted on exactly `target`, without asking the file system.
pub fn mounted_at(target: &Path) -> io::Result<Option<Mounted>> {
    Ok(mounts()?.into_iter().rfind(|mounted| mounted.target == target))
}

/// All mounts that this process sees, in the order they were made.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse_mount).collect())
}

/// Takes all mounts out of this process's namespace but those on the way to `paths`. What cannot be taken out stays: it
/// came from a namespace that decides over this one.
pub(super) fn keep_only(paths: &[PathBuf]) -> io::Result<()> {
    let paths = paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let paths: Vec<PathBuf> = paths.collect();
    for mounted in mounts()?.iter().rev() {
        if !paths.iter().any(|path| path.starts_with(&mounted.target)) {
            let how = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            let _ = rustix::mount::unmount(&mounted.target, how);
        }
    }
    Ok(())
}

fn mount_as_root(
    target: &Path,
    fsname: &str,
    subtype: &str,
    options: &MountOptions,
) -> io::Result<OwnedFd> {
    let found = std::fs::metadata(target)?;
    if !found.is_dir() && !found.is_file() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let device = open_device()?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        device.as_raw_fd(),
        found.mode() & 0o170_000,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    add_common(&mut data, options);
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    let data = CString::new(data)?;
    rustix::mount::mount(fsname, target, format!("fuse.{subtype}"), flags, data.as_c_str())?;
    Ok(device)
}

fn add_common(data: &mut String, options: &MountOptions) {
    data.push_str(&format!(",max_read={}", options.read_bytes_max));
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
}

fn mount_by_helper(
    target: &Path,
    fsname: &str,
    subtype: &str,
    options: &MountOptions,
) -> io::Result<OwnedFd> {
    // A comma or backslash in a value would begin another option.
    let escaped = fsname.replace('\\', "\\\\").replace(',', "\\,");
    let mut data = format!("fsname={escaped},subtype={subtype},nosuid,nodev");
    add_common(&mut data, options);
    if options.read_only {
        data.push_str(",ro");
    }
    if options.no_exec {
        data.push_str(",noexec");
    }
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(HELPER_PATIENCE))?;
    let mut helper = Command::new(HELPER);
    helper.args(["-o", &data, "--"]).arg(target);
    // The helper's end is its standard input, so that no other descriptor is inherited.
    helper.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs)).stderr(Stdio::piped());
    let mut child = helper.spawn().map_err(no_helper)?;
    // Holds the other end of the pair until now; with it gone, the helper's exit ends our wait.
    drop(helper);
    let received = receive_fd(&ours);
    if received.is_err() {
        // It may be stuck: a helper that has passed nothing has nothing left to do.
        let _ = child.kill();
    }
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_end(&mut said)?;
    }
    child.wait()?;
    received?.ok_or_else(|| helper_failed(&said))
}

/// The descriptor that comes over the socket; `None` when the other end closes without one.
fn receive_fd(from: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

fn no_helper(error: io::Error) -> io::Error {
    let text = format!("cannot run {HELPER}: {}", error_text(&error));
    io::Error::new(error.kind(), text)
}

fn helper_failed(said: &[u8]) -> io::Error {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().next().unwrap_or("it failed without a reason");
    let line = line.strip_prefix("fusermount3: ").unwrap_or(line);
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{HELPER}: {line}"))
}

fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("cannot open /dev/fuse: {}", error_text(&error)))
    })
}

/// `ID PARENT DEVICE ROOT TARGET OPTIONS [TAGS...] - TYPE SOURCE SUPER-OPTIONS`
fn parse_mount(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let device = text(fields.nth(2)?);
    let target = unescape(fields.nth(1)?).into();
    fields.find(|field| field == b"-")?;
    let kind = text(fields.next()?);
    let source = unescape(fields.next()?).to_string_lossy().into_owned();
    Some(Mounted { target, device, kind, source })
}

/// Blanks and the like stand as `\040` in the table.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal.filter(|_| first == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    debug_assert!(!OsStr::from_bytes(&out).is_empty() || field.is_empty());
    OsString::from_vec(out)
}

const HELPER: &str = "fusermount3";
/// The helper only makes one system call of note.
const HELPER_PATIENCE: Duration = Duration::from_secs(30);
/// `_IOR(229, 0, uint32_t)` from linux/fuse.h.
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        let line =
            b"36 35 0:52 / /mnt/my\\040dir\\134x rw,nosuid shared:1 - fuse.covey name rw,fd=3";
        let mounted = parse_mount(line).unwrap();
        assert_eq!(mounted.target, Path::new("/mnt/my dir\\x"));
        assert_eq!((mounted.device.as_str(), mounted.kind.as_str()), ("0:52", "fuse.covey"));
        assert_eq!(mounted.source, "name");
    }

    #[test]
    fn root_is_mounted_and_a_plain_directory_is_not() {
        assert!(mounted_at(Path::new("/proc")).unwrap().is_some_and(|found| found.kind == "proc"));
        assert_eq!(mounted_at(Path::new("/proc/self")).unwrap(), None);
    }

    #[test]
    fn a_mount_appears_and_goes_where_it_is_permitted() {
        let dir = tempfile::tempdir().unwrap();
        let options = MountOptions {
            allow_other: false,
            default_permissions: true,
            read_only: false,
            no_exec: true,
            read_bytes_max: 1 << 20,
        };
        let device = match fuse_mount(dir.path(), "test,name", "covey", &options) {
            Ok(device) => device,
            Err(error) => return eprintln!("not tested: mounting is not permitted here: {error}"),
        };
        let mounted = mounted_at(dir.path()).unwrap().expect("it is in the table");
        assert_eq!(mounted.kind, "fuse.covey");
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains(dir.path().to_str().unwrap())).unwrap();
        assert!(["noexec", "nosuid", "nodev"].iter().all(|flag| line.contains(flag)), "{line}");
        clone_fd(&device).unwrap();
        umount(dir.path()).unwrap();
        assert_eq!(mounted_at(dir.path()).unwrap(), None);
    }
}
