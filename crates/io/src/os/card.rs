//! A network card as the kernel tells of it: its name, addresses and MTU, and which of its offloads somebody
//! has switched off.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

/// A card that has an address of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The interface's name.
    pub name: String,
    /// Its number in this network namespace.
    pub index: u32,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Largest packet in bytes.
    pub mtu: u32,
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_SSET: u32 = 0x02;
/// Length of ethtool_cmd in words, and where its two halves of the speed lie.
const COMMAND_WORDS: usize = 11;
const SPEED: usize = 3;
const SPEED_HIGH: usize = 7;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETH_SS_FEATURES: u32 = 4;
const STRING_BYTES: usize = 32;
/// More features than any kernel has.
const FEATURES_MAX: usize = 512;
/// Switches of groups of features, as `ethtool -K` has them: rx, tx, sg, tso, gso, gro.
const SWITCHES: [u32; 6] = [0x15, 0x17, 0x19, 0x1f, 0x24, 0x2c];

/// The card that has this address.
pub fn with_address(address: impl Into<IpAddr>) -> io::Result<Option<Card>> {
    let (address, mut name) = (address.into().to_canonical(), None);
    each_interface(|entry, family| {
        if address_of(entry, family) == Some(address) {
            name = Some(name_of(entry));
        }
    })?;
    let Some(name) = name else { return Ok(None) };
    // An alias such as eth0:1 is its card.
    let name = name.split(':').next().unwrap_or_default().to_string();
    let mut link = None;
    each_interface(|entry, family| {
        if family == libc::AF_PACKET && name_of(entry) == name {
            // SAFETY: the family says that it is a `sockaddr_ll`.
            let found = unsafe { *entry.ifa_addr.cast::<libc::sockaddr_ll>() };
            let mac = std::array::from_fn(|index| found.sll_addr[index]);
            link = Some((found.sll_ifindex.cast_unsigned(), mac));
        }
    })?;
    let Some((index, mac)) = link else { return Ok(None) };
    let mtu = mtu(&name)?;
    Ok(Some(Card { name, index, mac, mtu }))
}

