//! What is written, so that what is read can be told from what should be there.
//!
//! Every sector of 512 bytes begins with a stamp that says which run wrote it, in which file, at which place and
//! how many times that place was written before. The rest is noise, which no storage can make smaller. Stamps are
//! compared in every sector that is read, the noise in one record of sixteen: so looking costs little of
//! what is measured.

use super::TRANSFER_ALIGN;
use covey_wire::Rng;

/// What has a stamp of its own.
pub const SECTOR: usize = 512;
/// The noise repeats after this many bytes, or after one record that is longer.
pub const NOISE_BYTES: usize = 1 << 20;
/// In one record of so many, every byte is compared.
const COMPARED_EVERY: u64 = 16;
const STAMP: usize = 16;

/// Bytes at an address that direct transfers accept.
#[derive(Debug)]
pub struct Aligned {
    bytes: Vec<u8>,
    begin: usize,
    length: usize,
}

impl Aligned {
    /// Zeros.
    pub fn new(length: usize) -> Aligned {
        let bytes = vec![0; length + TRANSFER_ALIGN];
        let begin = bytes.as_ptr().align_offset(TRANSFER_ALIGN);
        Aligned { bytes, begin, length }
    }

    /// The aligned bytes, `length` of them.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + self.length]
    }
}

/// The content of one file.
#[derive(Debug)]
pub struct Pattern {
    run: u64,
    lane: u64,
    window: Aligned,
}

impl Pattern {
    /// Of the file with this number, written by the run with that number, in records up to a length.
    pub fn new(run: u64, lane: usize, record_bytes_max: usize) -> Pattern {
        let length = NOISE_BYTES.max(record_bytes_max);
        let mut window = Aligned::new(length);
        let mut rng = Rng::new(run);
        for word in window.bytes().chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next().to_le_bytes());
        }
        Pattern { run, lane: lane as u64, window }
    }

    /// A record as it should be: at `offset`, written for the `age`-th time. Both are whole sectors.
    pub fn record(&mut self, offset: u64, bytes: usize, age: u64) -> &mut [u8] {
        let begin = (offset % self.window.length as u64) as usize;
        let (run, lane) = (self.run, self.lane);
        let record = &mut self.window.bytes()[begin..begin + bytes];
        for (index, sector) in record.chunks_exact_mut(SECTOR).enumerate() {
            let place = offset / SECTOR as u64 + index as u64;
            sector[..STAMP].copy_from_slice(&stamp(run, lane, place, age));
        }
        record
    }

    /// Where in what was read the first byte lies that is wrong.
    pub fn first_wrong(&mut self, offset: u64, found: &[u8], age: u64) -> Option<u64> {
        let number = offset / found.len().max(1) as u64;
        if number.is_multiple_of(COMPARED_EVERY) {
            return self.first_different(offset, found, age);
        }
        let (run, lane) = (self.run, self.lane);
        let is_wrong = |(index, sector): (usize, &[u8])| {
            let place = offset / SECTOR as u64 + index as u64;
            (sector[..STAMP] != stamp(run, lane, place, age)).then_some(index * SECTOR)
        };
        found.chunks_exact(SECTOR).enumerate().find_map(is_wrong).map(|at| offset + at as u64)
    }

    /// The same, and every byte is compared.
    pub fn first_different(&mut self, offset: u64, found: &[u8], age: u64) -> Option<u64> {
        let wanted = self.record(offset, found.len(), age);
        if *wanted == *found {
            return None;
        }
        let at = wanted.iter().zip(found).position(|(wanted, found)| wanted != found);
        at.map(|at| offset + at as u64)
    }
}

fn stamp(run: u64, lane: u64, place: u64, age: u64) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&run.to_le_bytes());
    stamp[8..].copy_from_slice(&(place | lane << 44 | age << 52).to_le_bytes());
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_elsewhere_or_is_older_or_anothers_is_wrong() {
        let mut pattern = Pattern::new(77, 1, 4096);
        let at = 5 * 4096;
        let right = pattern.record(at, 4096, 2).to_vec();
        assert_eq!(pattern.first_wrong(at, &right, 2), None);
        assert_eq!(pattern.first_wrong(at, &right, 3), Some(at), "an older one");
        assert!(pattern.first_wrong(at + 4096, &right, 2).is_some(), "from elsewhere");
        assert!(Pattern::new(78, 1, 4096).first_wrong(at, &right, 2).is_some(), "of another run");
        assert!(Pattern::new(77, 2, 4096).first_wrong(at, &right, 2).is_some(), "of another file");
        let mut torn = right.clone();
        torn[3 * SECTOR..4 * SECTOR].fill(0);
        assert_eq!(pattern.first_wrong(at, &torn, 2), Some(at + 3 * SECTOR as u64));
    }

    #[test]
    fn one_record_of_sixteen_is_compared_to_the_last_byte() {
        let mut pattern = Pattern::new(77, 0, 4096);
        let mut first = pattern.record(0, 4096, 1).to_vec();
        first[4095] ^= 1;
        assert_eq!(pattern.first_wrong(0, &first, 1), Some(4095));
        assert_eq!(pattern.first_different(0, &first, 1), Some(4095));
    }

    #[test]
    fn direct_transfers_accept_the_address() {
        assert_eq!(Aligned::new(100).bytes().as_ptr() as usize % TRANSFER_ALIGN, 0);
    }
}
