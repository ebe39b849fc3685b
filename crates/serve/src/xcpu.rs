//! `/xcpu`: the sessions of this node, on its processes and in a directory of its own.
//!
//! The tree and its rules are [`covey_launch::session`]'s; here is what it asks of the world. A session has a
//! directory `N` below the node's scratch directory, owned by its user: `N/exec` is the program, `N/fs` where
//! it starts. Another `N` is for memory that is shared by files. Programs are started and ended by [`covey_io::os::spawn`].

mod emulated;
mod entries;
mod job;
mod net;
mod place;
mod procs;
mod scratch;

use crate::tree::is_owner;
use covey_cluster::config::{Emulated, Node as NodeConfig};
use covey_cluster::net::ClusterNet;
use covey_io::os::cgroup::Cgroups;
use covey_io::os::credentials;
use covey_io::os::spawn::Starter;
use covey_io::task;
use covey_launch::session::{Host, Limits, Place, Xcpu};
use covey_launch::spawn::flow::Net;
use covey_ninep::namespace::{Namespace, Part};
use covey_ninep::tree::{Errno, Outcome, Result, User};
use covey_wire::Bytes;
use scratch::Scratch;
use std::rc::Rc;
use std::sync::Arc;

/// Binds the sessions of a node. What they run ends with this process, however that ends.
pub fn bind(
    names: &Namespace,
    starter: Starter,
    node: &NodeConfig,
    net: Arc<ClusterNet>,
    noticed: impl Fn(Rc<dyn Part>) -> Rc<dyn Part>,
) -> anyhow::Result<Rc<Xcpu>> {
    let (xcpu, tree) = sessions(starter, node, net)?;
    names.bind("xcpu", noticed(tree))?;
    Ok(xcpu)
}

fn sessions(
    starter: Starter,
    node: &NodeConfig,
    net: Arc<ClusterNet>,
) -> anyhow::Result<(Rc<Xcpu>, Rc<Namespace>)> {
    let host = Node(Rc::new(World {
        starter,
        net,
        scratch: Scratch::open(&node.name)?,
        memory: Scratch::memory(&node.name),
        cgroups: Cgroups::make(&format!("covey-{}-", node.name)),
        emulated: node.emulated.clone(),
    }));
    Ok(Xcpu::new(Rc::new(host), Limits::default())?)
}

/// What all sessions of the node share.
pub(crate) struct World {
    starter: Starter,
    net: Arc<ClusterNet>,
    scratch: Scratch,
    /// Where programs that share memory by files have them: MPI libraries leave theirs when they are killed.
    memory: Option<Scratch>,
    /// Or why there are none.
    cgroups: std::result::Result<Cgroups, String>,
    emulated: Option<Emulated>,
}

struct Node(Rc<World>);

impl Host for Node {
    fn arch(&self) -> String {
        let name = rustix::system::uname();
        let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let machine = match &self.0.emulated {
            Some(Emulated { arch, .. }) => arch.clone(),
            None => word(name.machine()),
        };
        format!("{}/{machine}", word(name.sysname()))
    }

    fn procs(&self) -> Outcome<Bytes> {
        let sessions = self.0.scratch.path();
        Outcome::later(async move {
            let sessions = sessions?;
            let text = task::blocking(move || Ok(procs::text(&sessions))).await?;
            Ok(text.into())
        })
    }

    fn admit(&self, user: &User) -> Result<()> {
        let own = credentials::own().0;
        if credentials::can_switch() || user.uid == own {
            return Ok(());
        }
        let what = format!(
            "this node's daemon runs as user {own} and starts programs for nobody else, not for user {}",
            user.uid
        );
        Err(Errno::because(Errno::EACCES, what))
    }

    fn is_manager(&self, user: &User) -> bool {
        is_owner(user)
    }

    fn place(&self, owner: &Rc<User>, number: u64) -> Result<Rc<dyn Place>> {
        Ok(Rc::new(place::SessionPlace::make(self.0.clone(), owner.clone(), number)?))
    }

    fn about(&self) -> String {
        let mut text = match &self.0.cgroups {
            Ok(_) => "# a control group for each session\n".to_owned(),
            Err(why) => format!("# no control groups: {why}\n"),
        };
        if let Some(Emulated { arch, emulator }) = &self.0.emulated {
            text += &format!("# programs of {arch} are emulated by {}\n", emulator.display());
        }
        text
    }

    fn net(&self, user: &Rc<User>) -> Rc<dyn Net> {
        Rc::new(net::UserNet { net: self.0.net.clone(), user: user.clone() })
    }
}
