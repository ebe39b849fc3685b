//! A fid that clunks itself.

use super::Conn;
use crate::message::Message;

/// A fid number, taken when made. When dropped, Tclunk is sent and the number is used again once
/// that is answered, whether or not the server knew the fid: so it may be dropped at any point of a
/// walk.
pub struct Fid {
    conn: Conn,
    number: u32,
}

impl Fid {
    /// A number that is not in use on `conn`.
    pub fn new(conn: &Conn) -> Fid {
        Fid { conn: conn.clone(), number: conn.fid() }
    }

    /// The number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The connection.
    pub fn conn(&self) -> &Conn {
        &self.conn
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        let clunk = Message::Tclunk { fid: self.number };
        self.conn.shared().with(|state| state.send(clunk, Some(self.number)));
    }
}
