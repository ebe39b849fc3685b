//! Endpoints made and brought together with peers, and memory for them.

use crate::boundary::{Result, export, give, give_new, held_mut, place, room};
use crate::endpoint::{CConfig, CEndpoint, NO_PEER, Over, span};
use crate::results::{Number, Refusal};
use covey_io::boundary::transport::{self, Blocks};
use covey_io::os::addresses::Addresses;
use covey_io::os::packets::{Options, Tcp};
use covey_io::os::shm::{Patience, Shm, Waiter};
use covey_uzura::{Config, Engine};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

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

fn address(name: &CStr) -> Result<SocketAddr> {
    transport::address(name).ok_or_else(|| {
        let text = format!("{name:?} is no address: 127.0.0.1:4000 and [::1]:4000 are");
        Refusal::argument(text)
    })
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

fn new(over: Over) -> CEndpoint {
    let waiter = Waiter::new(Patience::default());
    CEndpoint { over, waiter, blocks: Blocks::default(), ended: VecDeque::new() }
}

export! {
    fn covey_endpoint_new(config: *const CConfig, out: *mut *mut CEndpoint) {
        let (settings, config) = match config.as_ref() {
            Some(config) => config.sizes()?,
            None => Default::default(),
        };
        let engine = Engine::new(Shm::new(settings)?, Addresses::new(), seeded(config)?);
        give_new(out, new(Over::Shm(engine)))
    }
}

export! {
    fn covey_endpoint_new_tcp(config: *const CConfig, out: *mut *mut CEndpoint) {
        let (_, config) = match config.as_ref() {
            Some(config) => config.sizes()?,
            None => Default::default(),
        };
        let tcp = Tcp::new(Options::default())?;
        let engine = Engine::new(tcp, Addresses::new(), seeded(config)?);
        give_new(out, new(Over::Tcp(engine)))
    }
}

export! {
    free fn covey_endpoint_free(endpoint: *mut CEndpoint)
}

export! {
    fn covey_endpoint_listen(endpoint: *mut CEndpoint, name: *const c_char) {
        let name = text(name)?;
        let done = match &mut held_mut(endpoint, "endpoint")?.over {
            Over::Shm(engine) => engine.transport().listen(transport::path(name)),
            Over::Tcp(engine) => engine.transport().listen_at(address(name)?).map(drop),
        };
        done.map_err(|error| refused("listen at", name, &error))
    }
}

export! {
    fn covey_endpoint_address(endpoint: *mut CEndpoint, into: *mut c_char, bytes: usize, needed: *mut usize) {
        let address = match &mut held_mut(endpoint, "endpoint")?.over {
            Over::Tcp(engine) => engine.transport().address(),
            Over::Shm(_) => None,
        };
        let Some(address) = address else {
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
        let met = match &mut endpoint.over {
            Over::Shm(engine) => engine.transport().accept()?,
            Over::Tcp(engine) => engine.transport().accept(),
        };
        peer.write(met.map_or(NO_PEER, |peer| peer.0));
        Ok(())
    }
}

export! {
    fn covey_endpoint_connect(endpoint: *mut CEndpoint, name: *const c_char, peer: *mut u32) {
        let (endpoint, name, peer) = (held_mut(endpoint, "endpoint")?, text(name)?, place(peer)?);
        let met = match &mut endpoint.over {
            Over::Shm(engine) => engine.transport().connect(transport::path(name)),
            Over::Tcp(engine) => engine.transport().connect(address(name)?),
        };
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
        let met = match &mut endpoint.over {
            Over::Shm(engine) => engine.transport().meet(UnixStream::from(socket))?,
            Over::Tcp(engine) => engine.transport().adopt(TcpStream::from(socket))?,
        };
        peer.write(met.0);
        Ok(())
    }
}

export! {
    fn covey_endpoint_alloc(endpoint: *mut CEndpoint, bytes: u64, out: *mut *mut c_void) {
        let (endpoint, out) = (held_mut(endpoint, "endpoint")?, place(out)?);
        let memory = match &mut endpoint.over {
            Over::Shm(engine) => engine.transport().allocate(bytes).map(|span| {
                std::ptr::with_exposed_provenance_mut(span.address as usize)
            }),
            Over::Tcp(_) => endpoint.blocks.allocate(bytes),
        };
        let Some(memory) = memory else {
            let text = format!("no room for {bytes} bytes: heap_bytes of covey_config bounds them");
            return Err(Refusal::of(Number::NoMemory, text));
        };
        out.write(memory);
        Ok(())
    }
}

export! {
    fn covey_endpoint_release(endpoint: *mut CEndpoint, memory: *mut c_void) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let was_ours = match &mut endpoint.over {
            Over::Shm(engine) => engine.transport().release(span(memory, 0)),
            Over::Tcp(_) => endpoint.blocks.release(memory),
        };
        if was_ours {
            return Ok(());
        }
        Err(Refusal::of(Number::NoSuch, format!("{memory:p} was not allocated here")))
    }
}
