//! Requests to the metadata server, sent again until one is answered.

use super::leases::OnTheWay;
use super::memory::Memory;
use super::{Answered, Task, call};
use crate::client::beside::Asker;
use crate::client::cache::Cache;
use crate::client::link::Link;
use crate::client::{Error, Net, Result};
use crate::ops::{Answer, Id, Reply};
use covey_ninep::client::{CallError, Conn};
use covey_ninep::tree::Errno;
use std::sync::Arc;

/// What it takes to ask the metadata server something.
pub(super) struct Wire {
    pub link: Arc<Link>,
    pub net: Arc<dyn Net>,
    pub memory: Arc<Memory>,
    pub cache: Arc<Cache>,
}

impl Wire {
    /// Sends a request until it is answered, or the server has been away for too long.
    pub async fn send(&self, task: &mut Task) -> Result<Answered> {
        let mut patience = self.link.patience();
        // What is announced stays so until it is announced again.
        let mut _lost = None;
        loop {
            let (_, conn) = self.link.conn(patience.since).await?;
            // What was sent may be done: it goes on to its end, or an append would leave a hole.
            if task.sent == 0 && task.asker.as_ref().is_some_and(Asker::is_gone) {
                return Err(Error::because(Errno::EINTR, "nobody waits for it"));
            }
            let asked = self.net.now();
            let begun = task.begun.take();
            let was_begun = begun.is_some();
            let way = match begun {
                Some(sent) => OnTheWay::begun(&self.cache, sent),
                None => OnTheWay::new(&self.cache, &task.op, asked),
            };
            // From here on no open goes by what is known of a file that may be gone.
            if task.op.minds_opens() && !self.say_opens(way.loses(), &conn) && !conn.is_lost() {
                let what = "too many requests are on their way";
                // It stays under way for who says it again.
                task.begun = was_begun.then(|| way.not_sent()).flatten();
                return Err(Error::because(Errno::EAGAIN, what));
            }
            self.memory.pay(&conn);
            let seq = task.change.as_ref().map_or(0, |change| change.seq);
            let (request, greetings) = self.memory.request(seq, &task.caller, task.op.clone());
            if let Some(change) = &mut task.change {
                change.note_sent(request.session)?;
            }
            task.sent += 1;
            match call(&conn, &request).await {
                Ok(Answer { reply: Reply::Error { code, reason }, .. }) => {
                    return Err(Error::because(code, reason.lossy().into_owned()));
                }
                Ok(answer) => {
                    way.arrived(&request.op, &answer, self.net.now());
                    let (reply, grant) = (answer.reply, answer.grant);
                    return Ok(Answered { reply, greetings, grant, asked });
                }
                Err(CallError::Lost(_)) if self.link.goes_on(&mut patience) => _lost = Some(way),
                Err(CallError::Lost(why)) => return Err(self.link.lost(why)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells the server of the opens that make a difference where these files may be gone, or any; false when some of
    /// that could not be said.
    fn say_opens(&self, gone: Option<&[Id]>, conn: &Conn) -> bool {
        match gone {
            Some(files) => self.memory.say_opens_of(files, conn),
            None => self.memory.say_opens(conn),
        }
    }
}
