//! A node's namespace: what is bound at its root, absent where it is off.
//!
//! ```text
//!   /fs/     the file system            /data/   this node's objects, if it is an I/O server
//!   /stats   counters, one per line     /meta/   the names, if it is the metadata server
//!   /config  the cluster's configuration
//!   /n/NODE/ another node's tree, for this node's users
//! ```
//!
//! A part decides for itself who may attach it; walking into it from the root is attaching it.

use super::watch::{Detail, Watch};
use super::works::Works;
use super::{ctl, data, fs, identity, meta, vol};
use covey_cluster::net::{ClusterNet, VOUCHED};
use covey_ninep::client::Conn;
use covey_ninep::control::Control;
use covey_ninep::import::{Import, root_of};
use covey_ninep::namespace::{Host, Namespace};
use covey_ninep::text::Text;
use covey_ninep::tree::{Attach, Errno, Outcome, Result, Statfs, User};
use covey_wire::Name;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// What a node is and has.
pub struct Node {
    /// What the node is called.
    pub name: String,
    /// What it is called among all clusters: an attach may say whom it means.
    pub whose: String,
    /// Who may come in.
    pub users: Rc<identity::Users>,
    /// Objects.
    pub data: Option<data::DataServer>,
    /// Names.
    pub meta: Option<meta::MetaServer>,
    /// Volumes, once their list was read.
    pub volumes: OnceCell<Rc<vol::Volumes>>,
    /// What commands do to the whole cluster, where this is the metadata server.
    pub works: Works,
}

/// Binds everything that a node serves.
pub fn namespace(node: &Rc<Node>, fs: fs::FsTree, config: String) -> Result<Namespace> {
    let names = Namespace::new(NodeHost(node.clone()));
    // Its files have the numbers that they have on a mount.
    names.bind_plain("fs", Rc::new(fs))?;
    if let Some(data) = &node.data {
        names.bind("data", Rc::new(data.clone()))?;
    }
    if let Some(meta) = &node.meta {
        names.bind("meta", Rc::new(meta.clone()))?;
    }
    names.bind(
        "stats",
        Rc::new(node.text(|node| node.numbers(Detail::Summary)).only_for(is_owner)),
    )?;
    names.bind("config", Rc::new(Text::new(move || config.clone())))?;
    names.bind("version", Rc::new(Text::new(|| concat!(env!("CARGO_PKG_VERSION"), "\n"))))?;
    names.bind("ctl", Rc::new(Control::new(ctl::NodeCommands(node.clone()))))?;
    names.bind("slow", Rc::new(node.text(Node::slow_text).only_for(is_owner)))?;
    names.bind(
        "times",
        Rc::new(node.text(|node| node.numbers(Detail::Buckets)).only_for(is_owner)),
    )?;
    names.bind("space", Rc::new(node.text(Node::space_text)))?;
    names.bind("store", Rc::new(node.text(Node::store_text)))?;
    Ok(names)
}

/// Another node's tree, for users of this one: this node vouches for them there. Its own `/n` is not shown,
/// or the tree would have no end.
pub fn neighbour(net: Arc<ClusterNet>, name: String) -> Import {
    // One connection for each user, for as long as it lasts.
    let conns = Rc::<Conns>::default();
    let connect = move |user: &User| {
        let (net, name, uid, conns) = (net.clone(), name.clone(), user.uid, conns.clone());
        let known = conns.borrow().get(&uid).cloned();
        let connected = async move {
            let conn = match known.filter(|conn| !conn.is_lost()) {
                Some(conn) => conn,
                None => net.dial_as(&name, "/", uid).await?,
            };
            keep(&conns, uid, &conn);
            root_of(&conn).await
        };
        Box::pin(connected) as Pin<Box<dyn Future<Output = _>>>
    };
    Import::new(Box::new(connect)).hide("n")
}

/// Connections to one node, by the user for whom they are.
type Conns = RefCell<HashMap<u32, Conn>>;

fn keep(conns: &Conns, uid: u32, conn: &Conn) {
    let mut conns = conns.borrow_mut();
    conns.retain(|_, conn| !conn.is_lost());
    conns.insert(uid, conn.clone());
}

impl Node {
    fn text(self: &Rc<Self>, make: impl Fn(&Node) -> String + 'static) -> Text {
        let node = self.clone();
        Text::new(move || make(&node))
    }

    /// How full the metadata store is; empty where there is none.
    fn space_text(&self) -> String {
        let space = self.meta.as_ref().and_then(|meta| meta.0.map_space());
        space.map_or_else(String::new, |(used, max)| format!("metadata {used} {max}\n"))
    }

    /// Whether the metadata server knows the store; empty where there is none.
    fn store_text(&self) -> String {
        self.data.as_ref().map_or_else(String::new, |data| data.0.standing().text())
    }

    fn slow_text(&self) -> String {
        self.watches().iter().map(|watch| watch.slow_text()).collect()
    }

