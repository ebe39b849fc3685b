//! How the launcher reaches sessions on other nodes: as their user, for whom this node vouches.

use covey_cluster::net::ClusterNet;
use covey_io::os::random;
use covey_io::task;
use covey_launch::spawn::flow::{Below, Later, Net};
use covey_launch::spawn::parts;
use covey_ninep::client::{Conn, Fid};
use covey_ninep::control::refuse;
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, Result, User};
use covey_wire::{Bytes, Name};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The cluster's network on behalf of one user.
pub(super) struct UserNet {
    pub net: Arc<ClusterNet>,
    pub user: Rc<User>,
}

impl Net for UserNet {
    fn reach(&self, destination: &str) -> Later<Result<Rc<dyn Below>>> {
        let Some((node, session)) = parts(destination) else {
            let what = format!("{destination:?}: NODE/SESSION is wanted");
            return Box::pin(async move { refuse(what) });
        };
        let (dialled, session) = (self.net.dial_as(node, "/", self.user.uid), session.to_string());
        Box::pin(async move {
            let control = Control::open(dialled.await?, &session).await?;
            Ok(Rc::new(control) as Rc<dyn Below>)
        })
    }

    fn sleep(&self, time: Duration) -> Later<()> {
        Box::pin(task::sleep(time))
    }

    fn unique(&self) -> u64 {
        // Without randomness two spreads of one process may look alike: a late sender is then not told from a new one.
        random::bytes().map_or(u64::from(std::process::id()), u64::from_le_bytes)
    }
}

/// A session's control file on another node.
struct Control(Rc<Fid>);

impl Control {
    async fn open(conn: Conn, session: &str) -> Result<Control> {
        let names = ["xcpu", session, "ctl"].map(Name::from);
        let missing = |error| match Errno::from(error) {
            error if error.code == Errno::ENOENT => {
                Errno::because(Errno::ENOENT, "it starts no programs, or has no such session")
            }
            error => error,
        };
        let fid = Fid::walk(&conn, 0, &names).await.map_err(missing)?;
        conn.call(Message::Tlopen { fid: fid.number(), flags: O_RDWR }).await?;
        Ok(Control(Rc::new(fid)))
    }
}

impl Below for Control {
    fn ask(&self, question: Bytes) -> Later<Result<Bytes>> {
        let answer = self.0.ask(question);
        Box::pin(async move { Ok(answer.await?) })
    }
}

const O_RDWR: u32 = 2;
