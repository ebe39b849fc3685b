//! The first half of each request: check it against the fids, then ask the tree.

use super::answer::{Answers, Asked};
use super::attr::{self, ENTRY_BYTES_MAX};
use super::fids::{Auth, Fid, File, Open, check_name, check_step, check_target};
use super::finish::{Then, Walk};
use super::{Guest, Session};
use crate::auth;
use crate::message::{
    IOHDRSZ, Message, NAME_BYTES_MAX, NOFID, NONUNAME, Number, Qid, WALK_NAMES_MAX,
};
use crate::tree::{
    Attach, CUT, Errno, Lock, Make, Outcome, Removal, Result, Tree, User, View, Write,
};
use covey_wire::{Bytes, List, Name, RANGE_BYTES_MIN};
use std::rc::Rc;

/// The flag of Tlock that its owner waits (P9_LOCK_FLAGS_BLOCK).
pub(super) const LOCK_WAIT: u32 = 1;

/// What became of a request at once.
pub(super) enum Started<N> {
    /// It is answered without the tree.
    Reply(Message),
    /// The tree has answered or will; then there is something left to do.
    Asked(Asked<N>, Then<N>),
}

impl<T: Tree> Session<T> {
    /// Starts a request whose turn it is.
    pub(super) fn start(&mut self, request: Message) -> Result<Started<T::Node>> {
        use Message::*;
        match request {
            Tauth { afid, uname, n_uname, .. } => self.start_auth(afid, uname, n_uname),
            Tattach { fid, afid, uname, aname, n_uname } => {
                let outcome = self.start_attach(fid, afid, uname, aname, n_uname);
                self.note_refusal(outcome)
            }
            Twalk { fid, newfid, names } => self.start_walk(fid, newfid, &names.0),
            Tclunk { fid } => self.start_clunk(fid),
            Tremove { fid } => self.start_remove(fid),
            Tread { fid, offset, count } => self.start_read(fid, offset, count),
            Twrite { fid, offset, data } => self.start_write(fid, offset, data.into_bytes()),
            Treadview { fid, start, end, count, view } => {
                let view = View { start, end, bytes: count, body: view.into_bytes() };
                self.start_read_view(fid, view)
            }
            Twriteview { fid, start, end, view, data } => {
                let (body, data) = (view.into_bytes(), data.into_bytes());
                let view = View { start, end, bytes: data.len() as u32, body };
                self.start_write_view(fid, view, data)
            }
            Tcall { fid, body } => self.start_call(fid, body.into_bytes()),
            Tlopen { .. } | Tlcreate { .. } | Treaddir { .. } => self.start_open(request),
            Topen { .. } | Tcreate { .. } | Tstat { .. } | Twstat { .. } => {
                self.start_classic(request)
            }
            Txattrwalk { fid, newfid, name } => self.start_xattr_walk(fid, newfid, name),
            Txattrcreate { fid, name, attr_size, flags } => {
                self.start_xattr_create(fid, name, attr_size, flags)
            }
            Tsymlink { .. }
            | Tmknod { .. }
            | Tmkdir { .. }
            | Tlink { .. }
            | Trename { .. }
            | Trenameat { .. }
            | Tunlinkat { .. } => self.start_names(request),
            _ => self.start_file(request),
        }
    }

    /// Asks the tree about `fid`'s file.
    pub(super) fn ask<A: Answers<T::Node>>(
        &self,
        fid: u32,
        then: Then<T::Node>,
        ask: impl FnOnce(&T, &File<T::Node>) -> Outcome<A>,
    ) -> Result<Started<T::Node>> {
        let file = self.fids.file(fid)?;
        Ok(Started::Asked(ask(&self.tree, file).into(), then))
    }

