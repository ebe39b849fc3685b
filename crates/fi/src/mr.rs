//! Memory registrations: of a domain, so of all its endpoints. Keys are the program's unless it asked for ours.

use crate::abi::{self, Fid, FidMr, MrAttr, Ops, OpsMr};
use crate::boundary::{Errno, Result, call, give, held, list, object, take};
use crate::cntr::CntrObject;
use crate::domain::{Domain, Shared, State};
use crate::ep::span;
use covey_io::os::addresses::Addresses;
use covey_io::os::mixed::Mixed;
use covey_uzura::{Engine, Fault, Key, Rights};
use covey_wire::Span;
use libc::iovec;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// Memory that peers may reach.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    key: Key,
    span: Span,
    /// None for memory that is only our side of operations.
    rights: Option<Rights>,
    /// Counters of what peers read and write of it.
    counters: [Option<usize>; 2],
    /// Nobody is let in any more.
    is_closing: bool,
}

impl Region {
    /// Lets the peers of an endpoint in.
    pub fn enter(&self, engine: &mut Engine<Mixed, Addresses>) -> Result<()> {
        let Some(rights) = self.rights.filter(|_| !self.is_closing) else { return Ok(()) };
        engine.register_as(self.key, self.span, rights).map_err(refused)
    }

    /// Lets nobody in any more. False while somebody still is within.
    fn leave(&self, engine: &mut Engine<Mixed, Addresses>) -> bool {
        // One that is not there was not entered.
        self.rights.is_none() || engine.revoke_within(self.key, Duration::ZERO) != Err(Fault::InUse)
    }
}

fn refused(fault: Fault) -> Errno {
    Errno(match fault {
        Fault::KeyTaken => abi::ENOKEY,
        Fault::Busy => libc::ENOMEM,
        _ => libc::EINVAL,
    })
}

/// `struct fid_mr`, and ours behind it.
#[repr(C)]
pub struct Mr {
    fid: FidMr,
    shared: Arc<Shared>,
    number: usize,
}

/// What is to be registered.
struct Wish {
    span: Span,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

impl Wish {
    /// The rights of peers, if they have any.
    fn rights(&self, shared: &Shared) -> Option<Rights> {
        let both = abi::REMOTE_READ | abi::REMOTE_WRITE;
        let has = |access: u64, rights: Rights| (self.access & access == access).then_some(rights);
        let all = [
            has(abi::REMOTE_READ, Rights::READ),
            has(abi::REMOTE_WRITE, Rights::WRITE.and(Rights::UPDATE)),
            has(both, Rights::ATOMIC),
            shared.has_virtual_addresses.then_some(Rights::BY_ADDRESS),
            shared.reports_access.then_some(Rights::REPORTED),
        ];
        let all = all.into_iter().flatten().reduce(Rights::and)?;
        (self.access & both != 0).then_some(all)
    }
}

/// # Safety
///
/// An open domain; a place for the registration.
unsafe fn register(domain: *mut Fid, wish: &Wish, out: *mut *mut FidMr) -> Result<c_int> {
    // SAFETY: the caller's promise.
    let shared = unsafe { &object::<Domain, _>(domain)?.shared };
    if wish.flags != 0 {
        return Err(Errno(abi::EBADFLAGS));
    }
    if wish.offset != 0 || out.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    let rights = wish.rights(shared);
    let (number, key) = shared.gate.with(|state| {
        let key = Key(if shared.chooses_keys { state.new_key()? } else { wish.key });
        let region =
            Region { key, span: wish.span, rights, counters: [None; 2], is_closing: false };
        state.register(region).map(|number| (number, key))
    })?;
    let fid = Fid { class: abi::CLASS_MR, context: wish.context, ops: &raw const OPS };
    let fid = FidMr { fid, mem_desc: std::ptr::null_mut(), key: key.0 };
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { give(out, Mr { fid, shared: shared.clone(), number }) }
}

impl State {
    fn new_key(&mut self) -> Result<u64> {
        // Nobody guesses it.
        Ok(u64::from_le_bytes(covey_io::os::random::bytes()?))
    }

    /// Lets the peers of all endpoints in, or of none.
    fn register(&mut self, region: Region) -> Result<usize> {
        let is_taken = |(_, other): (usize, &Region)| {
            other.rights.is_some() && region.rights.is_some() && other.key == region.key
        };
        if self.regions.each().any(is_taken) {
            return Err(Errno(abi::ENOKEY));
        }
        if region.rights.is_some() {
            for (_, endpoint) in self.endpoints.each_mut() {
                endpoint.engine.check_key(region.key).map_err(refused)?;
            }
        }
        for (_, endpoint) in self.endpoints.each_mut() {
            region.enter(&mut endpoint.engine)?;
        }
        Ok(self.regions.add(region))
    }

