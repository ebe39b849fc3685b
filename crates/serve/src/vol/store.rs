//! What a volume's bytes are kept in, and what is counted of it.
//!
//! A store is asked by the threads that run a target's connections. What it can answer without waiting it answers there; the
//! rest is done by the volumes' own runtime, begun at once and done whether or not anybody still waits for it.

use crate::lobby::pace::Pace;
use covey_iscsi::store::{Answer, Failure, Hold, Reply, Request, Store};
use covey_wire::Payload;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;

/// What a volume has done since the node began.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests to read, and their bytes.
    pub reads: AtomicU64,
    /// See `reads`.
    pub read_bytes: AtomicU64,
    /// Requests to write, and their bytes.
    pub writes: AtomicU64,
    /// See `writes`.
    pub write_bytes: AtomicU64,
    /// Requests that everything come to stable storage.
    pub flushes: AtomicU64,
    /// Requests to forget, to zero, or to fill.
    pub others: AtomicU64,
    /// Requests that failed.
    pub failures: AtomicU64,
}

impl Counts {
    /// Each count by its name.
    pub fn list(&self) -> [(&'static str, u64); 7] {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("reads", value(&self.reads)),
            ("read_bytes", value(&self.read_bytes)),
            ("writes", value(&self.writes)),
            ("write_bytes", value(&self.write_bytes)),
            ("flushes", value(&self.flushes)),
            ("other_changes", value(&self.others)),
            ("failures", value(&self.failures)),
        ]
    }

    fn note(&self, request: &Request) {
        let add = |count: &AtomicU64, value: u64| {
            count.fetch_add(value, Ordering::Relaxed);
        };
        match request {
            Request::Read { bytes, .. } => {
                add(&self.reads, 1);
                add(&self.read_bytes, *bytes);
            }
            Request::Write { data, .. } => {
                add(&self.writes, 1);
                add(&self.write_bytes, data.len() as u64);
            }
            Request::Flush => add(&self.flushes, 1),
            Request::Discard { .. } | Request::Zero { .. } | Request::Fill { .. } => {
                add(&self.others, 1);
            }
            _ => {}
        }
    }

    fn end(&self, reply: &Reply) {
        if let Reply::Failed(_) = reply {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A store with its counts.
pub struct Counted<S> {
    pub store: S,
    pub counts: Arc<Counts>,
}

impl<S: Store> Store for Counted<S> {
    fn ask(&self, request: Request, hold: Hold) -> Answer {
        self.counts.note(&request);
        match self.store.ask(request, hold) {
            Answer::Now(reply) => {
                self.counts.end(&reply);
                Answer::Now(reply)
            }
            Answer::Later(later) => {
                let counts = self.counts.clone();
                Answer::Later(Box::pin(async move {
                    let reply = later.await;
                    counts.end(&reply);
                    reply
                }))
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.store.bytes()
    }
}

/// Work that has begun on a runtime: its end is the answer. `hold` is let go with it.
pub fn begin(
    runtime: &Handle,
    hold: Hold,
    work: impl Future<Output = Reply> + Send + 'static,
) -> Answer {
    later(runtime.spawn(async move { settle(hold, work.await) }))
}

/// The same for work that blocks.
pub fn begin_blocking(
    runtime: &Handle,
    hold: Hold,
    work: impl FnOnce() -> Reply + Send + 'static,
) -> Answer {
    later(runtime.spawn_blocking(move || settle(hold, work())))
}

fn settle(hold: Hold, reply: Reply) -> Reply {
    if let Reply::Failed(failure) = &reply {
        hold.fail(*failure);
    }
    reply
}

fn later(work: tokio::task::JoinHandle<Reply>) -> Answer {
    // Work that panicked is no answer, and the unit goes on without it.
    Answer::Later(Box::pin(
        async move { work.await.unwrap_or(Reply::Failed(Failure::Unreachable)) },
    ))
}

/// Bytes of a file as an answer: what lies beyond the end of a file that is shorter than its volume is zeros.
pub fn whole(data: Payload, bytes: u64) -> Reply {
    let missing = bytes - data.len() as u64;
    if missing == 0 {
        return Reply::Data(data);
    }
    let mut pieces = data.pieces().to_vec();
    pieces.push(vec![0; missing as usize].into());
    Reply::Data(Payload::gather(pieces))
}

/// Says that a request failed, a few times a minute: initiators can have as many fail as they like.
pub fn note_failure(error: &dyn std::fmt::Display) {
    static LOG: Mutex<Pace> = Mutex::new(Pace::new("requests to volumes failed"));
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.complain(|| format!("a volume's store failed: {error}"));
}

/// A pattern repeated to about this many bytes: what a range is filled with at a time. Its length is a multiple of the
/// pattern's.
pub fn tile(pattern: &[u8]) -> Vec<u8> {
    pattern.repeat((TILE_BYTES / pattern.len()).max(1))
}

/// How much is filled at a time.
const TILE_BYTES: usize = 1 << 20;
/// How many runs of a range are told.
pub const RUNS_MAX: usize = 8192;