    fn start_auth(&mut self, afid: u32, uname: Name, n_uname: Number) -> Result<Started<T::Node>> {
        let guest = self.config.guest.filter(|guest| uname.as_bytes() == guest.uname.as_bytes());
        let Some(key) = guest.map(|guest| guest.key).or(self.config.key) else {
            // Clients understand an error here as: no authentication is needed. Diod's want this one.
            return Err(Errno::because(Errno::ENOENT, "this server has no key"));
        };
        self.check_new(afid)?;
        self.fids.check_auths()?;
        check_user_name(&uname)?;
        self.auths += 1;
        let nonce = auth::derive_nonce(&self.config.nonce, self.auths);
        let server = auth::Server::new(key, nonce);
        let uname = uname.detached();
        let is_guest = guest.is_some();
        self.fids.insert(afid, Fid::Auth(Auth { server, uname, n_uname, is_guest }));
        let aqid = Qid { kind: Qid::AUTH, version: 0, path: self.auths };
        Ok(Started::Reply(Message::Rauth { aqid }))
    }

    fn start_attach(
        &mut self,
        fid: u32,
        afid: u32,
        mut uname: Name,
        aname: Name,
        n_uname: Number,
    ) -> Result<Started<T::Node>> {
        let mut peer = self.peer.clone();
        let mut known = peer.clone();
        let mut has_proven = peer.has_key;
        if afid != NOFID {
            let auth = self.fids.auth(afid).ok_or(Errno::EBADF)?;
            if !auth.server.is_proven() || auth.uname != uname || auth.n_uname != n_uname {
                let what = format!("afid {afid} has not proven the key for {uname}");
                return Err(Errno::because(Errno::EACCES, what));
            }
            has_proven = true;
            match self.config.guest.filter(|_| auth.is_guest) {
                Some(guest) => {
                    guest.check_tree(&aname)?;
                    (peer.uid, uname) = (Some(guest.uid), Name::EMPTY);
                    // Counted as a user: a token is in many hands.
                    known = peer.clone();
                }
                None => (peer.has_key, known.has_key) = (true, true),
            }
        }
        if self.config.require_key && !has_proven {
            return Err(Errno::because(Errno::EACCES, "the cluster key must be proven first"));
        }
        self.check_new(fid)?;
        check_user_name(&uname)?;
        let n_uname = Some(n_uname.0).filter(|uid| *uid != NONUNAME);
        let asked = self.tree.attach(Attach { peer, uname, n_uname, aname }).into();
        Ok(Started::Asked(asked, Then::Attach { fid, peer: known }))
    }

    fn start_walk(&mut self, fid: u32, newfid: u32, names: &[Name]) -> Result<Started<T::Node>> {
        if names.len() > WALK_NAMES_MAX {
            let what = format!("walk has {} names, limit is {WALK_NAMES_MAX}", names.len());
            return Err(Errno::because(Errno::EINVAL, what));
        }
        names.iter().try_for_each(check_step)?;
        let from = if fid == newfid { self.fids.unopened(fid)? } else { self.fids.file(fid)? };
        if fid != newfid {
            self.check_new(newfid)?;
        }
        let user = from.user.clone();
        if names.is_empty() {
            // A fid is cloned without the tree: a clone of an open fid is not open.
            let (node, place) = (from.node.clone(), from.place.clone());
            let file = File { node, user, qid: from.qid, open: None, place };
            self.fids.insert(newfid, Fid::File(file));
            return Ok(Started::Reply(Message::Rwalk { qids: List(Vec::new()) }));
        }
        let place = from.place.clone().map(|place| (place, names.to_vec()));
        let asked = self.tree.walk(&user, &from.node, names).into();
        Ok(Started::Asked(asked, Then::Walk(Walk { newfid, names: names.len(), user, place })))
    }

    /// An operation of the tree's own, or word of a client that another server has lost.
    fn start_call(&mut self, fid: u32, body: Bytes) -> Result<Started<T::Node>> {
        if *body == *CUT && self.fids.cut(fid) {
            return Ok(Started::Reply(Message::Rcall { body: Bytes::new().into() }));
        }
        self.ask(fid, Then::Call, |tree, file| tree.call(&file.user, &file.node, body))
    }

