//! Where an endpoint is found: what its peers are given, by whatever way the program has.
//!
//! ```text
//!   CVY1 | id 16 | host 8 | user u32 | process u32 | port u16 | family u8 | 0 | address 16      little endian
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of an address as it is handed on.
pub const ADDRESS_BYTES: usize = 56;

/// Which endpoint it is. No other has this number.
pub(super) type Id = [u8; 16];

/// Where an endpoint is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Zeros for one of which only the TCP address is known.
    pub(super) id: Id,
    /// Which boot of which machine.
    pub(super) host: [u8; 8],
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) tcp: Option<SocketAddr>,
}

impl Address {
    /// One of which only this is known: it is met over TCP.
    pub fn of_tcp(tcp: SocketAddr) -> Address {
        Address { id: [0; 16], host: [0; 8], user: 0, process: 0, tcp: Some(tcp) }
    }

    /// Where it listens by TCP.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Whether its id is known.
    pub(super) fn has_id(&self) -> bool {
        self.id != [0; 16]
    }

    /// The name of its socket, which is no file: it is seen by whoever has the same network namespace.
    pub(super) fn socket_name(&self) -> Vec<u8> {
        let digits: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("covey-{digits}").into_bytes()
    }

    /// As it is handed on.
    pub fn encode(&self) -> [u8; ADDRESS_BYTES] {
        let (port, family, ip) = match self.tcp.map(|tcp| (tcp.port(), tcp.ip())) {
            None => (0, 0, [0; 16]),
            Some((port, IpAddr::V4(ip))) => (port, 4, ip.to_ipv6_mapped().octets()),
            Some((port, IpAddr::V6(ip))) => (port, 6, ip.octets()),
        };
        let mut bytes = [0; ADDRESS_BYTES];
        let fields: [&[u8]; 8] = [
            MAGIC,
            &self.id,
            &self.host,
            &self.user.to_le_bytes(),
            &self.process.to_le_bytes(),
            &port.to_le_bytes(),
            &[family, 0],
            &ip,
        ];
        let mut rest = &mut bytes[..];
        for field in fields {
            let (room, after) = rest.split_at_mut(field.len());
            room.copy_from_slice(field);
            rest = after;
        }
        bytes
    }

    /// What was handed on; none where it is no such address.
    pub fn decode(bytes: &[u8]) -> Option<Address> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (id, rest) = rest.split_first_chunk()?;
        let (host, rest) = rest.split_first_chunk()?;
        let (user, rest) = rest.split_first_chunk()?;
        let (process, rest) = rest.split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let (&[family, zero], rest) = rest.split_first_chunk()?;
        let (ip, rest) = rest.split_first_chunk::<16>()?;
        let (ip, port) = (Ipv6Addr::from(*ip), u16::from_le_bytes(*port));
        let tcp = match (family, ip.to_ipv4_mapped()) {
            (0, _) => None,
            (4, Some(ip)) => Some((ip, port).into()),
            (6, _) => Some((ip, port).into()),
            _ => return None,
        };
        (zero == 0 && rest.is_empty()).then_some(Address {
            id: *id,
            host: *host,
            user: u32::from_le_bytes(*user),
            process: u32::from_le_bytes(*process),
            tcp,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "covey://process {} of user {}", self.process, self.user)?;
        self.tcp.map_or(Ok(()), |tcp| write!(f, " at {tcp}"))
    }
}

/// Which boot of which machine this is, in few bytes.
pub(super) fn this_host() -> [u8; 8] {
    let id = crate::os::process::boot_id();
    let digits = id.bytes().filter(u8::is_ascii_hexdigit).take(16);
    let mut host = [0; 8];
    for (at, digit) in digits.enumerate() {
        let value = char::from(digit).to_digit(16).unwrap_or(0) as u8;
        host[at / 2] |= value << (4 * (1 - at % 2));
    }
    host
}

const MAGIC: &[u8] = b"CVY1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_went() {
        for tcp in [None, Some("10.1.2.3:4000"), Some("[fe80::1]:9")] {
            let tcp = tcp.map(|tcp| tcp.parse().expect("an address"));
            let address = Address { id: [7; 16], host: this_host(), user: 5, process: 6, tcp };
            let bytes = address.encode();
            assert_eq!(Address::decode(&bytes), Some(address));
            assert_eq!(Address::decode(&bytes[1..]), None);
            assert_eq!(Address::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }
}
