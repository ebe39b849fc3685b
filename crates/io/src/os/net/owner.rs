//! Whose socket is at the other end of a loopback TCP connection.
//!
//! The kernel is asked for the one socket with the connection's addresses reversed: by netlink
//! (sock_diag), or where that is not built in, from `/proc/net/tcp`. A socket that its process has
//! closed already belongs to nobody: the kernel then shows user 0 and inode 0, and taking that for
//! root would let anyone in who connects, sends and closes quickly. So only an established socket
//! with an inode counts.

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The user that owns the socket bound to `peer` and connected to `local`, both on this machine;
/// `None` when the kernel does not say.
pub fn socket_owner(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    match ask_netlink(peer, local) {
        Ok(owner) => owner,
        Err(_) => read_proc(peer, local),
    }
}

/// `Ok(None)`: the kernel answered, and no live socket is there.
fn ask_netlink(peer: SocketAddr, local: SocketAddr) -> io::Result<Option<u32>> {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &question(peer, local), SendFlags::empty(), &kernel)?;
    let mut answer = [0; 1024];
    let (_, count) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    read_answer(&answer[..count.min(1024)])
}

/// nlmsghdr and inet_diag_req_v2, from linux/netlink.h and linux/inet_diag.h.
fn question(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(QUESTION_BYTES);
    out.extend(host32(QUESTION_BYTES as u32));
    out.extend(host16(SOCK_DIAG_BY_FAMILY));
    out.extend(host16(NLM_F_REQUEST));
    out.extend([0; 8]); // Sequence and port: one question, one answer.
    out.extend([family(peer), libc::IPPROTO_TCP as u8, 0, 0]);
    out.extend(host32(1 << TCP_ESTABLISHED));
    out.extend([(peer.port() >> 8) as u8, peer.port() as u8]);
    out.extend([(local.port() >> 8) as u8, local.port() as u8]);
    out.extend(address(peer.ip()));
    out.extend(address(local.ip()));
    out.extend(host32(0)); // Any interface.
    out.extend([0xff; 8]); // No cookie.
    out
}

fn read_answer(answer: &[u8]) -> io::Result<Option<u32>> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(from_host16);
    match kind.ok_or_else(short)? {
        SOCK_DIAG_BY_FAMILY => {
            let state = *answer.get(HEADER_BYTES + 1).ok_or_else(short)?;
            let uid = field(answer, HEADER_BYTES + 64).ok_or_else(short)?;
            let inode = field(answer, HEADER_BYTES + 68).ok_or_else(short)?;
            Ok((state == TCP_ESTABLISHED && inode != 0).then_some(uid))
        }
        NLMSG_ERROR => {
            let code = field(answer, HEADER_BYTES).ok_or_else(short)?.cast_signed();
            match code {
                code if code == -libc::ENOENT => Ok(None),
                code => Err(io::Error::from_raw_os_error(-code)),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn family(of: SocketAddr) -> u8 {
    match of {
        SocketAddr::V4(_) => libc::AF_INET as u8,
        SocketAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut out = [0; 16];
            out[..4].copy_from_slice(&ip.octets());
            out
        }
    }
}

fn field(answer: &[u8], at: usize) -> Option<u32> {
    answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(from_host32)
}

fn read_proc(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let wanted = (proc_address(peer), proc_address(local));
    // A socket of family INET6 may speak IPv4: it is listed in tcp6 with mapped addresses.
    let mapped = (proc_address(map(peer)), proc_address(map(local)));
    [("/proc/net/tcp", &wanted), ("/proc/net/tcp6", &wanted), ("/proc/net/tcp6", &mapped)]
        .into_iter()
        .find_map(|(path, wanted)| search(&std::fs::read_to_string(path).ok()?, wanted))
}

fn map(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// An address as the kernel prints it: 32-bit words in the host's order, then the port.
fn proc_address(of: SocketAddr) -> String {
    let octets = match of.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).map(|word| {
        let word = from_host32(word.try_into().expect("chunks of four"));
        format!("{word:08X}")
    });
    format!("{}:{:04X}", words.collect::<String>(), of.port())
}

/// Fields of a line: number, local, remote, state, queues, timer, retransmits, uid, timeout, inode.
fn search(table: &str, (peer, local): &(String, String)) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        if fields.next()? != peer || fields.next()? != local || fields.next()? != "01" {
            return None;
        }
        let uid = fields.nth(3)?.parse().ok()?;
        (fields.nth(1)? != "0").then_some(uid)
    })
}

/// The user whose process listens at a TCP port of this machine, at whatever address; None where nobody does.
pub fn listener_owner(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let listener = |path: &str| {
        let table = std::fs::read_to_string(path).ok()?;
        table.lines().find_map(|line| listens(line, port))
    };
    tables.into_iter().find_map(listener)
}

/// The user of a line, if it is that of a listener at this port.
fn listens(line: &str, port: u16) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (_, local) = fields.next()?.split_once(':')?;
    let is_it = u16::from_str_radix(local, 16).ok()? == port && fields.nth(1)? == "0A";
    is_it.then(|| fields.nth(3)?.parse().ok()).flatten()
}

// Netlink speaks the host's byte order: the one place where it is right.
#[allow(clippy::host_endian_bytes)]
pub(super) fn host32(value: u32) -> [u8; 4] {
    value.to_ne_bytes()
}
#[allow(clippy::host_endian_bytes)]
pub(super) fn host16(value: u16) -> [u8; 2] {
    value.to_ne_bytes()
}
#[allow(clippy::host_endian_bytes)]
pub(super) fn from_host32(bytes: [u8; 4]) -> u32 {
    u32::from_ne_bytes(bytes)
}
#[allow(clippy::host_endian_bytes)]
pub(super) fn from_host16(bytes: [u8; 2]) -> u16 {
    u16::from_ne_bytes(bytes)
}

const HEADER_BYTES: usize = 16;
const QUESTION_BYTES: usize = HEADER_BYTES + 56;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const TCP_ESTABLISHED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_port_says_who_listens_at_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert_eq!(listener_owner(port), Some(rustix::process::geteuid().as_raw()));
            drop(listener);
            assert_eq!(listener_owner(port), None);
        }
    }

    fn pair(host: &str) -> (TcpListener, TcpStream, SocketAddr, SocketAddr) {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = client.local_addr().unwrap();
        let local = listener.local_addr().unwrap();
        (listener, client, peer, local)
    }

    fn me() -> Option<u32> {
        Some(rustix::process::getuid().as_raw())
    }

    #[test]
    fn the_owner_of_a_loopback_socket_is_found_both_ways() {
        let (_listener, _client, peer, local) = pair("127.0.0.1");
        assert_eq!(socket_owner(peer, local), me());
        assert_eq!(read_proc(peer, local), me());
    }

    #[test]
    fn the_owner_of_a_mapped_address_is_found() {
        let (_listener, _client, peer, local) = pair("127.0.0.1");
        assert_eq!(socket_owner(map(peer), map(local)), me());
    }

    #[test]
    fn a_socket_that_was_closed_belongs_to_nobody() {
        let (_listener, client, peer, local) = pair("127.0.0.1");
        drop(client);
        assert_eq!(socket_owner(peer, local), None);
        assert_eq!(read_proc(peer, local), None);
    }

    #[test]
    fn a_socket_that_is_not_there_belongs_to_nobody() {
        let (_listener, _client, peer, local) = pair("127.0.0.1");
        assert_eq!(socket_owner(local, local), None);
        assert_ne!(peer, local);
    }
}
