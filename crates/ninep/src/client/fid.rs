//! A fid that clunks itself.

use super::Conn;
use super::session::Result;
use crate::message::Message;

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
