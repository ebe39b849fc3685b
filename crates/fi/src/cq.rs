//! Completion queues: what has ended, in the format that the program wants.

use crate::abi::{self, CqAttr, CqEntry, CqErrEntry, FiAddr, Fid, FidCq, Ops, OpsCq};
use crate::boundary::{Errno, Result, call, give, object, put, take};
use crate::domain::{Shared, State};
use crate::wait::{self, Waker};
use covey_wire::transport::Glance;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The end of an operation.
#[derive(Clone, Copy)]
pub struct Entry {
    pub entry: CqEntry,
    pub source: FiAddr,
    /// Its error, and the bytes that were lost.
    pub failed: Option<(c_int, usize)>,
}

impl Entry {
    /// Gives a program the first words of it.
    ///
    /// # Safety
    ///
    /// Room for them; an entry has as many.
    #[inline(always)]
    unsafe fn put<const WORDS: usize>(&self, place: *mut u8) {
        const { assert!(WORDS * size_of::<u64>() <= size_of::<CqEntry>()) };
        let (place, from) = (place.cast::<u64>(), (&raw const self.entry).cast::<u64>());
        for at in 0..WORDS {
            // Word by word, as they were written just now: the processor waits where it is to read several of them at once.
            // SAFETY: the caller's promise.
            unsafe { place.add(at).write_unaligned(from.add(at).read_volatile()) };
        }
    }
}

/// Bytes of an entry of each format: the longer ones begin like the shorter ones.
const CONTEXT_BYTES: usize = std::mem::offset_of!(CqEntry, flags);
const MSG_BYTES: usize = std::mem::offset_of!(CqEntry, buf);
const DATA_BYTES: usize = std::mem::offset_of!(CqEntry, tag);
const TAGGED_BYTES: usize = size_of::<CqEntry>();

/// What has ended and was not read.
pub struct Cq {
    entries: VecDeque<Entry>,
    entries_max: usize,
    /// Whose operations end here.
    pub endpoints: Vec<usize>,
    waker: Arc<Waker>,
}

impl Cq {
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        self.waker.ring();
    }

    /// Whether operations that end here have to wait until some of the entries were read.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.entries_max
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// `struct fid_cq`, and ours behind it.
#[repr(C)]
pub struct CqObject {
    fid: FidCq,
    pub shared: Arc<Shared>,
    pub number: usize,
    entry_bytes: usize,
    wait_obj: c_int,
    waker: Arc<Waker>,
    /// Whoever sleeps, or is the next to, is to return.
    is_signalled: AtomicBool,
    /// Reads in a row that found nothing.
    idle: AtomicU32,
}

