//! A session on its way between nodes: what is sent from here, and what comes.

use super::host::{Host, Place};
use super::state::{Session, gone};
use crate::spawn::flow::{Later, Source, spread};
use crate::spawn::manifest::{EntryKind, Manifest};
use crate::spawn::message::{Hash, Question, Turn, encode_failures, hash, sum};
use crate::spawn::{destinations, square_root};
use covey_ninep::control::refuse;
use covey_ninep::tree::{Bell, Errno, Outcome, Result};
use covey_wire::{Bytes, BytesMut};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A session whose chunks are here, or come one by one.
pub(super) struct Transfer {
    place: Rc<dyn Place>,
    manifest: Rc<Manifest>,
    /// Of each chunk that is here: the one that the first node made. There the chunks are here without.
    hashes: RefCell<Vec<Option<Hash>>>,
    is_first: bool,
    missing: Cell<usize>,
    arrived: Bell,
    fan_out: usize,
    rest: Vec<String>,
    turn: Turn,
}

impl Source for Rc<Transfer> {
    fn manifest(&self) -> Rc<Manifest> {
        self.manifest.clone()
    }

    fn chunk(&self, index: usize) -> Later<Result<(Hash, Bytes)>> {
        let transfer = self.clone();
        Box::pin(async move {
            let known = transfer.known(index).await;
            let data = transfer.read(index).await?;
            let hash = known.unwrap_or_else(|| hash(&data));
            transfer.hashes.borrow_mut()[index] = Some(hash);
            Ok((hash, data))
        })
    }
}

impl Transfer {
    /// The hash of a chunk, as soon as that is here; None where it is still to be made.
    async fn known(self: &Rc<Self>, index: usize) -> Option<Hash> {
        let transfer = self.clone();
        let look = move || {
            let known = transfer.hashes.borrow()[index];
            (known.is_some() || transfer.is_first).then_some(known)
        };
        self.arrived.wait(look).await
    }

    /// How many chunks are here, and of how many.
    pub(super) fn progress(&self) -> (usize, usize) {
        let all = self.manifest.chunks();
        (all - self.missing.get(), all)
    }

    async fn read(&self, index: usize) -> Result<Bytes> {
        let mut chunk = BytesMut::new();
        for (entry, offset, count) in self.manifest.pieces(index) {
            let entry = &self.manifest.entries[entry];
            let data = self.place.read_entry(entry, offset, count as u32).wait().await?;
            if data.len() != count {
                let what = match entry.kind {
                    EntryKind::Program => "the program".to_owned(),
                    _ => format!("{:?}", String::from_utf8_lossy(&entry.path)),
                };
                let what = format!("{what} became shorter while it was spread");
                return Err(Errno::because(Errno::EIO, what));
            }
            chunk.extend_from_slice(&data);
        }
        Ok(chunk.freeze())
    }

    async fn keep(&self, index: usize, claimed: Hash, mut data: Bytes) -> Result<()> {
        let pieces = self.manifest.pieces(index);
        let bytes: usize = pieces.iter().map(|(_, _, count)| count).sum();
        if index >= self.manifest.chunks() || bytes != data.len() {
            return refuse(format!("chunk {index} has {} bytes, not {bytes}", data.len()));
        }
        if hash(&data) != claimed {
            let what = format!("chunk {index} arrived with wrong bytes");
            return Err(Errno::because(Errno::EIO, what));
        }
        for (entry, offset, count) in pieces {
            let entry = &self.manifest.entries[entry];
            let piece = data.split_to(count);
            let written = self.place.write_entry(entry, offset, piece).wait().await?;
            if written as usize != count {
                return Err(Errno::because(Errno::ENOSPC, "the session's directory is full"));
            }
        }
        let before = self.hashes.borrow_mut()[index].replace(claimed);
        if before.is_none() {
            self.missing.set(self.missing.get() - 1);
        }
        self.arrived.ring();
        Ok(())
    }

    /// Completes when every chunk is here.
    async fn complete(self: &Rc<Self>) {
        let transfer = self.clone();
        self.arrived.wait(move || (transfer.missing.get() == 0).then_some(())).await;
    }
}

/// While a session is spread from here, its program is not started.
struct Cloning(Rc<Session>);

