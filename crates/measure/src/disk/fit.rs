//! How much fits: into the time that there is, and into the room.

use std::time::Duration;

/// What decides the size.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// How fast a first short write with fsync was.
    pub bytes_per_s: f64,
    /// How long one pass may take.
    pub slice: Duration,
    /// Bytes that are free, or that a device has.
    pub room_bytes: u64,
    /// Threads, each with a file.
    pub threads: u32,
    /// The longest record.
    pub record_bytes: u64,
}

/// More is not written unless asked for.
const SHARE_OF_ROOM: f64 = 0.5;
const SIZE_MAX: u64 = 64 << 30;

/// Bytes in all files together: whole records for each thread, at least one.
pub fn size(known: &Known) -> u64 {
    let in_time = known.bytes_per_s.max(0.0) * known.slice.as_secs_f64();
    let in_room = known.room_bytes as f64 * SHARE_OF_ROOM;
    whole(in_time.min(in_room).min(SIZE_MAX as f64) as u64, known.threads, known.record_bytes)
}

/// Makes a size one that all threads share in whole records.
pub fn whole(bytes: u64, threads: u32, record_bytes: u64) -> u64 {
    let unit = u64::from(threads.max(1)) * record_bytes.max(1);
    (bytes / unit).max(1) * unit
}

/// How long each of so many passes may take.
pub fn slice(budget: Duration, repetitions: u32, passes: usize) -> Duration {
    // A part is kept for what is between the passes: dropping caches, removing files, looking.
    const SHARE: f64 = 0.8;
    budget.mul_f64(SHARE) / (repetitions.max(1) * passes.max(1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_fits_the_time_the_room_and_whole_records() {
        let known = Known {
            bytes_per_s: 100e6,
            slice: Duration::from_secs(1),
            room_bytes: 1 << 40,
            threads: 2,
            record_bytes: 1 << 20,
        };
        assert_eq!(size(&known), 94 << 20, "time is short, and it is shared by two");
        assert_eq!(size(&Known { room_bytes: 20 << 20, ..known }), 10 << 20, "room is short");
        assert_eq!(size(&Known { bytes_per_s: 1.0, ..known }), 2 << 20, "never less than a record");
        assert_eq!(size(&Known { bytes_per_s: 1e15, ..known }), SIZE_MAX);
    }

    #[test]
    fn slices_make_up_less_than_the_budget() {
        let slice = slice(Duration::from_secs(30), 3, 20);
        assert_eq!(slice, Duration::from_millis(400));
    }
}
