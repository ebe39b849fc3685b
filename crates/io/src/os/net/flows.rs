//! All TCP connections of this network namespace, and what each has carried: one question to the kernel (sock_diag).
//!
//! The kernel counts segments and payload of every connection, whichever process it belongs to, and tells anyone. So a node
//! knows the traffic of programs that do not report it.

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

/// One established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// This machine's end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
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

impl Flows {
    /// The error is that of a kernel without sock_diag.
    pub fn open() -> io::Result<Flows> {
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
        let flows = Flows { socket, buffer: vec![0; BUFFER_BYTES] };
        Ok(flows)
    }

    /// All connections that are established now.
    pub fn list(&mut self) -> io::Result<Vec<Flow>> {
        let mut all = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.ask(family as u8, &mut all)?;
        }
        Ok(all)
    }

    fn ask(&mut self, family: u8, all: &mut Vec<Flow>) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &question(family), SendFlags::empty(), &kernel)?;
        loop {
            let (_, count) = recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
            if read_messages(&self.buffer[..count.min(BUFFER_BYTES)], all)? {
                return Ok(());
            }
        }
    }
}

/// nlmsghdr and inet_diag_req_v2.
fn question(family: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(QUESTION_BYTES);
    out.extend(host32(QUESTION_BYTES as u32));
    out.extend(host16(SOCK_DIAG_BY_FAMILY));
    out.extend(host16(NLM_F_REQUEST_DUMP));
    out.extend([0; 8]);
    out.extend([family, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1), 0]);
    out.extend(host32(1 << TCP_ESTABLISHED));
    out.resize(QUESTION_BYTES, 0);
    out
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
    Some(Flow { local, peer, received, sent })
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
/// Length of inet_diag_msg.
const DIAG_BYTES: usize = 72;
/// More than the kernel puts into one datagram of a list.
const BUFFER_BYTES: usize = 64 << 10;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const INET_DIAG_INFO: u16 = 2;
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
    fn a_connection_that_has_ended_is_not_listed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = client.local_addr().unwrap();
        let Ok(mut flows) = Flows::open() else { return covey_harness::skip("no sock_diag") };
        drop((client, listener));
        assert!(flows.list().unwrap().iter().all(|flow| flow.local != local));
    }

    #[test]
    fn a_datagram_that_is_cut_off_is_refused() {
        let mut all = Vec::new();
        let mut datagram = question(libc::AF_INET as u8);
        datagram.truncate(40);
        assert!(read_messages(&datagram, &mut all).is_err());
        assert_eq!(read_messages(&[], &mut all).ok(), Some(false));
    }
}
