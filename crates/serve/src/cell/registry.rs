//! `/cell` of a node: the devices of all hosts that run here, one behind the other.
//!
//! ```text
//!   echo "host SOCKET" > /cell/ctl     a host announces where it serves its devices
//!   /cell/r /cell/U /cell/R /cell/p /cell/l     what its devices hold, until it ends
//! ```

use covey_cluster::net::dial_user_server;
use covey_io::os::net::Address;
use covey_io::task;
use covey_ninep::client::{CallError, Conn, Fid};
use covey_ninep::control::{Commands, Control, refuse};
use covey_ninep::import::{Import, root_of};
use covey_ninep::message::Message;
use covey_ninep::namespace::Namespace;
use covey_ninep::tree::{Errno, Outcome, Result, User};
use covey_wire::{Bytes, Name};
use futures_util::future::join_all;
use rustix::fs::{FileType, Mode, OFlags};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// The devices, as they are called below `/cell`.
const DEVICES: [&str; 5] = ["r", "U", "R", "p", "l"];
/// Hosts on one node.
const HOSTS_MAX: usize = 256;
/// Those of one user.
const USERS_HOSTS_MAX: usize = 64;

/// Binds `/cell` in a node's namespace.
pub fn bind(names: &Rc<Namespace>) -> Result<()> {
    let registry = Rc::new(Registry {
        names: Rc::downgrade(names),
        hosts: RefCell::default(),
        coming: Rc::default(),
    });
    names.bind("cell/ctl", Rc::new(Control::new(HostCommands(registry.clone()))))?;
    registry.show(names)
}

struct Registry {
    names: Weak<Namespace>,
    hosts: RefCell<Vec<Rc<Known>>>,
    /// The owners of those that are asked who they are.
    coming: Rc<RefCell<Vec<u32>>>,
}

/// A host that is asked who it is, until this is dropped: it takes the place of one that is shown.
struct Coming {
    all: Rc<RefCell<Vec<u32>>>,
    owner: u32,
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        if let Some(at) = all.iter().position(|owner| *owner == self.owner) {
            all.swap_remove(at);
        }
    }
}

/// A host that has announced itself.
struct Known {
    socket: String,
    place: Place,
    owner: u32,
    /// Its end is the end of this.
    conn: Conn,
}

impl Registry {
    /// Binds what all hosts serve.
    fn show(&self, names: &Namespace) -> Result<()> {
        for device in DEVICES {
            let path = format!("cell/{device}");
            let _ = names.unbind(&path);
            let hosts = self.hosts.borrow();
            for host in hosts.iter() {
                names.union(&path, Rc::new(import(host, device)))?;
            }
            // For users who see none of them.
            names.union(&path, Rc::new(Namespace::folder()))?;
        }
        Ok(())
    }

    fn refresh(&self) -> Result<()> {
        self.names.upgrade().map_or(Ok(()), |names| self.show(&names))
    }

    /// A place for a host that announces itself. One user leaves room for others.
    fn place(&self, owner: u32) -> Result<Coming> {
        let (hosts, mut coming) = (self.hosts.borrow(), self.coming.borrow_mut());
        let owners = || hosts.iter().map(|host| host.owner).chain(coming.iter().copied());
        let (own, all) = (owners().filter(|other| *other == owner).count(), owners().count());
        if own >= USERS_HOSTS_MAX || all >= HOSTS_MAX {
            let what = format!(
                "{own} of {all} hosts are user {owner}'s, with those that are asked who they are; the limits of a node are {USERS_HOSTS_MAX} for a user and {HOSTS_MAX}"
            );
            return Err(Errno::because(Errno::ENOSPC, what));
        }
        coming.push(owner);
        Ok(Coming { all: self.coming.clone(), owner })
    }

    /// Whether it is shown already: told twice, it is shown once.
    fn has(&self, socket: &str, owner: u32) -> bool {
        let is_it =
            |host: &Rc<Known>| host.socket == socket && host.owner == owner && !host.conn.is_lost();
        self.hosts.borrow().iter().any(is_it)
    }

