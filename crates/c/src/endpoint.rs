//! Endpoints: made, and brought together with peers; memory, keys and layouts of their own.

use crate::boundary::{Result, export, give, give_new, held, held_mut};
use crate::operations::CCompletion;
use crate::results::{Number, Refusal};
use covey_io::os::addresses::Addresses;
use covey_io::os::shm::{Patience, Settings, Shm, Waiter};
use covey_layout::Layout;
use covey_uzura::{Config, Engine, Form, Key, Rights};
use covey_wire::Span;
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `covey_endpoint`.
pub struct CEndpoint {
    /// The engine over shared memory, on all memory of the process.
    pub engine: Engine<Shm, Addresses>,
    pub waiter: Waiter,
    /// Of operations that ended in the call that began them.
    pub ended: VecDeque<CCompletion>,
}

/// `struct covey_config`; 0 means the default.
#[repr(C)]
pub struct CConfig {
    eager_bytes_max: u64,
    window_bytes: u64,
    near_table_bytes: u64,
    heap_bytes: u64,
    peers_max: u64,
}

/// `struct covey_stats`.
#[repr(C)]
pub struct CStats {
    near_hits: u64,
    near_misses: u64,
    eager: u64,
    rendezvous: u64,
    unexpected: u64,
    unexpected_bytes: u64,
    bytes_copied: u64,
    bytes_held: u64,
    direct: u64,
}

/// What `accept` tells when nobody has come, and the peer of a receive from anybody.
pub const NO_PEER: u32 = u32::MAX;

impl CConfig {
    fn sizes(&self) -> Result<(Settings, Config)> {
        let (mut settings, mut config) = (Settings::default(), Config::default());
        if self.peers_max > 0 {
            let peers = u32::try_from(self.peers_max);
            settings.peers_max = peers
                .map_err(|_| Refusal::argument(format!("{} peers are too many", self.peers_max)))?;
        }
        choose(&mut settings.heap_bytes, self.heap_bytes);
        choose(&mut config.window_bytes, self.window_bytes);
        for (size, wish) in [
            (&mut config.eager_bytes_max, self.eager_bytes_max),
            (&mut config.near_table_bytes, self.near_table_bytes),
        ] {
            let mut bytes = *size as u64;
            choose(&mut bytes, wish);
            *size = bytes as usize;
        }
        Ok((settings, config))
    }
}

fn choose(size: &mut u64, wish: u64) {
    if wish > 0 {
        *size = wish;
    }
}

/// # Safety
///
/// Null, or a string with an end.
unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    if text.is_null() {
        return Err(Refusal::argument("the path is null".to_owned()));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Memory as engines know it: its address may come back as a pointer.
pub fn span(base: *mut c_void, bytes: u64) -> Span {
    Span::new(base.expose_provenance() as u64, bytes)
}

export! {
    fn covey_endpoint_new(config: *const CConfig, out: *mut *mut CEndpoint) {
        let (settings, mut config) = match config.as_ref() {
            Some(config) => config.sizes()?,
            None => Default::default(),
        };
        let seed = covey_io::os::random::bytes::<8>().map(u64::from_le_bytes);
        config.seed = seed.map_err(|error| Refusal::of(Number::Io, error.to_string()))?;
        let shm = Shm::new(settings)?;
        let engine = Engine::new(shm, Addresses::new(), config);
        let waiter = Waiter::new(Patience::default());
        give_new(out, CEndpoint { engine, waiter, ended: VecDeque::new() })
    }
}

export! {
    free fn covey_endpoint_free(endpoint: *mut CEndpoint)
}

export! {
    fn covey_endpoint_listen(endpoint: *mut CEndpoint, name: *const c_char) {
        Ok(held_mut(endpoint, "endpoint")?.engine.transport().listen(path(name)?)?)
    }
}

export! {
    fn covey_endpoint_accept(endpoint: *mut CEndpoint, peer: *mut u32) {
        let met = held_mut(endpoint, "endpoint")?.engine.transport().accept()?;
        give(peer, met.map_or(NO_PEER, |peer| peer.0))
    }
}

export! {
    fn covey_endpoint_connect(endpoint: *mut CEndpoint, name: *const c_char, peer: *mut u32) {
        let met = held_mut(endpoint, "endpoint")?.engine.transport().connect(path(name)?)?;
        give(peer, met.0)
    }
}

export! {
    fn covey_endpoint_alloc(endpoint: *mut CEndpoint, bytes: u64, out: *mut *mut c_void) {
        let transport = held_mut(endpoint, "endpoint")?.engine.transport();
        let span = transport.allocate(bytes).ok_or_else(|| {
            Refusal::of(Number::NoMemory, format!("no room for {bytes} bytes in the heap"))
        })?;
        give(out, std::ptr::with_exposed_provenance_mut(span.address as usize))
    }
}

export! {
    fn covey_endpoint_release(endpoint: *mut CEndpoint, memory: *mut c_void) {
        let transport = held_mut(endpoint, "endpoint")?.engine.transport();
        if transport.release(span(memory, 0)) {
            return Ok(());
        }
        Err(Refusal::of(Number::NoSuch, format!("{memory:p} was not allocated here")))
    }
}

export! {
    fn covey_endpoint_commit(endpoint: *mut CEndpoint, layout: *const Layout, count: u64, form: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let made = endpoint.engine.commit(held(layout, "layout")?, count)?;
        // 0 is no layout.
        give(form, u64::from(made.number()) + 1)
    }
}

/// The form of a number of C; `None` for 0.
pub fn form(number: u64) -> Result<Option<Form>> {
    let Some(index) = number.checked_sub(1) else { return Ok(None) };
    match u32::try_from(index) {
        Ok(index) => Ok(Some(Form::of_number(index))),
        Err(_) => Err(Refusal::of(Number::NoSuch, format!("there is no form {number}"))),
    }
}

export! {
    fn covey_endpoint_uncommit(endpoint: *mut CEndpoint, number: u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        match form(number)? {
            Some(form) => Ok(endpoint.engine.free(form)?),
            None => Err(Refusal::argument("form 0 is none".to_owned())),
        }
    }
}

export! {
    fn covey_endpoint_register(endpoint: *mut CEndpoint, base: *mut c_void, bytes: u64, rights: u32, key: *mut u64) {
        let rights = Rights::of_bits(rights);
        let made = held_mut(endpoint, "endpoint")?.engine.register(span(base, bytes), rights)?;
        give(key, made.0)
    }
}

export! {
    fn covey_endpoint_revoke(endpoint: *mut CEndpoint, key: u64) {
        Ok(held_mut(endpoint, "endpoint")?.engine.revoke(Key(key))?)
    }
}

export! {
    fn covey_endpoint_stats(endpoint: *const CEndpoint, out: *mut CStats) {
        let stats = held(endpoint, "endpoint")?.engine.stats();
        give(out, CStats {
            near_hits: stats.near_hits,
            near_misses: stats.near_misses,
            eager: stats.eager,
            rendezvous: stats.rendezvous,
            unexpected: stats.unexpected,
            unexpected_bytes: stats.unexpected_bytes,
            bytes_copied: stats.bytes_copied,
            bytes_held: stats.bytes_held,
            direct: stats.direct,
        })
    }
}
