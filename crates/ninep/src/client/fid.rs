//! A fid that clunks itself.

use super::Conn;
use super::session::Result;
use crate::message::Message;
use crate::tree::Errno;
use covey_wire::Bytes;
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
