//! A fid that clunks itself.

use super::Conn;
use super::session::Result;
use crate::message::Message;
use crate::tree::{CUT, Errno};
use covey_wire::{Bytes, List, Name};
use std::rc::Rc;

/// A fid number, taken when made. When dropped, Tclunk is sent and the number is used again once
/// that is answered, whether or not the server knew the fid: so it may be dropped at any point of a
/// walk.
pub struct Fid {
    conn: Conn,
    number: u32,
    is_gone: bool,
}

impl Fid {
    /// A number that is not in use on `conn`.
    pub fn new(conn: &Conn) -> Fid {
        Fid { conn: conn.clone(), number: conn.fid(), is_gone: false }
    }

    /// A new fid at the end of `names`, seen from fid `from`; at most [`crate::message::WALK_NAMES_MAX`] of them.
    ///
    /// Of a later name that cannot be walked to, 9P tells only that it failed. It is walked to once more, alone, which
    /// tells why.
    pub async fn walk(conn: &Conn, from: u32, names: &[Name]) -> Result<Fid> {
        let (mut place, mut left) = (None::<Fid>, names);
        loop {
            let fid = place.as_ref().map_or(from, Fid::number);
            let new = Fid::new(conn);
            let walk = Message::Twalk { fid, newfid: new.number(), names: List(left.to_vec()) };
            let found = match conn.call(walk).await? {
                Message::Rwalk { qids } => qids.0.len(),
                other => return Err(Errno::because(Errno::EPROTO, other.name()).into()),
            };
            if found >= left.len() {
                return Ok(new);
            }
            if found == 0 {
                return Err(Errno::from(Errno::ENOENT).into());
            }
            // The number is known to the server only after a whole walk.
            let there = List(left[..found].to_vec());
            let walk = Message::Twalk { fid, newfid: new.number(), names: there };
            match conn.call(walk).await? {
                Message::Rwalk { qids } if qids.0.len() == found => {}
                _ => return Err(Errno::from(Errno::ENOENT).into()),
            }
            (place, left) = (Some(new), &left[found..]);
        }
    }

    /// The number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The connection.
    pub fn conn(&self) -> &Conn {
        &self.conn
    }

    /// Asks the file a question (Tcall). The request is sent now, so questions arrive in the order of the calls; the fid
    /// is kept until the answer is here.
    pub fn ask(self: &Rc<Fid>, question: Bytes) -> impl Future<Output = Result<Bytes>> + use<> {
        let fid = self.clone();
        let call = fid.conn.call(Message::Tcall { fid: fid.number, body: question.into() });
        async move {
            let reply = call.await;
            drop(fid);
            match reply? {
                Message::Rcall { body } => Ok(body.into_bytes()),
                other => {
                    let what = format!("the server answered with {}", other.name());
                    Err(Errno::because(Errno::EPROTO, what).into())
                }
            }
        }
    }

    /// Tells the server that whoever held this open file is lost: see [`CUT`]. Where it knows of no such thing the drop that
    /// follows is a clunk as any other.
    pub fn cut(&self) {
        let call = Message::Tcall { fid: self.number, body: Bytes::from_static(CUT).into() };
        self.conn.shared().with(|state| state.send(call, None));
    }

    /// Clunks it and answers what the server says: an extended attribute is set only now. Dropped before
    /// the end, the number is not used again.
    pub async fn clunk(mut self) -> Result<()> {
        self.is_gone = true;
        let answer = self.conn.call(Message::Tclunk { fid: self.number }).await;
        self.conn.release_fid(self.number);
        answer.map(|_| ())
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        let clunk = Message::Tclunk { fid: self.number };
        self.conn.shared().with(|state| state.send(clunk, Some(self.number)));
    }
}
