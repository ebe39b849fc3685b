//! A file that may lie in memory: its bytes, and the header by which workers reach them.
//!
//! Whatever changes where the bytes lie, or how many there are, is done by [`Region::change`]: one change after another, each
//! while no worker copies, and each to its end, whoever gives up waiting for it. It may take long: others are served meanwhile,
//! and use the file by messages.

use super::lane::Lane;
use super::{Backing, Host};
use crate::header::{Headers, Place, Ticket, View};
use crate::memory::Shared;
use covey_ninep::tree::{Bell, Data, Errno, Outcome, Read, Result};
use covey_wire::Bytes;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The header lines of a host, whatever their memory is.
pub trait Lines {
    /// See [`Headers::publish`].
    fn publish(&self, view: View) -> Option<Ticket>;
    /// See [`Headers::close`].
    fn close(&self, ticket: Ticket);
    /// See [`Headers::quiet`].
    fn quiet(self: Rc<Self>, ticket: Ticket) -> Outcome<()>;
    /// See [`Headers::open`].
    fn open(&self, ticket: Ticket, view: View);
    /// See [`Headers::retire`].
    fn retire(&self, ticket: Ticket, kept: Box<dyn Any>);
}

impl<S: Shared + 'static> Lines for Headers<S> {
    fn publish(&self, view: View) -> Option<Ticket> {
        Headers::publish(self, view)
    }

    fn close(&self, ticket: Ticket) {
        Headers::close(self, ticket);
    }

    fn quiet(self: Rc<Self>, ticket: Ticket) -> Outcome<()> {
        Outcome::later(Headers::quiet(self, ticket))
    }

    fn open(&self, ticket: Ticket, view: View) {
        Headers::open(self, ticket, view);
    }

    fn retire(&self, ticket: Ticket, kept: Box<dyn Any>) {
        Headers::retire(self, ticket, kept);
    }
}

/// A file that may lie in memory. Whoever changes its size goes through here.
pub struct Region {
    backing: Rc<dyn Backing>,
    lines: Rc<dyn Lines>,
    ticket: Cell<Option<Ticket>>,
    /// What is changed, one after another. Regions of one file share it.
    lane: Rc<Lane>,
}

/// Nobody copies by the lines of these regions until this is dropped. They say then what holds.
struct Held(Vec<Rc<Region>>);

