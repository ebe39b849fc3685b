//! Peers that are met without a door: at a path of this machine, by shared memory; at an address of loopback, by TCP; or over
//! a socket that the program has connected. Who such a peer is the kernel says, or the program knows.

use super::Mixed;
use covey_wire::Peer;
use rustix::net::{AddressFamily, sockopt};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Where two processes of one machine meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// A socket's path: they share memory.
    Path(&'a Path),
    /// An address: they talk by TCP.
    Tcp(SocketAddr),
}

impl Mixed {
    /// Lets processes of this user come to a place. That of TCP is an address of loopback, where port 0 means any.
    pub fn listen_at(&mut self, place: Place<'_>) -> io::Result<()> {
        match place {
            Place::Path(path) => self.sides.shm.listen(path),
            Place::Tcp(address) => {
                self.sides.tcp.stream().listen_at(address)?;
                self.listens_by_tcp = true;
                Ok(())
            }
        }
    }

    /// The address at which it listens by TCP.
    pub fn tcp_address(&mut self) -> Option<SocketAddr> {
        self.sides.tcp.stream().address()
    }

    /// Meets somebody who has come to a place, if somebody has.
    pub fn accept(&mut self) -> io::Result<Option<Peer>> {
        if let Some(near) = self.sides.shm.accept()? {
            return Ok(Some(self.sides.of_near(near)));
        }
        let far = self.sides.tcp.stream().accept();
        Ok(far.map(|far| self.sides.of_far(far)))
    }

    /// Meets the process that listens at a place. By shared memory it waits for the other's [`Mixed::accept`], 5 s at most.
    pub fn connect_to(&mut self, place: Place<'_>) -> io::Result<Peer> {
        Ok(match place {
            Place::Path(path) => {
                let near = self.sides.shm.connect(path)?;
                self.sides.of_near(near)
            }
            Place::Tcp(address) => {
                let far = self.sides.tcp.stream().connect(address)?;
                self.sides.of_far(far)
            }
        })
    }

    /// Meets whoever has the other end of a connected socket and does the same: over a Unix socket by shared memory, over one
    /// of TCP by that.
    pub fn adopt(&mut self, socket: OwnedFd) -> io::Result<Peer> {
        match sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => {
                let near = self.sides.shm.meet(UnixStream::from(socket))?;
                Ok(self.sides.of_near(near))
            }
            AddressFamily::INET | AddressFamily::INET6 => {
                let far = self.sides.tcp.stream().adopt(TcpStream::from(socket))?;
                Ok(self.sides.of_far(far))
            }
            other => {
                let text = format!("it is a socket of address family {}", other.as_raw());
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;
    use crate::os::shm;
    use covey_wire::Transport;
    use covey_wire::transport::{Refused, Sink};
    use std::net::Ipv4Addr;
    use std::thread;
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Heard {
        joined: Vec<Peer>,
        packets: Vec<(Peer, Vec<u8>)>,
    }

    impl Sink for Heard {
        fn joined(&mut self, peer: Peer) {
            self.joined.push(peer);
        }

        fn packet(&mut self, peer: Peer, head: &[u8], _: &[u8]) {
            assert!(self.joined.contains(&peer), "it is told of first");
            self.packets.push((peer, head.to_vec()));
        }

        fn dead(&mut self, _: Peer) {}
    }

    fn end() -> Mixed {
        let shm = shm::Settings { heap_bytes: 1 << 16, peers_max: 4, ..shm::Settings::default() };
        Mixed::new(&Settings { shm, ..Settings::default() }).expect("a transport")
    }

    fn poll(mixed: &mut Mixed, heard: &mut Heard, begun: Instant) {
        mixed.poll(64, heard);
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come true");
    }

    fn say(mixed: &mut Mixed, to: Peer, word: &[u8], heard: &mut Heard) {
        let begun = Instant::now();
        while mixed.send(to, word, 0, |_| ()) == Err(Refused::Full) {
            poll(mixed, heard, begun);
        }
    }

    /// Says a word to whoever is at a place, and hears it again.
    fn talk(place: Place<'_>, word: &[u8]) -> Option<bool> {
        let (mut mixed, mut heard) = (end(), Heard::default());
        let peer = mixed.connect_to(place).expect("somebody is there");
        say(&mut mixed, peer, word, &mut heard);
        let begun = Instant::now();
        while heard.packets.is_empty() {
            poll(&mut mixed, &mut heard, begun);
        }
        assert_eq!(heard.packets, [(peer, word.to_vec())]);
        mixed.is_near(peer)
    }

    #[test]
    fn one_endpoint_has_peers_by_memory_and_by_tcp_and_they_come_at_any_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("meet");
        let (mut mixed, mut heard) = (end(), Heard::default());
        mixed.listen_at(Place::Path(&path)).expect("a socket");
        mixed.listen_at(Place::Tcp((Ipv4Addr::LOCALHOST, 0).into())).expect("a socket");
        let tcp = mixed.tcp_address().expect("it listens");
        let path = &path;
        thread::scope(|scope| {
            let near = scope.spawn(move || talk(Place::Path(path), b"1"));
            let begun = Instant::now();
            while mixed.accept().expect("no error").is_none() {
                poll(&mut mixed, &mut heard, begun);
            }
            // The second of these comes when there is a peer by TCP already; nobody asks who has come by it.
            let far = scope.spawn(move || [b"2", b"3"].map(|word| talk(Place::Tcp(tcp), word)));
            let mut answered = 0;
            while !far.is_finished() || !near.is_finished() {
                poll(&mut mixed, &mut heard, begun);
                while let Some((peer, word)) = heard.packets.get(answered).cloned() {
                    say(&mut mixed, peer, &word, &mut heard);
                    assert_eq!(mixed.is_near(peer), Some(word == b"1"));
                    answered += 1;
                }
            }
            assert_eq!(far.join().expect("it ends"), [Some(false); 2]);
            assert_eq!(near.join().expect("it ends"), Some(true));
        });
        assert_eq!(heard.joined, [0, 1, 2].map(Peer));
        let came = [0; 3].map(|_| mixed.accept().expect("no error"));
        assert_eq!(came, [Some(Peer(1)), Some(Peer(2)), None]);
    }

    #[test]
    fn a_socket_that_was_connected_before_decides_by_what_its_peer_is_reached() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let address = listener.local_addr().expect("an address");
        let tcp = TcpStream::connect(address).expect("a connection");
        let far = listener.accept().expect("it has come").0;
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (mut mixed, mut other) = (end(), end());
        // Two that meet over a Unix socket wait for each other.
        let other = thread::spawn(move || {
            let near = other.adopt(theirs.into()).expect("a peer");
            let far = other.adopt(far.into()).expect("a peer");
            [near, far].map(|peer| other.is_near(peer))
        });
        let near = mixed.adopt(ours.into()).expect("a peer");
        let far = mixed.adopt(tcp.into()).expect("a peer");
        assert_eq!([near, far].map(|peer| mixed.is_near(peer)), [Some(true), Some(false)]);
        assert_eq!(other.join().expect("it ends"), [Some(true), Some(false)]);
        let neither = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        assert!(mixed.adopt(neither.into()).is_err());
    }
}
