//! What room is left in the store, and for whom.

use super::{Journal, Rows, room_on};
use covey_io::disk::{MapSpace, Space};

/// Free space that is kept for deletes, in bytes.
const RESERVE_BYTES_MAX: u64 = 32 << 20;
/// Free space is looked at after this many logged operations.
pub(super) const SPACE_CHECK_EVERY: u64 = 64;
/// The map is full for what makes it grow when so many of a thousand parts are used.
const FULL_PERMILLE: u64 = 950;
/// From here on nobody changes anything late that makes it grow: what clients have done by then has room.
const SCARCE_PERMILLE: u64 = 900;
/// Where it was so, until no more than this is used.
const AMPLE_PERMILLE: u64 = 880;
/// The part of what is kept for deletes that a full map takes in of what clients have done before they heard of that.
const SPARED_OF_RESERVE: u64 = 4;

/// What is left for what makes the store grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Clients may make things now and say so later.
    Ample,
    /// It is refused when there is none, and so is made where it can be.
    Scarce,
    /// What grows the store is refused.
    None,
}

impl Journal {
    /// What room the map and the disk have for what makes the store grow.
    pub fn room(&self, map: &Rows) -> Room {
        let on_disk = self.room_on_disk();
        // It does not come and go with each file that is made and removed.
        let scarce =
            if self.room_last.get() == Room::Ample { SCARCE_PERMILLE } else { AMPLE_PERMILLE };
        let in_map = map.space().map_or(Room::Ample, |space| {
            let permille = space.capacity(self.disk_room.get()) / 1000;
            match space.used {
                used if used > permille * FULL_PERMILLE => Room::None,
                used if used > permille * scarce => Room::Scarce,
                _ => Room::Ample,
            }
        });
        let room = on_disk.max(in_map);
        self.room_last.set(room);
        if room != Room::None {
            self.spared.set(0);
        }
        room
    }

    /// Whether there is none.
    pub fn is_full(&self, map: &Rows) -> bool {
        self.room(map) == Room::None
    }

    /// Whether a full store takes so many bytes more, of what clients have done before they heard of that. It has more than that,
    /// but the rest is for what removes things.
    pub fn spares(&self, map: &Rows, bytes: u64) -> bool {
        let spared = self.spared.get() + bytes;
        let is_room = map.space().is_ok_and(|space| {
            let capacity = space.capacity(self.disk_room.get());
            spared <= MapSpace::reserve(capacity) / SPARED_OF_RESERVE
        });
        if is_room {
            self.spared.set(spared);
        }
        is_room
    }

    fn room_on_disk(&self) -> Room {
        let unchecked = self.unchecked.get() + 1;
        self.unchecked.set(unchecked);
        if unchecked < SPACE_CHECK_EVERY && self.on_disk.get() != Room::None {
            return self.on_disk.get();
        }
        self.unchecked.set(0);
        let room = |space: Space| {
            let reserve = RESERVE_BYTES_MAX.min(space.bytes_total() / 20);
            match space.bytes_available() {
                left if left < reserve => Room::None,
                left if left < 2 * reserve => Room::Scarce,
                _ => Room::Ample,
            }
        };
        let room = self.disk.space(&self.dir).map_or(Room::Ample, room);
        self.disk_room.set(room_on(&*self.disk, &self.dir));
        self.on_disk.set(room);
        room
    }
}
