//! The log of a host on its way to whoever reads it: a thread writes, so that a reader who is slow holds up no worker that does
//! not log.
//!
//! ```text
//!   write to #l ──► room? ──► queue ──► thread ──► stdout
//!                     └ none: this write waits, in its order
//! ```

use covey_ninep::tree::{Errno, Outcome, Result};
use covey_wire::Bytes;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that wait to be written.
const QUEUE_BYTES: u32 = 256 << 10;

/// The queue, and its thread, which ends with it.
pub(super) struct LogQueue {
    lines: Sender<Line>,
    /// A permit for each byte that may still come.
    room: Arc<Semaphore>,
}

/// What is to be written, and the room that it takes until then.
struct Line {
    data: Bytes,
    _room: OwnedSemaphorePermit,
}

impl LogQueue {
    /// Begins a thread that hands over what comes, in order.
    pub fn new(mut write: impl FnMut(&[u8]) + Send + 'static) -> std::io::Result<LogQueue> {
        let (lines, queue) = channel::<Line>();
        let thread = std::thread::Builder::new().name("log".into());
        thread.spawn(move || queue.iter().for_each(|line| write(&line.data)))?;
        Ok(LogQueue { lines, room: Arc::new(Semaphore::new(QUEUE_BYTES as usize)) })
    }

    /// Queues it, now or when there is room for it.
    pub fn put(&self, data: Bytes) -> Outcome<()> {
        let (room, lines) = (self.room.clone(), self.lines.clone());
        let bytes = u32::try_from(data.len()).unwrap_or(QUEUE_BYTES).min(QUEUE_BYTES);
        let send = move |room| -> Result<()> {
            lines.send(Line { data, _room: room }).map_err(|_| Errno::EIO.into())
        };
        match room.clone().try_acquire_many_owned(bytes) {
            Ok(room) => send(room).into(),
            Err(_) => Outcome::later(async move {
                send(room.acquire_many_owned(bytes).await.map_err(|_| Errno::EIO)?)
            }),
        }
    }

    /// Waits until all that was queued is written.
    pub async fn written(&self) {
        let _ = self.room.acquire_many(QUEUE_BYTES).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_reader_that_stands_still_holds_up_who_writes_more_than_the_queue_takes_and_loses_nothing()
    {
        // Whoever reads takes nothing before it is told to.
        let (read, told) = sync_channel::<()>(0);
        let (tell, taken) = channel::<Vec<u8>>();
        let queue = LogQueue::new(move |text| {
            let _ = told.recv();
            let _ = tell.send(text.to_vec());
        });
        let queue = queue.expect("a thread");
        let line = |number: u8| Bytes::from(vec![number; 1 << 10]);
        let (mut count, mut late) = (0_u8, Vec::new());
        while late.len() < 3 {
            match queue.put(line(count)) {
                Outcome::Now(result) => {
                    result.expect("queued");
                    assert!(late.is_empty(), "nobody passes who waits");
                }
                Outcome::Later(later) => late.push(later),
            }
            count = count.wrapping_add(1);
        }
        drop(read);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for later in late {
                later.await.expect("queued");
            }
            queue.written().await;
        });
        let taken: Vec<u8> = taken.try_iter().map(|text| text[0]).collect();
        assert_eq!(taken.len(), QUEUE_BYTES as usize / (1 << 10) + 3);
        assert!(taken.iter().enumerate().all(|(at, number)| at as u8 == *number));
    }
}
