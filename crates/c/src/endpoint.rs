//! Endpoints: what they are, their keys and layouts.

use crate::boundary::{Result, export, give, held, held_mut};
use crate::meeting::Blocks;
use crate::operations::CCompletion;
use crate::results::{Number, Refusal};
use covey_io::os::addresses::Addresses;
use covey_io::os::packets::Tcp;
use covey_io::os::shm::{Settings, Shm, Waiter};
use covey_layout::Layout;
use covey_uzura::{Config, Engine, Form, Key, Rights};
use covey_wire::Span;
use std::collections::VecDeque;
use std::ffi::c_void;

/// The engine over one of its transports, on all memory of the process.
// There are few endpoints, and every operation goes through here.
#[allow(clippy::large_enum_variant)]
pub enum Over {
    Shm(Engine<Shm, Addresses>),
    Tcp(Engine<Tcp, Addresses>),
}

/// Does the same with the engine over either transport.
macro_rules! with_engine {
    ($over:expr, $engine:ident => $work:expr) => {
        match $over {
            $crate::endpoint::Over::Shm($engine) => $work,
            $crate::endpoint::Over::Tcp($engine) => $work,
        }
    };
}
pub(crate) use with_engine;

/// `covey_endpoint`.
pub struct CEndpoint {
    pub over: Over,
    pub waiter: Waiter,
    /// Given out by an endpoint over TCP.
    pub blocks: Blocks,
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

/// Memory as engines know it: its address may come back as a pointer.
pub fn span(base: *mut c_void, bytes: u64) -> Span {
    Span::new(base.expose_provenance() as u64, bytes)
}

export! {
    fn covey_endpoint_commit(endpoint: *mut CEndpoint, layout: *const Layout, count: u64, form: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let layout = held(layout, "layout")?;
        let made = with_engine!(&mut endpoint.over, engine => engine.commit(layout, count))?;
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
            Some(form) => Ok(with_engine!(&mut endpoint.over, engine => engine.free(form))?),
            None => Err(Refusal::argument("form 0 is none".to_owned())),
        }
    }
}

export! {
    fn covey_endpoint_register(endpoint: *mut CEndpoint, base: *mut c_void, bytes: u64, rights: u32, key: *mut u64) {
        let rights = Rights::of_bits(rights);
        let endpoint = held_mut(endpoint, "endpoint")?;
        let base = span(base, bytes);
        let made = with_engine!(&mut endpoint.over, engine => engine.register(base, rights))?;
        give(key, made.0)
    }
}

export! {
    fn covey_endpoint_revoke(endpoint: *mut CEndpoint, key: u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        Ok(with_engine!(&mut endpoint.over, engine => engine.revoke(Key(key)))?)
    }
}

export! {
    fn covey_endpoint_stats(endpoint: *const CEndpoint, out: *mut CStats) {
        let endpoint = held(endpoint, "endpoint")?;
        let stats = with_engine!(&endpoint.over, engine => engine.stats());
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
