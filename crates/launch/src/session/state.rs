//! A session: what was written for its program, and how far it is.

use super::host::{Job, Place, Program, Size, Which};
use super::root::Sessions;
use super::transfer::Transfer;
use super::words;
use crate::spawn::Failure;
use crate::spawn::message::{Hash, Turn};
use covey_ninep::control::refuse;
use covey_ninep::tree::{Bell, Errno, Outcome, Result, User};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// One session. Its files are in `files.rs`, its commands in `commands.rs`.
pub struct Session {
    /// Its name in the tree.
    pub number: u64,
    /// Whose it is, and as whom its program runs.
    pub owner: Rc<User>,
    pub(super) place: Rc<dyn Place>,
    pub(super) argv: RefCell<Vec<u8>>,
    pub(super) env: RefCell<Vec<u8>>,
    pub(super) id: RefCell<String>,
    pub(super) terminal: Cell<Option<Size>>,
    pub(super) directory: RefCell<Option<String>>,
    pub(super) is_persistent: Cell<bool>,
    /// Somebody has `exec` open for writing.
    pub(super) has_writer: Cell<bool>,
    /// Spawns from here that are under way, and what rings when one has ended.
    pub(super) clones: Cell<usize>,
    pub(super) cloned: Bell,
    /// Who got no copy in the last of them.
    pub(super) failures: RefCell<Vec<Failure>>,
    /// What comes from another node.
    pub(super) incoming: RefCell<Weak<Transfer>>,
    /// The last attempt to send it, and whether its files are being made now.
    pub(super) turn: RefCell<Option<Turn>>,
    pub(super) is_receiving: Cell<bool>,
    pub(super) received: Bell,
    /// Of what came from another node, when all of it is here.
    pub(super) sum: Cell<Option<Hash>>,
    /// Of what comes from another node some is missing.
    pub(super) is_partial: Cell<bool>,
    state: RefCell<State>,
    /// Rings when the state changes.
    changed: Bell,
    /// Fids that have one of its files open.
    holds: Cell<usize>,
    all: Weak<dyn Sessions>,
}

/// How far a session is.
#[derive(Clone)]
pub enum State {
    /// Its program is being brought together.
    Initializing,
    /// Its program is being started.
    Starting,
    /// Its program runs.
    Running(Rc<dyn Job>),
    /// Its program has ended with this wait status. What it started may still run.
    Finished(Rc<dyn Job>, i32),
    /// It is gone; who has a file of it open finds nothing more.
    Wiped,
}

impl State {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            State::Initializing => "initializing",
            State::Starting => "starting",
            State::Running(_) => "running",
            State::Finished(..) => "finished",
            State::Wiped => "wiped",
        }
    }
}

impl Session {
    pub(super) fn new(
        number: u64,
        owner: Rc<User>,
        place: Rc<dyn Place>,
        all: Weak<dyn Sessions>,
    ) -> Rc<Session> {
        Rc::new(Session {
            number,
            owner,
            place,
            argv: RefCell::default(),
            env: RefCell::default(),
            id: RefCell::default(),
            terminal: Cell::default(),
            directory: RefCell::default(),
            is_persistent: Cell::new(false),
            has_writer: Cell::new(false),
            clones: Cell::new(0),
            cloned: Bell::default(),
            failures: RefCell::default(),
            incoming: RefCell::default(),
            turn: RefCell::default(),
            is_receiving: Cell::new(false),
            received: Bell::default(),
            sum: Cell::default(),
            is_partial: Cell::new(false),
            state: RefCell::new(State::Initializing),
            changed: Bell::default(),
            holds: Cell::new(0),
            all,
        })
    }

    /// How far it is now.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// The id of the job that it is a part of, as written to `id`.
    pub fn id(&self) -> String {
        self.id.borrow().clone()
    }

    pub(super) fn text_bytes(&self) -> usize {
        self.argv.borrow().len() + self.env.borrow().len()
    }

