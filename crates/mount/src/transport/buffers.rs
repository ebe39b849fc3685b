//! Request buffers: 1 MiB each, read into without being cleared, shared with the payload of a WRITE,
//! and used again when the last share is gone. A fresh megabyte costs 256 page faults, which is
//! several times the price of the copy that it saves.

use covey_wire::Bytes;
use rustix::buffer::{SpareCapacity, spare_capacity};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

/// Where requests are read to.
pub struct Buffers {
    current: Vec<u8>,
    pool: Arc<Pool>,
}

impl Buffers {
    /// Buffers of `buffer_bytes` each.
    pub fn new(buffer_bytes: usize) -> Self {
        let pool = Arc::new(Pool { buffer_bytes, free: Mutex::default() });
        Buffers { current: pool.take(), pool }
    }

    /// Has `read` fill a buffer's spare room, and hands out what it read: small messages as a copy,
    /// large ones as the buffer itself.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(SpareCapacity<'_, u8>) -> Result<usize, E>,
    ) -> Result<Bytes, E> {
        self.current.clear();
        let length = read(spare_capacity(&mut self.current))?;
        if length <= COPY_BYTES_MAX {
            return Ok(Bytes::copy_from_slice(&self.current));
        }
        let buffer = mem::replace(&mut self.current, self.pool.take());
        Ok(Bytes::from_owner(Lent { buffer, pool: self.pool.clone() }))
    }
}

struct Pool {
    buffer_bytes: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    fn take(&self) -> Vec<u8> {
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| Vec::with_capacity(self.buffer_bytes))
    }

    fn put(&self, buffer: Vec<u8>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT_MAX {
            free.push(buffer);
        }
    }
}

/// A buffer whose message is in use. Its shares may be dropped on any thread.
struct Lent {
    buffer: Vec<u8>,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.put(mem::take(&mut self.buffer));
    }
}

/// Up to here a copy is cheaper than a buffer's round trip.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// Free buffers kept per thread.
const KEPT_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A message of `length` bytes through a real read(2).
    fn message(buffers: &mut Buffers, length: usize) -> Bytes {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(&vec![7; length]).expect("the pipe has room");
        buffers.fill(|room| rustix::io::read(&reader, room)).expect("read")
    }

    #[test]
    fn small_messages_leave_the_buffer_where_it_is() {
        let mut buffers = Buffers::new(64 * 1024);
        let buffer = buffers.current.as_ptr();
        let small = message(&mut buffers, COPY_BYTES_MAX);
        assert_eq!((small.len(), buffers.current.as_ptr()), (COPY_BYTES_MAX, buffer));
    }

    #[test]
    fn a_large_message_is_the_buffer_itself_which_comes_back_with_the_last_share() {
        let mut buffers = Buffers::new(64 * 1024);
        let buffer = buffers.current.as_ptr();
        let large = message(&mut buffers, COPY_BYTES_MAX + 1);
        assert_eq!((large.len(), large.as_ptr()), (COPY_BYTES_MAX + 1, buffer));
        let share = large.slice(1..);
        drop(large);
        assert!(buffers.pool.free.lock().expect("pool").is_empty());
        drop(share);
        let kept = buffers.pool.take();
        assert_eq!((kept.as_ptr(), kept.capacity()), (buffer, 64 * 1024));
    }
}
