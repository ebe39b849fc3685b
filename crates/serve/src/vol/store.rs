//! What a volume's bytes are kept in, and what is counted of it.
//!
//! A store is asked by the threads that run a target's connections. What it can answer without waiting it answers there; the
//! rest is done by the volumes' own runtime, begun at once and done whether or not anybody still waits for it.

use crate::lobby::pace::Pace;
use covey_iscsi::store::{Answer, Failure, Hold, Reply, Request, Store};
use covey_ninep::tree::Errno;
use covey_wire::Payload;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
            Request::Write { data, continues, .. } => {
                add(&self.writes, u64::from(!continues));
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

    fn losses(&self) -> u64 {
        self.store.losses()
    }
}

/// Work that begins on a runtime, or without one where its answer is waited for: its end is the answer. `hold` is let go with
/// it.
pub fn begin(
    runtime: Option<&Handle>,
    hold: Hold,
    work: impl Future<Output = Reply> + Send + 'static,
) -> Answer {
    let work = async move { settle(hold, work.await) };
    match runtime {
        Some(runtime) => later(runtime.spawn(work)),
        None => Answer::Later(Box::pin(work)),
    }
}

/// A volume's share of the threads that wait for disks. One whose disk does not answer takes no more of them, so that other
/// volumes are served meanwhile.
#[derive(Clone)]
pub struct Lane {
    runtime: Handle,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    threads: usize,
    waiting: VecDeque<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Lane {
    /// A lane of its own.
    pub fn new(runtime: Handle) -> Lane {
        Lane { runtime, queue: Arc::default() }
    }

    /// Begins work that blocks, or queues it; as [`begin`] does.
    pub fn begin(&self, hold: Hold, work: impl FnOnce() -> Reply + Send + 'static) -> Answer {
        let (tell, told) = tokio::sync::oneshot::channel();
        let job: Job = Box::new(move || {
            let _ = tell.send(settle(hold, work()));
        });
        let mut queue = lock(&self.queue);
        if queue.threads < LANE_THREADS_MAX {
            queue.threads += 1;
            let queue = self.queue.clone();
            self.runtime.spawn_blocking(move || run(&queue, job));
        } else {
            queue.waiting.push_back(job);
        }
        // Work that panicked is no answer, and the unit goes on without it.
        Answer::Later(Box::pin(
            async move { told.await.unwrap_or(Reply::Failed(Failure::Unreachable)) },
        ))
    }
}

/// Does one job after the other until none waits.
fn run(queue: &Mutex<Queue>, mut job: Job) {
    loop {
        let _ = std::panic::catch_unwind(AssertUnwindSafe(job));
        let mut queue = lock(queue);
        match queue.waiting.pop_front() {
            Some(next) => job = next,
            None => {
                queue.threads -= 1;
                return;
            }
        }
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An answer, of whose failure the unit hears.
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

/// How a request fails that reaches beyond the first `bytes`: it was let in before the volume became shorter.
pub fn beyond(request: &Request, bytes: u64) -> Option<Failure> {
    let (end, failure) = match request {
        Request::Read { offset, bytes, .. } => (offset.saturating_add(*bytes), Failure::Read),
        Request::Allocated { range } => (range.end, Failure::Read),
        Request::Write { offset, data, .. } => {
            (offset.saturating_add(data.len() as u64), Failure::Write)
        }
        Request::Discard { range } | Request::Zero { range } | Request::Fill { range, .. } => {
            (range.end, Failure::Write)
        }
        Request::Flush | Request::Save { .. } => return None,
    };
    (end > bytes).then_some(failure)
}

/// Says that a request failed, a few times a minute: initiators can have as many fail as they like.
pub fn note_failure(error: &dyn std::fmt::Display) {
    static LOG: Mutex<Pace> = Mutex::new(Pace::new("requests to volumes failed"));
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.complain(|| format!("a volume's store failed: {error}"));
}

/// How a request of a striped volume failed, by the code of its error.
pub fn failure_of(code: u32, otherwise: Failure) -> Failure {
    match code {
        // There may be room that nobody may take: to an initiator that is the same.
        Errno::ENOSPC | Errno::EDQUOT => Failure::Full,
        // Another node has the file.
        Errno::ESTALE => Failure::Unreachable,
        _ => otherwise,
    }
}

/// A pattern repeated to about this many bytes: what a range is filled with at a time. Its length is a multiple of the
/// pattern's.
pub fn tile(pattern: &[u8]) -> Vec<u8> {
    pattern.repeat((TILE_BYTES / pattern.len()).max(1))
}

/// How many requests of a volume wait for its disk at a time: what a fast one has use for.
const LANE_THREADS_MAX: usize = 64;
/// How much is filled at a time.
const TILE_BYTES: usize = 1 << 20;
/// How many runs of a range are told.
pub const RUNS_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_whose_disk_does_not_answer_leaves_threads_to_others() {
        let threads = LANE_THREADS_MAX + 1;
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(threads).build().unwrap();
        let (slow, other) =
            (Lane::new(runtime.handle().clone()), Lane::new(runtime.handle().clone()));
        let disk = Arc::new(Mutex::new(()));
        let dead = disk.lock().unwrap();
        let stuck: Vec<Answer> = (0..2 * threads)
            .map(|_| {
                let disk = disk.clone();
                slow.begin(Hold::default(), move || {
                    drop(disk.lock());
                    Reply::Done
                })
            })
            .collect();
        let served = other.begin(Hold::default(), || Reply::Done);
        let wait = |answer| match answer {
            Answer::Now(reply) => reply,
            Answer::Later(later) => runtime.block_on(later),
        };
        assert_eq!(wait(served), Reply::Done);
        drop(dead);
        assert!(stuck.into_iter().all(|answer| wait(answer) == Reply::Done), "nothing is lost");
    }

    /// An initiator that is told of a bad medium takes the disk for broken; one that is told of no space makes room.
    #[test]
    fn a_quota_that_is_reached_is_no_space() {
        let failure_of = |code| failure_of(code, Failure::Write);
        assert_eq!([Errno::ENOSPC, Errno::EDQUOT].map(failure_of), [Failure::Full; 2]);
        assert_eq!(failure_of(Errno::ESTALE), Failure::Unreachable);
        assert_eq!(failure_of(Errno::EIO), Failure::Write);
    }

    #[test]
    fn a_write_in_parts_is_counted_once() {
        let counts = Counts::default();
        for continues in [false, true, true] {
            let data = Payload::from(vec![0; 512]);
            counts.note(&Request::Write { offset: 0, data, fua: false, continues });
        }
        assert_eq!(counts.list()[2..4], [("writes", 1), ("write_bytes", 3 * 512)]);
    }

    #[test]
    fn work_that_panics_keeps_no_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lane = Lane::new(runtime.handle().clone());
        for _ in 0..2 * LANE_THREADS_MAX {
            // Without the hook that would tell of each.
            let fail = || -> Reply { std::panic::resume_unwind(Box::new("as it should")) };
            let Answer::Later(later) = lane.begin(Hold::default(), fail) else {
                panic!("it is begun")
            };
            assert_eq!(runtime.block_on(later), Reply::Failed(Failure::Unreachable));
        }
        let Answer::Later(later) = lane.begin(Hold::default(), || Reply::Done) else {
            panic!("it is begun")
        };
        assert_eq!(runtime.block_on(later), Reply::Done);
    }
}
