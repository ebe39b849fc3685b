//! TCP connections of this network namespace, and what each has carried, by the kernel's sock_diag.
//!
//! The kernel counts segments and payload of every connection, whichever process it belongs to, and tells anyone. So a node
//! knows the traffic of programs that do not report it.
//!
//! A list of all connections costs a walk through the kernel's whole table, which is as long as the machine has memory: 1 to
//! 2 ms on one of 16 GiB, however few connections there are. Asking for connections that are known costs a microsecond
//! each. So a frequent reader lists seldom ([`Flows::list`]) and looks often ([`Flows::look`]).

use super::owner::{from_host16, from_host32, host16, host32};
use crate::os::tcp;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Segments and payload in one direction, since a connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Segments, those without payload and those sent again included. It wraps.
    pub segments: u32,
    /// Bytes of payload, in order and once each when received; as often as they were sent.
    pub bytes: u64,
}

/// One connection that can carry data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// This machine's end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Tells it from one of the same ends that comes after it. [`Flow::any`] has none.
    cookie: [u8; 8],
    /// The number of the interface that it is bound to, or zero.
    interface: u32,
    /// What has come.
    pub received: Count,
    /// What has gone.
    pub sent: Count,
}

/// Asks for connections, as often as one likes.
#[derive(Debug)]
pub struct Flows {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Flow {
    /// Whichever connection has these ends, before it was looked at.
    pub fn any(local: SocketAddr, peer: SocketAddr) -> Flow {
        let (cookie, interface) = (NO_COOKIE, 0);
        let none = Count::default();
        Flow { local, peer, cookie, interface, received: none, sent: none }
    }

    /// Whether this is the same connection, not a later one of the same ends.
    pub fn is(&self, other: &Flow) -> bool {
        let is_named = self.cookie != NO_COOKIE && other.cookie != NO_COOKIE;
        (self.local, self.peer) == (other.local, other.peer)
            && (!is_named || self.cookie == other.cookie)
    }
}

impl Flows {
    /// The error is that of a kernel without sock_diag.
    pub fn open() -> io::Result<Flows> {
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
        let flows = Flows { socket, buffer: vec![0; BUFFER_BYTES] };
        Ok(flows)
    }

    /// All connections that are established now, of both families: one walk through the kernel's table.
    pub fn list(&mut self) -> io::Result<Vec<Flow>> {
        let mut all = Vec::new();
        self.ask(&question_for_all())?;
        loop {
            let (_, count) = recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
            if read_messages(&self.buffer[..count.min(BUFFER_BYTES)], &mut all)? {
                return Ok(all);
            }
        }
    }

    /// What these connections have carried by now. Those that are over are missing.
    pub fn look(&mut self, known: &[Flow]) -> io::Result<Vec<Flow>> {
        let mut all = Vec::with_capacity(known.len());
        for some in known.chunks(TOGETHER) {
            let questions: Vec<u8> = some.iter().flat_map(question_for).collect();
            self.ask(&questions)?;
            for asked in some {
                // The kernel has answered them all by now, in order.
                let (_, count) = recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT)?;
                let mut answer = Vec::new();
                // An error is that there is no such connection.
                let _ = read_messages(&self.buffer[..count.min(BUFFER_BYTES)], &mut answer);
                // Where one is missing, its listener answers, which has no peer.
                all.extend(answer.into_iter().filter(|flow| asked.is(flow)));
            }
        }
        Ok(all)
    }

    fn ask(&mut self, questions: &[u8]) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, questions, SendFlags::empty(), &kernel)?;
        Ok(())
    }
}

/// nlmsghdr and inet_diag_req, which is older than inet_diag_req_v2 and means all families.
fn question_for_all() -> Vec<u8> {
    let mut out = header(OLD_QUESTION_BYTES, TCPDIAG_GETSOCK, NLM_F_REQUEST | NLM_F_DUMP);
    out.extend([libc::AF_INET as u8, 0, 0, TCP_INFO]);
    out.extend([0; ID_BYTES]);
    out.extend(host32(1 << TCP_ESTABLISHED));
    out.resize(OLD_QUESTION_BYTES, 0);
    out
}