fn address_of(entry: &libc::ifaddrs, family: i32) -> Option<IpAddr> {
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in`.
            let found = unsafe { (*entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr };
            Some(Ipv4Addr::from_bits(u32::from_be(found.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a `sockaddr_in6`.
            let found = unsafe { (*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr };
            Some(Ipv6Addr::from(found.s6_addr).into())
        }
        _ => None,
    }
}

fn name_of(entry: &libc::ifaddrs) -> String {
    // SAFETY: the kernel's list gives every entry a name that ends in zero.
    unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned()
}

fn each_interface(mut see: impl FnMut(&libc::ifaddrs, i32)) -> io::Result<()> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: it fills the pointer with a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut next = first;
    // SAFETY: each entry of the list is valid until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an address that is there begins with its family.
        if let Some(address) = unsafe { entry.ifa_addr.as_ref() } {
            see(entry, address.sa_family.into());
        }
        next = entry.ifa_next;
    }
    // SAFETY: it came from `getifaddrs` and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(())
}

fn mtu(name: &str) -> io::Result<u32> {
    let mut request = super::tap::request(name)?;
    ioctl(libc::SIOCGIFMTU as libc::Ioctl, &mut request)?;
    // SAFETY: the call has filled this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned())
}

fn ioctl(call: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    let control: OwnedFd =
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: these calls read and write one ifreq, and what it points to lives in the caller.
    let done = unsafe { libc::ioctl(control.as_raw_fd(), call, &raw mut *request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One question of ethtool's, whose first number says which; the answer overwrites it.
fn ethtool(name: &str, question: &mut [u32]) -> io::Result<()> {
    let mut request = super::tap::request(name)?;
    request.ifr_ifru.ifru_data = question.as_mut_ptr().cast();
    ioctl(SIOCETHTOOL, &mut request)
}

/// Features that the card could have and somebody has switched off, by the kernel's names. Those which its
/// driver does not permit now do not count.
pub fn features_off(name: &str) -> io::Result<Vec<String>> {
    let names = feature_names(name)?;
    let blocks = names.len().div_ceil(32);
    let mut question = vec![0u32; 2 + 4 * blocks];
    (question[0], question[1]) = (ETHTOOL_GFEATURES, blocks as u32);
    ethtool(name, &mut question)?;
    let is_off = |bit: usize| {
        let block = &question[2 + 4 * (bit / 32)..][..4];
        let [available, requested] = [block[0], block[1]].map(|word| word >> (bit % 32) & 1);
        available == 1 && requested == 0
    };
    let all = names.into_iter().enumerate();
    Ok(all.filter(|(bit, _)| is_off(*bit)).map(|(_, name)| name).collect())
}

fn feature_names(name: &str) -> io::Result<Vec<String>> {
    // Command, reserved, a mask of 64 bits, then one number for each set that is asked for.
    let mut question = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
    ethtool(name, &mut question)?;
    let count = question[4] as usize;
    if count > FEATURES_MAX {
        return Err(io::Error::other(format!("the kernel tells of {count} features")));
    }
    let mut question = vec![0u32; 3 + count * STRING_BYTES / 4];
    question[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
    ethtool(name, &mut question)?;
    let text = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    Ok(question[3..].chunks_exact(STRING_BYTES / 4).map(text).collect())
}

/// Switches all offloads of a card on or off: checksums, scatter and gather, segmentation, merging of
/// received segments. Those that it does not have stay off.
pub fn set_offloads(name: &str, on: bool) -> io::Result<()> {
    let switched = SWITCHES.map(|switch| ethtool(name, &mut [switch, on.into()]));
    // Some cards refuse some of them; one must have worked.
    let [first, ..] = &switched;
    if switched.iter().any(Result::is_ok) {
        Ok(())
    } else {
        Err(io::Error::from(first.as_ref().map_or_else(io::Error::kind, |()| io::ErrorKind::Other)))
    }
}

/// The link's speed in megabits a second, if the driver knows one.
pub fn speed(name: &str) -> io::Result<Option<u32>> {
    let mut question = [0u32; COMMAND_WORDS];
    question[0] = ETHTOOL_GSET;
    ethtool(name, &mut question)?;
    let [low, high] = [SPEED, SPEED_HIGH].map(|at| u32::from(halves(question[at])[0]));
    let speed = high << 16 | low;
    // Both are how drivers say that they do not know.
    Ok(Some(speed).filter(|speed| *speed != 0 && *speed != u32::MAX && *speed != 0xffff))
}

/// Has a card without a wire, such as a TAP, tell this speed in megabits a second.
pub fn set_speed(name: &str, megabits: u32) -> io::Result<()> {
    let mut question = [0u32; COMMAND_WORDS];
    question[0] = ETHTOOL_GSET;
    ethtool(name, &mut question)?;
    question[0] = ETHTOOL_SSET;
    for (at, half) in [(SPEED, megabits as u16), (SPEED_HIGH, (megabits >> 16) as u16)] {
        question[at] = with_half(question[at], half);
    }
    ethtool(name, &mut question)
}

/// The two halves of a word, in the order in which they lie in memory.
#[expect(clippy::host_endian_bytes, reason = "the kernel's own structure")]
fn halves(word: u32) -> [u16; 2] {
    let [a, b, c, d] = word.to_ne_bytes();
    [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])]
}

/// The same word with another first half.
#[expect(clippy::host_endian_bytes, reason = "the kernel's own structure")]
fn with_half(word: u32, half: u16) -> u32 {
    let ([_, _, c, d], [a, b]) = (word.to_ne_bytes(), half.to_ne_bytes());
    u32::from_ne_bytes([a, b, c, d])
}

/// Gives a card one more address, by an alias of its name.
pub fn add_address(name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    super::tap::set_address(&format!("{name}:1"), address, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_card_is_found_by_its_address() {
        let card = with_address(Ipv4Addr::LOCALHOST).unwrap().unwrap();
        assert_eq!((card.name.as_str(), card.mac), ("lo", [0; 6]));
        assert!(card.mtu >= 1500 && card.index > 0);
        let six = with_address(Ipv6Addr::LOCALHOST).unwrap();
        assert!(six.is_none_or(|six| six.name == "lo"), "where there is IPv6");
        assert_eq!(with_address(Ipv4Addr::new(192, 0, 2, 1)).unwrap(), None);
        assert!(features_off("lo").unwrap().len() < FEATURES_MAX);
        assert!(features_off("covey-none").is_err());
    }
}
