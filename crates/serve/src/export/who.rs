//! Who may come in, and with whose rights they act.
//!
//! Only the kernel is believed: the peer's credentials on a Unix socket, the owner of a loopback
//! socket. Root and the server's own user may say that they are somebody else; so may a peer that has
//! proven the cluster key. Nobody else comes in.

use super::xattr::XattrRights;
use covey_io::os::credentials::{self, Identity};
use covey_io::os::users;
use covey_ninep::message::NONUNAME;
use covey_ninep::tree::{Attach, Errno, Result, User};
use covey_wire::Name;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The server's own identity, and whether it can take on others.
pub(super) struct Who {
    uid: u32,
    gid: u32,
    can_switch: bool,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.can_switch {
            f.write_str("to every local user, with that user's own rights")
        } else {
            write!(f, "to user {} and root, with the rights of user {0}", self.uid)
        }
    }
}

impl Who {
    pub fn new() -> Who {
        let (uid, gid) = credentials::own();
        Who { uid, gid, can_switch: credentials::can_switch() }
    }

    #[cfg(test)]
    pub fn pretend(uid: u32, can_switch: bool) -> Who {
        Who { uid, gid: uid, can_switch }
    }

    /// The user that an attach is for.
    pub fn admit(&self, attach: &Attach) -> Result<User> {
        let claimed = claimed_uid(attach)?;
        let uid = match attach.peer.uid {
            Some(peer) if peer == 0 || peer == self.uid => claimed.unwrap_or(peer),
            Some(peer) if !self.can_switch => return Err(self.not_served(peer)),
            Some(peer) if claimed.is_none_or(|claimed| claimed == peer) => peer,
            Some(peer) => {
                let claimed = claimed.unwrap_or(peer);
                let text = format!("user {peer} may not attach as user {claimed}");
                return Err(Errno::because(Errno::EPERM, text));
            }
            None if attach.peer.has_key => claimed.ok_or_else(|| nobody(attach))?,
            None => {
                let text = format!("{} has not proven the cluster key", attach.peer.name);
                return Err(Errno::because(Errno::EPERM, text));
            }
        };
        account(uid)
    }

    /// Which extended attributes a user may reach: all of them only as root of a server that is root.
    pub fn xattr_rights(&self, user: &User) -> XattrRights {
        if self.uid == 0 && user.uid == 0 { XattrRights::All } else { XattrRights::OfUsers }
    }

    /// Whether the user's writes leave privilege bits as they are: root's, of a server that is root.
    pub fn writes_with_power(&self, user: &User) -> bool {
        self.can_switch && user.uid == 0
    }

    /// Whether a write to a file with privilege bits must be made with the user's own rights, so that
    /// the kernel takes them away. It does so by itself where the server is not root.
    pub fn must_write_as(&self, user: &User) -> bool {
        self.can_switch && user.uid != 0
    }

    fn not_served(&self, peer: u32) -> Errno {
        let text = format!("the server runs as user {} and does not serve user {peer}", self.uid);
        Errno::because(Errno::EPERM, text)
    }

    /// Runs `work` with the rights of `user`.
    pub fn act<T>(&self, user: &User, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.act_in(user, user.gid, work)
    }

    /// The same, with what is made belonging to the group `gid` if the user is in it.
    pub fn act_with_group<T>(
        &self,
        user: &User,
        gid: u32,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let may = gid != NONUNAME && (user.uid == 0 || user.groups.contains(&gid));
        self.act_in(user, if may { gid } else { user.gid }, work)
    }

    fn act_in<T>(&self, user: &User, gid: u32, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.can_switch || (user.uid, gid) == (self.uid, self.gid) {
            return work();
        }
        let identity = Identity { uid: user.uid, gid, groups: &user.groups };
        credentials::act_as(&identity, work)?
    }
}

/// What 9P2000 calls a user: the login name of this machine, or the number.
pub(crate) fn user_name(uid: u32) -> Name {
    match users::by_uid(uid) {
        Ok(Some(account)) => Name::from(account.name.as_str()),
        _ => Name::from(uid.to_string()),
    }
}

/// Whom the client says it is: by number, else by name, else nobody in particular.
fn claimed_uid(attach: &Attach) -> Result<Option<u32>> {
    if let Some(number) = attach.n_uname.filter(|number| *number != NONUNAME) {
        return Ok(Some(number));
    }
    if attach.uname.is_empty() {
        return Ok(None);
    }
    let name = attach.uname.lossy();
    // 9P2000 has no other place for a number.
    let account = users::by_name(&name)?.map(|account| account.uid).or(name.parse().ok());
    account.map(Some).ok_or_else(|| nobody(attach))
}

