//! The interface that has an address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An interface of the Ethernet kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub index: u32,
    pub mac: [u8; 6],
    pub mtu: u32,
    /// The address, and how many bits of it its network's addresses share.
    address: IpAddr,
    bits: u32,
}

impl Interface {
    /// Whether an address is of its network, so that no router lies between.
    pub fn is_direct(&self, other: IpAddr) -> bool {
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differ = u32::from(ours) ^ u32::from(theirs);
                differ != 0 && differ.leading_zeros() >= self.bits
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differ = u128::from(ours) ^ u128::from(theirs);
                differ != 0 && differ.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }

    pub fn frame_bytes_max(&self) -> u16 {
        self.mtu.min(FRAME_BYTES_MAX) as u16
    }
}

/// The interface that has this address; none where that is no Ethernet, or is down.
pub(super) fn of(address: IpAddr) -> io::Result<Option<Interface>> {
    let address = address.to_canonical();
    let mut list = std::ptr::null_mut();
    // SAFETY: there is a place for the list, which is given back below.
    if unsafe { libc::getifaddrs(&raw mut list) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a list that the C library made, which stays until it is given back, after the last use.
    let found = unsafe {
        let found = find(list, address);
        libc::freeifaddrs(list);
        found
    };
    let Some((name, bits)) = found else { return Ok(None) };
    let Some((index, mac)) = link_of(&name)? else { return Ok(None) };
    Ok(Some(Interface { index, mac, mtu: mtu_of(&name)?, address, bits }))
}

type Name = [libc::c_char; libc::IFNAMSIZ];

/// # Safety
///
/// A list of the C library's.
unsafe fn find(list: *const libc::ifaddrs, address: IpAddr) -> Option<(Name, u32)> {
    let mut next = list;
    // SAFETY: the caller's promise: each points to the next one, and the last one to none.
    while let Some(one) = unsafe { next.as_ref() } {
        next = one.ifa_next;
        // SAFETY: both are none, or an address of the list of the kind that it says.
        if let (Some(found), mask) = unsafe { (ip(one.ifa_addr), ip(one.ifa_netmask)) }
            && found == address
        {
            let bits = match mask {
                Some(IpAddr::V4(mask)) => u32::from(mask).leading_ones(),
                Some(IpAddr::V6(mask)) => u128::from(mask).leading_ones(),
                None => 128,
            };
            let mut name: Name = [0; libc::IFNAMSIZ];
            // SAFETY: a name that ends with zero, and is shorter than this.
            let bytes = unsafe { std::ffi::CStr::from_ptr(one.ifa_name) }.to_bytes();
            for (place, byte) in name.iter_mut().zip(bytes.iter().take(libc::IFNAMSIZ - 1)) {
                *place = *byte as libc::c_char;
            }
            return Some((name, bits));
        }
    }
    None
}

/// # Safety
///
/// None, or an address of the kind that it says.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// The number of an interface and its hardware address; none where that is none of Ethernet's.
fn link_of(name: &Name) -> io::Result<Option<(u32, [u8; 6])>> {
    let request = ask(name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the kernel has written the hardware address.
    let found = unsafe { request.ifr_ifru.ifru_hwaddr };
    if found.sa_family != libc::ARPHRD_ETHER {
        return Ok(None);
    }
    let mac = std::array::from_fn(|at| found.sa_data[at] as u8);
    // SAFETY: the kernel has written the number.
    let index = unsafe { ask(name, libc::SIOCGIFINDEX)?.ifr_ifru.ifru_ifindex };
    Ok(u32::try_from(index).ok().map(|index| (index, mac)))
}

fn mtu_of(name: &Name) -> io::Result<u32> {
    // SAFETY: the kernel has written the number.
    let mtu = unsafe { ask(name, libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).unwrap_or(0))
}

fn ask(name: &Name, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM);
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    // SAFETY: zeroes are a request without anything.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = *name;
    let socket = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the kernel reads the name and writes its answer to the request, which lives here.
    if unsafe { libc::ioctl(socket, what, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(request)
}

/// What a slot of the ring has room for.
pub(super) const FRAME_BYTES_MAX: u32 = 9000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_no_ethernet_and_an_address_of_nobody_has_no_interface() {
        assert_eq!(of(Ipv4Addr::LOCALHOST.into()).expect("a list"), None);
        assert_eq!(of(Ipv4Addr::new(192, 0, 2, 1).into()).expect("a list"), None);
    }

    #[test]
    fn only_addresses_of_its_own_network_are_direct() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let interface =
            |address, bits| Interface { index: 1, mac: [2; 6], mtu: 1500, address, bits };
        let four = interface(ip("10.1.2.3"), 24);
        assert!(four.is_direct(ip("10.1.2.4")) && !four.is_direct(ip("10.1.3.4")));
        assert!(!four.is_direct(ip("10.1.2.3")), "it is our own");
        assert!(!four.is_direct(ip("fe80::1")));
        let six = interface(ip("fd00::3"), 64);
        assert!(six.is_direct(ip("fd00::4")) && !six.is_direct(ip("fd00:0:0:1::4")));
    }
}
