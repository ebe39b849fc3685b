//! One pair's frames: each once and in order, and in order with what went by the stream.
//!
//! Frames have numbers. The receiver keeps what came too early, and tells which one it expects. What is not acknowledged
//! in time goes again, by the stream, which loses nothing: so no frame is sent more than twice.
//!
//! Order between the two ways: a frame says how many packets its sender had given to the stream before, and is held until
//! these have come; and its sender gives the stream nothing while a frame may still be lost ([`Lane::is_settled`]).

use super::frame::{self, HEADER_BYTES, Header, Kind, PREFIX_BYTES, Packets};
use covey_wire::transport::HEAD_BYTES_MAX;
use std::collections::{BTreeMap, VecDeque};

/// Frames that may be without acknowledgement at most, and that are kept for being early, and for the stream.
pub(super) const WINDOW: usize = 64;
/// The receiver acknowledges after this part of the window, without being asked.
const ACK_PART: u32 = 4;
/// After so long at the latest.
const ACK_NS: u64 = 200_000;
/// A frame that is not acknowledged for so long goes again.
const PATIENCE_NS: u64 = 2_000_000;

/// What came by which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Wire,
    Stream,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    New,
    /// It had come before, or came much too early.
    Again,
}

/// Whether the other side is to be told what is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owes {
    #[default]
    Nothing,
    /// By the next frame, or after a while: since when, once the clock was looked at.
    Later(Option<u64>),
    Now,
    /// Now, and that it is missing.
    Gap,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The number of the next frame, and those that are not acknowledged: the last one before it last.
    next: u32,
    open: VecDeque<Open>,
    /// Frames that may be open, and that the other side may have open.
    window: usize,
    their_window: u32,
    /// So many of the first of them went again.
    resent: usize,
    /// A frame to which packets are added; empty when there is none.
    building: Vec<u8>,
    spare: Vec<Vec<u8>>,
    has_asked: bool,
    /// The frame that is expected next; those that came before their turn; those whose turn it is, while packets of
    /// the stream are missing before them.
    expected: u32,
    early: BTreeMap<u32, Held>,
    held: VecDeque<Held>,
    gap_told: Option<u32>,
    pub owes: Owes,
    unacknowledged: u32,
    /// Packets that were given to the stream, and that came by it.
    pub sent: u32,
    pub received: u32,
}

#[derive(Debug)]
struct Open {
    frame: Vec<u8>,
    /// When it goes again; none until the clock was looked at.
    due_ns: Option<u64>,
}

#[derive(Debug)]
struct Held {
    after: u32,
    packets: Vec<u8>,
}

impl Lane {
    /// Both sides have said how many frames there may be without acknowledgement.
    pub fn begin(&mut self, window: u16, their_window: u16) {
        self.window = usize::from(window).min(WINDOW);
        self.their_window = u32::from(their_window);
    }

    /// Whether a packet fits into a frame of so many bytes.
    pub fn fits(head: &[u8], bytes: usize, frame_bytes_max: usize) -> bool {
        let packet = PREFIX_BYTES + head.len() + bytes;
        head.len() <= HEAD_BYTES_MAX && HEADER_BYTES + packet <= frame_bytes_max
    }

    /// Whether no frame can be sent now.
    pub fn is_full(&self) -> bool {
        self.open.len() >= self.window
    }

    /// Whether packets wait for others to leave with them.
    pub fn is_building(&self) -> bool {
        !self.building.is_empty()
    }

    /// Whether there is room beside them for another.
    pub fn has_room(&self, head: &[u8], bytes: usize, frame_bytes_max: usize) -> bool {
        let used = self.building.len().saturating_sub(HEADER_BYTES);
        Lane::fits(head, bytes + used, frame_bytes_max)
    }

    /// Adds a packet to the next frame.
    pub fn add(&mut self, head: &[u8], bytes: usize, fill: impl FnOnce(&mut [u8])) {
        if self.building.is_empty() {
            self.building = self.spare.pop().unwrap_or_default();
            self.building.resize(HEADER_BYTES, 0);
        }
        frame::add(&mut self.building, head, bytes, fill);
    }

    /// The next frame and its number, to be sent now under these names.
    pub fn finish(&mut self, number: u32, lane: u32, key: u64) -> Option<(u32, &[u8])> {
        if self.building.is_empty() {
            return None;
        }
        let mut frame = std::mem::take(&mut self.building);
        let header = self.header(number, lane, key, Kind::Packets);
        header.put(&mut frame);
        self.told();
        self.next = self.next.wrapping_add(1);
        self.open.push_back(Open { frame, due_ns: None });
        self.open.back().map(|open| (header.sequence, &open.frame[..]))
    }

    /// All frames before this one have come, or went again.
    pub fn awaited(&self) -> u32 {
        self.next.wrapping_sub((self.open.len() - self.resent) as u32)
    }

    /// The last frame did not leave, and is to be tried again: others may still be added.
    pub fn take_back(&mut self) {
        let Some(Open { frame, .. }) = self.open.pop_back() else { return };
        debug_assert!(self.building.is_empty());
        self.building = frame;
        self.next = self.next.wrapping_sub(1);
        self.owe(Owes::Later(None));
    }

    /// The last frame did not leave: it goes by the stream.
    pub fn failed(&mut self) {
        if let Some(last) = self.open.back_mut() {
            last.due_ns = Some(0);
        }
    }

