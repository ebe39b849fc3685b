//! What the interfaces of this network namespace have carried, and how fast each is.

use super::card;
use procfs_core::FromRead;
use procfs_core::net::InterfaceDeviceStatus;
use std::collections::BTreeMap;
use std::io;

/// Frames and their bytes in one direction, since the interface came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub packets: u64,
    /// Bytes, with the link's header.
    pub bytes: u64,
}

/// One interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What has come in.
    pub received: Count,
    /// What has gone out.
    pub sent: Count,
}

/// Those of all interfaces, by name.
pub fn counters() -> io::Result<BTreeMap<String, Counters>> {
    // By thread: it may be in another namespace than its process. /sys shows that of who mounted it.
    let text = std::fs::File::open("/proc/thread-self/net/dev")?;
    let InterfaceDeviceStatus(all) =
        InterfaceDeviceStatus::from_read(text).map_err(io::Error::other)?;
    Ok(all.into_iter().map(|(name, one)| (name, of(&one))).collect())
}

fn of(one: &procfs_core::net::DeviceStatus) -> Counters {
    Counters {
        received: Count { packets: one.recv_packets, bytes: one.recv_bytes },
        sent: Count { packets: one.sent_packets, bytes: one.sent_bytes },
    }
}

/// The link's rate in bits a second, if its driver says so.
pub fn bits_per_s(name: &str) -> Option<u64> {
    card::speed(name).ok().flatten().map(|megabits| u64::from(megabits) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn loopback_counts_what_goes_through_it() {
        let before = counters().unwrap()["lo"];
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 100], socket.local_addr().unwrap()).unwrap();
        let after = counters().unwrap()["lo"];
        assert!(after.sent.packets > before.sent.packets);
        assert!(after.received.bytes >= before.received.bytes + 128);
        assert_eq!(bits_per_s("lo"), None);
    }
}
