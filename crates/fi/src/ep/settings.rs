//! What an endpoint is told by the program and by the environment.

use crate::abi::Info;
use crate::boundary::{Errno, Result};
use crate::host;
use covey_io::lane::Choice;
use covey_io::os::mixed::{ADDRESS_BYTES, Address, Settings};
use covey_io::os::shm;
use std::net::SocketAddr;

/// What its transport is told.
pub(super) fn of(info: &Info) -> Result<Settings> {
    let shm = shm::Settings { peers_max: 512, heap_bytes: 1 << 20, ..shm::Settings::default() };
    let is_off = covey_io::boundary::variable(c"COVEY_FI_SHM").is_some_and(|value| value == b"0");
    Ok(Settings { shm, near: !is_off, tcp: Some(place_of(info)?), ethernet: ethernet() })
}

/// Where the program wants it to be found.
fn place_of(info: &Info) -> Result<SocketAddr> {
    let own = SocketAddr::new(host::own_address(), 0);
    if info.src_addr.is_null() || info.src_addrlen != ADDRESS_BYTES {
        return Ok(own);
    }
    // SAFETY: it says that so many bytes are there.
    let bytes = unsafe { &*info.src_addr.cast::<[u8; ADDRESS_BYTES]>() };
    let wish = Address::decode(bytes).ok_or(Errno(libc::EINVAL))?.tcp();
    let wish = wish.unwrap_or(own);
    // All addresses of the machine are none that others could be told.
    let ip = if wish.ip().is_unspecified() { own.ip() } else { wish.ip() };
    Ok(SocketAddr::new(ip, wish.port()))
}

/// Longest message that is sent at once: what was measured to be best, where the environment says it.
pub(super) fn eager_limit() -> Option<usize> {
    let named = covey_io::boundary::variable(c"COVEY_FI_EAGER_LIMIT")?;
    let named: usize = String::from_utf8(named).ok()?.trim().parse().ok()?;
    Some(named.clamp(64, EAGER_BYTES_MAX))
}

/// Where the receiver reaches the sender's memory: up to here two copies take less than a question and an answer.
pub(super) const EAGER_BYTES: usize = 16 << 10;
/// What the engine's window has room for.
const EAGER_BYTES_MAX: usize = 64 << 10;

/// Whether short packets go by raw Ethernet.
fn ethernet() -> Choice {
    match covey_io::boundary::variable(c"COVEY_FI_ETHERNET").as_deref() {
        Some(b"1") => Choice::Always,
        Some(b"measured") => Choice::Better,
        _ => Choice::Never,
    }
}