/// # Safety
///
/// As `fi_cq_open`.
pub unsafe fn open(
    shared: &Arc<Shared>,
    attr: Option<&CqAttr>,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> Result<c_int> {
    let format = attr.map_or(abi::CQ_UNSPEC, |attr| attr.format);
    let entry_bytes = match format {
        abi::CQ_UNSPEC | abi::CQ_CONTEXT => CONTEXT_BYTES,
        abi::CQ_MSG => MSG_BYTES,
        abi::CQ_DATA => DATA_BYTES,
        abi::CQ_TAGGED => TAGGED_BYTES,
        _ => return Err(Errno(libc::ENOSYS)),
    };
    let wait_obj = wait::offered(attr.map_or(abi::WAIT_NONE, |attr| attr.wait_obj))?;
    let waker = Arc::new(Waker::new()?);
    let size = attr.map_or(0, |attr| attr.size);
    let number = shared.gate.with(|state| {
        state.cqs.add(Cq {
            entries: VecDeque::new(),
            entries_max: size.max(ENTRIES_MIN),
            endpoints: Vec::new(),
            waker: waker.clone(),
        })
    });
    let fid = Fid { class: abi::CLASS_CQ, context, ops: &raw const OPS };
    let fid = FidCq { fid, ops: &raw const CQ_OPS };
    let (shared, is_signalled, idle) = (shared.clone(), AtomicBool::new(false), AtomicU32::new(0));
    let cq = CqObject { fid, shared, number, entry_bytes, wait_obj, waker, is_signalled, idle };
    // SAFETY: the caller's promise.
    unsafe { give(out, cq) }
}

/// Entries that a program has not read before its operations have to wait.
const ENTRIES_MIN: usize = 1 << 16;

impl State {
    /// Everything whose operations end in a queue goes on.
    #[inline]
    pub fn progress_cq(&mut self, number: usize) {
        let mut at = 0;
        while let Some(&endpoint) = self.cqs.look(number).and_then(|cq| cq.endpoints.get(at)) {
            self.progress(endpoint);
            at += 1;
        }
    }
}

impl CqObject {
    /// # Safety
    ///
    /// As `fi_cq_readfrom`.
    #[inline(always)]
    unsafe fn read(&self, into: *mut c_void, count: usize, sources: *mut FiAddr) -> Result<isize> {
        if self.idle.load(Ordering::Relaxed) > 0 && count > 0 && sources.is_null() {
            // SAFETY: the caller's promise.
            match unsafe { self.read_one(into) } {
                Glance::Taken => {
                    // Two in a row are a stream, of which one look finds many.
                    let was_idle = self.idle.load(Ordering::Relaxed) > 1;
                    self.idle.store(was_idle.into(), Ordering::Relaxed);
                    return Ok(1);
                }
                Glance::Nothing => return self.nothing(),
                Glance::Unknown => {}
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.read_all(into, count, sources) }
    }

    /// What one who waits for a message does: looks for it, and for nothing else.
    ///
    /// # Safety
    ///
    /// Room for an entry.
    #[inline(always)]
    unsafe fn read_one(&self, into: *mut c_void) -> Glance {
        self.shared.gate.with(|state| match state.cqs.look(self.number) {
            Some(Cq { entries, endpoints, .. }) if entries.is_empty() && endpoints.len() == 1 => {
                let endpoint = endpoints[0];
                // SAFETY: the caller's promise.
                state.glance(endpoint, self.number, |entry| unsafe { self.put(entry, into) })
            }
            _ => Glance::Unknown,
        })
    }

    /// # Safety
    ///
    /// Room for an entry.
    #[inline(always)]
    unsafe fn put(&self, entry: CqEntry, into: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.entry_bytes == TAGGED_BYTES {
                into.cast::<CqEntry>().write_unaligned(entry);
            } else {
                self.give(
                    &Entry { entry, source: abi::ADDR_UNSPEC, failed: None },
                    into,
                    std::ptr::null_mut(),
                    0,
                );
            }
        }
    }

    /// Nothing has come.
    #[inline(always)]
    fn nothing(&self) -> Result<isize> {
        let idle = self.idle.load(Ordering::Relaxed).wrapping_add(1);
        self.idle.store(idle, Ordering::Relaxed);
        if idle > PATIENT_READS && idle.is_multiple_of(YIELD_EVERY) {
            std::thread::yield_now();
        }
        Err(Errno(libc::EAGAIN))
    }

    /// # Safety
    ///
    /// As `fi_cq_readfrom`.
    #[inline(never)]
    unsafe fn read_all(
        &self,
        into: *mut c_void,
        count: usize,
        sources: *mut FiAddr,
    ) -> Result<isize> {
        // SAFETY: the caller's promise.
        let done = unsafe { self.read_now(into, count, sources) };
        if done != Err(Errno(libc::EAGAIN)) {
            self.idle.store(0, Ordering::Relaxed);
            return done;
        }
        self.nothing()
    }

    /// # Safety
    ///
    /// As `fi_cq_readfrom`.
    #[inline]
    unsafe fn read_now(
        &self,
        into: *mut c_void,
        count: usize,
        sources: *mut FiAddr,
    ) -> Result<isize> {
        self.shared.gate.with(|state| {
            if state.cqs.look(self.number).is_some_and(Cq::is_empty) {
                state.progress_cq(self.number);
            }
            let cq = state.cqs.find(self.number).ok_or(Errno(libc::EINVAL))?;
            let mut done = 0;
            while done < count
                && let Some(entry) = cq.entries.front()
            {
                if entry.failed.is_some() {
                    break;
                }
                // SAFETY: there is room for so many entries and sources.
                unsafe { self.give(entry, into, sources, done) };
                cq.entries.pop_front();
                done += 1;
            }
            match (done, cq.entries.front()) {
                (0, Some(_)) if count > 0 => Err(Errno(abi::EAVAIL)),
                (0, _) => Err(Errno(libc::EAGAIN)),
                _ => Ok(done as isize),
            }
        })
    }

    /// Gives a program an entry, and whose it is.
    ///
    /// # Safety
    ///
    /// Room for more than `at` entries, and for as many sources or none.
    #[inline(always)]
    unsafe fn give(&self, entry: &Entry, into: *mut c_void, sources: *mut FiAddr, at: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let place = into.cast::<u8>().add(at * self.entry_bytes);
            match self.entry_bytes {
                TAGGED_BYTES => entry.put::<{ TAGGED_BYTES / 8 }>(place),
                DATA_BYTES => entry.put::<{ DATA_BYTES / 8 }>(place),
                MSG_BYTES => entry.put::<{ MSG_BYTES / 8 }>(place),
                _ => entry.put::<{ CONTEXT_BYTES / 8 }>(place),
            }
            if !sources.is_null() {
                put(sources.add(at), entry.source);
            }
        }
    }

    /// # Safety
    ///
    /// As `fi_cq_sreadfrom`.
    unsafe fn sleep_and_read(
        &self,
        into: *mut c_void,
        count: usize,
        sources: *mut FiAddr,
        timeout_ms: c_int,
    ) -> Result<isize> {
        let (begun, until) = (Instant::now(), wait::until(timeout_ms));
        loop {
            // SAFETY: the caller's promise.
            match unsafe { self.read_all(into, count, sources) } {
                Err(Errno(libc::EAGAIN)) => {}
                done => return done,
            }
            if self.is_signalled.swap(false, Ordering::AcqRel) {
                return Err(Errno(libc::ECANCELED));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Errno(libc::EAGAIN));
            }
            if begun.elapsed() < SPIN {
                std::hint::spin_loop();
            } else if self.prepare() {
                self.waker.wait(wait::left(until, SLEEP_MAX));
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Whether one may sleep until the waker wakes.
    fn prepare(&self) -> bool {
        self.shared.gate.with(|state| {
            state.progress_cq(self.number);
            self.waker.silence();
            let Some(cq) = state.cqs.look(self.number) else { return false };
            let endpoints = cq.endpoints.clone();
            cq.is_empty() && endpoints.iter().all(|endpoint| state.prepare_sleep(*endpoint))
        })
    }
}

/// Some 10 us. Who has waited for so long may have the CPU that the peer needs: Open MPI's blocking sends over libfabric read
/// without end and never yield, so ranks that share a CPU would wait for each other's time slices.
const PATIENT_READS: u32 = 1 << 8;
const YIELD_EVERY: u32 = 1 << 5;

/// A wait begins with this, as two that answer each other do it in less.
const SPIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Whether a program may sleep until something ends.
///
/// # Safety
///
/// An open queue.
pub unsafe fn try_wait(fid: *mut Fid) -> Result<()> {
    // SAFETY: the caller's promise.
    let cq: &CqObject = unsafe { object(fid) }?;
    if cq.prepare() { Ok(()) } else { Err(Errno(libc::EAGAIN)) }
}

call! {
    entry close(fid: *mut Fid) -> c_int {
        let cq: &CqObject = object(fid)?;
        cq.shared.gate.with(|state| {
            if state.cqs.look(cq.number).is_some_and(|cq| !cq.endpoints.is_empty()) {
                return Err(Errno(libc::EBUSY));
            }
            state.cqs.remove(cq.number);
            Ok(())
        })?;
        drop(take::<CqObject, _>(fid)?);
        Ok(0)
    }
}

call! {
    entry control(fid: *mut Fid, command: c_int, into: *mut c_void) -> c_int {
        let cq: &CqObject = object(fid)?;
        wait::control(command, cq.wait_obj, cq.waker.descriptor(), into)
    }
}

call! {
    entry read(cq: *mut FidCq, into: *mut c_void, count: usize) -> isize {
        object::<CqObject, _>(cq)?.read(into, count, std::ptr::null_mut())
    }
}

call! {
    entry readfrom(
        cq: *mut FidCq, into: *mut c_void, count: usize, sources: *mut FiAddr,
    ) -> isize {
        object::<CqObject, _>(cq)?.read_all(into, count, sources)
    }
}

call! {
    entry sread(
        cq: *mut FidCq, into: *mut c_void, count: usize, _cond: *const c_void, timeout_ms: c_int,
    ) -> isize {
        object::<CqObject, _>(cq)?.sleep_and_read(into, count, std::ptr::null_mut(), timeout_ms)
    }
}

call! {
    entry sreadfrom(
        cq: *mut FidCq,
        into: *mut c_void,
        count: usize,
        sources: *mut FiAddr,
        _cond: *const c_void,
        timeout_ms: c_int,
    ) -> isize {
        object::<CqObject, _>(cq)?.sleep_and_read(into, count, sources, timeout_ms)
    }
}

call! {
    entry readerr(cq: *mut FidCq, into: *mut CqErrEntry, _flags: u64) -> isize {
        let cq: &CqObject = object(cq)?;
        let into = into.as_mut().ok_or(Errno(libc::EINVAL))?;
        let found = cq.shared.gate.with(|state| {
            let entries = &mut state.cqs.find(cq.number)?.entries;
            entries.front()?.failed?;
            entries.pop_front()
        });
        let found = found.ok_or(Errno(libc::EAGAIN))?;
        let (err, olen) = found.failed.unwrap_or_default();
        (into.entry, into.olen, into.err, into.prov_errno) = (found.entry, olen, err, err);
        // There is no more to say; what the program has put there is its own.
        into.err_data_size = 0;
        if cq.shared.fabric.api_version >= abi::version(1, 20) {
            put((into as *mut CqErrEntry).add(1).cast::<FiAddr>(), found.source);
        }
        Ok(1)
    }
}

call! {
    entry signal(cq: *mut FidCq) -> c_int {
        let cq: &CqObject = object(cq)?;
        cq.is_signalled.store(true, Ordering::Release);
        cq.waker.ring_now();
        Ok(0)
    }
}

call! {
    entry strerror(
        _cq: *mut FidCq, number: c_int, _data: *const c_void, into: *mut c_char, room: usize,
    ) -> *const c_char {
        Ok(wait::error_text(number, into, room))
    }
}

static OPS: Ops = Ops { close: Some(close), control: Some(control), ..Ops::NONE };

static CQ_OPS: OpsCq = OpsCq {
    size: size_of::<OpsCq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};
