//! The world of a fetch: connections, the file, and the listener at which others are served.

use crate::file::ImageFile;
use crate::options::Options;
use crate::progress::Progress;
use covey_io::os::net::{Address, Listener, Stream, connect, error_text, welcome};
use covey_io::os::{random, run};
use covey_launch::image::{
    Catalogue, Content, Event, Host, Image, Images, LocalFuture, Source, Sum, TOKEN_USER, TREE,
    World,
};
use covey_ninep::client::{self, Conn};
use covey_ninep::server::{self, Door, Session, Share};
use covey_ninep::tree::{Errno, Peer, Result};
use covey_wire::Name;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet, spawn_local};

/// See [`Host`].
pub struct BootHost {
    from: Address,
    token: Option<[u8; 32]>,
    output: PathBuf,
    port: Option<u16>,
    progress: RefCell<Progress>,
    /// The listener for the image that is being fetched.
    server: RefCell<Option<AbortHandle>>,
}

impl BootHost {
    pub fn new(options: &Options) -> BootHost {
        BootHost {
            from: options.from.clone(),
            token: options.token,
            output: options.output.clone(),
            port: options.port,
            progress: RefCell::new(Progress::new(options.quiet)),
            server: RefCell::default(),
        }
    }

    /// Others reach us only where the server is reached, and have to prove the token there.
    fn listen_at(&self) -> Option<Address> {
        // Whoever has no token has nothing to serve beyond this machine with.
        let host = if self.from.is_local() { "127.0.0.1" } else { self.token.map(|_| "*")? };
        Some(Address::Tcp { host: host.to_owned(), port: self.port? })
    }
}

impl Host for BootHost {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) -> LocalFuture<()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn dial(&self, source: &Source) -> LocalFuture<Result<Conn>> {
        let address = match source {
            Source::First => self.from.clone(),
            Source::Volunteer { host, port } => Address::Tcp { host: host.clone(), port: *port },
        };
        // What a local server knows of us is who we are; only the first is one.
        let is_vouched = *source == Source::First && address.is_local() && self.token.is_none();
        Box::pin(dial(address, self.token, is_vouched))
    }

    fn prepare(&self, sum: &Sum) -> LocalFuture<Result<Rc<dyn Content>>> {
        let (path, bytes) = (self.output.clone(), sum.bytes);
        Box::pin(async move {
            let made = tokio::task::spawn_blocking(move || ImageFile::create(&path, bytes)).await;
            let made = made.map_err(|error| Errno::because(Errno::EIO, error.to_string()))?;
            Ok(Rc::new(made.map_err(Errno::from)?) as Rc<dyn Content>)
        })
    }

    fn serve(&self, name: &Name, arch: &Name, image: &Rc<Image>) -> LocalFuture<Option<u16>> {
        if let Some(before) = self.server.borrow_mut().take() {
            before.abort();
        }
        let Some(address) = self.listen_at() else { return Box::pin(async { None }) };
        let archs = [(arch.clone(), image.clone())].into_iter().collect();
        let catalogue: Catalogue = [(name.clone(), archs)].into_iter().collect();
        let tree = Rc::new(Images::of_volunteer(Clock, Rc::new(catalogue)));
        let (accepting, accepted) = tokio::sync::oneshot::channel();
        let token = self.token;
        let task = spawn_local(async move {
            let Ok(listener) = Listener::bind(&address, 0o600).await else { return };
            let Address::Tcp { port, .. } = listener.address() else { return };
            let _ = accepting.send(*port);
            accept(listener, tree, token).await;
        });
        *self.server.borrow_mut() = Some(task.abort_handle());
        // One that cannot listen fetches all the same.
        Box::pin(async move { accepted.await.ok() })
    }

    fn tell(&self, event: Event) {
        self.progress.borrow_mut().tell(event);
    }
}

async fn dial(address: Address, token: Option<[u8; 32]>, is_vouched: bool) -> Result<Conn> {
    let broken = |error: std::io::Error| Errno::because(Errno::EIO, error_text(&error));
    let stream = connect(&address, CONNECT_PATIENCE).await.map_err(broken)?;
    let config = client::Config { heartbeat_idle: true, ..client::Config::default() };
    let (conn, machine) = client::pair(config, Instant::now());
    spawn_local(async move {
        // Whoever waits for an answer hears of its end.
        let _ = run::run(machine, stream).await;
    });
    conn.version().await?;
    let nonce = random::nonce().map_err(Errno::from)?;
    let (uname, uid) = if is_vouched {
        let uid = rustix::process::geteuid().as_raw();
        (uid.to_string(), Some(uid))
    } else {
        (TOKEN_USER.to_owned(), None)
    };
    conn.auth_and_attach(0, uname, uid, TREE, token, nonce).await?;
    Ok(conn)
}

/// Serves everyone who has the token.
async fn accept(listener: Listener, tree: Rc<Images>, token: Option<[u8; 32]>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, info)) => {
                    let peer = Peer { name: info.name, uid: info.uid, has_key: false };
                    connections.spawn_local(serve(stream, peer, tree.clone(), token));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: Stream, peer: Peer, tree: Rc<Images>, token: Option<[u8; 32]>) {
    let Ok(nonce) = random::nonce() else { return };
    let attach_by = Instant::now() + ATTACH_PATIENCE;
    let config = server::Config {
        key: token.map(Into::into),
        nonce,
        require_key: token.is_some(),
        attach_by: Some(attach_by),
        ..server::Config::default()
    };
    let Ok(Ok(stream)) = tokio::time::timeout_at(attach_by.into(), welcome(stream)).await else {
        return;
    };
    // A reader that fails has other sources.
    let session = Session::new(tree, peer, config).behind(Rc::new(Modest));
    let _ = run::run(session, stream).await;
}

/// A machine that boots has little memory: a reader who asks and never reads holds a little of it.
struct Modest;

impl Door for Modest {
    fn admit(&self, _: &Peer) -> Result<Rc<Share>> {
        Ok(Rc::new(Share::new(READER_BYTES_MAX)))
    }
}

struct Clock;

impl World for Clock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) -> LocalFuture<()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn report(&self, _: &str) {}
}

/// How long an address may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// How long a reader may take to attach.
const ATTACH_PATIENCE: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What is held for one reader: as much as one asks for ahead.
const READER_BYTES_MAX: usize = 8 << 20;
/// Most readers, and strangers, at a time.
const CONNECTIONS_MAX: usize = 32;
