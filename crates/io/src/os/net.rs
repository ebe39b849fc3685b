//! Addresses, listeners and connections: TCP and Unix sockets behind one type.
//!
//! An address is written the Plan 9 way, `tcp!HOST!PORT` or `unix!PATH`; who dials `shm!PATH` meets the server at
//! that unix socket and asks it to go on through shared memory. A listener tells of each peer
//! what the kernel vouches for: on a Unix socket the peer's credentials, on a loopback TCP
//! connection the owner of the socket at its other end, otherwise nothing.

pub mod flows;
mod owner;
pub mod pacing;
mod pieces;
mod shared;
mod socket_file;
mod stream;
mod unix;

pub use owner::{listener_owner, socket_owner};
pub use shared::{Shared, ask, welcome};
pub use stream::{FarEnd, Stream};
pub use unix::QuietStream;

use super::credentials;
use rustix::net::sockopt;
pub use socket_file::SocketFile;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `tcp!HOST!PORT`; the host `*` is every interface, to listen on.
    Tcp {
        /// Name or number of the host.
        host: String,
        /// Port number; 0 lets the kernel choose one.
        port: u16,
    },
    /// `unix!PATH`.
    Unix(PathBuf),
    /// `shm!PATH`: shared memory with the server at that unix socket. A listener there takes both.
    Shared(PathBuf),
}

impl Address {
    /// Whether only this machine can reach it: a Unix socket or a loopback host.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) | Address::Shared(_) => true,
            Address::Tcp { host, .. } if host.eq_ignore_ascii_case("localhost") => true,
            Address::Tcp { host, .. } => {
                host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } => write!(f, "tcp!{host}!{port}"),
            Address::Unix(path) => write!(f, "unix!{}", path.display()),
            Address::Shared(path) => write!(f, "shm!{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |fact: &str| AddressError { text: text.to_owned(), fact: fact.to_owned() };
        match text.split_once('!') {
            Some(("tcp", rest)) => {
                let (host, port) = rest.rsplit_once('!').ok_or_else(|| error("has no port"))?;
                if host.is_empty() || host.contains('!') {
                    return Err(error("has no host"));
                }
                let port = port
                    .parse()
                    .map_err(|_| error(&format!("has port {port:?}, not a number up to 65535")))?;
                Ok(Address::Tcp { host: host.to_owned(), port })
            }
            Some(("unix" | "shm", "")) => Err(error("has no path")),
            Some(("unix", path)) => Ok(Address::Unix(path.into())),
            Some(("shm", path)) => Ok(Address::Shared(path.into())),
            Some((net, _)) => Err(error(&format!("names the unknown network {net:?}"))),
            None => Err(error("names no network")),
        }
    }
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    text: String,
    fact: String,
}

impl AddressError {
    /// What to write instead.
    pub fn hint(&self) -> &'static str {
        "write tcp!HOST!PORT, unix!PATH or shm!PATH, such as tcp!127.0.0.1!5640 or unix!/run/covey.sock; quote \
         the ! for your shell"
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address {:?} {}", self.text, self.fact)
    }
}

impl std::error::Error for AddressError {}

/// What is known of a peer before it has said anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// For logs: `unix` with the process id, or the peer's TCP address.
    pub name: String,
    /// The user that the kernel vouches for.
    pub uid: Option<u32>,
    /// The process that connected, on a Unix socket.
    pub pid: Option<u32>,
    /// Whether the peer is on this machine.
    pub loopback: bool,
    /// The peer's address, of a TCP connection.
    pub address: Option<IpAddr>,
}

/// A listening socket. A Unix socket's file is removed with it.
#[derive(Debug)]
pub struct Listener {
    /// Goes before the socket does.
    file: Option<SocketFile>,
    socket: Socket,
    address: Address,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens on `address`; a Unix socket's file gets the permission bits `mode` (0o666 where every
    /// local user may connect and the peer's credentials decide). Must be called within a runtime.
    ///
    /// The error names the address. Its kind is `AddrInUse` when another process listens there.
    pub async fn bind(address: &Address, mode: u32) -> io::Result<Listener> {
        let bound = match address {
            Address::Tcp { host, port } => bind_tcp(host, *port).await,
            Address::Unix(path) | Address::Shared(path) => bind_unix(path, mode),
        };
        bound.map_err(|error| explain(&format!("cannot listen on {address}"), error))
    }

    /// Where it listens, with the port that the kernel chose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The same within the runtime that this is called in, which hears of its connections from now on.
    pub fn resettle(self) -> io::Result<Listener> {
        let socket = match self.socket {
            Socket::Tcp(listener) => Socket::Tcp(TcpListener::from_std(listener.into_std()?)?),
            Socket::Unix(listener) => Socket::Unix(UnixListener::from_std(listener.into_std()?)?),
        };
        Ok(Listener { socket, ..self })
    }

    /// Takes the socket's file, which is then removed with that instead: for whoever has another accept.
    pub fn take_file(&mut self) -> Option<SocketFile> {
        self.file.take()
    }

    /// The next connection. Errors are those of one connection or a lack of descriptors: the caller
    /// logs them, waits a little and goes on.
    pub async fn accept(&self) -> io::Result<(Stream, PeerInfo)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                tune(&stream)?;
                let info = tcp_peer(peer, stream.local_addr()?);
                Ok((Stream::Tcp(stream), info))
            }
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                widen(&stream);
                let info = unix_peer(&stream)?;
                Ok((Stream::Unix(QuietStream::new(stream)?), info))
            }
        }
    }
}