    async fn add(self: Rc<Self>, socket: String, owner: u32) -> Result<()> {
        if self.has(&socket, owner) {
            return Ok(());
        }
        let coming = self.place(owner)?;
        let Some(known) = task::timeout(PATIENCE, Known::ask(socket.clone(), owner)).await else {
            let what = format!("{socket}: the host does not answer within {PATIENCE:?}");
            return Err(Errno::because(Errno::ETIMEDOUT, what));
        };
        let known = Rc::new(known?);
        // The same has come once more while it was asked.
        if self.has(&known.socket, owner) {
            return Ok(());
        }
        drop(coming);
        self.hosts.borrow_mut().push(known.clone());
        let registry = self.clone();
        tokio::task::spawn_local(async move {
            let why = known.conn.closed().await;
            tracing::debug!("workers' host at {} has gone: {why}", known.socket);
            registry.hosts.borrow_mut().retain(|other| !Rc::ptr_eq(other, &known));
            if let Err(error) = registry.refresh() {
                tracing::warn!("/cell is not up to date: {error}");
            }
        });
        self.refresh()
    }

    /// Ends hosts that a user may end, one of them or all that are the user's own, and waits until they have gone.
    async fn end(self: Rc<Self>, user: u32, socket: Option<String>) -> Result<()> {
        let is_meant = |host: &&Rc<Known>| match &socket {
            Some(socket) => host.socket == *socket,
            None => host.owner == user,
        };
        let hosts: Vec<Rc<Known>> = self.hosts.borrow().iter().filter(is_meant).cloned().collect();
        if hosts.is_empty() {
            let what = socket.map_or_else(
                || format!("no host of user {user} is shown here"),
                |socket| format!("no host at {socket} is shown here"),
            );
            return Err(Errno::because(Errno::ENOENT, what));
        }
        if let Some(other) = hosts.iter().find(|host| user != 0 && host.owner != user) {
            let what = format!("the host at {} is user {}'s", other.socket, other.owner);
            return Err(Errno::because(Errno::EPERM, what));
        }
        let ended = join_all(hosts.iter().map(|host| host.end())).await;
        ended.into_iter().collect()
    }
}

impl Known {
    /// A host at a socket of its owner. It may never answer, nor may the socket's file system.
    async fn ask(socket: String, owner: u32) -> Result<Known> {
        let path = PathBuf::from(&socket);
        let place = task::blocking(move || Place::find(&path, owner)).await?;
        let place =
            place.map_err(|what| Errno::because(Errno::EACCES, format!("{socket}: {what}")))?;
        let address = place.address()?;
        let conn = dial_user_server(&address, "/cell", owner, owner).await?;
        Ok(Known { socket, place, owner, conn })
    }

    /// Has it end its workers, and waits until it has gone.
    async fn end(&self) -> Result<()> {
        let ended = task::timeout(ENDING_PATIENCE, async {
            let gone = self.conn.closed();
            let told = async {
                let fid = Fid::walk(&self.conn, 0, &[Name::from("ctl")]).await?;
                self.conn.call(Message::Tlopen { fid: fid.number(), flags: 1 }).await?;
                let data = Bytes::from_static(b"end\n").into();
                self.conn.call(Message::Twrite { fid: fid.number(), offset: 0, data }).await
            };
            // It may be gone before it could answer.
            if let Err(CallError::Errno(error)) = told.await {
                return Err(error);
            }
            gone.await;
            Ok(())
        });
        let late = || format!("the host at {} was told to end, and has not yet", self.socket);
        ended.await.unwrap_or_else(|| Err(Errno::because(Errno::ETIMEDOUT, late())))
    }
}

/// A host's socket, held: names that lead to it may lead elsewhere later, or to a file system that does not answer.
struct Place(OwnedFd);

impl Place {
    /// The socket at a path, if it belongs to the user: nobody has the node talk to what is not his. May block, for as
    /// long as whatever the path leads through.
    fn find(path: &Path, uid: u32) -> io::Result<std::result::Result<Place, &'static str>> {
        if !path.is_absolute() {
            return Ok(Err("not a path from the root"));
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::open(path, flags, Mode::empty())?;
        // Whoever connects to it asks its file system again.
        if ANSWERED_BY_OTHERS.contains(&(rustix::fs::fstatfs(&place)?.f_type as i64)) {
            return Ok(Err(
                "its file system is another process's or machine's; hint: put it below /tmp or /run",
            ));
        }
        let found = rustix::fs::fstat(&place)?;
        let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
        Ok(match (is_socket, found.st_uid == uid) {
            (true, true) => Ok(Place(place)),
            (false, _) => Err("no socket"),
            (_, false) => Err("the socket belongs to another user"),
        })
    }