    /// Lets nobody in any more, at any endpoint, and forgets the registration. False while somebody still is within.
    fn close(&mut self, number: usize) -> bool {
        let Some(region) = self.regions.find(number) else { return true };
        region.is_closing = true;
        let region = *region;
        // At all of them, also where somebody is within at one.
        let mut is_left = true;
        for (_, endpoint) in self.endpoints.each_mut() {
            is_left &= region.leave(&mut endpoint.engine);
        }
        if !is_left {
            return false;
        }
        self.regions.remove(number);
        for counter in region.counters.into_iter().flatten() {
            if let Some(cntr) = self.cntrs.find(counter) {
                cntr.regions -= 1;
            }
        }
        true
    }
}

call! {
    entry reg(
        domain: *mut Fid,
        base: *const c_void,
        bytes: usize,
        access: u64,
        offset: u64,
        key: u64,
        flags: u64,
        out: *mut *mut FidMr,
        context: *mut c_void,
    ) -> c_int {
        let span = span(base.cast_mut(), bytes);
        register(domain, &Wish { span, access, offset, key, flags, context }, out)
    }
}

call! {
    entry regv(
        domain: *mut Fid,
        pieces: *const iovec,
        count: usize,
        access: u64,
        offset: u64,
        key: u64,
        flags: u64,
        out: *mut *mut FidMr,
        context: *mut c_void,
    ) -> c_int {
        let span = one(pieces, count)?;
        register(domain, &Wish { span, access, offset, key, flags, context }, out)
    }
}

call! {
    entry regattr(
        domain: *mut Fid, attr: *const MrAttr, flags: u64, out: *mut *mut FidMr,
    ) -> c_int {
        let attr = held(attr)?;
        // Memory of devices is not reached. What says which kind it is came with a later version.
        let says_kind = object::<Domain, _>(domain)?.shared.fabric.api_version >= abi::version(1, 10);
        if says_kind && attr.iface != 0 {
            return Err(Errno(libc::ENOSYS));
        }
        let MrAttr { access, offset, requested_key: key, context, .. } = *attr;
        let span = one(attr.mr_iov, attr.iov_count)?;
        register(domain, &Wish { span, access, offset, key, flags, context }, out)
    }
}

impl Mr {
    /// Counts what peers read or write here, as far as the domain hears of that.
    fn bind_cntr(&self, cntr: &CntrObject, flags: u64) -> Result<c_int> {
        if !self.shared.reports_access {
            return Err(Errno(libc::ENOSYS));
        }
        if !Arc::ptr_eq(&self.shared, &cntr.shared) {
            return Err(Errno(abi::EDOMAIN));
        }
        if flags == 0 || flags & !(abi::REMOTE_READ | abi::REMOTE_WRITE) != 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        self.shared.gate.with(|state| {
            let region = state.regions.find(self.number).ok_or(Errno(libc::EINVAL))?;
            let bound = state.cntrs.find(cntr.number).ok_or(Errno(libc::EINVAL))?;
            for (access, place) in ACCESSES.iter().zip(&mut region.counters) {
                if flags & access != 0 {
                    if place.is_some() {
                        return Err(Errno(libc::EINVAL));
                    }
                    *place = Some(cntr.number);
                    bound.regions += 1;
                }
            }
            for (_, endpoint) in state.endpoints.each_mut() {
                endpoint.wakes(bound.waker())?;
            }
            Ok(0)
        })
    }
}

/// Of a region's counters.
const ACCESSES: [u64; 2] = [abi::REMOTE_READ, abi::REMOTE_WRITE];

impl Region {
    /// The counter of an access to memory with a key.
    pub fn counter(&self, key: u64, access: u64) -> Option<usize> {
        let at = ACCESSES.iter().position(|one| *one == access)?;
        self.counters[at].filter(|_| self.key == Key(key) && self.rights.is_some())
    }
}

/// Memory in one piece.
///
/// # Safety
///
/// As many pieces as it says.
unsafe fn one(pieces: *const iovec, count: usize) -> Result<Span> {
    // SAFETY: the caller's promise.
    match unsafe { list(pieces, count) }? {
        [one] => Ok(span(one.iov_base, one.iov_len)),
        _ => Err(Errno(libc::EINVAL)),
    }
}

call! {
    entry close(fid: *mut Fid) -> c_int {
        let mr: &Mr = object(fid)?;
        // Who hears that the memory is in use may close it again later.
        mr.shared.until_done(|state| state.close(mr.number))?;
        drop(take::<Mr, _>(fid)?);
        Ok(0)
    }
}

call! {
    entry bind(fid: *mut Fid, to: *mut Fid, flags: u64) -> c_int {
        match object::<Fid, _>(to)?.class {
            // It is every endpoint's.
            abi::CLASS_EP => Ok(0),
            abi::CLASS_CNTR => object::<Mr, _>(fid)?.bind_cntr(object(to)?, flags),
            _ => Err(Errno(libc::ENOSYS)),
        }
    }
}

call! {
    entry control(_fid: *mut Fid, command: c_int, _argument: *mut c_void) -> c_int {
        match command {
            abi::ENABLE => Ok(0),
            _ => Err(Errno(libc::ENOSYS)),
        }
    }
}

static OPS: Ops = Ops { close: Some(close), bind: Some(bind), control: Some(control), ..Ops::NONE };

pub static OPS_MR: OpsMr =
    OpsMr { size: size_of::<OpsMr>(), reg: Some(reg), regv: Some(regv), regattr: Some(regattr) };
