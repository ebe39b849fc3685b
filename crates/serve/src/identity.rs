//! Who a peer is, and what it may attach.
//!
//! A local user is who the kernel says: the peer credentials of a unix socket, or the owner of a
//! loopback connection. Only root and the server's own user may speak for others; whoever has proven
//! the cluster key is a node of the cluster and may too. Everyone else is nobody here.

use covey_io::os::users;
use covey_ninep::tree::{Attach, Errno, Result, User};

/// Decides on attaches to the file system.
#[derive(Debug)]
pub struct Users {
    own_uid: u32,
}

impl Users {
    /// For a server that runs as the calling process's user.
    pub fn of_this_process() -> Users {
        Users { own_uid: rustix::process::geteuid().as_raw() }
    }

    /// The user an attach acts as.
    ///
    /// EACCES when nobody vouches for the peer, or it asks for a user it may not be.
    pub fn admit(&self, attach: &Attach) -> Result<User> {
        let trusted = is_trusted(attach, self.own_uid);
        let asked = asked_uid(attach)?;
        match (attach.peer.uid, asked) {
            (_, Some(asked)) if trusted => user(asked),
            (Some(peer), None) => user(peer),
            (Some(peer), Some(asked)) if peer == asked => user(peer),
            (None, None) if trusted => user(self.own_uid),
            (Some(peer), Some(asked)) => {
                let what = format!("user {peer} may not attach as user {asked}");
                Err(Errno::because(Errno::EACCES, what))
            }
            (None, _) => {
                let what = format!("{} has not proven the cluster key", attach.peer.name);
                Err(Errno::because(Errno::EACCES, what))
            }
        }
    }
}

/// Admits only the cluster itself: root, the server's own user, or a holder of the key.
pub fn attach_trusted(attach: &Attach, own_uid: u32) -> Result<User> {
    if is_trusted(attach, own_uid) {
        return Ok(User { uid: own_uid, gid: 0, groups: vec![] });
    }
    let what = format!(
        "{} is not of this cluster: objects and names are served to the cluster \
        only; attach /fs instead",
        attach.peer.name
    );
    Err(Errno::because(Errno::EACCES, what))
}

fn is_trusted(attach: &Attach, own_uid: u32) -> bool {
    attach.peer.has_key || attach.peer.uid.is_some_and(|uid| uid == 0 || uid == own_uid)
}

/// What a client is called where its requests are counted: as it calls itself, `USER@HOST ...`, if it does, else by where it
/// comes from.
pub fn called(attach: &Attach) -> String {
    let name = attach.uname.lossy();
    if name.contains('@') { name.into_owned() } else { attach.peer.name.clone() }
}

/// The user an attach names, by number or by name; None when it names nobody.
fn asked_uid(attach: &Attach) -> Result<Option<u32>> {
    if let Some(uid) = attach.n_uname {
        return Ok(Some(uid));
    }
    let name = attach.uname.lossy();
    if name.is_empty() || name == "nobody" {
        return Ok(None);
    }
    if let Ok(uid) = name.parse() {
        return Ok(Some(uid));
    }
    match users::by_name(&name)? {
        Some(account) => Ok(Some(account.uid)),
        None => Err(Errno::because(Errno::EACCES, format!("no user is called {name:?} here"))),
    }
}

/// The user with its groups; one that this machine does not know has its own number's group only.
fn user(uid: u32) -> Result<User> {
    Ok(match users::by_uid(uid)? {
        Some(account) => User { uid, gid: account.gid, groups: account.groups.clone() },
        None => User { uid, gid: uid, groups: vec![uid] },
    })
}
