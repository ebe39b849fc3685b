//! Address vectors: the addresses that a program was given, by small numbers. Map and table are the same here.

use crate::abi::{self, AvAttr, FiAddr, Fid, FidAv, Ops, OpsAv};
use crate::boundary::{Errno, Result, call, give, list, object, put, put_bytes, take};
use crate::domain::{Shared, State};
use crate::eq;
use crate::host;
use covey_io::os::mixed::{ADDRESS_BYTES, Address};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

/// The addresses, by `fi_addr_t`.
#[derive(Debug, Default)]
pub struct Av {
    all: Vec<Option<Address>>,
    /// The first number of each address: who sends is looked up by it.
    numbers: HashMap<Address, usize>,
    /// Numbers whose address another one had already.
    doubles: usize,
    free: Vec<usize>,
    pub users: usize,
}

impl Av {
    pub fn at(&self, at: FiAddr) -> Option<&Address> {
        self.all.get(usize::try_from(at).ok()?)?.as_ref()
    }

    /// The number of an address, if it is there.
    pub fn find(&self, address: &Address) -> Option<FiAddr> {
        self.numbers.get(address).map(|at| *at as FiAddr)
    }

    fn add(&mut self, address: Address) -> FiAddr {
        let at = match self.free.pop() {
            Some(at) => {
                self.all[at] = Some(address);
                at
            }
            None => {
                self.all.push(Some(address));
                self.all.len() - 1
            }
        };
        if *self.numbers.entry(address).or_insert(at) != at {
            self.doubles += 1;
        }
        at as FiAddr
    }

    /// A number is that of an address no more; another one may still be.
    fn forget(&mut self, address: Address, at: usize) {
        if self.numbers.get(&address) != Some(&at) {
            self.doubles -= 1;
            return;
        }
        self.numbers.remove(&address);
        let mut others = self.all.iter().take(if self.doubles > 0 { usize::MAX } else { 0 });
        if let Some(other) = others.position(|one| *one == Some(address)) {
            self.doubles -= 1;
            self.numbers.insert(address, other);
        }
    }

    fn remove(&mut self, at: FiAddr) -> Result<()> {
        let place =
            usize::try_from(at).ok().filter(|at| self.all.get(*at).is_some_and(Option::is_some));
        let at = place.ok_or(Errno(libc::EINVAL))?;
        if let Some(address) = self.all[at].take() {
            self.forget(address, at);
        }
        self.free.push(at);
        Ok(())
    }
}

/// `struct fid_av`, and ours behind it.
#[repr(C)]
pub struct AvObject {
    fid: FidAv,
    pub shared: Arc<Shared>,
    pub number: usize,
    /// Insertions are reported to an event queue.
    reports: bool,
    eq: std::sync::OnceLock<Arc<eq::Shared>>,
}

