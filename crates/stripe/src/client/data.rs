//! I/O servers: how a connection to one begins, and what is asked of it as a whole.

use super::{BoxFuture, Error, Link, Net, Options, Result, Start};
use crate::chain::Served;
use crate::objects::{DataOp, DataReply};
use covey_ninep::client::{CallError, Conn};
use covey_ninep::message::Message;
use covey_ninep::tree::{self, Errno};
use covey_wire::Payload;
use std::sync::Arc;
use std::time::Duration;

/// A link to an I/O server's objects. `client` tells clients that write apart.
pub fn data_link(net: Arc<dyn Net>, server: &str, options: Options, client: u64) -> Arc<Link> {
    let clock = net.clone();
    let greet = move |conn: Conn| -> BoxFuture<tree::Result<Start>> {
        let clock = clock.clone();
        Box::pin(async move {
            let greeting =
                |op: DataOp| conn.call(Message::Tcall { fid: 0, body: Payload::from(op.encode()) });
            let (answer, says_chains) = match greeting(DataOp::Greet { client }).await {
                // A server of a version that knows no chains.
                Err(CallError::Errno(error)) if error.code == Errno::EINVAL => {
                    (greeting(DataOp::Start { client }).await?, false)
                }
                answer => (answer?, true),
            };
            let Message::Rcall { body } = answer else {
                return Err(Errno::because(Errno::EPROTO, "an odd answer to Tcall"));
            };
            match DataReply::decode(body.into_bytes()) {
                Ok(DataReply::Start { machine, age }) => {
                    let at = clock.now().checked_sub(Duration::from_millis(age));
                    Ok(Start { machine, at, says_chains })
                }
                Ok(DataReply::Error { code, reason }) => {
                    Err(Errno::because(code, reason.lossy().into_owned()))
                }
                _ => Err(Errno::because(Errno::EPROTO, "an odd answer to Start")),
            }
        })
    };
    Link::new(net, server, "/data", options, Some(Box::new(greet)))
}

/// The metadata server's link to an I/O server's objects. It says who it is by what it asks.
pub fn objects_link(net: Arc<dyn Net>, server: &str, options: Options) -> Arc<Link> {
    Link::new(net, server, "/data", options, None)
}

/// One operation on a data server's root.
pub async fn data_call(link: &Arc<Link>, op: DataOp) -> Result<DataReply> {
    data_call_by(link, &op, None).await.map(|(reply, _)| reply)
}

/// The same by a chain, which is said to servers that know of chains, and the start of the server's machine that it was sent to.
pub(super) async fn data_call_by(
    link: &Arc<Link>,
    op: &DataOp,
    served: Option<Served>,
) -> Result<(DataReply, Option<Start>)> {
    let mut patience = link.patience();
    loop {
        let reached = link.conn(patience.since).await?;
        match data_call_once(link, reached, op, served).await {
            Ok(done) => return done,
            Err(_) if link.goes_on(&mut patience) => {}
            Err(why) => return Err(link.lost(why)),
        }
    }
}

/// The same on this connection, of this generation; an error is why that was lost.
pub(super) async fn data_call_once(
    link: &Arc<Link>,
    (generation, conn): (u64, Conn),
    op: &DataOp,
    served: Option<Served>,
) -> std::result::Result<Result<(DataReply, Option<Start>)>, String> {
    let start = link.machine(generation);
    let body = match served.filter(|_| start.is_some_and(|start| start.says_chains)) {
        Some(served) => DataOp::By { served, op: Payload::from(op.encode()) }.encode(),
        None => op.encode(),
    };
    let body = Payload::from(body);
    let reply = match conn.call(Message::Tcall { fid: 0, body }).await {
        Ok(Message::Rcall { body }) => DataReply::decode(body.into_bytes()),
        Ok(other) => return Ok(Err(Error::Odd(format!("Tcall got {}", other.name())))),
        Err(CallError::Lost(why)) => return Err(why),
        Err(error) => return Ok(Err(error.into())),
    };
    Ok(match reply {
        Ok(DataReply::Error { code, reason }) => {
            Err(Error::because(code, reason.lossy().into_owned()))
        }
        Ok(other) => Ok((other, start)),
        Err(blame) => Err(Error::Odd(blame.to_string())),
    })
}
