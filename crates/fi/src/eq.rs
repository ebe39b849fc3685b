//! Event queues: what is reported once, and what a program writes itself.

use crate::abi::{self, EqAttr, EqEntry, EqErrEntry, Fid, FidEq, Ops, OpsEq};
use crate::boundary::{Errno, Result, call, give, list, object, put, put_bytes, take};
use crate::fabric;
use crate::wait::{self, Bell};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What reporters of a queue hold.
pub struct Shared {
    events: Mutex<VecDeque<(u32, Vec<u8>)>>,
    bell: Bell,
}

impl Shared {
    /// Reports something of an object.
    pub fn report(&self, event: u32, fid: *mut Fid, context: *mut c_void, data: u64) {
        let entry = EqEntry { fid, context, data };
        // SAFETY: three words, without gaps.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of::<EqEntry>())
        };
        self.push(event, bytes.to_vec());
    }

    fn push(&self, event: u32, bytes: Vec<u8>) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push_back((event, bytes));
        self.bell.ring();
    }

    /// The next event, which stays where it is only looked at.
    fn next(&self, room: usize, stays: bool) -> Result<(u32, Vec<u8>)> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, bytes) = events.front().ok_or(Errno(libc::EAGAIN))?;
        if bytes.len() > room {
            return Err(Errno(abi::ETOOSMALL));
        }
        let next = if stays { events.front().cloned() } else { events.pop_front() };
        if events.is_empty() {
            self.bell.silence();
        }
        next.ok_or(Errno(libc::EAGAIN))
    }

    fn is_empty(&self) -> bool {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// `struct fid_eq`, and ours behind it.
#[repr(C)]
pub struct Eq {
    fid: FidEq,
    shared: Arc<Shared>,
    _fabric: Arc<fabric::Shared>,
    wait_obj: c_int,
}

/// # Safety
///
/// As `fi_eq_open`.
pub unsafe fn open(
    fabric: &Arc<fabric::Shared>,
    attr: Option<&EqAttr>,
    out: *mut *mut FidEq,
    context: *mut c_void,
) -> Result<c_int> {
    let wait_obj = wait::offered(attr.map_or(abi::WAIT_NONE, |attr| attr.wait_obj))?;
    let fid = Fid { class: abi::CLASS_EQ, context, ops: &raw const OPS };
    let fid = FidEq { fid, ops: &raw const EQ_OPS };
    let shared = Arc::new(Shared { events: Mutex::default(), bell: Bell::new()? });
    // SAFETY: the caller's promise.
    unsafe { give(out, Eq { fid, shared, _fabric: fabric.clone(), wait_obj }) }
}

/// What reporters of a queue hold.
///
/// # Safety
///
/// An open object of ours.
pub unsafe fn shared_of(fid: *mut Fid) -> Result<Arc<Shared>> {
    // SAFETY: the caller's promise; all objects begin with this.
    unsafe {
        if object::<Fid, _>(fid)?.class != abi::CLASS_EQ {
            return Err(Errno(libc::EINVAL));
        }
        Ok(object::<Eq, _>(fid)?.shared.clone())
    }
}

/// Whether a program may sleep until something is reported.
///
/// # Safety
///
/// An open event queue.
pub unsafe fn try_wait(fid: *mut Fid) -> Result<()> {
    // SAFETY: the caller's promise.
    let shared = unsafe { shared_of(fid) }?;
    if shared.is_empty() { Ok(()) } else { Err(Errno(libc::EAGAIN)) }
}

/// # Safety
///
/// As `fi_eq_read`.
unsafe fn give_next(
    eq: &Eq,
    event: *mut u32,
    into: *mut c_void,
    room: usize,
    flags: u64,
) -> Result<isize> {
    let (number, bytes) = eq.shared.next(room, flags & abi::PEEK != 0)?;
    // SAFETY: the caller's promise.
    unsafe {
        put(event, number);
        put_bytes(into.cast(), room, &bytes);
    }
    Ok(bytes.len() as isize)
}

call! {
    entry close(fid: *mut Fid) -> c_int {
        drop(take::<Eq, _>(fid)?);
        Ok(0)
    }
}

call! {
    entry control(fid: *mut Fid, command: c_int, into: *mut c_void) -> c_int {
        let eq: &Eq = object(fid)?;
        wait::control(command, eq.wait_obj, eq.shared.bell.descriptor(), into)
    }
}

call! {
    entry read(
        eq: *mut FidEq, event: *mut u32, into: *mut c_void, room: usize, flags: u64,
    ) -> isize {
        give_next(object(eq)?, event, into, room, flags)
    }
}

call! {
    entry sread(
        eq: *mut FidEq,
        event: *mut u32,
        into: *mut c_void,
        room: usize,
        timeout_ms: c_int,
        flags: u64,
    ) -> isize {
        let eq: &Eq = object(eq)?;
        let until = wait::until(timeout_ms);
        loop {
            match give_next(eq, event, into, room, flags) {
                Err(Errno(libc::EAGAIN)) if until.is_none_or(|until| Instant::now() < until) => {
                    eq.shared.bell.wait(wait::left(until, Duration::from_millis(100)));
                }
                done => return done,
            }
        }
    }
}

call! {
    entry readerr(eq: *mut FidEq, _into: *mut EqErrEntry, _flags: u64) -> isize {
        // Nothing that is reported here can fail.
        let _: &Eq = object(eq)?;
        Err(Errno(libc::EAGAIN))
    }
}

call! {
    entry write(
        eq: *mut FidEq, event: u32, bytes: *const c_void, count: usize, _flags: u64,
    ) -> isize {
        let eq: &Eq = object(eq)?;
        eq.shared.push(event, list(bytes.cast::<u8>(), count)?.to_vec());
        Ok(count as isize)
    }
}

call! {
    entry strerror(
        _eq: *mut FidEq, number: c_int, _data: *const c_void, into: *mut c_char, room: usize,
    ) -> *const c_char {
        Ok(wait::error_text(number, into, room))
    }
}

static OPS: Ops = Ops { close: Some(close), control: Some(control), ..Ops::NONE };

static EQ_OPS: OpsEq = OpsEq {
    size: size_of::<OpsEq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
};