    fn address(&self) -> Result<Address> {
        let parsed = format!("unix!/proc/self/fd/{}", self.0.as_raw_fd()).parse::<Address>();
        parsed.map_err(|error| Errno::because(Errno::EINVAL, error.to_string()))
    }
}

/// A device of a host: each user of the node enters it as himself.
fn import(host: &Rc<Known>, device: &'static str) -> Import {
    let conns = Rc::<RefCell<HashMap<u32, Conn>>>::default();
    let host = host.clone();
    let connect = move |user: &User| {
        // Others see nothing of it, root neither, as if it were not there: it could make them wait, or stand with a lie before
        // what is theirs.
        let is_trusted = host.owner == 0 || host.owner == user.uid;
        let (host, conns, uid) = (host.clone(), conns.clone(), user.uid);
        let known = conns.borrow().get(&uid).filter(|conn| !conn.is_lost()).cloned();
        let connected = async move {
            if !is_trusted {
                return Err(Errno::ENOENT.into());
            }
            let conn = match known {
                Some(conn) => conn,
                None => {
                    let (address, aname) = (host.place.address()?, format!("/cell/{device}"));
                    dial_user_server(&address, &aname, host.owner, uid).await?
                }
            };
            conns.borrow_mut().insert(uid, conn.clone());
            root_of(&conn).await
        };
        Box::pin(connected) as Pin<Box<dyn Future<Output = _>>>
    };
    Import::new(Box::new(connect))
}

/// What the control file does.
struct HostCommands(Rc<Registry>);

impl Commands for HostCommands {
    fn text(&self) -> String {
        let hosts = self.0.hosts.borrow();
        let lines = hosts.iter().map(|host| format!("host {}\n", host.socket));
        lines.collect::<String>()
            + "# host SOCKET: shows the devices that are served there\n\
               # end [SOCKET]: ends a host and its workers; all of yours if none is named\n"
    }

    fn run(&self, user: &User, words: &[&str]) -> Outcome<()> {
        let (registry, uid) = (self.0.clone(), user.uid);
        match words {
            ["host", socket] => Outcome::later(registry.add((*socket).to_owned(), uid)),
            ["end"] => Outcome::later(registry.end(uid, None)),
            ["end", socket] => Outcome::later(registry.end(uid, Some((*socket).to_owned()))),
            _ => refuse("the commands are: host SOCKET, end [SOCKET]").into(),
        }
    }

    /// Whoever may use the node may run workers on it; a user can only show, and end, what is the user's own.
    fn allows(&self, _: &User) -> bool {
        true
    }
}

/// How long a host has to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one has to end its workers.
const ENDING_PATIENCE: Duration = Duration::from_secs(20);

/// FUSE, NFS, SMB (three of them), 9P, AFS (two) and Ceph: their files answer when somebody else does.
const ANSWERED_BY_OTHERS: [i64; 9] = [
    0x6573_5546,
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x5346_414f,
    0x6b41_4653,
    0x00c3_6400,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_have_not_said_who_they_are_count_as_their_user_s() {
        let registry =
            Registry { names: Weak::new(), hosts: RefCell::default(), coming: Rc::default() };
        let mut coming: Vec<Coming> =
            (0..USERS_HOSTS_MAX).map(|_| registry.place(7).expect("room")).collect();
        let refused = registry.place(7).err().expect("no room");
        assert_eq!(refused.code, Errno::ENOSPC);
        assert!(refused.to_string().contains("64 for a user"), "{refused}");
        let other = registry.place(8).expect("another user has room");
        coming.pop();
        registry.place(7).expect("one has gone");
        drop(other);
        assert_eq!(registry.coming.borrow().len(), coming.len());
    }
}
