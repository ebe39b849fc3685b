//! Asks a network who has an address: more than one answer is one too many.

use super::card::Card;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

const ETH_P_ARP: u16 = 0x0806;
/// Ethernet and IPv4, their lengths, then what is asked or answered.
const HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const PACKET_BYTES: usize = 28;
/// How often it is asked: one question may be lost.
const TIMES: u32 = 3;

/// Hardware addresses of all that say within `wait` that they have `address`, in ascending order. Needs the
/// permission for raw packets. `ours` is the sender's address, or unspecified to ask as one who has none
/// yet, which those answer too that have the same.
pub fn who_has(
    card: &Card,
    ours: Ipv4Addr,
    address: Ipv4Addr,
    wait: Duration,
) -> io::Result<Vec<[u8; 6]>> {
    let socket = open(card)?;
    let mut found = Vec::new();
    for _ in 0..TIMES {
        ask(&socket, card, ours, address)?;
        listen(&socket, address, wait / TIMES, &mut found)?;
    }
    found.retain(|mac| *mac != card.mac);
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn place(card: &Card) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ETH_P_ARP.to_be(),
        sll_ifindex: card.index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
    }
}

const PLACE_BYTES: libc::socklen_t = size_of::<libc::sockaddr_ll>() as libc::socklen_t;

fn open(card: &Card) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: it takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(ETH_P_ARP.to_be())) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given it to us.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let place = place(card);
    // SAFETY: the address lives here and has this length.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const place).cast(), PLACE_BYTES) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

fn ask(socket: &OwnedFd, card: &Card, ours: Ipv4Addr, address: Ipv4Addr) -> io::Result<()> {
    let mut packet = Vec::with_capacity(PACKET_BYTES);
    packet.extend_from_slice(&HEAD);
    packet.extend_from_slice(&[0, REQUEST]);
    packet.extend_from_slice(&card.mac);
    packet.extend_from_slice(&ours.octets());
    packet.extend_from_slice(&[0; 6]);
    packet.extend_from_slice(&address.octets());
    let place = place(card);
    // SAFETY: packet and address live here and have these lengths.
    let sent = unsafe {
        let (data, to) = (packet.as_ptr().cast(), (&raw const place).cast());
        libc::sendto(socket.as_raw_fd(), data, packet.len(), 0, to, PLACE_BYTES)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn listen(
    socket: &OwnedFd,
    address: Ipv4Addr,
    wait: Duration,
    found: &mut Vec<[u8; 6]>,
) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        let left = wait.saturating_sub(begin.elapsed());
        let limit = rustix::event::Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&limit)) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut packet = [0; 64];
        match rustix::io::read(socket, &mut packet) {
            Ok(bytes) => found.extend(answer(&packet[..bytes], address)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if left.is_zero() {
            return Ok(());
        }
    }
}

/// Who says in this packet that it has the address.
fn answer(packet: &[u8], address: Ipv4Addr) -> Option<[u8; 6]> {
    let packet: &[u8; PACKET_BYTES] = packet.first_chunk()?;
    let is_answer = packet[..6] == HEAD && packet[6..8] == [0, REPLY];
    let is_about = packet[14..18] == address.octets();
    (is_answer && is_about).then(|| std::array::from_fn(|index| packet[8 + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_from_a_question_and_from_nonsense() {
        let wanted = Ipv4Addr::new(10, 24, 1, 2);
        let mut packet =
            [&HEAD[..], &[0, REPLY, 2, 0, 0, 0, 0, 9, 10, 24, 1, 2], &[0; 10]].concat();
        assert_eq!(answer(&packet, wanted), Some([2, 0, 0, 0, 0, 9]));
        assert_eq!(answer(&packet, Ipv4Addr::new(10, 24, 1, 3)), None);
        packet[7] = REQUEST;
        assert_eq!(answer(&packet, wanted), None);
        assert_eq!(answer(&packet[..20], wanted), None);
        assert_eq!(answer(&[], wanted), None);
    }
}
