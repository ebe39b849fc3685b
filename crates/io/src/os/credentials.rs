//! Who is at the other end of a Unix socket, and acting on files as another user, for the length of one
//! operation.
//!
//! A server that runs as root lets the kernel decide what a user may do: it takes on the user's file
//! system identity (fsuid, fsgid, supplementary groups) for each operation. Linux keeps these per
//! thread; the calls here change the calling thread only. With fsuid not 0 the kernel also takes away
//! the capabilities that override file permissions, and gives them back afterwards.

use rustix::thread::set_thread_groups;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// A user's file system identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// User id.
    pub uid: u32,
    /// Group id, which new files get.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'a [u32],
}

/// A process at the other end of a Unix socket, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number; none for one of a pid namespace that is not below ours: the kernel says 0.
    pub pid: Option<i32>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Who is at the other end. rustix has a type for the answer whose number cannot be 0.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut answer = MaybeUninit::<libc::ucred>::zeroed();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open; there is a place of so many bytes for the answer, and any bytes make a ucred.
    let answer = unsafe {
        let at = answer.as_mut_ptr().cast();
        if libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, &raw mut bytes) != 0 {
            return Err(io::Error::last_os_error());
        }
        answer.assume_init()
    };
    let pid = Some(answer.pid).filter(|&pid| pid > 0);
    Ok(Peer { pid, uid: answer.uid, gid: answer.gid })
}

/// Whether this process can act as others: it runs as root.
pub fn can_switch() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user and group that the process runs as.
pub fn own() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Runs `work` on this thread as `identity`. To be called only where [`can_switch`] holds; fails,
/// without running `work`, when the identity cannot be taken on. A thread that cannot get its own
/// identity back must not go on: the process ends.
pub fn act_as<T>(identity: &Identity<'_>, work: impl FnOnce() -> T) -> io::Result<T> {
    let own = Own::remember()?;
    take_on(identity)?;
    let result = work();
    drop(own);
    Ok(result)
}

/// The thread's own identity, which it gets back when this is dropped, after a panic as well.
struct Own {
    uid: u32,
    gid: u32,
    groups: Vec<rustix::process::Gid>,
}

impl Own {
    fn remember() -> io::Result<Own> {
        let (uid, gid) = own();
        Ok(Own { uid, gid, groups: rustix::process::getgroups()? })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // First the user: that brings back the capability to set groups.
        let is_back = set_fsuid(self.uid) && set_fsgid(self.gid);
        if !is_back || set_thread_groups(&self.groups).is_err() {
            // Not by a macro that panics where stderr is closed.
            let what = format!("covey: a thread cannot return to user {}, stopping\n", self.uid);
            let _ = io::Write::write_all(&mut io::stderr(), what.as_bytes());
            std::process::abort();
        }
    }
}

fn take_on(identity: &Identity<'_>) -> io::Result<()> {
    let groups: Vec<_> =
        identity.groups.iter().map(|&gid| rustix::process::Gid::from_raw(gid)).collect();
    set_thread_groups(&groups)?;
    // Last the user: without root's capabilities no group can be set.
    if set_fsgid(identity.gid) && set_fsuid(identity.uid) {
        return Ok(());
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

/// The file system identity of a thread, of whatever process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadIdentity {
    /// User id.
    pub uid: u32,
    /// Group id, which new files get.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// The identity of the thread `tid` at this moment, as /proc tells it; none where it shows no such
/// thread to this process. Does not wait for the thread, whatever that is doing.
pub fn of_thread(tid: u32) -> Option<ThreadIdentity> {
    parse_identity(&fs::read(format!("/proc/{tid}/status")).ok()?)
}

/// Whether /proc numbers threads as the kernel does towards this process: it may be that of another
/// pid namespace.
pub fn sees_threads() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.to_str() == Some(&std::process::id().to_string()))
}