fn nobody(attach: &Attach) -> Errno {
    Errno::because(Errno::EPERM, format!("there is no user {:?} here", attach.uname.lossy()))
}

/// The user with its groups as this machine knows them. One that it does not know is in no group.
fn account(uid: u32) -> Result<User> {
    Ok(match users::by_uid(uid)? {
        Some(account) => User { uid, gid: account.gid, groups: account.groups.clone() },
        None => User { uid, gid: NOGROUP, groups: vec![NOGROUP] },
    })
}

/// The names that lead from the exported directory to what an attach asks for: nothing, `/`, a path
/// below the directory, or the directory's own path with or without one below it.
pub(super) fn names_below<'a>(dir: &Path, aname: &'a [u8]) -> Result<Vec<&'a [u8]>> {
    let own = dir.as_os_str().as_bytes();
    let below = match aname.strip_prefix(own) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => rest,
        _ => aname,
    };
    let names: Vec<_> = below.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    if names.iter().any(|name| *name == b"." || *name == b".." || name.contains(&0)) {
        Err(Errno::because(Errno::EINVAL, "the tree's name is no plain path"))
    } else {
        Ok(names)
    }
}

const NOGROUP: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;
    use covey_ninep::tree::Peer;

    fn attach(uid: Option<u32>, has_key: bool, n_uname: Option<u32>) -> Attach {
        let peer = Peer { name: "peer".into(), uid, has_key };
        Attach { peer, uname: Name::EMPTY, n_uname, aname: Name::EMPTY }
    }

    fn admitted(who: &Who, attach: Attach) -> Option<u32> {
        who.admit(&attach).ok().map(|user| user.uid)
    }

    #[test]
    fn only_root_the_server_and_key_holders_may_be_somebody_else() {
        let who = Who::pretend(0, true);
        assert_eq!(admitted(&who, attach(Some(0), false, Some(1000))), Some(1000));
        assert_eq!(admitted(&who, attach(Some(1000), false, None)), Some(1000));
        assert_eq!(admitted(&who, attach(Some(1000), false, Some(1000))), Some(1000));
        assert_eq!(admitted(&who, attach(Some(1000), false, Some(0))), None);
        assert_eq!(admitted(&who, attach(None, false, Some(1000))), None);
        assert_eq!(admitted(&who, attach(None, false, None)), None);
        assert_eq!(admitted(&who, attach(None, true, Some(1000))), Some(1000));
        assert_eq!(admitted(&who, attach(None, true, None)), None);
    }

    #[test]
    fn a_server_without_root_lets_in_its_own_user_and_root_only() {
        let who = Who::pretend(1000, false);
        assert_eq!(admitted(&who, attach(Some(1000), false, None)), Some(1000));
        assert_eq!(admitted(&who, attach(Some(1000), false, Some(0))), Some(0));
        assert_eq!(admitted(&who, attach(Some(0), false, Some(1001))), Some(1001));
        assert_eq!(admitted(&who, attach(Some(1001), false, Some(1001))), None);
    }

    #[test]
    fn a_user_may_be_claimed_by_name() {
        let who = Who::pretend(0, true);
        let by_name = |name: &str| Attach { uname: name.into(), ..attach(Some(0), false, None) };
        assert_eq!(admitted(&who, by_name("root")), Some(0));
        assert_eq!(admitted(&who, by_name("4321")), Some(4321));
        assert_eq!(admitted(&who, by_name("no such user")), None);
    }

    #[test]
    fn tree_names_are_paths_below_the_directory() {
        let names = |aname: &'static str| names_below(Path::new("/srv/data"), aname.as_bytes());
        assert_eq!(names("").unwrap().len(), 0);
        assert_eq!(names("/").unwrap().len(), 0);
        assert_eq!(names("/srv/data").unwrap().len(), 0);
        assert_eq!(names("/srv/data/a//b").unwrap(), [b"a", b"b"]);
        assert_eq!(names("/srv/database").unwrap(), [&b"srv"[..], b"database"]);
        assert_eq!(names("a").unwrap(), [b"a"]);
        assert!(names("a/../..").is_err());
    }
}