    /// A clunk never fails on a file's fid, and never waits for what may wait for ever.
    fn start_clunk(&mut self, fid: u32) -> Result<Started<T::Node>> {
        self.cancel_blocked(fid);
        let gone = self.fids.remove(fid)?;
        let (removal, reply) = (self.removal(&gone), Message::Rclunk {});
        match (gone, removal) {
            (Fid::Xattr(xattr), _) => self.set_xattr(xattr),
            (Fid::File(File { node, user, .. }), Some(removal)) => {
                // Whether it could be removed is not told: the clunk has done its part.
                let work = Outcome::later(async move { removal.await.or(Ok(())) });
                Ok(Started::Asked(work.into(), Then::Gone { user, node, reply }))
            }
            (gone, None) => {
                self.clunk(gone);
                Ok(Started::Reply(reply))
            }
            (Fid::Auth(_), Some(_)) => unreachable!("only files are removed"),
        }
    }

    /// The fid is gone whether or not the file could be removed.
    fn start_remove(&mut self, fid: u32) -> Result<Started<T::Node>> {
        self.cancel_blocked(fid);
        if !self.spoken().is_linux() && self.fids.file(fid).is_ok() {
            return self.start_classic_remove(fid);
        }
        let Fid::File(File { node, user, .. }) = self.fids.remove(fid)? else {
            return Err(Errno::because(Errno::EPERM, "only files can be removed"));
        };
        let (asked, reply) = (self.tree.remove(&user, &node).into(), Message::Rremove {});
        Ok(Started::Asked(asked, Then::Gone { user, node, reply }))
    }

    fn start_read(&mut self, fid: u32, offset: u64, count: u32) -> Result<Started<T::Node>> {
        let count = count.min(self.payload_max());
        if let Some(auth) = self.fids.auth(fid) {
            let data = auth.server.read(offset, count)?.into();
            self.door.asked();
            return Ok(Started::Reply(Message::Rread { data }));
        }
        if let Some(xattr) = self.fids.xattr(fid) {
            let data = xattr.read(offset, count)?.into();
            return Ok(Started::Reply(Message::Rread { data }));
        }
        // Files have been read by now: this is a directory, in a dialect that has them read.
        self.start_list(fid, offset, count)
    }

    fn start_write(&mut self, fid: u32, offset: u64, data: Bytes) -> Result<Started<T::Node>> {
        let count = data.len() as u32;
        if let Some(auth) = self.fids.auth(fid) {
            let outcome = auth.server.write(&data);
            self.note_refusal(outcome)?;
            return Ok(Started::Reply(Message::Rwrite { count }));
        }
        if let Some(xattr) = self.fids.xattr(fid) {
            xattr.write(offset, &data)?;
            return Ok(Started::Reply(Message::Rwrite { count }));
        }
        self.expects_write = data.len() >= RANGE_BYTES_MIN;
        let file = self.fids.writable(fid)?;
        let written = self.tree.write(&file.user, &file.node, Write::bytes(offset, data));
        Ok(Started::Asked(written.into_outcome().into(), Then::Write { count }))
    }

    fn start_read_view(&mut self, fid: u32, view: View) -> Result<Started<T::Node>> {
        let (count, limit) = (view.bytes, self.payload_max());
        if count > limit {
            let what = format!("a view of {count} bytes, limit is {limit}");
            return Err(Errno::because(Errno::E2BIG, what));
        }
        let file = self.fids.readable(fid)?;
        let asked = self.tree.read_view(&file.user, &file.node, view).into();
        Ok(Started::Asked(asked, Then::ReadView { count }))
    }

    fn start_write_view(&mut self, fid: u32, view: View, data: Bytes) -> Result<Started<T::Node>> {
        let file = self.fids.writable(fid)?;
        let count = view.bytes;
        let asked = self.tree.write_view(&file.user, &file.node, view, data).into();
        Ok(Started::Asked(asked, Then::WriteView { count }))
    }

