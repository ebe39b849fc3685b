//! What a frame is for, by its TCP ports: storage, or messages and everything else.

use super::HEADER_BYTES;
use covey_cluster::config::PORT_DEFAULT;

/// iSCSI's port by its specification.
const ISCSI_PORT: u16 = 3260;
/// A connection with one of these at an end is storage: the file system, images and pushed programs, and volumes.
const STORAGE_PORTS: [u16; 2] = [PORT_DEFAULT, ISCSI_PORT];
const IPV4: [u8; 2] = [0x08, 0x00];
const TCP: u8 = 6;

/// Whether a frame belongs to a connection of storage. Fragments have no ports, and are none: TCP makes no fragments.
pub fn is_storage(frame: &[u8]) -> bool {
    ports(frame).is_some_and(|ports| ports.iter().any(|port| STORAGE_PORTS.contains(port)))
}

/// Both ports of a TCP segment over IPv4.
fn ports(frame: &[u8]) -> Option<[u16; 2]> {
    let ip = frame.get(HEADER_BYTES..)?;
    if frame[12..14] != IPV4 || *ip.get(9)? != TCP {
        return None;
    }
    let at = usize::from(ip[0] & 0xf) * 4;
    let port = |at: usize| Some(u16::from(*ip.get(at)?) << 8 | u16::from(*ip.get(at + 1)?));
    Some([port(at)?, port(at + 2)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(protocol: u8, from: u16, to: u16) -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES + 40];
        frame[12..14].copy_from_slice(&IPV4);
        // Six words of header: options shift the ports.
        frame[HEADER_BYTES] = 0x46;
        frame[HEADER_BYTES + 9] = protocol;
        let ports = HEADER_BYTES + 24;
        for (at, port) in [(ports, from), (ports + 2, to)] {
            frame[at..at + 2].copy_from_slice(&[(port >> 8) as u8, port as u8]);
        }
        frame
    }

    #[test]
    fn storage_is_known_by_a_port_at_either_end() {
        assert!(is_storage(&segment(TCP, 40_000, 3260)) && is_storage(&segment(TCP, 5640, 40_000)));
        assert!(!is_storage(&segment(TCP, 40_000, 40_001)));
        assert!(!is_storage(&segment(17, 40_000, 3260)), "UDP is none");
    }

    #[test]
    fn frames_that_are_cut_short_are_none() {
        let whole = segment(TCP, 3260, 3260);
        for length in 0..HEADER_BYTES + 26 {
            assert!(!is_storage(&whole[..length]), "{length} bytes");
        }
        let mut arp = whole;
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert!(!is_storage(&arp));
    }
}