impl Held {
    async fn of(regions: Vec<Rc<Region>>) -> Result<Held> {
        let held = Held(regions);
        let lines =
            || held.0.iter().filter_map(|region| Some((&region.lines, region.ticket.get()?)));
        lines().for_each(|(lines, ticket)| lines.close(ticket));
        for (lines, ticket) in lines() {
            lines.clone().quiet(ticket).wait().await?;
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for region in &self.0 {
            if let Some(ticket) = region.ticket.get() {
                region.lines.open(ticket, region.view().unwrap_or(OUT_OF_REACH));
            }
        }
    }
}

const OUT_OF_REACH: View =
    View { size: 0, place: Place { mapping: Place::NOWHERE, pointer: 0, capacity: 0 } };

impl Region {
    /// A file with these bytes, which may be those of other regions, too.
    pub fn new(
        backing: Rc<dyn Backing>,
        lines: Rc<dyn Lines>,
        beside: Option<&Rc<Region>>,
    ) -> Rc<Region> {
        let lane = beside.map(|other| other.lane.clone()).unwrap_or_default();
        Rc::new(Region { backing, lines, ticket: Cell::new(None), lane })
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.backing.size()
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

    /// Writes while others are served, where that takes time; then the file may have other bytes than its header says, and is to
    /// be looked at.
    pub fn store(&self, at: u64, data: &Bytes) -> Option<Outcome<()>> {
        self.backing.store(at, data)
    }

    /// Writes; behind the end the file grows, also that of the other regions.
    pub fn write(
        self: &Rc<Self>,
        host: &Rc<dyn Host>,
        others: Vec<Rc<Region>>,
        at: u64,
        data: Bytes,
    ) -> Outcome<()> {
        let Some(end) = at.checked_add(data.len() as u64) else { return Errno::EFBIG.into() };
        if end <= self.size() && self.lane.is_idle() {
            return self.backing.write(at, &data).into();
        }
        self.change(host, others, move |backing| {
            let grown = if end > backing.size() { backing.resize(end) } else { Ok(()).into() };
            Outcome::later(async move {
                grown.wait().await?;
                backing.write(at, &data)
            })
        })
    }

    /// Cuts it off, or lets it grow with zeros; that of the other regions, too.
    pub fn resize(
        self: &Rc<Self>,
        host: &Rc<dyn Host>,
        others: Vec<Rc<Region>>,
        size: u64,
    ) -> Outcome<()> {
        if !self.backing.has_size() {
            // As for open(2): what has no size is not cut off.
            return if size == 0 { Ok(()).into() } else { Errno::EINVAL.into() };
        }
        self.change(host, others, move |backing| backing.resize(size))
    }

    /// Whether the file is changed now, which a region that was opened meanwhile knows nothing of.
    pub fn is_changing(&self) -> bool {
        !self.lane.is_idle()
    }

    /// Takes in what others may have changed, also for the other regions.
    pub async fn refresh(
        self: &Rc<Self>,
        host: &Rc<dyn Host>,
        others: Vec<Rc<Region>>,
    ) -> Result<()> {
        let size = self.backing.measure().wait().await?;
        if size == self.size() && !self.is_changing() {
            return Ok(());
        }
        self.change(host, others, look).wait().await
    }

    /// Changes the file when all changes before this one are done, and while no worker copies by any of these regions. It is
    /// done to its end, whoever gives up waiting for it.
    fn change(
        self: &Rc<Self>,
        host: &Rc<dyn Host>,
        others: Vec<Rc<Region>>,
        act: impl FnOnce(Rc<dyn Backing>) -> Outcome<()> + 'static,
    ) -> Outcome<()> {
        let region = self.clone();
        let work = async move {
            let all = others.iter().chain([&region]).cloned().collect();
            let _held = Held::of(all).await?;
            let done = act(region.backing.clone()).wait().await;
            for other in others {
                look(other.backing.clone()).wait().await?;
            }
            done
        };
        let lane = self.lane.clone();
        to_its_end(host, async move { lane.run(move || Outcome::later(work)).wait().await })
    }

    /// To stable storage.
    pub fn sync(&self) -> Outcome<()> {
        self.backing.sync()
    }

    /// The answer to a worker that asks where the file lies, when it lies still.
    pub fn map(self: &Rc<Self>, host: &Rc<dyn Host>, worker: u32) -> Outcome<Bytes> {
        let (region, host) = (self.clone(), host.clone());
        self.lane.run(move || Outcome::now(|| region.map_now(&*host, worker)))
    }

    fn map_now(&self, host: &dyn Host, worker: u32) -> Result<Bytes> {
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
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.get() {
            self.lines.retire(ticket, Box::new(self.backing.clone()));
        }
    }
}

/// Takes in how many bytes the file has now.
fn look(backing: Rc<dyn Backing>) -> Outcome<()> {
    backing.measure().map(move |size| backing.settle(size))
}

/// Does work to its end, whoever gives up waiting for it: now, where it waits for nothing.
fn to_its_end<T: 'static>(
    host: &Rc<dyn Host>,
    work: impl Future<Output = Result<T>> + 'static,
) -> Outcome<T> {
    let mut work = Box::pin(work);
    if let Poll::Ready(result) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return result.into();
    }
    let done = Rc::new((Bell::default(), RefCell::new(None)));
    let tell = done.clone();
    host.detach(Box::pin(async move {
        let result = work.await;
        tell.1.replace(Some(result));
        tell.0.ring();
    }));
    Outcome::later(async move { done.0.wait(|| done.1.take()).await })
}
