//! A program that runs.

use covey_io::os::cgroup::Cgroup;
use covey_io::os::spawn::{Event, Pipe, Started, WindowSize};
use covey_io::task;
use covey_launch::session::{Ended, Job, Output, Size};
use covey_ninep::tree::{Bell, Errno, Outcome, Result};
use covey_wire::Bytes;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

/// A program and everything that came of it.
pub(super) struct RunningJob {
    keeper: Rc<covey_io::os::spawn::Keeper>,
    stdin: RefCell<Option<Rc<Pipe>>>,
    stdout: Rc<Pipe>,
    stderr: Option<Rc<Pipe>>,
    has_terminal: bool,
    cgroup: Rc<RefCell<Option<Cgroup>>>,
    is_killed: Rc<Cell<bool>>,
    killed: Bell,
}

impl RunningJob {
    /// Follows what has started until nothing of it is left.
    pub fn follow(started: Started, cgroup: Option<Cgroup>, ended: Ended) -> Rc<RunningJob> {
        let keeper = Rc::new(started.keeper);
        let cgroup = Rc::new(RefCell::new(cgroup));
        let watched = (keeper.clone(), cgroup.clone());
        drop(task::spawn(async move { watch(watched.0, &watched.1, ended).await }));
        Rc::new(RunningJob {
            keeper,
            stdin: RefCell::new(Some(Rc::new(started.stdin))),
            stdout: Rc::new(started.stdout),
            has_terminal: started.stderr.is_none(),
            stderr: started.stderr.map(Rc::new),
            cgroup,
            is_killed: Rc::default(),
            killed: Bell::default(),
        })
    }
}

/// Says when the program has ended, and takes the control group away when nothing is left.
async fn watch(
    keeper: Rc<covey_io::os::spawn::Keeper>,
    cgroup: &RefCell<Option<Cgroup>>,
    ended: Ended,
) {
    let mut ended = Some(ended);
    loop {
        match keeper.next().await {
            Event::Ended(status) => ended.take().into_iter().for_each(|ended| ended(status)),
            Event::Refused(pid) => tracing::error!(
                "process {pid} of a session that was wiped cannot be killed, and runs on: the kernel refuses that; \
                 hint: the node's daemon needs CAP_KILL, see its unit"
            ),
            Event::Gone => break,
            Event::Started(_) | Event::Failed(..) => {}
        }
    }
    // A keeper that was killed has taken the program with it.
    ended.take().into_iter().for_each(|ended| ended(libc::SIGKILL));
    if let Some(group) = cgroup.take() {
        let _ = group.kill();
    }
}

impl Job for RunningJob {
    fn read(&self, output: Output, bytes_max: u32) -> Outcome<Bytes> {
        let pipe = match output {
            Output::Out => Some(self.stdout.clone()),
            Output::Err => self.stderr.clone(),
        };
        let Some(pipe) = pipe else { return Ok(Bytes::new()).into() };
        let is_killed = self.is_killed.clone();
        let killed = self.killed.wait(move || is_killed.get().then_some(()));
        Outcome::later(async move {
            let read = pin!(pipe.read(bytes_max as usize));
            match select(read, pin!(killed)).await {
                Either::Left((data, _)) => Ok(data?.into()),
                Either::Right(_) => Ok(Bytes::new()),
            }
        })
    }

    fn write(&self, data: Bytes) -> Outcome<u32> {
        let Some(pipe) = self.stdin.borrow().clone() else {
            return Err(Errno::because(Errno::EPIPE, "the program's input was closed")).into();
        };
        let is_killed = self.is_killed.clone();
        let killed = self.killed.wait(move || is_killed.get().then_some(()));
        Outcome::later(async move {
            let write = pin!(pipe.write(&data));
            match select(write, pin!(killed)).await {
                Either::Left((count, _)) => Ok(count? as u32),
                Either::Right(_) => Err(Errno::EPIPE.into()),
            }
        })
    }

    /// A terminal has no end of its input but the character for it.
    fn close_input(&self) {
        let stdin = self.stdin.borrow_mut().take();
        if let Some(pipe) = stdin.filter(|_| self.has_terminal) {
            drop(task::spawn(async move { drop(pipe.write(&[END_OF_TRANSMISSION]).await) }));
        }
    }

    fn signal(&self, signal: i32) -> Outcome<()> {
        let signalled = self.keeper.signal(signal);
        Outcome::later(async move {
            signalled.await.map_err(|error| match Errno::from(error).code {
                Errno::EPERM => Errno::because(
                    Errno::EPERM,
                    format!(
                        "signal {signal} for another user's program; hint: the node's daemon needs \
                         CAP_KILL, see its unit"
                    ),
                ),
                code => Errno::because(code, format!("signal {signal}")),
            })
        })
    }

    fn resize(&self, size: Size) -> Result<()> {
        if !self.has_terminal {
            let what = "the program has no terminal; hint: tty ROWS COLUMNS before exec";
            return Err(Errno::because(Errno::EOPNOTSUPP, what));
        }
        Ok(self.stdout.resize(WindowSize { rows: size.rows, columns: size.columns })?)
    }

    fn kill(&self) {
        self.is_killed.set(true);
        self.killed.ring();
        if let Some(group) = &*self.cgroup.borrow() {
            let _ = group.kill();
        }
        self.keeper.kill();
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.keeper.kill();
    }
}

/// ^D
const END_OF_TRANSMISSION: u8 = 4;