/// The fourth of the user and group ids is the file system's. Names cannot hold a newline here.
fn parse_identity(status: &[u8]) -> Option<ThreadIdentity> {
    let numbers = |key: &[u8]| {
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))?;
        let words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        words.map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    let (uid, gid) = (*numbers(b"Uid:")?.get(3)?, *numbers(b"Gid:")?.get(3)?);
    Some(ThreadIdentity { uid, gid, groups: numbers(b"Groups:")? })
}

/// setfsuid(2) reports no errors: only asking again tells whether it worked.
fn set_fsuid(uid: u32) -> bool {
    // SAFETY: the call has no memory arguments and changes only this thread's credentials; an
    // impossible id (-1) changes nothing and answers the present one.
    unsafe {
        libc::setfsuid(uid);
        libc::setfsuid(u32::MAX).cast_unsigned() == uid
    }
}

fn set_fsgid(gid: u32) -> bool {
    // SAFETY: the call has no memory arguments and changes only this thread's credentials; -1 changes nothing.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsgid(u32::MAX).cast_unsigned() == gid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_peer_of_another_pid_namespace_has_no_number() {
        const FAR: &str = "COVEY_TEST_PEER_IS_FAR";
        if std::env::var_os(FAR).is_some() {
            assert_eq!(peer(std::io::stdin()).unwrap().pid, None);
            return;
        }
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let known = peer(&near).unwrap();
        assert_eq!(known.pid, Some(std::process::id() as i32));
        assert_eq!((known.uid, known.gid), own());
        let mut elsewhere = std::process::Command::new("unshare");
        let user = if can_switch() { None } else { Some("--user") };
        elsewhere.args(user).args(["--pid", "--fork"]).arg(std::env::current_exe().unwrap());
        elsewhere.args([
            "--exact",
            "os::credentials::tests::a_peer_of_another_pid_namespace_has_no_number",
        ]);
        let done = elsewhere.env(FAR, "1").stdin(std::os::fd::OwnedFd::from(far)).output().unwrap();
        let (said, error) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        if error.starts_with("unshare: ") {
            return covey_harness::skip(error);
        }
        assert!(done.status.success() && said.contains("1 passed"), "{said}{error}");
    }

    #[test]
    fn files_made_as_another_user_belong_to_it_and_root_comes_back() {
        if !can_switch() {
            return covey_harness::skip("to become another user takes root");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let path = dir.path().join("theirs");
        let identity = Identity { uid: 4321, gid: 1234, groups: &[1234, 77] };
        act_as(&identity, || fs::write(&path, "x")).unwrap().unwrap();
        let made = fs::metadata(&path).unwrap();
        assert_eq!((made.uid(), made.gid()), (4321, 1234));
        let secret = dir.path().join("secret");
        fs::write(&secret, "x").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let error = act_as(&identity, || fs::read(&secret)).unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        fs::read(&secret).unwrap();
        fs::write(dir.path().join("ours"), "x").unwrap();
        assert_eq!(fs::metadata(dir.path().join("ours")).unwrap().uid(), 0);
    }

    #[test]
    fn proc_tells_the_identity_of_a_thread() {
        assert!(sees_threads());
        let tid = || rustix::thread::gettid().as_raw_pid().cast_unsigned();
        let (uid, gid) = own();
        let found = of_thread(tid()).unwrap();
        assert_eq!((found.uid, found.gid), (uid, gid));
        if !can_switch() {
            return covey_harness::skip("to become another user takes root");
        }
        let identity = Identity { uid: 4321, gid: 1234, groups: &[77, 1234] };
        let found = act_as(&identity, || of_thread(tid())).unwrap().unwrap();
        assert_eq!(found, ThreadIdentity { uid: 4321, gid: 1234, groups: vec![77, 1234] });
    }

    #[test]
    fn only_whole_identities_are_taken() {
        let status = "Name:\tUid:\t9\\nUid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t \n";
        let found = parse_identity(status.as_bytes()).unwrap();
        assert_eq!(found, ThreadIdentity { uid: 4, gid: 8, groups: vec![] });
        for broken in ["", "Uid:\t1\t2\t3\t4\nGid:\t5\nGroups:\t\n", "Uid:\tx\n"] {
            assert_eq!(parse_identity(broken.as_bytes()), None);
        }
    }
}
