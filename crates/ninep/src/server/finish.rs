//! The second half of each request: the tree has answered; the fids change and a reply is made.

use super::answer::Answer;
use super::fids::{Fid, File, Open};
use super::{Session, attr};
use crate::message::{Message, Qid};
use crate::tree::{Errno, Opened, Result, Tree, User};
use covey_wire::{List, Name};
use std::rc::Rc;

/// What is left to do when the tree has answered.
pub(super) enum Then<N> {
    Attach { fid: u32 },
    Walk { newfid: u32, names: usize, user: Rc<User> },
    Open { fid: u32, flags: u32 },
    Create { fid: u32, flags: u32 },
    Make(fn(Qid) -> Message),
    Reply(Message),
    Remove { user: Rc<User>, node: N },
    Read { count: u32 },
    Write { count: u32 },
    ReadList { count: u32 },
    WriteList { count: u32 },
    Readdir { bytes_max: u32 },
    Getattr { request_mask: u64 },
    Readlink,
    Statfs,
    Lock,
    Getlock,
    Call,
}

impl<T: Tree> Session<T> {
    /// Ends a request with the tree's answer.
    pub(super) fn finish(
        &mut self,
        then: Then<T::Node>,
        answer: Result<Answer<T::Node>>,
    ) -> Result<Message> {
        if let Then::Remove { user, node } = then {
            self.clunk_node(&user, node);
            return answer.map(|_| Message::Rremove {});
        }
        match (then, answer?) {
            (Then::Attach { fid }, Answer::Attached((user, qid, node))) => {
                let file = File { node, user: Rc::new(user), qid, open: None };
                self.fids.insert(fid, Fid::File(file));
                Ok(Message::Rattach { qid })
            }
            (Then::Walk { newfid, names, user }, Answer::Walked(steps)) => {
                self.finish_walk(newfid, names, user, steps)
            }
            (Then::Open { fid, flags }, Answer::Opened(opened)) => {
                let (qid, iounit) = self.finish_open(fid, flags, opened)?;
                Ok(Message::Rlopen { qid, iounit })
            }
            (Then::Create { fid, flags }, Answer::Opened(opened)) => {
                let (qid, iounit) = self.finish_open(fid, flags, opened)?;
                Ok(Message::Rlcreate { qid, iounit })
            }
            (Then::Make(reply), Answer::Made(qid)) => Ok(reply(qid)),
            (Then::Reply(reply), Answer::Done(())) => Ok(reply),
            (Then::Read { count }, Answer::Data(mut data)) => {
                data.truncate(count as usize);
                Ok(Message::Rread { data: data.into() })
            }
            (Then::Write { count }, Answer::Count(written)) => {
                Ok(Message::Rwrite { count: written.min(count) })
            }
            (Then::ReadList { count }, Answer::Data(mut data)) => {
                data.truncate(count as usize);
                Ok(Message::Rreadlist { data: data.into() })
            }
            (Then::WriteList { count }, Answer::Count(written)) => {
                Ok(Message::Rwritelist { count: written.min(count) })
            }
            (Then::Readdir { bytes_max }, Answer::Entries(list)) => attr::entries(list, bytes_max),
            (Then::Getattr { request_mask }, Answer::Attr(attr)) => {
                Ok(attr::reply(attr, request_mask))
            }
            (Then::Readlink, Answer::Target(target)) => self.finish_readlink(target),
            (Then::Statfs, Answer::Statfs(state)) => Ok(attr::statfs(state)),
            (Then::Lock, Answer::LockStatus(status)) => Ok(Message::Rlock { status: status as u8 }),
            (Then::Getlock, Answer::Lock(lock)) => Ok(Message::Rgetlock {
                kind: lock.kind,
                start: lock.start,
                length: lock.length,
                proc_id: lock.proc_id,
                client_id: lock.client_id,
            }),
            (Then::Call, Answer::Data(body)) if body.len() <= self.payload_max() as usize => {
                Ok(Message::Rcall { body: body.into() })
            }
            (Then::Call, Answer::Data(body)) => {
                let what = format!("answer of {} bytes is over the msize", body.len());
                Err(Errno::because(Errno::EOVERFLOW, what))
            }
            _ => unreachable!("each request is paired with its own type of answer in start.rs"),
        }
    }

    /// Only a walk that got all the way makes a fid.
    fn finish_walk(
        &mut self,
        newfid: u32,
        names: usize,
        user: Rc<User>,
        mut steps: Vec<(Qid, T::Node)>,
    ) -> Result<Message> {
        steps.truncate(names);
        let qids: Vec<Qid> = steps.iter().map(|(qid, _)| *qid).collect();
        match steps.pop() {
            None => return Err(Errno::ENOENT.into()),
            Some((qid, node)) if qids.len() == names => {
                if let Ok(old) = self.fids.remove(newfid) {
                    self.clunk(old);
                }
                self.fids.insert(newfid, Fid::File(File { node, user, qid, open: None }));
            }
            Some(_) => {}
        }
        Ok(Message::Rwalk { qids: List(qids) })
    }

    fn finish_open(&mut self, fid: u32, flags: u32, opened: Opened<T::Node>) -> Result<(Qid, u32)> {
        let iounit = self.payload_max();
        let file = self.fids.file_mut(fid)?;
        file.open = Some(Open::from_flags(flags, opened.blocking)?);
        (file.qid, file.node) = (opened.qid, opened.node);
        Ok((opened.qid, iounit))
    }

    fn finish_readlink(&self, target: Name) -> Result<Message> {
        let longest = u32::from(u16::MAX).min(self.payload_max());
        if target.len() > longest as usize {
            let what = format!("target of {} bytes does not fit a message", target.len());
            return Err(Errno::because(Errno::EIO, what));
        }
        Ok(Message::Rreadlink { target })
    }
}