/// nlmsghdr and inet_diag_req_v2.
fn question_for(flow: &Flow) -> Vec<u8> {
    let mut out = header(QUESTION_BYTES, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST);
    let family = if flow.local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    out.extend([family as u8, libc::IPPROTO_TCP as u8, TCP_INFO, 0]);
    out.extend(host32(u32::MAX));
    for port in [flow.local.port(), flow.peer.port()] {
        out.extend([(port >> 8) as u8, port as u8]);
    }
    for end in [flow.local.ip(), flow.peer.ip()] {
        out.extend(address(end));
    }
    out.extend(host32(flow.interface));
    out.extend(flow.cookie);
    out
}

fn header(bytes: usize, kind: u16, flags: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes);
    out.extend(host32(bytes as u32));
    out.extend(host16(kind));
    out.extend(host16(flags));
    out.extend([0; 8]);
    out
}

/// In the network's order, at the beginning of its room.
fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut out = [0; 16];
            out[..4].copy_from_slice(&ip.octets());
            out
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Takes in the messages of one datagram; answers whether they were the last.
fn read_messages(mut datagram: &[u8], all: &mut Vec<Flow>) -> io::Result<bool> {
    while datagram.len() >= HEADER_BYTES {
        let length = word(datagram, 0) as usize;
        if !(HEADER_BYTES..=datagram.len()).contains(&length) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let message = &datagram[..length];
        match half(message, 4) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR if length >= HEADER_BYTES + 4 => {
                return match word(message, HEADER_BYTES).cast_signed() {
                    0 => Ok(true),
                    code => Err(io::Error::from_raw_os_error(-code)),
                };
            }
            _ => all.extend(flow(&message[HEADER_BYTES..])),
        }
        datagram = &datagram[length.next_multiple_of(4).min(datagram.len())..];
    }
    Ok(false)
}

/// From inet_diag_msg and its attributes.
fn flow(message: &[u8]) -> Option<Flow> {
    if message.len() < DIAG_BYTES {
        return None;
    }
    let family = message[0];
    let (received, sent) = counts(info(&message[DIAG_BYTES..])?)?;
    let local = end(family, &message[4..6], &message[8..24]);
    let peer = end(family, &message[6..8], &message[24..40]);
    let cookie = std::array::from_fn(|index| message[44 + index]);
    Some(Flow { local, peer, cookie, interface: word(message, 40), received, sent })
}

fn end(family: u8, port: &[u8], address: &[u8]) -> SocketAddr {
    // In the network's order.
    let port = u16::from(port[0]) << 8 | u16::from(port[1]);
    let ip: IpAddr = if i32::from(family) == libc::AF_INET {
        Ipv4Addr::new(address[0], address[1], address[2], address[3]).into()
    } else {
        let octets: [u8; 16] = std::array::from_fn(|index| address[index]);
        Ipv6Addr::from(octets).to_canonical()
    };
    SocketAddr::new(ip, port)
}

/// The tcp_info among a message's attributes.
fn info(mut attributes: &[u8]) -> Option<&[u8]> {
    while attributes.len() >= 4 {
        let length = usize::from(half(attributes, 0));
        if !(4..=attributes.len()).contains(&length) {
            return None;
        }
        if half(attributes, 2) == INET_DIAG_INFO {
            return Some(&attributes[4..length]);
        }
        attributes = &attributes[length.next_multiple_of(4).min(attributes.len())..];
    }
    None
}

/// What has come and gone, if the kernel's tcp_info is long enough to say so.
fn counts(info: &[u8]) -> Option<(Count, Count)> {
    if info.len() < tcp::BYTES_SENT + 8 {
        return None;
    }
    let received =
        Count { segments: word(info, tcp::SEGS_IN), bytes: long(info, tcp::BYTES_RECEIVED) };
    let sent = Count { segments: word(info, tcp::SEGS_OUT), bytes: long(info, tcp::BYTES_SENT) };
    Some((received, sent))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    from_host16([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    from_host32(std::array::from_fn(|index| bytes[at + index]))
}

#[expect(clippy::host_endian_bytes, reason = "the kernel writes its own numbers")]
fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]))
}