    fn start_open(&mut self, request: Message) -> Result<Started<T::Node>> {
        match request {
            Message::Tlopen { fid, flags } => {
                Open::from_flags(flags, false)?;
                let file = self.fids.unopened(fid)?;
                let asked = self.tree.open(&file.user, &file.node, flags).into();
                Ok(Started::Asked(asked, Then::Open { fid, flags, remove: false }))
            }
            Message::Tlcreate { fid, name, flags, mode, gid } => {
                check_name(&name)?;
                Open::from_flags(flags, false)?;
                let dir = self.fids.unopened(fid)?;
                let asked = self.tree.create(&dir.user, &dir.node, name, flags, mode, gid).into();
                Ok(Started::Asked(asked, Then::Create { fid, flags }))
            }
            Message::Treaddir { fid, offset, count } => {
                let bytes_max = count.min(self.payload_max());
                let file = self.fids.readable(fid)?;
                // A tree never mistakes room for not even one entry for the end of the directory.
                let room = bytes_max.max(ENTRY_BYTES_MAX);
                let asked = self.tree.readdir(&file.user, &file.node, offset, room).into();
                Ok(Started::Asked(asked, Then::Readdir { bytes_max }))
            }
            other => Err(unsupported(&other)),
        }
    }

    fn start_names(&mut self, request: Message) -> Result<Started<T::Node>> {
        use Message::*;
        match request {
            Tsymlink { dfid, name, target, gid } => {
                check_target(&target)?;
                let then = Then::Make(|qid| Rsymlink { qid });
                self.start_make(dfid, name, Make::Symlink { target }, gid, then)
            }
            Tmknod { dfid, name, mode, major, minor, gid } => {
                let make = Make::Special { mode, major, minor };
                self.start_make(dfid, name, make, gid, Then::Make(|qid| Rmknod { qid }))
            }
            Tmkdir { dfid, name, mode, gid } => self.start_make(
                dfid,
                name,
                Make::Dir { mode },
                gid,
                Then::Make(|qid| Rmkdir { qid }),
            ),
            Tlink { dfid, fid, name } => {
                check_name(&name)?;
                let node = &self.fids.file(fid)?.node;
                self.ask(dfid, Then::Reply(Rlink {}), |tree, dir| {
                    tree.link(&dir.user, node, &dir.node, name)
                })
            }
            Trename { fid, dfid, name } => {
                check_name(&name)?;
                let to = &self.fids.file(dfid)?.node;
                self.ask(fid, Then::Reply(Rrename {}), |tree, file| {
                    tree.rename_node(&file.user, &file.node, to, name)
                })
            }
            Trenameat { olddirfid, oldname, newdirfid, newname } => {
                check_name(&oldname)?;
                check_name(&newname)?;
                let to = &self.fids.file(newdirfid)?.node;
                self.ask(olddirfid, Then::Reply(Rrenameat {}), |tree, from| {
                    tree.rename(&from.user, &from.node, oldname, to, newname)
                })
            }
            Tunlinkat { dirfid, name, flags } => {
                const AT_REMOVEDIR: u32 = 0x200;
                check_name(&name)?;
                let what = Removal::directory_if(flags & AT_REMOVEDIR != 0);
                self.ask(dirfid, Then::Reply(Runlinkat {}), |tree, dir| {
                    tree.unlink(&dir.user, &dir.node, name, what)
                })
            }
            other => Err(unsupported(&other)),
        }
    }

    fn start_make(
        &mut self,
        dfid: u32,
        name: Name,
        make: Make,
        gid: u32,
        then: Then<T::Node>,
    ) -> Result<Started<T::Node>> {
        check_name(&name)?;
        self.ask(dfid, then, |tree, dir| tree.make(&dir.user, &dir.node, name, make, gid))
    }

