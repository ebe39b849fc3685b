//! The second half of each request: the tree has answered; the fids change and a reply is made.

use super::answer::Answer;
use super::classic::Place;
use super::fids::{Fid, File, Open};
use super::{Session, attr, xattr};
use crate::message::{Message, Qid};
use crate::tree::{Errno, Opened, Peer, Result, Tree, User};
use covey_wire::{List, Name};
use std::rc::Rc;

/// What is left to do when the tree has answered.
pub(super) enum Then<N> {
    /// As this peer: with or without the key.
    Attach {
        fid: u32,
        peer: Peer,
    },
    Walk(Walk<N>),
    Open {
        fid: u32,
        flags: u32,
        remove: bool,
    },
    Create {
        fid: u32,
        flags: u32,
    },
    Make(fn(Qid) -> Message),
    Reply(Message),
    /// The fid is gone already; its node is clunked in any case.
    Gone {
        user: Rc<User>,
        node: N,
        reply: Message,
    },
    Read {
        count: u32,
    },
    Write {
        count: u32,
    },
    ReadView {
        count: u32,
    },
    WriteView {
        count: u32,
    },
    Readdir {
        bytes_max: u32,
    },
    Getattr {
        request_mask: u64,
    },
    Readlink,
    Statfs,
    Lock,
    Getlock,
    Call,
    XattrList {
        newfid: u32,
    },
    XattrValue {
        newfid: u32,
    },
    Stat,
    ClassicCreate {
        fid: u32,
        name: Name,
        flags: u32,
        remove: bool,
    },
    List {
        fid: u32,
        offset: u64,
    },
}

/// A walk on its way.
pub(super) struct Walk<N> {
    pub newfid: u32,
    pub names: usize,
    pub user: Rc<User>,
    /// From where and by which names, in 9P2000 and .u only.
    pub place: Option<(Rc<Place<N>>, Vec<Name>)>,
}

impl<T: Tree> Session<T> {
    /// Ends a request with the tree's answer.
    pub(super) fn finish(
        &mut self,
        then: Then<T::Node>,
        answer: Result<Answer<T::Node>>,
    ) -> Result<Message> {
        if let Then::Gone { user, node, reply } = then {
            self.clunk_node(&user, node);
            return answer.map(|_| reply);
        }
        if let Then::Attach { .. } = then {
            self.note_refusal(answer.as_ref().map(|_| ()).map_err(Errno::clone)).ok();
        }
        match (then, answer?) {
            (Then::Attach { fid, peer }, Answer::Attached((user, qid, node))) => {
                if let Err(error) = self.let_in(&peer) {
                    self.clunk_node(&Rc::new(user), node);
                    return self.note_refusal(Err(error));
                }
                let (qid, is_linux) = (self.shown(qid), self.spoken().is_linux());
                let place = (!is_linux).then(|| Place::root(node.clone()));
                let file = File { node, user: Rc::new(user), qid, open: None, place };
                self.fids.insert(fid, Fid::File(file));
                Ok(Message::Rattach { qid })
            }
            (Then::Walk(walk), Answer::Walked(steps)) => self.finish_walk(walk, steps),
            (Then::Open { fid, flags, remove }, Answer::Opened(opened)) => {
                let (qid, iounit) = self.finish_open(fid, flags, remove, opened)?;
                Ok(if self.spoken().is_linux() {
                    Message::Rlopen { qid, iounit }
                } else {
                    Message::Ropen { qid, iounit }
                })
            }
            (Then::Create { fid, flags }, Answer::Opened(opened)) => {
                let (qid, iounit) = self.finish_open(fid, flags, false, opened)?;
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
            (Then::ReadView { count }, Answer::Data(mut data)) => {
                data.truncate(count as usize);
                Ok(Message::Rreadview { data: data.into() })
            }
            (Then::WriteView { count }, Answer::Count(written)) => {
                Ok(Message::Rwriteview { count: written.min(count) })
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
            (Then::XattrList { newfid }, Answer::Names(names)) => {
                self.finish_xattr(newfid, xattr::list(&names))
            }
            (Then::XattrValue { newfid }, Answer::Data(value)) => self.finish_xattr(newfid, value),
            (Then::Stat, Answer::Stat(stat)) => self.finish_stat(stat),
            (Then::ClassicCreate { fid, name, flags, remove }, Answer::Created(created)) => {
                self.finish_classic_create((fid, name), (flags, remove), created)
            }
            (Then::List { fid, offset }, Answer::Listed(listed)) => {
                self.finish_list(fid, offset, listed)
            }
            _ => unreachable!("each request is paired with its own type of answer in start.rs"),
        }
    }

    /// Only a walk that got all the way makes a fid.
    fn finish_walk(
        &mut self,
        walk: Walk<T::Node>,
        mut steps: Vec<(Qid, T::Node)>,
    ) -> Result<Message> {
        let Walk { newfid, names, user, place } = walk;
        steps.truncate(names);
        let qids: Vec<Qid> = steps.iter().map(|(qid, _)| self.shown(*qid)).collect();
        if steps.len() == names {
            let place = place.map(|(from, names)| {
                let steps = names.iter().zip(&steps);
                steps.fold(from, |at, (name, (_, node))| at.step(name, node.clone()))
            });
            let (qid, node) = steps.pop().ok_or(Errno::ENOENT)?;
            if let Ok(old) = self.fids.remove(newfid) {
                self.clunk(old);
            }
            let qid = self.shown(qid);
            self.fids.insert(newfid, Fid::File(File { node, user, qid, open: None, place }));
        }
        if qids.is_empty() {
            Err(Errno::ENOENT.into())
        } else {
            Ok(Message::Rwalk { qids: List(qids) })
        }
    }

    fn finish_open(
        &mut self,
        fid: u32,
        flags: u32,
        remove: bool,
        opened: Opened<T::Node>,
    ) -> Result<(Qid, u32)> {
        // A file that makes its readers wait has no unit: a read may answer any part of one.
        let iounit = if opened.blocking { 0 } else { self.payload_max() };
        let qid = self.shown(opened.qid);
        let file = self.fids.file_mut(fid)?;
        file.open = Some(Open { remove, ..Open::from_flags(flags, opened.blocking)? });
        (file.qid, file.node) = (qid, opened.node);
        Ok((qid, iounit))
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
