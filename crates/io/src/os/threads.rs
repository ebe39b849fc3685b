//! Threads that run what must not wait for the process's main one: the connections of a machine whose state is shared.
//!
//! Each thread has a runtime for itself, and a task stays on the thread that it was given to: nothing is stolen, so that a
//! task's state need not be shared and its socket is watched where it is read.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Several threads. Their tasks end when this is dropped.
#[derive(Debug)]
pub struct Threads {
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    runtime: Handle,
    jobs: mpsc::UnboundedSender<Job>,
    /// Tasks that it has.
    tasks: Arc<AtomicUsize>,
}

/// Counts a task for as long as it is there.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// Starts `count` threads called `name`, at least one.
    pub fn start(name: &str, count: usize) -> io::Result<Threads> {
        let threads = (0..count.max(1)).map(|number| Thread::start(&format!("{name}-{number}")));
        Ok(Threads { threads: threads.collect::<io::Result<_>>()? })
    }

    /// Makes a task and runs it, on the thread that has fewest.
    pub fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) {
        let load = |thread: &&Thread| thread.tasks.load(Ordering::Relaxed);
        let thread = self.threads.iter().min_by_key(load).expect("there is at least one");
        thread.tasks.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(thread.tasks.clone());
        let job: Job = Box::new(move || {
            let task = make();
            Box::pin(async move {
                let _counted = counted;
                task.await;
            })
        });
        // A thread that has ended has panicked: what it would have run is lost as its other tasks are.
        let _ = thread.jobs.send(job);
    }

    /// Is ready when every thread has let its tasks act on what had come from outside when this was called: connections that
    /// were closed by then are known to be.
    pub fn caught_up(&self) -> impl Future<Output = ()> + Send + use<> {
        let tell = |thread: &Thread| {
            let (told, knows) = tokio::sync::oneshot::channel();
            let job: Job = Box::new(move || {
                Box::pin(async move {
                    // Who yields goes on when the sockets have been looked at, behind those that were found ready.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    let _ = told.send(());
                })
            });
            let _ = thread.jobs.send(job);
            knows
        };
        let all = futures_util::future::join_all(self.threads.iter().map(tell));
        // Of one that has ended there is nothing to come.
        async move { drop(all.await) }
    }

    /// The runtime of the thread that has a task before any other has: what this task and others talk to costs it no wake-up of
    /// another thread there.
    pub fn runtime(&self) -> Handle {
        self.threads[0].runtime.clone()
    }

    /// How many tasks each thread has.
    pub fn tasks(&self) -> Vec<usize> {
        self.threads.iter().map(|thread| thread.tasks.load(Ordering::Relaxed)).collect()
    }
}

impl Thread {
    fn start(name: &str) -> io::Result<Thread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
        let handle = runtime.handle().clone();
        let work = move || {
            super::place::everywhere();
            let set = LocalSet::new();
            set.block_on(&runtime, async {
                while let Some(job) = queue.recv().await {
                    tokio::task::spawn_local(job());
                }
            });
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Thread { runtime: handle, jobs, tasks: Arc::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_has_come_is_seen_before_the_threads_have_caught_up() {
        use std::sync::atomic::AtomicBool;
        let threads = Threads::start("test", 2).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for turn in 0..200 {
            let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            let closed = Arc::new(AtomicBool::new(false));
            let seen = closed.clone();
            let (tell, told) = channel();
            threads.spawn(move || async move {
                let far = tokio::net::UnixStream::from_std(far).unwrap();
                tell.send(()).unwrap();
                far.readable().await.unwrap();
                seen.store(true, Ordering::SeqCst);
            });
            told.recv().unwrap();
            drop(near);
            runtime.block_on(threads.caught_up());
            assert!(closed.load(Ordering::SeqCst), "turn {turn}");
        }
    }

    #[test]
    fn tasks_are_spread_over_the_threads_and_end_with_them() {
        let threads = Threads::start("test", 2).unwrap();
        let (tell, told) = channel();
        for _ in 0..4 {
            let tell = tell.clone();
            threads.spawn(move || async move {
                tell.send(std::thread::current().name().map(str::to_owned)).unwrap();
                std::future::pending::<()>().await
            });
        }
        drop(tell);
        let first =
            threads.runtime().spawn(async { std::thread::current().name().map(str::to_owned) });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(first).unwrap().as_deref(), Some("test-0"));
        let mut names: Vec<_> = (0..4).map(|_| told.recv().unwrap().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["test-0", "test-0", "test-1", "test-1"]);
        assert_eq!(threads.tasks(), [2, 2]);
        drop(threads);
        assert!(told.recv().is_err(), "the tasks are gone, and with them what they held");
    }
}