const HEADER_BYTES: usize = 16;
const QUESTION_BYTES: usize = HEADER_BYTES + 56;
const OLD_QUESTION_BYTES: usize = HEADER_BYTES + 60;
/// Length of inet_diag_msg.
const DIAG_BYTES: usize = 72;
/// More than the kernel puts into one datagram of a list.
const BUFFER_BYTES: usize = 64 << 10;
/// Length of inet_diag_sockid.
const ID_BYTES: usize = 48;
/// So many answers fit into the socket's buffer.
const TOGETHER: usize = 32;
const NO_COOKIE: [u8; 8] = [0xff; 8];
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_DUMP: u16 = 0x300;
const INET_DIAG_INFO: u16 = 2;
/// The extension by its bit.
const TCP_INFO: u8 = 1 << (INET_DIAG_INFO - 1);
const TCP_ESTABLISHED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_listed_with_what_it_has_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let Ok(mut flows) = Flows::open() else { return covey_harness::skip("no sock_diag") };
        let all = flows.list().unwrap();
        let (local, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let ours = all.iter().find(|flow| (flow.local, flow.peer) == (local, peer)).unwrap();
        let theirs = all.iter().find(|flow| (flow.local, flow.peer) == (peer, local)).unwrap();
        assert_eq!((ours.sent.bytes, ours.received.bytes), (1000, 0));
        assert_eq!((theirs.sent.bytes, theirs.received.bytes), (0, 1000));
        assert!(ours.sent.segments >= 2 && theirs.received.segments >= 2, "{ours:?} {theirs:?}");
    }

    #[test]
    fn connections_that_are_known_are_looked_at_without_a_list() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let to = listener.local_addr().unwrap();
            let pairs: Vec<_> = (0..TOGETHER + 3)
                .map(|_| (TcpStream::connect(to).unwrap(), listener.accept().unwrap().0))
                .collect();
            let Ok(mut flows) = Flows::open() else { return covey_harness::skip("no sock_diag") };
            let mut known: Vec<Flow> = pairs
                .iter()
                .map(|(one, _)| Flow::any(one.local_addr().unwrap(), one.peer_addr().unwrap()))
                .collect();
            (&pairs[1].0).write_all(&[7; 1000]).unwrap();
            (&pairs[1].1).read_exact(&mut [0; 1000]).unwrap();
            known = flows.look(&known).unwrap();
            assert_eq!(known.len(), pairs.len(), "{address}");
            assert_eq!((known[0].sent.bytes, known[1].sent.bytes), (0, 1000));
            assert!(flows.list().unwrap().iter().any(|listed| listed.is(&known[1])));
            // The last one is over: its peer's listener answers instead.
            drop(pairs);
            assert_eq!(flows.look(&known).unwrap(), []);
        }
    }

    #[test]
    fn a_later_connection_of_the_same_ends_is_another() {
        let ends = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let any = Flow::any(ends(1), ends(2));
        let one = Flow { cookie: [1; 8], ..any };
        assert!(one.is(&one) && any.is(&one));
        assert!(!one.is(&Flow { cookie: [2; 8], ..any }));
        assert!(!one.is(&Flow::any(ends(1), ends(3))));
    }

    #[test]
    fn a_connection_that_has_ended_is_not_listed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = client.local_addr().unwrap();
        let Ok(mut flows) = Flows::open() else { return covey_harness::skip("no sock_diag") };
        drop((client, listener));
        // A program that another test is starting has all descriptors for a moment.
        for _ in 0..1000 {
            if flows.list().unwrap().iter().all(|flow| flow.local != local) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{local} is listed still");
    }

    #[test]
    fn a_datagram_that_is_cut_off_is_refused() {
        let mut all = Vec::new();
        let mut datagram = question_for_all();
        datagram.truncate(40);
        assert!(read_messages(&datagram, &mut all).is_err());
        assert_eq!(read_messages(&[], &mut all).ok(), Some(false));
    }
}
