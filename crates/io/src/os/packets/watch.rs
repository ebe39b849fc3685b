//! What the kernel watches for us.
//!
//! A socket that is watched costs whoever sends to it: each packet is also put on the list of what is ready. So only
//! those are watched that little is heard of, and all while we sleep.

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Whoever comes: the listener, and those that have not said hello. Peers have their numbers.
pub(super) const NEWCOMER: u64 = u64::MAX;
/// Told at once; the rest is told in the next look.
const EVENTS: usize = 64;

#[derive(Debug)]
pub(super) struct Watch {
    events: OwnedFd,
}

impl Watch {
    pub fn new() -> io::Result<Watch> {
        Ok(Watch { events: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Readable when anything that is watched has something.
    pub fn descriptor(&self) -> i32 {
        self.events.as_raw_fd()
    }

    pub fn add(&self, what: impl AsFd, number: u64, wants_room: bool) -> io::Result<()> {
        Ok(epoll::add(&self.events, what, EventData::new_u64(number), flags(wants_room))?)
    }

    pub fn modify(&self, what: impl AsFd, number: u64, wants_room: bool) -> io::Result<()> {
        Ok(epoll::modify(&self.events, what, EventData::new_u64(number), flags(wants_room))?)
    }

    pub fn remove(&self, what: impl AsFd) {
        // It fails for what is not watched, and then nothing is to be done.
        let _ = epoll::delete(&self.events, what);
    }

    /// The numbers of those that have something.
    pub fn ready(&self, mut each: impl FnMut(u64)) {
        let nothing = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut room = [nothing; EVENTS];
        // A failure is an interruption; then we look again.
        let count = epoll::wait(&self.events, &mut room[..], Some(&Timespec::default()));
        room[..count.unwrap_or(0)].iter().for_each(|event| each(event.data.u64()));
    }
}

fn flags(wants_room: bool) -> EventFlags {
    let mut flags = EventFlags::IN;
    flags.set(EventFlags::OUT, wants_room);
    flags
}
