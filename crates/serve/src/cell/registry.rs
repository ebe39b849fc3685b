//! `/cell` of a node: the devices of all hosts that run here, one behind the other.
//!
//! ```text
//!   echo "host SOCKET" > /cell/ctl     a host announces where it serves its devices
//!   /cell/r /cell/U /cell/R /cell/p /cell/l     what its devices hold, until it ends
//! ```

use covey_cluster::net::dial_user_server;
use covey_io::os::net::Address;
use covey_ninep::client::Conn;
use covey_ninep::control::{Commands, Control, refuse};
use covey_ninep::import::{Import, root_of};
use covey_ninep::namespace::Namespace;
use covey_ninep::tree::{Errno, Outcome, Result, User};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::pin::Pin;
use std::rc::{Rc, Weak};

/// The devices, as they are called below `/cell`.
const DEVICES: [&str; 5] = ["r", "U", "R", "p", "l"];
/// Hosts on one node.
const HOSTS_MAX: usize = 256;

/// Binds `/cell` in a node's namespace.
pub fn bind(names: &Rc<Namespace>) -> Result<()> {
    let registry = Rc::new(Registry { names: Rc::downgrade(names), hosts: RefCell::default() });
    names.bind("cell/ctl", Rc::new(Control::new(HostCommands(registry.clone()))))?;
    registry.show(names)
}

struct Registry {
    names: Weak<Namespace>,
    hosts: RefCell<Vec<Rc<Known>>>,
}

/// A host that has announced itself.
struct Known {
    socket: String,
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
            if hosts.is_empty() {
                names.bind(&path, Rc::new(Namespace::folder()))?;
            }
        }
        Ok(())
    }

    fn refresh(&self) -> Result<()> {
        self.names.upgrade().map_or(Ok(()), |names| self.show(&names))
    }

    async fn add(self: Rc<Self>, socket: String, owner: u32) -> Result<()> {
        if self.hosts.borrow().len() >= HOSTS_MAX {
            let what = format!("{HOSTS_MAX} hosts are here, the limit of a node");
            return Err(Errno::because(Errno::ENOSPC, what));
        }
        let conn = dial_user_server(&address(&socket)?, "/cell", owner, owner).await?;
        let known = Rc::new(Known { socket, owner, conn });
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
}

fn address(socket: &str) -> Result<Address> {
    let parsed = format!("unix!{socket}").parse::<Address>();
    parsed.map_err(|error| Errno::because(Errno::EINVAL, error.to_string()))
}

/// A device of a host: each user of the node enters it as himself.
fn import(host: &Rc<Known>, device: &'static str) -> Import {
    let conns = Rc::<RefCell<HashMap<u32, Conn>>>::default();
    let host = host.clone();
    let connect = move |user: &User| {
        let (host, conns, uid) = (host.clone(), conns.clone(), user.uid);
        let known = conns.borrow().get(&uid).filter(|conn| !conn.is_lost()).cloned();
        let connected = async move {
            let conn = match known {
                Some(conn) => conn,
                None => {
                    let address = address(&host.socket)?;
                    let aname = format!("/cell/{device}");
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
        lines.collect::<String>() + "# host SOCKET: shows the devices that are served there\n"
    }

    fn run(&self, user: &User, words: &[&str]) -> Outcome<()> {
        let ["host", socket] = words else {
            return refuse("the command is: host SOCKET").into();
        };
        if let Err(error) = check_owner(Path::new(socket), user.uid) {
            return Err(error).into();
        }
        Outcome::later(self.0.clone().add((*socket).to_owned(), user.uid))
    }

    /// Whoever may use the node may run workers on it; a user can only show what is the user's own.
    fn allows(&self, _: &User) -> bool {
        true
    }
}

/// EACCES unless the socket belongs to the user: nobody has the node talk to what is not his.
fn check_owner(socket: &Path, uid: u32) -> Result<()> {
    let refused =
        |what: &str| Errno::because(Errno::EACCES, format!("{}: {what}", socket.display()));
    if !socket.is_absolute() {
        return Err(refused("not a path from the root"));
    }
    let found = std::fs::symlink_metadata(socket)?;
    match (found.file_type().is_socket(), found.uid() == uid) {
        (true, true) => Ok(()),
        (false, _) => Err(refused("no socket")),
        (_, false) => Err(refused("the socket belongs to another user")),
    }
}