impl Cloning {
    fn begin(session: &Rc<Session>) -> Cloning {
        session.clones.set(session.clones.get() + 1);
        Cloning(session.clone())
    }
}

impl Drop for Cloning {
    fn drop(&mut self) {
        self.0.clones.set(self.0.clones.get() - 1);
        self.0.cloned.ring();
    }
}

impl Session {
    /// The command `clone FAN-OUT DESTINATIONS`.
    pub(super) fn spread(
        self: &Rc<Self>,
        host: Rc<dyn Host>,
        fan_out: &str,
        list: &str,
    ) -> Outcome<()> {
        let session = self.clone();
        let (fan_out, all) = match self.check_spread(fan_out, list) {
            Ok(wanted) => wanted,
            Err(error) => return Err(error).into(),
        };
        let cloning = Cloning::begin(self);
        Outcome::later(async move {
            let _cloning = cloning;
            let transfer = Rc::new(session.whole().await?);
            let count = all.len();
            let source: Rc<dyn Source> = Rc::new(transfer);
            let net = host.net(&session.owner);
            let turn = Turn::first(net.unique());
            let failures = spread(net, source, all, fan_out, &turn).await;
            let shown: Vec<_> = failures.iter().take(FAILURES_SHOWN).collect();
            let words: Vec<_> =
                shown.iter().map(|one| format!("{}: {}", one.destination, one.reason)).collect();
            let failed = failures.len();
            *session.failures.borrow_mut() = failures;
            match failed {
                0 => Ok(()),
                _ => Err(Errno::because(
                    Errno::EIO,
                    format!("{failed} of {count} got no copy: {}", words.join("; ")),
                )),
            }
        })
    }

    fn check_spread(&self, fan_out: &str, list: &str) -> Result<(usize, Vec<String>)> {
        self.check_new()?;
        if self.has_writer.get() || self.is_partial.get() {
            return Err(Errno::because(Errno::EBUSY, "the program is not whole yet"));
        }
        let all = destinations(list)?;
        match fan_out.parse() {
            _ if fan_out == "." => Ok((square_root(all.len()).max(1), all)),
            Ok(fan_out @ 1..) => Ok((fan_out, all)),
            _ => refuse(format!("fan-out {fan_out:?}: a number from 1, or . for the square root")),
        }
    }

    /// All of the session, to be sent.
    async fn whole(&self) -> Result<Transfer> {
        let entries = self.place.entries().wait().await?;
        let manifest = Manifest {
            argv: self.argv.borrow().clone(),
            env: self.env.borrow().clone(),
            id: self.id(),
            directory: self.directory.borrow().clone(),
            entries,
        };
        manifest.check()?;
        let chunks = manifest.chunks();
        Ok(Transfer {
            place: self.place.clone(),
            manifest: Rc::new(manifest),
            hashes: RefCell::new(vec![None; chunks]),
            is_first: true,
            missing: Cell::new(0),
            arrived: Bell::default(),
            fan_out: 0,
            rest: Vec::new(),
            turn: Turn::first(0),
        })
    }

    /// Answers a node above. `transfer` is what came through the same open control file.
    pub(super) fn answer(
        self: &Rc<Self>,
        host: &Rc<dyn Host>,
        transfer: &Rc<RefCell<Option<Rc<Transfer>>>>,
        body: Bytes,
    ) -> Outcome<Bytes> {
        let question = match Question::decode(body) {
            Ok(question) => question,
            Err(error) => return Err(error).into(),
        };
        let (session, host, transfer) = (self.clone(), host.clone(), transfer.clone());
        match question {
            Question::Begin { fan_out, rest, turn, manifest } => Outcome::later(async move {
                let begun = session.receive(manifest, (fan_out, rest), turn).await?;
                *transfer.borrow_mut() = Some(begun);
                Ok(Bytes::new())
            }),
            Question::Chunk { index, hash, data } => {
                let current = match session.current(&transfer) {
                    Ok(current) => current,
                    Err(error) => return Err(error).into(),
                };
                Outcome::later(async move {
                    current.keep(index, hash, data).await?;
                    session.finish(&current).await?;
                    Ok(Bytes::new())
                })
            }
            Question::Report => Outcome::later(async move {
                let current = session.current(&transfer)?;
                let (rest, fan_out) = (current.rest.clone(), current.fan_out);
                let source: Rc<dyn Source> = Rc::new(current.clone());
                let net = host.net(&session.owner);
                let failures = spread(net, source, rest, fan_out, &current.turn).await;
                current.complete().await;
                Ok(encode_failures(&failures))
            }),
            Question::Sum => match self.sum.get() {
                Some(sum) => Ok(Bytes::copy_from_slice(&sum)).into(),
                None => Err(Errno::because(Errno::EAGAIN, "its copy is not whole")).into(),
            },
        }
    }

