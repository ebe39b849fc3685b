//! Users and their groups, as this machine's user database has them.
//!
//! Answers are kept for a minute: a database on the network is slow, and a user who was just added
//! to a group should not wait long.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All groups, the primary one included.
    pub groups: Vec<u32>,
}

/// The account of a user id; `None` when there is no such user.
pub fn by_uid(uid: u32) -> io::Result<Option<Arc<Account>>> {
    if let Some(known) = remembered(uid) {
        return Ok(known);
    }
    // SAFETY: getpwuid_r as declared by libc; `look_up` gives it valid memory.
    let found = look_up(|entry, buffer, length, result| unsafe {
        libc::getpwuid_r(uid, entry, buffer, length, result)
    })?;
    let found = found.map(Arc::new);
    remember(uid, found.clone());
    Ok(found)
}

/// The account of a login name.
pub fn by_name(name: &str) -> io::Result<Option<Arc<Account>>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    // SAFETY: getpwnam_r as declared by libc; the name outlives the call, and `look_up` gives it
    // valid memory.
    let found = look_up(|entry, buffer, length, result| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, buffer, length, result)
    })?;
    Ok(found.map(Arc::new))
}

type Known = HashMap<u32, (Instant, Option<Arc<Account>>)>;
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn remembered(uid: u32) -> Option<Option<Arc<Account>>> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let (when, account) = known.get(&uid)?;
    (when.elapsed() < REMEMBERED_FOR).then(|| account.clone())
}

fn remember(uid: u32, account: Option<Arc<Account>>) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(uid, (Instant::now(), account));
}

/// Calls one of the getpw*_r functions with a buffer that is large enough.
fn look_up(
    call: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> i32,
) -> io::Result<Option<Account>> {
    let mut buffer: Vec<libc::c_char> = vec![0; 4096];
    loop {
        let mut entry = MaybeUninit::uninit();
        let mut result = std::ptr::null_mut();
        match call(entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut result) {
            libc::ERANGE if buffer.len() < BUFFER_BYTES_MAX => buffer.resize(buffer.len() * 4, 0),
            0 if result.is_null() => return Ok(None),
            0 => {
                // SAFETY: a call that succeeded with a result has filled the entry, whose strings lie
                // in `buffer`.
                let entry = unsafe { entry.assume_init() };
                // SAFETY: pw_name is a string in `buffer`, which is still there.
                let name = unsafe { CStr::from_ptr(entry.pw_name) };
                return account(name, entry.pw_uid, entry.pw_gid).map(Some);
            }
            // What libc may say of a user that is not there.
            libc::ENOENT | libc::ESRCH | libc::EPERM => return Ok(None),
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn account(name: &CStr, uid: u32, gid: u32) -> io::Result<Account> {
    let groups = groups_of(name, gid)?;
    Ok(Account { name: name.to_string_lossy().into_owned(), uid, gid, groups })
}

fn groups_of(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as i32;
        // SAFETY: `groups` has room for `count` ids, and the name is a string.
        let done =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) >= 0 };
        if done {
            groups.truncate(count as usize);
            return Ok(groups);
        }
        if groups.len() == GROUPS_MAX {
            let what = format!("user {name:?} is in more than {GROUPS_MAX} groups");
            return Err(io::Error::other(what));
        }
        // `count` is now what it needs, or on some systems what it was.
        groups.resize((count as usize).max(groups.len() * 2).min(GROUPS_MAX), 0);
    }
}

const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// More users than this are not remembered at once.
const KNOWN_MAX: usize = 4096;
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// One less than Linux's NGROUPS_MAX: a message counts them with 16 bits.
pub const GROUPS_MAX: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_number_and_name() {
        let root = by_uid(0).unwrap().unwrap();
        assert_eq!((root.name.as_str(), root.gid), ("root", 0));
        assert!(root.groups.contains(&0));
        assert_eq!(by_name("root").unwrap().unwrap(), root);
        assert!(
            Arc::ptr_eq(&root, &by_uid(0).unwrap().unwrap()),
            "the second answer is remembered"
        );
    }

    #[test]
    fn users_that_are_not_there_are_none() {
        assert_eq!(by_uid(3_999_999_999).unwrap(), None);
        assert_eq!(by_name("no such user").unwrap(), None);
        assert_eq!(by_name("nul\0inside").unwrap(), None);
    }
}