    /// Counters, operations, clients and times.
    fn numbers(&self, detail: Detail) -> String {
        let mut out = format!("node {}\n", self.name);
        let data = self.data.iter().flat_map(|data| data.0.counters().list());
        data.for_each(|(name, value)| out += &format!("data.{name} {value}\n"));
        if let Some(data) = &self.data {
            out += &format!("data.objects_lost {}\n", data.0.objects_lost());
        }
        if let Some(meta) = &self.meta {
            for (name, value) in meta.0.counters().list() {
                out += &format!("meta.{name} {value}\n");
            }
            let sessions = meta.0.session_list();
            out += &format!("meta.sessions {}\n", sessions.len());
            for one in sessions {
                out += &format!("session {} {} {}\n", one.session, one.name, one.open_files);
            }
            out += &meta.0.times().text(detail);
            out += &meta.0.tasks_text();
            out += &self.works.text(Instant::now());
        }
        for watch in self.watches() {
            out += &watch.text(detail);
        }
        out += &self.volumes.get().map_or_else(String::new, |volumes| volumes.numbers());
        let moves = covey_io::os::place::moves();
        out + &format!("place.joined {}\n", moves.joined)
    }

    /// The watches over the parts that are on.
    pub fn watches(&self) -> Vec<Rc<Watch>> {
        let data = self.data.as_ref().map(|data| data.0.watch().clone());
        let meta = self.meta.as_ref().map(|meta| meta.0.watch().clone());
        data.into_iter().chain(meta).collect()
    }
}

/// Whether a user may see what others do, and change what the node does: its own, and root.
pub fn is_owner(user: &User) -> bool {
    user.uid == 0 || user.uid == rustix::process::geteuid().as_raw()
}

/// What the namespace asks of the node.
struct NodeHost(Rc<Node>);

impl NodeHost {
    /// The path that an attach names, and whether it is on behalf of one of the peer's users.
    fn meant(&self, aname: &Name) -> Result<(String, bool)> {
        let aname = aname.lossy();
        let (path, whose) = aname.split_once(' ').unwrap_or((&aname, &self.0.whose));
        let (whose, is_vouched) = match whose.strip_suffix(VOUCHED) {
            Some(whose) => (whose, true),
            None => (whose, false),
        };
        if whose != self.0.whose {
            let why = format!("{whose:?} was meant, this is {:?}", self.0.whose);
            return Err(Errno::because(Errno::ENXIO, why));
        }
        Ok((path.to_owned(), is_vouched))
    }
}

impl Host for NodeHost {
    fn admit(&self, attach: &mut Attach) -> Result<User> {
        let (_, is_vouched) = self.meant(&attach.aname)?;
        let user = self.0.users.admit(attach)?;
        if is_vouched {
            // The peer is trusted, its user is not: it has the rights of that user here.
            (attach.peer.uid, attach.peer.has_key) = (Some(user.uid), false);
        }
        Ok(user)
    }

    fn path(&self, aname: &Name) -> Result<String> {
        Ok(self.meant(aname)?.0)
    }

    fn statfs(&self) -> Outcome<Statfs> {
        match (&self.0.data, &self.0.meta) {
            (Some(data), _) => data.space(),
            (None, Some(meta)) => meta.space(),
            (None, None) => Ok(Statfs { bsize: 4096, namelen: 255, ..Statfs::default() }).into(),
        }
    }

    fn user_name(&self, uid: u32) -> Name {
        super::export::user_name(uid)
    }

    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
        tokio::task::spawn_local(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_ninep::tree::Peer;

    fn host() -> NodeHost {
        let users = Rc::new(identity::Users::of_this_process());
        let (name, whose) = ("one".to_owned(), "one 1234".to_owned());
        NodeHost(Rc::new(Node {
            name,
            whose,
            users,
            data: None,
            meta: None,
            volumes: OnceCell::new(),
            works: Works::default(),
        }))
    }

    fn attach(aname: &str, uid: u32) -> Attach {
        let peer = Peer { name: "test".into(), uid: None, has_key: true };
        Attach { peer, uname: Name::EMPTY, n_uname: Some(uid), aname: aname.into() }
    }

    #[test]
    fn a_user_for_whom_a_node_vouches_has_not_the_rights_of_the_node() {
        let host = host();
        let own = rustix::process::geteuid().as_raw();
        let mut node = attach("/data one 1234", 4321);
        assert_eq!(host.admit(&mut node).unwrap().uid, 4321);
        identity::attach_trusted(&node, own).unwrap();
        let mut user = attach("/ one 1234 user", 4321);
        assert_eq!(host.admit(&mut user).unwrap().uid, 4321);
        assert_eq!((user.peer.uid, user.peer.has_key), (Some(4321), false));
        assert_eq!(identity::attach_trusted(&user, own).unwrap_err().code, Errno::EACCES);
        assert_eq!(host.path(&user.aname).unwrap(), "/");
    }

    #[test]
    fn an_attach_that_means_another_node_is_refused() {
        let host = host();
        for aname in ["/ two 1234", "/ one 12345", "/ one", "/ two 1234 user", "/ one 1234 users"] {
            assert_eq!(host.path(&aname.into()).unwrap_err().code, Errno::ENXIO, "{aname}");
            assert_eq!(host.admit(&mut attach(aname, 0)).unwrap_err().code, Errno::ENXIO);
        }
        assert_eq!(host.path(&"/fs".into()).unwrap(), "/fs");
    }
}
