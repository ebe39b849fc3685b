//! What an end tells of itself: its card, its buffers, who uses its CPUs.

use super::{TELL, header};
use crate::environment::Watch;
use crate::usage::Usage;
use covey_io::os::card::Card;
use covey_io::os::{arp, card, tcp};
use covey_tune::diagnose::{End, Taken};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// No host tells more.
const BYTES_MAX: usize = 64 << 10;
/// How long cards may take to say that they have an address.
const WHO_HAS: Duration = Duration::from_millis(150);

/// This end of a connection, without who uses its CPUs.
pub fn here(stream: &TcpStream) -> End {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let name = read("/proc/sys/kernel/hostname").trim().to_string();
    let card = card_of(stream);
    let most = |key: &str| {
        read(&format!("/proc/sys/net/ipv4/{key}")).split_whitespace().nth(2)?.parse().ok()
    };
    let info = tcp::info(stream).unwrap_or_default();
    let share = |us: u64| us as f64 / info.busy_us.max(1) as f64;
    let mut end = End {
        name,
        receive_max_bytes: most("tcp_rmem"),
        send_max_bytes: most("tcp_wmem"),
        window_limited: share(info.window_limited_us),
        buffer_limited: share(info.buffer_limited_us),
        ..End::default()
    };
    if let Some(card) = card {
        end.features_off = card::features_off(&card.name).unwrap_or_default();
        (end.speed_bits_per_s, end.is_half_duplex) = negotiated(&card.name);
        (end.mac, end.mtu, end.card) = (card.mac, card.mtu, card.name);
    }
    end
}

/// Adds who has used its CPUs.
pub fn with_usage(end: End, usage: &Usage) -> End {
    End { busy_cpus: usage.here, busiest: usage.busiest.clone(), waited: usage.waited, ..end }
}

fn address_of(stream: &TcpStream) -> Option<Ipv4Addr> {
    match stream.local_addr().ok()?.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(address) => address.to_ipv4_mapped(),
    }
}

fn card_of(stream: &TcpStream) -> Option<Card> {
    card::with_address(address_of(stream)?).ok()?
}

/// Speed and duplex as a real card says them. A lab's nodes see the machine's own files, which are about
/// other cards.
fn negotiated(card: &str) -> (Option<f64>, bool) {
    if std::env::var_os(covey_lab::state::INSIDE).is_some() {
        return (None, false);
    }
    let read = |name: &str| std::fs::read_to_string(format!("/sys/class/net/{card}/{name}"));
    let speed = read("speed").ok().and_then(|text| text.trim().parse::<f64>().ok());
    let duplex = read("duplex").unwrap_or_default();
    (speed.filter(|mbit| *mbit > 0.0).map(|mbit| mbit * 1e6), duplex.trim() == "half")
}

/// Asks the other end about itself.
pub fn tell(mut stream: &TcpStream) -> std::io::Result<End> {
    stream.write_all(&header(0, 0, TELL))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > BYTES_MAX {
        return Err(std::io::Error::other(format!("{length} bytes about the other end")));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    serde_json::from_slice(&text).map_err(std::io::Error::other)
}

/// Tells of this end, which has been watched since the connection came.
pub(super) fn answer(mut stream: &TcpStream, watch: &Watch) -> std::io::Result<()> {
    let (_, usage) = watch.end_with_usage();
    let text =
        serde_json::to_vec(&with_usage(here(stream), &usage)).map_err(std::io::Error::other)?;
    stream.write_all(&(text.len() as u32).to_le_bytes())?;
    stream.write_all(&text)
}

/// Addresses of the two ends that more cards have than one. Nothing where raw packets are not permitted,
/// or where the peer is behind a router.
pub fn taken(peer: SocketAddr) -> Vec<Taken> {
    let (Some(ours), IpAddr::V4(theirs)) = (address_towards(peer), peer.ip()) else {
        return Vec::new();
    };
    let Ok(Some(card)) = card::with_address(ours) else { return Vec::new() };
    let ask = |address: Ipv4Addr| {
        // Who has our own address as well answers only one that does not claim it.
        let from = if address == ours { Ipv4Addr::UNSPECIFIED } else { ours };
        arp::who_has(&card, from, address, WHO_HAS).unwrap_or_default()
    };
    let mut found = Vec::new();
    let theirs_macs = ask(theirs);
    if theirs_macs.len() > 1 {
        found.push(taken_by(theirs, &theirs_macs));
    }
    let mut ours_macs = ask(ours);
    if !ours_macs.is_empty() {
        ours_macs.insert(0, card.mac);
        found.push(taken_by(ours, &ours_macs));
    }
    found
}

fn taken_by(address: Ipv4Addr, macs: &[[u8; 6]]) -> Taken {
    let text = |mac: &[u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    Taken { address: address.to_string(), macs: macs.iter().map(text).collect() }
}

/// Our address on the way to a peer: nothing is sent for it.
fn address_towards(peer: SocketAddr) -> Option<Ipv4Addr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(peer).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    }
}
