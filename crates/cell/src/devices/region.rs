//! A file that may lie in memory: its bytes, and the header by which workers reach them.

use super::{Backing, Host};
use crate::header::{Headers, Place, Ticket, View};
use crate::memory::Shared;
use covey_ninep::tree::{Data, Errno, Outcome, Read, Result};
use covey_wire::Bytes;
use std::cell::Cell;
use std::rc::Rc;

/// The header lines of a host, whatever their memory is.
pub trait Lines {
    /// See [`Headers::publish`].
    fn publish(&self, view: View) -> Option<Ticket>;
    /// See [`Headers::change`].
    fn change(&self, ticket: Ticket, act: &mut dyn FnMut() -> Result<View>) -> Result<()>;
    /// See [`Headers::retire`].
    fn retire(&self, ticket: Ticket);
}

impl<S: Shared> Lines for Headers<S> {
    fn publish(&self, view: View) -> Option<Ticket> {
        Headers::publish(self, view)
    }

    fn change(&self, ticket: Ticket, act: &mut dyn FnMut() -> Result<View>) -> Result<()> {
        Headers::change(self, ticket, act)
    }

    fn retire(&self, ticket: Ticket) {
        Headers::retire(self, ticket);
    }
}

/// A file that may lie in memory. Whoever changes its size goes through here.
pub struct Region {
    backing: Rc<dyn Backing>,
    lines: Rc<dyn Lines>,
    ticket: Cell<Option<Ticket>>,
    /// The header says less than the file has by now.
    is_stale: Cell<bool>,
}

impl Region {
    /// A file with these bytes.
    pub fn new(backing: Rc<dyn Backing>, lines: Rc<dyn Lines>) -> Region {
        Region { backing, lines, ticket: Cell::new(None), is_stale: Cell::new(false) }
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.backing.size()
    }

    /// Looks at what others may have changed.
    pub fn refresh(&self) -> Result<u64> {
        let before = self.backing.size();
        let size = self.backing.refresh()?;
        if size != before || self.is_stale.get() {
            // Told by whoever comes next, if a worker does not let go of it now.
            self.is_stale.set(true);
            self.change(|| Ok(()))?;
            self.is_stale.set(false);
        }
        Ok(size)
    }

    /// Reads what is asked for; less at the end.
    pub fn read(&self, mut read: Read<'_>) -> Data {
        let (at, count) = (read.offset, u64::from(read.count));
        let most = if self.backing.has_size() { self.size().saturating_sub(at) } else { count };
        let count = most.min(count) as usize;
        let filled = read.fill(|out| {
            let begin = out.len();
            out.resize(begin + count, 0);
            // Behind the end there may be no place at all.
            let got = if count > 0 { self.backing.read(at, &mut out[begin..])? } else { 0 };
            out.truncate(begin + got);
            Ok(true)
        });
        filled.unwrap_or_else(|| Errno::EIO.into())
    }

    /// The same while others are served, where that takes time.
    pub fn fetch(&self, at: u64, count: u32) -> Outcome<Bytes> {
        let count = u64::from(count);
        let most = if self.backing.has_size() { self.size().saturating_sub(at) } else { count };
        let count = most.min(count) as usize;
        if count == 0 {
            return Ok(Bytes::new()).into();
        }
        let now = || {
            let mut out = vec![0; count];
            let got = self.backing.read(at, &mut out)?;
            out.truncate(got);
            Ok(out.into())
        };
        self.backing.fetch(at, count).unwrap_or_else(|| Outcome::now(now))
    }

    /// Writes while others are served, where that takes time; then a [`refresh`](Region::refresh) is due if the file has grown.
    pub fn store(&self, at: u64, data: &Bytes) -> Option<Outcome<()>> {
        self.backing.store(at, data)
    }

    /// Writes; behind the end the file grows.
    pub fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let end = at.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if end <= self.size() {
            return self.backing.write(at, data);
        }
        self.change(|| self.backing.write(at, data))
    }

    /// Cuts it off, or lets it grow with zeros.
    pub fn resize(&self, size: u64) -> Result<()> {
        if !self.backing.has_size() {
            // As for open(2): what has no size is not cut off.
            return if size == 0 { Ok(()) } else { Err(Errno::EINVAL.into()) };
        }
        self.change(|| self.backing.resize(size))
    }

    /// While somebody else changes the file's size no worker copies by this region either, which has the size that it is then.
    pub fn while_changed<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let (mut act, mut done) = (Some(act), None);
        self.change_with(&mut || {
            let act = act.take().ok_or(Errno::EIO)?;
            done = Some(act());
            self.backing.refresh().map(drop)
        })?;
        done.unwrap_or(Err(Errno::EIO.into()))
    }

    /// To stable storage.
    pub fn sync(&self) -> Outcome<()> {
        self.backing.sync()
    }

    /// The answer to a worker that asks where the file lies.
    pub fn map(&self, host: &dyn Host, worker: u32) -> Result<Bytes> {
        let refuse = |what| Errno::because(Errno::EOPNOTSUPP, what);
        let view = self.view().ok_or_else(|| refuse("the file lies in no memory"))?;
        if view.place.mapping == Place::NOWHERE {
            return Err(refuse("the file lies where no worker reaches it"));
        }
        let ticket = match self.ticket.get() {
            Some(ticket) => ticket,
            None => self.lines.publish(view).ok_or_else(|| refuse("all headers are in use"))?,
        };
        self.ticket.set(Some(ticket));
        if view.place.mapping != 0 {
            host.share(view.place.mapping, worker)?;
        }
        Ok(ticket.encode(view.place.mapping).into())
    }

    fn view(&self) -> Option<View> {
        let (size, mut place) = (self.backing.size(), self.backing.place()?);
        if place.capacity < size {
            place.mapping = Place::NOWHERE;
        }
        Some(View { size, place })
    }

    /// Changes the size while no worker copies.
    fn change(&self, act: impl Fn() -> Result<()>) -> Result<()> {
        self.change_with(&mut || act())
    }

    fn change_with(&self, act: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let Some(ticket) = self.ticket.get() else { return act() };
        self.lines.change(ticket, &mut || {
            act()?;
            self.view().ok_or_else(|| Errno::EIO.into())
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.get() {
            self.lines.retire(ticket);
        }
    }
}
