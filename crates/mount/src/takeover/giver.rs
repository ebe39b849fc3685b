//! The process that has the mount: it listens for successors, and hands over to one that can take it all.

use super::message::{About, FORMATS, MAGIC, Message, common, reason};
use super::state::{Blob, Many};
use super::talk::Talk;
use crate::handlers::Session;
use crate::transport::{Gate, Left};
use covey_io::os::credentials;
use covey_io::os::process::Process;
use covey_stripe::client::Fs;
use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};

/// A mount that may be taken over.
pub struct Offer {
    session: Arc<Session<Fs>>,
    fs: Fs,
    gate: Arc<Gate>,
    about: About,
    /// A successor is at it.
    is_busy: Cell<bool>,
    talks: Cell<usize>,
    passed_on: Box<dyn Fn()>,
}

impl Offer {
    /// `passed_on` is called when the mount is another process's.
    pub fn new(
        session: Arc<Session<Fs>>,
        fs: Fs,
        gate: Arc<Gate>,
        about: About,
        passed_on: impl Fn() + 'static,
    ) -> Rc<Offer> {
        let (is_busy, talks, passed_on) = (Cell::default(), Cell::default(), Box::new(passed_on));
        Rc::new(Offer { session, fs, gate, about, is_busy, talks, passed_on })
    }

    /// Listens for as long as the process has the mount.
    pub async fn listen(self: Rc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok(come) => self.clone().meet(come),
                Err(error) => {
                    tracing::warn!("takeover: cannot accept a successor: {error}");
                    tokio::time::sleep(PATIENCE).await;
                }
            }
        }
    }

    fn meet(self: Rc<Self>, (stream, _): (UnixStream, SocketAddr)) {
        let own = rustix::process::geteuid().as_raw();
        let is_allowed = |uid| uid == own || uid == 0;
        let is_known = credentials::peer(&stream).is_ok_and(|peer| is_allowed(peer.uid));
        if !is_known || self.talks.get() >= TALKS_MAX {
            return;
        }
        self.talks.set(self.talks.get() + 1);
        tokio::task::spawn_local(async move {
            let mut talk = Talk::new(stream);
            if let Err(why) = self.converse(&mut talk).await {
                tracing::warn!("takeover: {why}; the mount goes on here");
                let refused = Message::Refused { reason: reason(&why) };
                let _ = talk.say(&refused, PATIENCE).await;
            }
            self.talks.set(self.talks.get() - 1);
        });
    }

    async fn converse(&self, talk: &mut Talk) -> Result<(), String> {
        let format = match hear(talk, PATIENCE).await? {
            Message::Hello { magic: MAGIC, oldest, newest, .. } => {
                common(oldest, newest).ok_or_else(|| {
                    let (from, to) = FORMATS.into_inner();
                    format!(
                        "the mount hands over in formats {from} to {to}, the successor takes {oldest} to {newest}"
                    )
                })?
            }
            other => return Err(odd(&other)),
        };
        let version = env!("CARGO_PKG_VERSION").into();
        let (pid, about) = (std::process::id(), self.about.clone());
        let welcome = Message::Welcome { format, pid, version, about };
        talk.say(&welcome, PATIENCE).await.map_err(went)?;
        match talk.hear(PATIENCE).await {
            Ok(Message::Begin {}) => {}
            Ok(other) => return Err(odd(&other)),
            // It only wanted to know, or has thought better of it.
            Err(_) => return Ok(()),
        }
        if self.is_busy.replace(true) {
            return Err("another takeover of it is under way".into());
        }
        let given = self.give(talk).await;
        match given {
            Ok(()) => {
                (self.passed_on)();
                // It puts itself in the place of this process, and closes.
                talk.ends(PATIENCE).await;
                self.gate.give();
            }
            Err(_) => {
                self.gate.open();
                self.is_busy.set(false);
            }
        }
        given
    }

    async fn give(&self, talk: &mut Talk) -> Result<(), String> {
        self.shut().await?;
        let silent = |_| "the servers do not answer".to_owned();
        let settled = tokio::time::timeout(SETTLE_LIMIT, self.session.settle_for_handover());
        settled.await.map_err(silent)??;
        let left = self.gate.leave(PATIENCE).await;
        let mut left = left.map_err(|error| format!("cannot pass the device on: {error}"))?;
        // A device on which nothing waits is as good as any other.
        left.sort_by_key(|left| left.messages.is_empty());
        left.truncate(left.iter().filter(|left| !left.messages.is_empty()).count().max(1));
        let lent = tokio::time::timeout(SETTLE_LIMIT, self.fs.lend()).await.map_err(silent)?;
        let mut handover = lent.map_err(|error| error.to_string())?;
        let lent = async {
            let mut state = self.session.hand_over();
            handover.opens = state.opens();
            let blobs = |left: &Left| left.messages.iter().cloned().map(Blob).collect();
            state.left = left.iter().map(blobs).collect::<Many<_>>();
            state.session = Blob(handover.encode().into());
            let devices: Vec<_> = left.iter().map(|left| left.device.as_fd()).collect();
            let (count, state) = (devices.len() as u16, state.encode());
            let message = Message::State { devices: count, state };
            talk.say_with(&message, &devices, STATE_LIMIT).await.map_err(went)?;
            match talk.hear(READY_LIMIT).await {
                Ok(Message::Ready {}) => self.go(talk).await,
                Ok(Message::Refused { reason }) => Err(format!("the successor gave up: {reason}")),
                Ok(other) => Err(odd(&other)),
                Err(error) => {
                    end_if_late(talk, &error).await;
                    Err(went(error))
                }
            }
        };
        let given = lent.await;
        if given.is_err() {
            self.fs.take_back().await;
        }
        given
    }

    /// The successor has all. It is not gone on here unless it is certain that it does not serve: it says that it will before
    /// it does, and ends where it cannot say so.
    async fn go(&self, talk: &mut Talk) -> Result<(), String> {
        talk.say(&Message::Go {}, PATIENCE).await.map_err(went)?;
        let said = match talk.hear(MINE_LIMIT).await {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                // From here on it cannot say so any more; it may have done so just now.
                let how = rustix::net::Shutdown::Read;
                let _ = rustix::net::shutdown(talk.stream(), how);
                let said = talk.hear(PATIENCE).await;
                if said.is_err() {
                    end_if_late(talk, &error).await;
                }
                said
            }
            said => said,
        };
        match said {
            Ok(Message::Mine {}) => Ok(()),
            Ok(other) => Err(odd(&other)),
            Err(error) => Err(went(error)),
        }
    }

    /// Has no request in progress, but for waits. What is in progress may need what is in the queue, so the gate is opened
    /// between the tries.
    async fn shut(&self) -> Result<(), String> {
        for _ in 0..TRIES {
            self.gate.shut();
            if self.gate.is_still(STILL_LIMIT).await && self.session.is_idle() {
                return Ok(());
            }
            self.gate.open();
            tokio::time::sleep(BETWEEN).await;
        }
        Err("requests wait for servers that do not answer, or it is being unmounted".into())
    }
}

