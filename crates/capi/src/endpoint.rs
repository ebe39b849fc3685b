//! Endpoints: what they are, their keys and layouts.

use crate::boundary::{Result, export, give, held, held_mut, place};
use crate::operations::CCompletion;
use crate::results::{Number, Refusal};
use covey_io::os::addresses::Addresses;
use covey_io::os::mixed::Mixed;
use covey_io::os::shm::{Settings, Waiter};
use covey_layout::Layout;
use covey_uzura::{Config, Engine, Form, Key, Rights};
use covey_wire::Span;
use std::collections::VecDeque;
use std::ffi::c_void;

/// `covey_endpoint`.
pub struct CEndpoint {
    /// On all memory of the process.
    pub engine: Engine<Mixed, Addresses>,
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
    pub fn sizes(&self) -> Result<(Settings, Config)> {
        let (mut settings, mut config) = (Settings::default(), Config::default());
        let or = |otherwise: u64, wish| if wish > 0 { wish } else { otherwise };
        let eager = or(config.eager_bytes_max as u64, self.eager_bytes_max);
        config.eager_bytes_max = bounded("eager_bytes_max", eager, SIZE_MAX)? as usize;
        let window = or(config.window_bytes, self.window_bytes);
        config.window_bytes = bounded("window_bytes", window, SIZE_MAX)?;
        let near = or(config.near_table_bytes as u64, self.near_table_bytes);
        config.near_table_bytes = bounded("near_table_bytes", near, NEAR_BYTES_MAX)? as usize;
        let heap = or(settings.heap_bytes, self.heap_bytes);
        settings.heap_bytes = bounded("heap_bytes", heap, SIZE_MAX)?;
        let peers = or(settings.peers_max.into(), self.peers_max);
        settings.peers_max = bounded("peers_max", peers, PEERS_MAX)? as u32;
        Ok((settings, config))
    }
}

fn bounded(name: &str, wish: u64, most: u64) -> Result<u64> {
    if wish > most {
        return Err(Refusal::argument(format!("{name} is {wish}: {most} is the most")));
    }
    Ok(wish)
}

/// Sizes that are only promised: pages that are not used take no memory.
const SIZE_MAX: u64 = 1 << 40;
/// The near table is there at once.
const NEAR_BYTES_MAX: u64 = 1 << 30;
/// Each has an inbox of its own.
const PEERS_MAX: u64 = 1 << 16;

/// Memory as engines know it: its address may come back as a pointer.
pub fn span(base: *mut c_void, bytes: u64) -> Span {
    Span::new(base.expose_provenance() as u64, bytes)
}

export! {
    fn covey_endpoint_commit(endpoint: *mut CEndpoint, layout: *const Layout, count: u64, form: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (layout, form) = (held(layout, "layout")?, place(form)?);
        let made = endpoint.engine.commit(layout, count)?;
        // 0 is no layout.
        form.write(u64::from(made.number()) + 1);
        Ok(())
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

/// Memory that peers may be let into.
fn registered(base: *mut c_void, bytes: u64) -> Result<Span> {
    let base = span(base, bytes);
    if bytes > 0 && (base.address == 0 || base.address.checked_add(bytes).is_none()) {
        let text = format!("{bytes} bytes at {:#x} are no memory", base.address);
        return Err(Refusal::argument(text));
    }
    Ok(base)
}

fn permitted(bits: u32) -> Result<Rights> {
    if bits == 0 || bits > RIGHTS_MAX {
        let text = "COVEY_READ 1, COVEY_WRITE 2, COVEY_ATOMIC 4, added together";
        return Err(Refusal::argument(format!("there are no rights {bits}: {text}")));
    }
    Ok(Rights::of_bits(bits))
}

/// All of `enum covey_rights`.
const RIGHTS_MAX: u32 = 7;

export! {
    fn covey_endpoint_register(endpoint: *mut CEndpoint, base: *mut c_void, bytes: u64, rights: u32, key: *mut u64) {
        let (endpoint, key) = (held_mut(endpoint, "endpoint")?, place(key)?);
        let (base, rights) = (registered(base, bytes)?, permitted(rights)?);
        let made = endpoint.engine.register(base, rights)?;
        key.write(made.0);
        Ok(())
    }
}

export! {
    fn covey_endpoint_revoke(endpoint: *mut CEndpoint, key: u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        Ok(endpoint.engine.revoke(Key(key))?)
    }
}

export! {
    fn covey_endpoint_stats(endpoint: *const CEndpoint, out: *mut CStats) {
        let endpoint = held(endpoint, "endpoint")?;
        let stats = endpoint.engine.stats();
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
