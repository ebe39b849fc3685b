//! What is said before the first attach, apart from the tree.
//!
//! A shell may talk to strangers on a thread of its own, so that they wait for each other and not its
//! clients for them. There a [`Preauth`] settles the dialect and lets the peer prove the key. The
//! first attach that it would let through ends it: what has been settled goes as a [`Begun`], which
//! may cross threads, to a [`Session`] with the tree, which answers that attach.

use super::fids::{Auth, Fid};
use super::{Config, Session};
use crate::frame::Frame;
use crate::message::{Dialect, Qid};
use crate::tree::{Attach, Outcome, Peer, Tree, User};
use std::rc::Rc;
use std::time::Instant;

/// A session without a tree.
pub type Preauth = Session<Nothing>;

/// The tree of strangers: nobody ever gets in.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Tree for Nothing {
    type Node = ();

    fn attach(&self, _: Attach) -> Outcome<(User, Qid, ())> {
        Outcome::later(std::future::pending())
    }
}

/// A connection whose peer has asked for its first attach, in good order.
pub struct Begun {
    peer: Peer,
    config: Config,
    dialect: Option<Dialect>,
    msize: u32,
    auths: u64,
    proofs: Vec<(u32, Auth)>,
    /// The attach, and what came behind it.
    frames: Vec<Frame>,
    messages: u32,
}

impl Preauth {
    /// A connection that has just been accepted from `peer`.
    pub fn before_attach(peer: Peer, config: Config) -> Preauth {
        let mut session = Session::new(Rc::new(Nothing), peer, config);
        session.keeps_attach = true;
        session
    }

    /// Whether an attach has come that may go on to a tree.
    pub fn has_begun(&self) -> bool {
        self.attach.is_some() && self.output.is_empty()
    }

    /// What has been settled; `None` as long as there is no such attach.
    pub fn into_begun(mut self) -> Option<Begun> {
        let attach = self.attach.take()?;
        let frames = std::iter::once(attach).chain(self.backlog.drain(..)).collect();
        Some(Begun {
            peer: self.peer.clone(),
            config: self.config.clone(),
            dialect: self.dialect,
            msize: self.msize,
            auths: self.auths,
            proofs: self.fids.take_auths(),
            frames,
            // The attach will be counted again.
            messages: self.messages_so_far().saturating_sub(1),
        })
    }
}

impl<T: Tree> Session<T> {
    /// Goes on with a connection that began elsewhere. It asked for its attach in time: by `attach_by` one must
    /// have been granted.
    pub fn resume(tree: Rc<T>, begun: Begun, attach_by: Option<Instant>) -> Self {
        let Begun { peer, config, dialect, msize, auths, proofs, frames, messages } = begun;
        let mut session = Session::new(tree, peer, Config { attach_by, ..config });
        (session.dialect, session.msize, session.auths) = (dialect, msize, auths);
        session.backlog = frames.into();
        for (afid, auth) in proofs {
            session.fids.insert(afid, Fid::Auth(auth));
        }
        session.has_said(messages);
        session
    }
}