    /// Whether its user may have a text of `bytes` bytes in place of one of `before`.
    pub(super) fn check_text(&self, before: usize, bytes: u64) -> Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.all.upgrade().map_or(Ok(()), |all| all.check_text(self.owner.uid, before, bytes))
    }

    fn become_(&self, state: State) {
        // Dropped when nothing is borrowed: it may be the last to hold its job.
        let _before = self.state.replace(state);
        self.changed.ring();
    }

    /// EINVAL unless its program is still being brought together.
    pub(super) fn check_new(&self) -> Result<()> {
        match &*self.state.borrow() {
            State::Initializing => Ok(()),
            State::Wiped => Err(gone()),
            other => refuse(format!("the session is {}; hint: make another one", other.word())),
        }
    }

    /// Its job, as soon as there is one.
    pub(super) fn job(self: &Rc<Self>) -> impl Future<Output = Result<Rc<dyn Job>>> + use<> {
        let session = self.clone();
        self.changed.wait(move || match &*session.state.borrow() {
            State::Initializing | State::Starting => None,
            State::Running(job) | State::Finished(job, _) => Some(Ok(job.clone())),
            State::Wiped => Some(Err(gone())),
        })
    }

    /// The wait status of its program, as soon as it has ended.
    pub fn status(self: &Rc<Self>) -> impl Future<Output = Result<i32>> + use<> {
        let session = self.clone();
        self.changed.wait(move || match &*session.state.borrow() {
            State::Finished(_, status) => Some(Ok(*status)),
            State::Wiped => Some(Err(gone())),
            _ => None,
        })
    }

    /// The job of a program that runs; EINVAL where none does.
    pub(super) fn running(&self) -> Result<Rc<dyn Job>> {
        match &*self.state.borrow() {
            State::Running(job) => Ok(job.clone()),
            State::Wiped => Err(gone()),
            other => refuse(format!("no program runs: the session is {}", other.word())),
        }
    }

    /// Starts a program; after the spawns that are under way.
    pub(super) fn start(self: &Rc<Self>, which: Which) -> Outcome<()> {
        if self.clones.get() == 0 {
            return self.start_now(which);
        }
        let session = self.clone();
        Outcome::later(async move {
            let cloning = session.clone();
            session.cloned.wait(move || (cloning.clones.get() == 0).then_some(())).await;
            session.start_now(which).wait().await
        })
    }

    fn start_now(self: &Rc<Self>, which: Which) -> Outcome<()> {
        let program = match self.program(which) {
            Ok(program) => program,
            Err(error) => return Err(error).into(),
        };
        self.become_(State::Starting);
        let weak = Rc::downgrade(self);
        let ended = Box::new(move |status| {
            if let Some(session) = weak.upgrade() {
                session.ended(status);
            }
        });
        let starting = self.place.start(program, ended);
        let guard = Starting(self.clone());
        match starting {
            Outcome::Now(started) => guard.done(started).into(),
            Outcome::Later(started) => Outcome::later(async move { guard.done(started.await) }),
        }
    }

    fn program(&self, which: Which) -> Result<Program> {
        self.check_new()?;
        if which == Which::Copied && self.place.program_bytes().is_none() {
            let what = "nothing was written to exec; hint: copy a program there, or say exec PATH";
            return Err(Errno::because(Errno::ENOENT, what));
        }
        if self.has_writer.get() {
            return Err(Errno::because(Errno::EBUSY, "exec is still open for writing"));
        }
        if self.is_partial.get() {
            let what = "only a part of the session has come from the node that sends it";
            return Err(Errno::because(Errno::EBUSY, what));
        }
        let mut argv = words::parse("argv", &self.argv.borrow())?;
        if argv.is_empty() {
            argv.push(which.name().as_bytes().to_vec());
        }
        let defaults = self.all.upgrade().map(|all| all.env()).unwrap_or_default();
        let mut env = words::environment(&defaults, &self.env.borrow())?;
        // So that what comes of the program can be told from other processes.
        env.push(format!("XCPUSID={}", self.number).into());
        env.push(format!("XCPUJID={}", self.id()).into());
        Ok(Program {
            which,
            argv,
            env,
            directory: self.directory.borrow().clone(),
            terminal: self.terminal.get(),
            user: self.owner.clone(),
        })
    }

    fn ended(&self, status: i32) {
        let job = match &*self.state.borrow() {
            State::Running(job) => job.clone(),
            _ => return,
        };
        self.become_(State::Finished(job, status));
    }

    /// Ends it: its processes are killed, its files removed, its name is gone.
    pub fn wipe(&self) {
        let job = match &*self.state.borrow() {
            State::Running(job) | State::Finished(job, _) => Some(job.clone()),
            State::Wiped => return,
            State::Initializing | State::Starting => None,
        };
        self.become_(State::Wiped);
        if let Some(job) = job {
            job.kill();
        }
        self.place.remove();
        self.argv.take();
        self.env.take();
        if let Some(all) = self.all.upgrade() {
            all.forget(self.number);
        }
    }

    /// Keeps it until what this answers is dropped; a normal session ends with the last of them.
    pub(super) fn hold(self: &Rc<Self>) -> Hold {
        self.holds.set(self.holds.get() + 1);
        Hold(self.clone())
    }
}

/// A program on its way from `Starting`: whoever asked for it may go before it has started.
struct Starting(Rc<Session>);

impl Starting {
    fn done(self, started: Result<Rc<dyn Job>>) -> Result<()> {
        let session = &self.0;
        let is_wiped = matches!(*session.state.borrow(), State::Wiped);
        match started {
            Ok(job) if is_wiped => {
                job.kill();
                Err(gone())
            }
            Ok(job) => {
                session.become_(State::Running(job));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if matches!(*self.0.state.borrow(), State::Starting) {
            self.0.become_(State::Initializing);
        }
    }
}

/// An open file of a session.
pub(super) struct Hold(Rc<Session>);

impl Drop for Hold {
    fn drop(&mut self) {
        let session = &self.0;
        session.holds.set(session.holds.get() - 1);
        if session.holds.get() == 0 && !session.is_persistent.get() {
            session.wipe();
        }
    }
}

pub(super) fn gone() -> Errno {
    Errno::because(Errno::ESTALE, "the session was wiped")
}