    /// The header of a frame without packets.
    pub fn header(&self, number: u32, lane: u32, key: u64, kind: Kind) -> Header {
        let (sequence, expected, after) = (self.next, self.expected, self.sent);
        Header { number, lane, key, sequence, expected, after, kind }
    }

    /// The number of the frame that is expected.
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// It was told to the other side.
    pub fn told(&mut self) {
        (self.owes, self.unacknowledged) = (Owes::Nothing, 0);
    }

    /// Whether packets may go by the stream: what was sent by frames has come, or goes before them.
    pub fn is_settled(&self) -> bool {
        self.open.len() == self.resent && self.building.is_empty()
    }

    /// Whether the other side should be asked what has come, to be settled: once.
    pub fn asks(&mut self) -> bool {
        !std::mem::replace(&mut self.has_asked, true)
    }

    /// Whether something is to be done when time passes.
    pub fn is_busy(&self) -> bool {
        self.open.len() > self.resent || self.owes != Owes::Nothing || self.is_building()
    }

    /// The next frame that is to go again now.
    pub fn due(&mut self, now_ns: u64) -> Option<&[u8]> {
        for open in self.open.iter_mut().skip(self.resent).filter(|open| open.due_ns.is_none()) {
            open.due_ns = Some(now_ns + PATIENCE_NS);
        }
        let first = self.open.get(self.resent)?;
        first.due_ns.is_some_and(|due| due <= now_ns).then_some(&first.frame[..])
    }

    /// It went again.
    pub fn resent(&mut self) {
        self.resent += 1;
    }

    /// All that is not acknowledged is to go again.
    pub fn give_up(&mut self) {
        self.open.iter_mut().for_each(|open| open.due_ns = Some(0));
    }

    /// The other side expects this number next, so everything before has come.
    pub fn acknowledged(&mut self, expected: u32, is_missing: bool) {
        let left = self.next.wrapping_sub(expected) as usize;
        // A number that was never sent is none of ours.
        if left > self.open.len() {
            return;
        }
        while self.open.len() > left {
            let done = self.open.pop_front();
            self.resent = self.resent.saturating_sub(1);
            self.has_asked = false;
            self.spare.extend(done.filter(|_| self.spare.len() < WINDOW).map(|open| {
                let mut frame = open.frame;
                frame.clear();
                frame
            }));
        }
        if is_missing
            && self.resent == 0
            && let Some(first) = self.open.front_mut()
        {
            first.due_ns = Some(0);
        }
    }

    /// Frames came and the clock was looked at: whether an acknowledgement is to be sent now.
    pub fn owes_now(&mut self, now_ns: u64) -> bool {
        if let Owes::Later(None) = self.owes {
            self.owes = Owes::Later(Some(now_ns));
        }
        match self.owes {
            Owes::Nothing => false,
            Owes::Later(since) => since.is_some_and(|since| now_ns >= since + ACK_NS),
            Owes::Now | Owes::Gap => true,
        }
    }

    fn owe(&mut self, what: Owes) {
        self.owes = self.owes.max(what);
    }

    /// The other side wants to know what has come.
    pub fn asked(&mut self) {
        self.owe(Owes::Now);
    }

    /// A frame with packets has come.
    pub fn arrived(
        &mut self,
        header: &Header,
        packets: Packets<'_>,
        by: By,
        mut deliver: impl FnMut(&[u8], &[u8]),
    ) -> Arrived {
        let ahead = header.sequence.wrapping_sub(self.expected);
        if ahead as usize >= WINDOW {
            self.owe(Owes::Now);
            return Arrived::Again;
        }
        if ahead > 0 {
            let held = || Held { after: header.after, packets: packets.0.to_vec() };
            let before = self.early.len();
            self.early.entry(header.sequence).or_insert_with(held);
            if by == By::Wire && self.gap_told != Some(self.expected) {
                self.gap_told = Some(self.expected);
                self.owe(Owes::Gap);
            }
            return if self.early.len() > before { Arrived::New } else { Arrived::Again };
        }
        if self.held.is_empty() && self.has_come(header.after) {
            self.took_one();
            packets.each(&mut deliver);
        } else if self.held.len() < WINDOW {
            self.took_one();
            self.held.push_back(Held { after: header.after, packets: packets.0.to_vec() });
        } else {
            // As good as lost.
            return Arrived::Again;
        }
        self.catch_up(&mut deliver);
        Arrived::New
    }

    /// Delivers what waited for the packets of the stream that have come now.
    pub fn catch_up(&mut self, mut deliver: impl FnMut(&[u8], &[u8])) {
        loop {
            while let Some(first) =
                self.held.pop_front_if(|held| (held.after.wrapping_sub(self.received) as i32) <= 0)
            {
                Packets(&first.packets).each(&mut deliver);
            }
            if self.held.len() >= WINDOW {
                return;
            }
            let Some(next) = self.early.remove(&self.expected) else { return };
            self.took_one();
            self.held.push_back(next);
        }
    }

    fn took_one(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.unacknowledged += 1;
        let is_much = self.unacknowledged >= self.their_window / ACK_PART;
        self.owe(if is_much { Owes::Now } else { Owes::Later(None) });
    }

    /// Whether the stream has brought so many packets.
    fn has_come(&self, after: u32) -> bool {
        after.wrapping_sub(self.received) as i32 <= 0
    }
}
