//! One image: its sums, and as much of it as has arrived.

use super::roster::{Limits, Roster};
use super::{LocalFuture, Sum};
use covey_ninep::tree::{Bell, Data, Errno, Read, Result};
use covey_wire::Bytes;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Where the bytes of an image are.
pub trait Content: 'static {
    /// Up to `read.count` bytes from `read.offset`; all of them have been written.
    fn read(&self, read: Read<'_>) -> Data;

    /// Writes a chunk.
    fn write(&self, offset: u64, pieces: Vec<Bytes>) -> LocalFuture<Result<()>>;

    /// Brings what was written to stable storage.
    fn sync(&self) -> LocalFuture<Result<()>>;
}

/// An image that is served, whole or while it arrives.
pub struct Image {
    sum: Sum,
    sum_text: Bytes,
    content: Rc<dyn Content>,
    /// Bytes from the first on, whole chunks of them.
    arrived: Cell<u64>,
    /// Why no more arrive.
    failure: RefCell<Option<Errno>>,
    pub(super) roster: RefCell<Roster>,
    /// Rings when more has arrived.
    pub(super) arrival: Bell,
    /// Rings when a place at a source may be free.
    pub(super) places: Bell,
    /// Tells images apart; never used again in this process.
    pub(super) number: u64,
}

impl Image {
    /// One that is there.
    pub fn whole(number: u64, sum: Sum, content: Rc<dyn Content>, limits: Limits) -> Rc<Image> {
        let bytes = sum.bytes;
        Image::with(number, sum, content, bytes, limits)
    }

    /// One of which nothing has arrived.
    pub fn arriving(sum: Sum, content: Rc<dyn Content>) -> Rc<Image> {
        Image::with(1, sum, content, 0, Limits::default())
    }

    fn with(
        number: u64,
        sum: Sum,
        content: Rc<dyn Content>,
        arrived: u64,
        limits: Limits,
    ) -> Rc<Image> {
        let roster = RefCell::new(Roster::new(sum.bytes, limits));
        Rc::new(Image {
            sum_text: sum.text().into(),
            sum,
            content,
            arrived: Cell::new(arrived),
            failure: RefCell::default(),
            roster,
            arrival: Bell::default(),
            places: Bell::default(),
            number,
        })
    }

    /// Its sums.
    pub fn sum(&self) -> &Sum {
        &self.sum
    }

    /// The text of its sums.
    pub fn sum_text(&self) -> &Bytes {
        &self.sum_text
    }

    /// Its bytes.
    pub fn content(&self) -> &Rc<dyn Content> {
        &self.content
    }

    /// Bytes that have arrived, from the first on.
    pub fn arrived(&self) -> u64 {
        self.arrived.get()
    }

    /// Whether all have.
    pub fn is_whole(&self) -> bool {
        self.arrived.get() == self.sum.bytes
    }

    /// Bytes up to `end` have been written, and were found right before.
    pub fn has_arrived(&self, end: u64) {
        debug_assert!(end >= self.arrived.get() && end <= self.sum.bytes);
        self.arrived.set(end);
        self.arrival.ring();
    }

    /// Nothing more will arrive: who waits is told why.
    pub fn fail(&self, why: Errno) {
        *self.failure.borrow_mut() = Some(why);
        self.arrival.ring();
    }

    /// Reads; held while nothing at the offset has arrived.
    pub(super) fn read(self: &Rc<Self>, read: Read<'_>) -> Data {
        let (offset, count) = (read.offset, read.count);
        let arrived = self.arrived.get();
        if offset >= self.sum.bytes {
            return Data::Bytes(Bytes::new());
        }
        if self.is_whole() || offset.saturating_add(count.into()) <= arrived {
            return self.content.read(read);
        }
        if offset < arrived {
            return self.content.read(Read::bytes(offset, (arrived - offset) as u32));
        }
        let image = self.clone();
        Data::later(async move {
            let look = image.clone();
            image.arrival.wait(move || look.state_at(offset)).await?;
            let count = u64::from(count).min(image.arrived.get() - offset) as u32;
            image.content.read(Read::bytes(offset, count)).into_outcome().wait().await
        })
    }

    fn state_at(&self, offset: u64) -> Option<Result<()>> {
        if offset < self.arrived.get() {
            return Some(Ok(()));
        }
        self.failure.borrow().clone().map(Err)
    }
}
