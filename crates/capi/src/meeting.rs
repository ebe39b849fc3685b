//! Endpoints made and brought together with peers, and memory for them.

use crate::boundary::{Result, export, give, give_new, held_mut, place, room};
use crate::endpoint::{CConfig, CEndpoint, NO_PEER, span};
use crate::results::{Number, Refusal};
use covey_io::os::addresses::Addresses;
use covey_io::os::mixed::{Mixed, Place, Settings};
use covey_io::os::shm::{Patience, Waiter};
use covey_uzura::{Config, Engine};
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// # Safety
///
/// Null, or a string with an end.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a CStr> {
    if text.is_null() {
        return Err(Refusal::argument("the name is null".to_owned()));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// An address such as `127.0.0.1:4000` and `[::1]:4000`; anything else is a path.
fn place_of(name: &CStr) -> Place<'_> {
    match name.to_str().ok().and_then(|name| name.parse().ok()) {
        Some(address) => Place::Tcp(address),
        None => Place::Path(Path::new(OsStr::from_bytes(name.to_bytes()))),
    }
}

/// Why two processes do not meet there.
fn refused(what: &str, name: &CStr, error: &io::Error) -> Refusal {
    let nobody = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
    let hint = if nobody && what == "connect to" { "; nobody listens there yet" } else { "" };
    let name = name.to_string_lossy();
    Refusal::of(Number::Io, format!("cannot {what} {name}: {error}{hint}"))
}

/// The configuration, with a seed of its own.
fn seeded(mut config: Config) -> Result<Config> {
    let seed = covey_io::os::random::bytes::<8>().map(u64::from_le_bytes);
    config.seed = seed.map_err(|error| Refusal::of(Number::Io, error.to_string()))?;
    Ok(config)
}

export! {
    fn covey_endpoint_new(config: *const CConfig, out: *mut *mut CEndpoint) {
        let (settings, config) = match config.as_ref() {
            Some(config) => config.sizes()?,
            None => Default::default(),
        };
        let settings = Settings { shm: settings, ..Settings::default() };
        let engine = Engine::new(Mixed::new(&settings)?, Addresses::new(), seeded(config)?);
        let waiter = Waiter::new(Patience::default());
        give_new(out, CEndpoint { engine, waiter, ended: VecDeque::new() })
    }
}

export! {
    free fn covey_endpoint_free(endpoint: *mut CEndpoint)
}

export! {
    fn covey_endpoint_listen(endpoint: *mut CEndpoint, name: *const c_char) {
        let (endpoint, name) = (held_mut(endpoint, "endpoint")?, text(name)?);
        let listening = endpoint.engine.transport().listen_at(place_of(name));
        listening.map_err(|error| refused("listen at", name, &error))
    }
}

export! {
    fn covey_endpoint_address(endpoint: *mut CEndpoint, into: *mut c_char, bytes: usize, needed: *mut usize) {
        let Some(address) = held_mut(endpoint, "endpoint")?.engine.transport().tcp_address() else {
            return Err(Refusal::of(Number::NoSuch, "it does not listen by TCP".to_owned()));
        };
        let mut text = address.to_string().into_bytes();
        text.push(0);
        give(needed, text.len())?;
        let into = room(into.cast::<u8>(), bytes, "the room for the address")?;
        let Some(into) = into.get_mut(..text.len()) else {
            let text = format!("the address has {} bytes, the room {bytes}", text.len());
            return Err(Refusal::of(Number::Room, text));
        };
        into.copy_from_slice(&text);
        Ok(())
    }
}

export! {
    fn covey_endpoint_accept(endpoint: *mut CEndpoint, peer: *mut u32) {
        let (endpoint, peer) = (held_mut(endpoint, "endpoint")?, place(peer)?);
        let met = endpoint.engine.transport().accept()?;
        peer.write(met.map_or(NO_PEER, |peer| peer.0));
        Ok(())
    }
}

export! {
    fn covey_endpoint_connect(endpoint: *mut CEndpoint, name: *const c_char, peer: *mut u32) {
        let (endpoint, name, peer) = (held_mut(endpoint, "endpoint")?, text(name)?, place(peer)?);
        let met = endpoint.engine.transport().connect_to(place_of(name));
        peer.write(met.map_err(|error| refused("connect to", name, &error))?.0);
        Ok(())
    }
}

export! {
    fn covey_endpoint_adopt(endpoint: *mut CEndpoint, socket: c_int, peer: *mut u32) {
        if socket < 0 || BorrowedFd::borrow_raw(socket).try_clone_to_owned().is_err() {
            return Err(Refusal::argument(format!("there is no socket {socket}")));
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let (endpoint, peer) = (held_mut(endpoint, "endpoint")?, place(peer)?);
        peer.write(endpoint.engine.transport().adopt(socket)?.0);
        Ok(())
    }
}

export! {
    fn covey_endpoint_alloc(endpoint: *mut CEndpoint, bytes: u64, out: *mut *mut c_void) {
        let (endpoint, out) = (held_mut(endpoint, "endpoint")?, place(out)?);
        let Some(memory) = endpoint.engine.transport().allocate(bytes) else {
            let text = format!("no room for {bytes} bytes: heap_bytes of covey_config bounds them");
            return Err(Refusal::of(Number::NoMemory, text));
        };
        out.write(std::ptr::with_exposed_provenance_mut(memory.address as usize));
        Ok(())
    }
}

export! {
    fn covey_endpoint_release(endpoint: *mut CEndpoint, memory: *mut c_void) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        if endpoint.engine.transport().release(span(memory, 0)) {
            return Ok(());
        }
        Err(Refusal::of(Number::NoSuch, format!("{memory:p} was not allocated here")))
    }
}