/// Connects to `address`, trying each address of a host name, within `patience`.
///
/// The error names the address; its kind tells a refusal from a time-out.
pub async fn connect(address: &Address, patience: Duration) -> io::Result<Stream> {
    let attempt = async {
        match address {
            Address::Tcp { host, port } => connect_tcp(host, *port).await,
            Address::Unix(path) => connect_unix(path).await,
            Address::Shared(path) => match shared::ask(connect_unix(path).await?).await? {
                Stream::Shared(shared) => Ok(Stream::Shared(shared)),
                _ => Err(io::Error::new(io::ErrorKind::PermissionDenied, NOT_SHARED)),
            },
        }
    };
    let connected = within(patience, attempt).await;
    connected.map_err(|error| explain(&format!("cannot connect to {address}"), error))
}

async fn within<T>(
    patience: Duration,
    attempt: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {patience:?}"));
    tokio::time::timeout(patience, attempt).await.map_err(late).flatten()
}

async fn connect_unix(path: &Path) -> io::Result<Stream> {
    let stream = UnixStream::connect(path).await?;
    widen(&stream);
    QuietStream::new(stream).map(Stream::Unix)
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                tune(&stream)?;
                return Ok(Stream::Tcp(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn bind_tcp(host: &str, port: u16) -> io::Result<Listener> {
    let addresses: Vec<SocketAddr> = match host {
        "*" => vec![(std::net::Ipv6Addr::UNSPECIFIED, port).into(), ([0, 0, 0, 0], port).into()],
        host => tokio::net::lookup_host((host, port)).await?.collect(),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match listen_tcp(address) {
            Ok(listener) => {
                let port = listener.local_addr()?.port();
                let address = Address::Tcp { host: host.to_owned(), port };
                return Ok(Listener { file: None, socket: Socket::Tcp(listener), address });
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(io::Error::new(error.kind(), format!("port {port} is in use")));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// No delay for small messages, and a dead machine is noticed although nobody writes to it.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    // Keepalive is not asked while something is on its way: without this a peer that vanished in the
    // middle of an answer would be waited for a quarter of an hour.
    Ok(sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX.as_millis() as u32)?)
}

/// Room for a large message: with Linux's own 208 KiB each megabyte would cost both sides five
/// sleeps. TCP's buffers grow by themselves. A system that allows less gives what it allows.
fn widen(stream: &UnixStream) {
    if sockopt::set_socket_send_buffer_size_force(stream, UNIX_BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(stream, UNIX_BUFFER_BYTES);
    }
}

fn tcp_peer(peer: SocketAddr, local: SocketAddr) -> PeerInfo {
    let loopback = peer.ip().to_canonical().is_loopback();
    let uid = if loopback { socket_owner(peer, local) } else { None };
    PeerInfo {
        name: format!("tcp!{}!{}", peer.ip().to_canonical(), peer.port()),
        uid,
        pid: None,
        loopback,
        address: Some(peer.ip()),
    }
}

fn unix_peer(stream: &UnixStream) -> io::Result<PeerInfo> {
    let peer = credentials::peer(stream)?;
    let pid = peer.pid.and_then(|pid| u32::try_from(pid).ok());
    let name = pid.map_or("unix".to_owned(), |pid| format!("unix!pid {pid}"));
    Ok(PeerInfo { name, uid: Some(peer.uid), pid, loopback: true, address: None })
}

fn bind_unix(path: &Path, mode: u32) -> io::Result<Listener> {
    if let Some(parent) = path.parent() {
        // /run is empty after a boot, and without systemd nobody makes a directory there. Why it cannot be made, or that
        // more than it is missing, the bind says.
        let _ = fs::DirBuilder::new().mode(0o755).create(parent);
    }
    SocketFile::clear(path)?;
    let socket = unix_socket()?;
    let name = rustix::net::SocketAddrUnix::new(path).map_err(|error| match error {
        rustix::io::Errno::NAMETOOLONG => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path is longer than the 107 bytes that a socket may have",
        ),
        error => error.into(),
    })?;
    rustix::net::bind(&socket, &name)?;
    // Before listening, so that nobody connects under wider permissions than were asked for.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG as i32)?;
    let listener = UnixListener::from_std(socket.into())?;
    let address = Address::Unix(path.to_owned());
    Ok(Listener { file: Some(SocketFile::of(path)?), socket: Socket::Unix(listener), address })
}

fn unix_socket() -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// The same error with what was tried before its own text.
fn explain(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {}", error_text(&error)))
}

/// An error's text in this project's style, without Rust's "(os error 13)".
pub fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Said where somebody insists.
const NOT_SHARED: &str = "the server does not share memory: it belongs to another user, or does so with 256 others; \
                          unix!PATH works";
/// What a Unix socket holds for a peer that is behind.
const UNIX_BUFFER_BYTES: usize = 2 << 20;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Silence before the peer's machine is probed. With what follows: a machine that vanished is given up within 10 s, also
/// when something was sent to it just before.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
/// Time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Probes without an answer before the connection is given up.
const KEEPALIVE_COUNT: u32 = 2;
/// How long the peer may leave unacknowledged what was sent to it.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(6);

#[cfg(test)]
mod tests;
