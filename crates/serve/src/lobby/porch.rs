//! The thread of strangers: it accepts connections, and talks to those whom nobody knows until they
//! ask for an attach that may be granted.
//!
//! What strangers do costs only this thread's time. The thread of the tree hears of a connection when the
//! kernel vouches for its user as one without limits, or its first attach has come: its clients wait
//! for each other, and for no flood of strangers.

use super::{ATTACH_PATIENCE, Guest, Limits, Lobby};
use crate::accept::Config;
use bytes::BytesMut;
use covey_io::os::net::{Listener, PeerInfo, Stream, error_text, welcome};
use covey_io::os::{place, random, run};
use covey_ninep::message::MSIZE_DEFAULT;
use covey_ninep::server::{self, Begun, Preauth};
use covey_ninep::tree::Peer;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet, spawn_local};

/// Somebody who comes in.
pub struct Arrival {
    pub info: PeerInfo,
    /// To be resettled where it is served.
    pub stream: Stream,
    /// What was said, and what was received behind that. None of somebody who is trusted from the start.
    pub begun: Option<(Begun, BytesMut)>,
}

/// The way to the thread, which ends with it.
#[derive(Clone)]
pub struct Porch {
    entrances: mpsc::UnboundedSender<Entrance>,
    /// How many of a listener may wait for the tree's thread.
    arrivals_max: usize,
}

/// One listener, and where those go who come in there.
struct Entrance {
    listener: Listener,
    config: Config,
    arrivals: mpsc::Sender<Arrival>,
}

impl Porch {
    /// Starts the thread.
    pub(super) fn open(limits: Limits, own_uid: u32) -> io::Result<Porch> {
        let (entrances, incoming) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            place::everywhere();
            let lobby = Lobby::limited(limits, own_uid);
            LocalSet::new().block_on(&runtime, serve(lobby, incoming));
        };
        std::thread::Builder::new().name("strangers".into()).spawn(serve)?;
        Ok(Porch { entrances, arrivals_max: ARRIVALS_MAX.min(limits.strangers) })
    }

    /// Accepts there, until the receiver of those who come in is dropped.
    pub fn accept(&self, listener: Listener, config: Config) -> mpsc::Receiver<Arrival> {
        let (arrivals, receiver) = mpsc::channel(self.arrivals_max);
        // Where the thread has ended, so has the receiver's channel.
        let _ = self.entrances.send(Entrance { listener, config, arrivals });
        receiver
    }
}

async fn serve(lobby: Rc<Lobby>, mut incoming: mpsc::UnboundedReceiver<Entrance>) {
    while let Some(entrance) = incoming.recv().await {
        spawn_local(accept(entrance, lobby.clone()));
    }
}

async fn accept(entrance: Entrance, lobby: Rc<Lobby>) {
    let Entrance { listener, config, arrivals } = entrance;
    let listener = match listener.resettle() {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("cannot accept any more: {}", error_text(&error)),
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = arrivals.closed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, info)) => {
                    let guest = lobby.enter(&info);
                    let task = meet(stream, info, config.clone(), guest.clone(), arrivals.clone());
                    guest.runs_as(connections.spawn_local(task));
                }
                Err(error) => {
                    // Out of file descriptors, or a peer that went at once: no reason to end.
                    tracing::warn!("{}: accept: {}", listener.address(), error_text(&error));
                    // Where nobody waits for those who come in, there is no one to come in for.
                    if tokio::time::timeout(ACCEPT_PAUSE, arrivals.closed()).await.is_ok() {
                        return;
                    }
                }
            },
            // Only to forget it: what became of a connection was logged there.
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Takes a connection to its first attach.
async fn meet(
    stream: Stream,
    info: PeerInfo,
    config: Config,
    guest: Rc<Guest>,
    arrivals: mpsc::Sender<Arrival>,
) {
    let arrival = if guest.is_trusted_by_kernel(&info) {
        Arrival { info, stream, begun: None }
    } else {
        let attach_by = Instant::now() + ATTACH_PATIENCE;
        let Some(stream) = greet(welcome(stream), attach_by, &guest).await else { return };
        let Some(config) = session(&config, attach_by) else { return };
        let peer = Peer { name: info.name.clone(), uid: info.uid, has_key: false };
        let machine = Preauth::before_attach(peer, config).behind(guest.clone());
        match run::run_until(machine, stream, Preauth::has_begun).await {
            Ok(Some((machine, stream, input))) => {
                let begun = machine.into_begun().map(|begun| (begun, input));
                Arrival { info, stream, begun }
            }
            Ok(None) => return guest.ended(None),
            Err(blame) => return guest.ended(Some(&blame.to_string())),
        }
    };
    // Nobody takes it when the server ends.
    let _ = arrivals.send(arrival).await;
}

/// The stream of a connection that begins in time. Otherwise None, and the guest's end is logged.
pub async fn greet(
    begin: impl Future<Output = io::Result<Stream>>,
    attach_by: Instant,
    guest: &Guest,
) -> Option<Stream> {
    match tokio::time::timeout_at(attach_by.into(), begin).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => guest.ended(Some(&format!("cannot begin: {}", error_text(&error)))),
        Err(_) => guest.ended(Some("it has said nothing")),
    }
    None
}

/// How a new connection is treated. None without random bytes, which is logged.
pub fn session(config: &Config, attach_by: Instant) -> Option<server::Config> {
    let nonce = random::nonce()
        .inspect_err(|error| tracing::error!("no random bytes for a connection: {error}"))
        .ok()?;
    let key = config.keys.as_ref().map(|keys| keys.now());
    let guest = config.guest.zip(key).map(|(guest, key)| guest(key));
    let (require_key, attach_by) = (config.require_key, Some(attach_by));
    let msize = config.msize.unwrap_or(MSIZE_DEFAULT);
    Some(server::Config { msize, key, nonce, require_key, guest, attach_by })
}

/// Those who have asked for their first attach and wait for the tree's thread; the others wait before that.
const ARRIVALS_MAX: usize = 64;
/// How long nothing is accepted after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