    /// Begins to receive; what an earlier node above has begun is forgotten. One after the other: files that are made
    /// are empty.
    async fn receive(
        self: &Rc<Self>,
        manifest: Manifest,
        (fan_out, rest): (usize, Vec<String>),
        turn: Turn,
    ) -> Result<Rc<Transfer>> {
        let session = self.clone();
        self.received.wait(move || (!session.is_receiving.get()).then_some(())).await;
        let _receiving = Receiving::begin(self);
        self.check_new()?;
        if self.clones.get() > 0 {
            return refuse("this session is being copied itself; hint: leave it out of the list");
        }
        let before = self.turn.replace(None);
        let is_late = before.as_ref().is_some_and(|before| turn.is_superseded_by(before));
        *self.turn.borrow_mut() = if is_late { before } else { Some(turn.clone()) };
        if is_late {
            return Err(superseded());
        }
        for (text, new) in [(&self.argv, &manifest.argv), (&self.env, &manifest.env)] {
            let mut copy = Vec::new();
            super::buffer::write(&mut copy, 0, new)?;
            self.check_text(text.borrow().len(), copy.len() as u64)?;
            *text.borrow_mut() = copy;
        }
        self.set_id(&manifest.id)?;
        self.directory.borrow_mut().clone_from(&manifest.directory);
        self.is_partial.set(true);
        self.sum.set(None);
        self.place.make_entries(&manifest.entries).wait().await?;
        let chunks = manifest.chunks();
        let transfer = Rc::new(Transfer {
            place: self.place.clone(),
            manifest: Rc::new(manifest),
            hashes: RefCell::new(vec![None; chunks]),
            is_first: false,
            missing: Cell::new(chunks),
            arrived: Bell::default(),
            fan_out,
            rest,
            turn,
        });
        *self.incoming.borrow_mut() = Rc::downgrade(&transfer);
        self.finish(&transfer).await?;
        Ok(transfer)
    }

    /// The transfer of this control file, if no other node above has begun another since.
    fn current(&self, transfer: &RefCell<Option<Rc<Transfer>>>) -> Result<Rc<Transfer>> {
        let Some(transfer) = transfer.borrow().clone() else {
            return refuse("no session was announced");
        };
        match self.incoming.borrow().upgrade() {
            Some(current) if Rc::ptr_eq(&current, &transfer) => Ok(transfer),
            _ => Err(superseded()),
        }
    }

    /// Makes the files what they are to be, once all of their bytes are here.
    async fn finish(&self, transfer: &Transfer) -> Result<()> {
        if transfer.missing.get() > 0 || !self.is_partial.get() {
            return Ok(());
        }
        if matches!(self.state(), super::State::Wiped) {
            return Err(gone());
        }
        self.place.finish_entries(&transfer.manifest.entries).wait().await?;
        self.is_partial.set(false);
        let chunks: Option<Vec<Hash>> = transfer.hashes.borrow().iter().copied().collect();
        self.sum.set(chunks.map(|chunks| sum(&transfer.manifest, &chunks)));
        Ok(())
    }
}

/// While a session's files are made for what comes, nobody else makes them.
struct Receiving(Rc<Session>);

impl Receiving {
    fn begin(session: &Rc<Session>) -> Receiving {
        session.is_receiving.set(true);
        Receiving(session.clone())
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.is_receiving.set(false);
        self.0.received.ring();
    }
}

fn superseded() -> Errno {
    Errno::because(Errno::ECANCELED, "another node sends the session now")
}

/// How many failures an error names; the control file has all.
const FAILURES_SHOWN: usize = 8;
