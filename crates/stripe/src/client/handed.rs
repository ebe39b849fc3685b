//! A client that goes on in another program, or in another process: what it hands over, and what is made of it there.

use super::session::Session;
use super::{Error, File, Forget, Fs, Handover, Net, Opened, Options};
use crate::ops::{Caller, Id, Inode, Op};
use covey_ninep::tree::Errno;
use covey_wire::{List, record};
use std::sync::Arc;

record! {
    /// What a file that is open still owes to its programs: whether what they wrote has reached stable storage, so that an
    /// fsync in the next process tells what one in this would have told.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Unsynced for () {
        /// The file.
        pub id: Id,
        /// The start of the metadata server, and of its machine, that have told what is known of it.
        pub server_start: u64,
        /// See above.
        pub machine_start: u64,
        /// An end of the file was acknowledged, and may be lost.
        pub is_lost: bool,
        /// Its objects, in the order of its striping.
        pub slots: List<UnsyncedSlot>,
    }
}

record! {
    /// The same of one object.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct UnsyncedSlot for () {
        /// Something was written since the last fsync.
        pub is_dirty: bool,
        /// In which start of the I/O server's machine.
        pub machine: Option<u64>,
        /// Some of it was written in an earlier one.
        pub is_lost: bool,
    }
}

impl Fs {
    /// A client with the session that this process had as another program, and what that had open: each stays so until
    /// it is dropped.
    pub async fn resume(
        net: Arc<dyn Net>,
        meta: &str,
        options: Options,
        before: &Handover,
    ) -> super::Result<(Fs, Vec<Opened>)> {
        let session = Session::resumed(net.clone(), meta, options.clone(), before);
        let fs = Fs::begin(net, options, session).await?;
        let opened = fs.shared.session.still_open(before);
        Ok((fs, opened))
    }

    /// A client with the session that another process has lent ([`Fs::lend`]). Until [`Fs::own`] it says nothing of its
    /// own accord, and whatever it fails with is undone by the other one's [`Fs::take_back`]. `forget` as in
    /// [`Fs::on_revoke`]: the other process may have passed on what it knew.
    pub async fn borrow(
        net: Arc<dyn Net>,
        meta: &str,
        options: Options,
        before: &Handover,
        forget: Forget,
    ) -> super::Result<(Fs, Vec<Opened>)> {
        let session = Session::resumed(net.clone(), meta, options.clone(), before);
        session.borrow();
        session.on_revoke(forget);
        let fs = Fs::begin(net, options, session).await?;
        let opened = fs.shared.session.still_open(before);
        Ok((fs, opened))
    }

    /// What the next program of this process must know to [`Fs::resume`] the session. It names no open
    /// file: the caller adds those that stay open.
    pub async fn hand_over(&self) -> Handover {
        self.shared.session.hand_over().await
    }

    /// The same for another process, which may [`Fs::borrow`] the session from now on. Nothing may be asked of this client
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// The metadata server does not answer, or has yet to answer a change that was given up: the session is not lent.
    pub async fn lend(&self) -> super::Result<Handover> {
        let session = &self.shared.session;
        let handover = session.hand_over().await;
        session.ask(&Caller::default(), Op::Cluster {}).await?;
        match session.under_way() {
            0 => session.lend(),
            count => {
                let why = format!("{count} changes wait for the metadata server's answer");
                return Err(Error::because(Errno::EAGAIN, why));
            }
        }
        Ok(handover)
    }

    /// The session that was lent is this client's again.
    pub async fn take_back(&self) {
        self.shared.session.take_back().await;
    }

    /// The session that was borrowed is this client's.
    pub fn own(&self) {
        self.shared.session.own();
    }

    /// A file that `who` has opened in the process before.
    pub async fn reopen(&self, who: &Caller, inode: &Inode, opened: Opened) -> super::Result<File> {
        let starts = self.shared.session.starts();
        self.handle(who, inode, opened, starts).await
    }
}

impl File {
    /// Who has opened it.
    pub fn opener(&self) -> &Caller {
        &self.handle.who
    }

    /// What the file still owes; none for what has no data.
    pub fn unsynced(&self) -> Option<Unsynced> {
        self.data().ok().map(|open| open.unsynced())
    }

    /// Takes on what the file owed in the process before.
    pub fn owe(&self, before: &Unsynced) {
        if let Ok(open) = self.data() {
            open.owe(before);
        }
    }
}