/// # Safety
///
/// As `fi_av_open`.
pub unsafe fn open(
    shared: &Arc<Shared>,
    attr: &AvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> Result<c_int> {
    if !(abi::AV_UNSPEC..=abi::AV_TABLE).contains(&attr.av_type) || attr.rx_ctx_bits != 0 {
        return Err(Errno(libc::EINVAL));
    }
    // Vectors that several processes share are not offered.
    if !attr.name.is_null() || attr.flags & !abi::COMPLETION != 0 {
        return Err(Errno(libc::ENOSYS));
    }
    let number = shared.gate.with(|state| state.avs.add(Av::default()));
    let fid = Fid { class: abi::CLASS_AV, context, ops: &raw const OPS };
    let fid = FidAv { fid, ops: &raw const AV_OPS };
    let (shared, reports) = (shared.clone(), attr.flags & abi::COMPLETION != 0);
    // SAFETY: the caller's promise.
    unsafe { give(out, AvObject { fid, shared, number, reports, eq: Default::default() }) }
}

impl AvObject {
    fn with<R>(&self, work: impl FnOnce(&mut Av) -> Result<R>) -> Result<R> {
        let find = |state: &mut crate::domain::State| {
            state.avs.find(self.number).ok_or(Errno(libc::EINVAL)).and_then(work)
        };
        self.shared.gate.with(find)
    }

    /// What an insertion answers: how many there are now, or that it is reported elsewhere.
    fn inserted(&self, count: usize, context: *mut c_void) -> c_int {
        match self.eq.get().filter(|_| self.reports) {
            None => count as c_int,
            Some(eq) => {
                eq.report(
                    abi::AV_COMPLETE,
                    (&raw const self.fid.fid).cast_mut(),
                    context,
                    count as u64,
                );
                0
            }
        }
    }
}

call! {
    entry close(fid: *mut Fid) -> c_int {
        let av: &AvObject = object(fid)?;
        av.shared.gate.with(|state| {
            if state.avs.look(av.number).is_some_and(|av| av.users > 0) {
                return Err(Errno(libc::EBUSY));
            }
            state.avs.remove(av.number);
            Ok(())
        })?;
        drop(take::<AvObject, _>(fid)?);
        Ok(0)
    }
}

call! {
    entry bind(fid: *mut Fid, to: *mut Fid, _flags: u64) -> c_int {
        let av: &AvObject = object(fid)?;
        let eq = eq::shared_of(to)?;
        av.eq.set(eq).map_err(|_| Errno(libc::EINVAL))?;
        Ok(0)
    }
}

call! {
    entry insert(
        av: *mut FidAv,
        addresses: *const c_void,
        count: usize,
        out: *mut FiAddr,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        let av: &AvObject = object(av)?;
        if flags & !(abi::MORE | abi::SYNC_ERR) != 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        let all = list(addresses.cast::<[u8; ADDRESS_BYTES]>(), count)?;
        let errors = if flags & abi::SYNC_ERR == 0 { std::ptr::null_mut() } else { context.cast::<c_int>() };
        let done = av.with(|inner| {
            let mut done = 0;
            for (at, bytes) in all.iter().enumerate() {
                let address = Address::decode(bytes);
                done += usize::from(address.is_some());
                let error = if address.is_some() { 0 } else { libc::EINVAL };
                let number = address.map_or(abi::ADDR_UNSPEC, |address| inner.add(address));
                if !out.is_null() {
                    put(out.add(at), number);
                }
                if !errors.is_null() {
                    put(errors.add(at), error);
                }
            }
            Ok(done)
        })?;
        Ok(av.inserted(done, context))
    }
}

call! {
    entry insertsvc(
        av: *mut FidAv,
        node: *const c_char,
        service: *const c_char,
        out: *mut FiAddr,
        _flags: u64,
        context: *mut c_void,
    ) -> c_int {
        let av: &AvObject = object(av)?;
        let text = |text: *const c_char| (!text.is_null()).then(|| CStr::from_ptr(text));
        if node.is_null() || service.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let found = host::resolve(text(node), text(service)).ok_or(Errno(libc::EINVAL))?;
        let number = av.with(|inner| Ok(inner.add(Address::of_tcp(found))))?;
        put(out, number);
        Ok(av.inserted(1, context))
    }
}

call! {
    entry remove(av: *mut FidAv, numbers: *mut FiAddr, count: usize, _flags: u64) -> c_int {
        let av: &AvObject = object(av)?;
        let all = list(numbers.cast_const(), count)?;
        av.shared.gate.with(|state| {
            let State { avs, endpoints, .. } = state;
            let inner = avs.find(av.number).ok_or(Errno(libc::EINVAL))?;
            for number in all {
                inner.remove(*number)?;
                endpoints.each_mut().for_each(|(_, ep)| ep.forget(av.number, *number));
            }
            Ok(0)
        })
    }
}

call! {
    entry lookup(av: *mut FidAv, number: FiAddr, into: *mut c_void, bytes: *mut usize) -> c_int {
        let av: &AvObject = object(av)?;
        let address = av.with(|inner| inner.at(number).copied().ok_or(Errno(libc::EINVAL)))?;
        let room = bytes.as_mut().ok_or(Errno(libc::EINVAL))?;
        put_bytes(into.cast(), *room, &address.encode());
        *room = ADDRESS_BYTES;
        Ok(0)
    }
}

call! {
    entry straddr(
        _av: *mut FidAv, address: *const c_void, into: *mut c_char, bytes: *mut usize,
    ) -> *const c_char {
        let all = list(address.cast::<[u8; ADDRESS_BYTES]>(), 1)?;
        let text = Address::decode(&all[0]).map_or("no address".to_owned(), |one| one.to_string());
        let text = CString::new(text).unwrap_or_default();
        let room = bytes.as_mut().ok_or(Errno(libc::EINVAL))?;
        put_bytes(into.cast(), *room, text.as_bytes_with_nul());
        if *room > 0 && *room < text.as_bytes_with_nul().len() && !into.is_null() {
            put(into.add(*room - 1), 0);
        }
        *room = text.as_bytes_with_nul().len();
        Ok(into.cast_const())
    }
}

static OPS: Ops = Ops { close: Some(close), bind: Some(bind), ..Ops::NONE };

static AV_OPS: OpsAv = OpsAv {
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    ..OpsAv::NONE
};