    /// What concerns one file, opened or not.
    fn start_file(&mut self, request: Message) -> Result<Started<T::Node>> {
        use Message::*;
        match request {
            Tgetattr { fid, request_mask } => {
                self.ask(fid, Then::Getattr { request_mask }, |t, f| t.getattr(&f.user, &f.node))
            }
            Tsetattr { fid, .. } => {
                let set = attr::set_from(&request)?;
                self.ask(fid, Then::Reply(Rsetattr {}), |t, f| t.setattr(&f.user, &f.node, set))
            }
            Tstatfs { fid } => self.ask(fid, Then::Statfs, |t, f| t.statfs(&f.user, &f.node)),
            Treadlink { fid } => self.ask(fid, Then::Readlink, |t, f| t.readlink(&f.user, &f.node)),
            Tfsync { fid, datasync } => self
                .ask(fid, Then::Reply(Rfsync {}), |t, f| t.fsync(&f.user, &f.node, datasync != 0)),
            Tlock { fid, kind, flags, start, length, proc_id, client_id } => {
                let wait = flags & LOCK_WAIT != 0;
                let lock = Lock { wait, ..lock(kind, start, length, proc_id, client_id)? };
                self.ask(fid, Then::Lock, |t, f| t.lock(&f.user, &f.node, lock))
            }
            Tgetlock { fid, kind, start, length, proc_id, client_id } => {
                let lock = lock(kind, start, length, proc_id, client_id)?;
                self.ask(fid, Then::Getlock, |t, f| t.getlock(&f.user, &f.node, lock))
            }
            other => Err(unsupported(&other)),
        }
    }

    /// Refuses a `fid` that cannot become a new one.
    pub(super) fn check_new(&self, fid: u32) -> Result<()> {
        self.fids.check_new(fid, self.share.fids())
    }

    /// Most bytes of payload in one message.
    pub(super) fn payload_max(&self) -> u32 {
        self.msize - IOHDRSZ
    }

    /// The tree is told that nobody holds the node any more, and whether anybody has closed it.
    pub(super) fn clunk(&self, gone: Fid<T::Node>) {
        match gone {
            Fid::File(File { node, user, open: Some(Open { is_cut: true, .. }), .. }) => {
                self.tree.cut(&user, node);
            }
            Fid::File(File { node, user, .. }) => self.clunk_node(&user, node),
            Fid::Auth(_) | Fid::Xattr(_) => {}
        }
    }

    pub(super) fn clunk_node(&self, user: &Rc<User>, node: T::Node) {
        self.tree.clunk(user, node);
    }
}

/// A user's name as long as a file's is long enough for all.
fn check_user_name(uname: &Name) -> Result<()> {
    match uname.len() {
        0..=NAME_BYTES_MAX => Ok(()),
        bytes => {
            let what = format!("user name is {bytes} bytes, limit is {NAME_BYTES_MAX}");
            Err(Errno::because(Errno::ENAMETOOLONG, what))
        }
    }
}

fn lock(kind: u8, start: u64, length: u64, proc_id: u32, client_id: Name) -> Result<Lock> {
    const F_UNLCK: u8 = 2;
    if kind > F_UNLCK {
        return Err(Errno::because(Errno::EINVAL, format!("lock kind is {kind}")));
    }
    if client_id.len() > NAME_BYTES_MAX {
        let what = format!("lock owner is {} bytes, limit is {NAME_BYTES_MAX}", client_id.len());
        return Err(Errno::because(Errno::ENAMETOOLONG, what));
    }
    // The tree keeps it for as long as the lock is held.
    let client_id = client_id.detached();
    Ok(Lock { kind, start, length, proc_id, client_id, wait: false })
}

pub(super) fn unsupported(request: &Message) -> Errno {
    Errno::because(Errno::EOPNOTSUPP, format!("{} is not served", request.name()))
}

impl Guest {
    /// Refuses every tree but the guest's.
    fn check_tree(&self, aname: &Name) -> Result<()> {
        let tree = aname.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        if tree == self.aname.as_bytes() {
            return Ok(());
        }
        let what = format!("the key of {} opens {} only", self.uname, self.aname);
        Err(Errno::because(Errno::EACCES, what))
    }
}