/// A successor that is stuck, or stopped, might come to itself later and greet the server in the session: it ends before
/// that is used again.
async fn end_if_late(talk: &Talk, error: &io::Error) {
    let pid = credentials::peer(talk.stream()).ok().and_then(|peer| peer.pid);
    let process = pid.and_then(|pid| Process::now(pid.cast_unsigned()));
    let Some(process) = process.filter(|_| error.kind() == io::ErrorKind::TimedOut) else { return };
    tracing::warn!("takeover: ending process {}, which is late", process.pid);
    let _ = process.signal(rustix::process::Signal::KILL);
    let end = std::time::Instant::now() + PATIENCE;
    while process.is_alive() && std::time::Instant::now() < end {
        tokio::time::sleep(BETWEEN / 10).await;
    }
}

async fn hear(talk: &mut Talk, limit: Duration) -> Result<Message, String> {
    talk.hear(limit).await.map_err(went)
}

fn went(error: io::Error) -> String {
    format!("the successor: {error}")
}

fn odd(message: &Message) -> String {
    format!("the successor said {} where something else is due", message.name())
}

/// Successors that are spoken to at a time.
const TALKS_MAX: usize = 16;

/// A successor that is there answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to read the state.
const STATE_LIMIT: Duration = Duration::from_secs(20);
/// How long it may take to connect to the servers and to open what was open.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// How long one that was told to go may be held up, before it may not any more.
const MINE_LIMIT: Duration = Duration::from_secs(20);

/// How long the servers may take to hear what was held back.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// How often, for how long and after which pauses it is tried to have nothing in progress.
const TRIES: usize = 4;
const STILL_LIMIT: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(200);
