//! Network cards whose cable ends in this program: TAP devices, and the few settings of an interface.
//!
//! A [`Tap`] lives in the network namespace of the thread that made it, and goes away when it is
//! dropped. The kernel hands over whole Ethernet frames without FCS, checksums filled in, none
//! longer than the MTU: it is offered no offloads.

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Where such devices are made.
pub const DEVICE: &str = "/dev/net/tun";
/// Largest MTU that the kernel permits on one.
pub const MTU_MAX: u32 = 65_521;

const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETCARRIER: libc::Ioctl = 0x4004_54e2;

/// An Ethernet card.
#[derive(Debug)]
pub struct Tap {
    device: OwnedFd,
}

/// What an interface is given.
#[derive(Clone, Debug)]
pub struct Interface<'a> {
    /// Its name, at most 15 bytes.
    pub name: &'a str,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its address and the length of the network's prefix.
    pub address: (Ipv4Addr, u8),
    /// Largest packet in bytes.
    pub mtu: u32,
    /// How many packets wait in the kernel before it drops some.
    pub queue_packets: u32,
}

/// Opens the device that makes cards: permitted or not is decided here.
pub fn open_device() -> io::Result<OwnedFd> {
    Ok(open(DEVICE, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

impl Tap {
    /// Makes a card, sets it up and switches it on.
    pub fn new(interface: &Interface<'_>) -> io::Result<Tap> {
        let device = open_device()?;
        let mut request = request(interface.name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
        ioctl(device.as_fd(), TUNSETIFF, &mut request)?;
        let control = control()?;
        let set =
            |call, fill: &dyn Fn(&mut libc::ifreq)| change(&control, interface.name, call, fill);
        set(libc::SIOCSIFHWADDR as libc::Ioctl, &|request| {
            let mut address = zero_address();
            address.sa_family = libc::ARPHRD_ETHER;
            for (to, from) in address.sa_data.iter_mut().zip(interface.mac) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_hwaddr = address;
        })?;
        set(libc::SIOCSIFMTU as libc::Ioctl, &|request| {
            request.ifr_ifru.ifru_mtu = interface.mtu.cast_signed();
        })?;
        // Only root of the machine may; the kernel's own 500 packets will do elsewhere.
        let _ = set(libc::SIOCSIFTXQLEN as libc::Ioctl, &|request| {
            request.ifr_ifru.ifru_metric = interface.queue_packets.cast_signed();
        });
        let (address, prefix) = interface.address;
        set_address(interface.name, address, prefix)?;
        switch_on(interface.name)?;
        Ok(Tap { device })
    }

    /// The next frame that the kernel sends; `None` when there is none now.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.device, buffer) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A frame that the kernel receives. One that it refuses is lost, as on any card.
    pub fn write(&self, frame: &[u8]) -> bool {
        rustix::io::write(&self.device, frame).is_ok()
    }

    /// Says whether the cable is plugged in.
    pub fn set_carrier(&self, is_there: bool) -> io::Result<()> {
        let mut value = i32::from(is_there);
        // SAFETY: the call reads one int that lives here.
        let done = unsafe { libc::ioctl(self.device.as_raw_fd(), TUNSETCARRIER, &raw mut value) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Sets the address of an interface, or of an alias such as `eth0:1`, which this makes.
pub(super) fn set_address(name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let control = control()?;
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    change(&control, name, libc::SIOCSIFADDR as libc::Ioctl, &|request| {
        request.ifr_ifru.ifru_addr = socket_address(address);
    })?;
    change(&control, name, libc::SIOCSIFNETMASK as libc::Ioctl, &|request| {
        request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from_bits(mask));
    })
}

/// Switches an interface of this network namespace on.
pub fn switch_on(name: &str) -> io::Result<()> {
    let control = control()?;
    change(&control, name, libc::SIOCSIFFLAGS as libc::Ioctl, &|request| {
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    })
}

fn control() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

fn change(
    control: &OwnedFd,
    name: &str,
    call: libc::Ioctl,
    fill: &dyn Fn(&mut libc::ifreq),
) -> io::Result<()> {
    let mut request = request(name)?;
    fill(&mut request);
    ioctl(control.as_fd(), call, &mut request)
}

fn ioctl(fd: BorrowedFd<'_>, call: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: each of these calls reads and writes one ifreq, which lives in the caller.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), call, &raw mut *request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all of ifreq is plain numbers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn zero_address() -> libc::sockaddr {
    libc::sockaddr { sa_family: 0, sa_data: [0; 14] }
}

/// A `sockaddr_in` in the clothes of a `sockaddr`: two bytes of port, then the address.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut all = zero_address();
    all.sa_family = libc::AF_INET as u16;
    for (to, from) in all.sa_data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    all
}
