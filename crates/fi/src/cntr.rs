//! Counters: how many operations have ended.

use crate::abi::{self, CntrAttr, Fid, FidCntr, Ops, OpsCntr};
use crate::boundary::{Errno, Result, call, give, object, take};
use crate::domain::{Shared, State};
use crate::wait::{self, Waker};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was counted.
pub struct Cntr {
    pub value: u64,
    pub errors: u64,
    /// Whose operations count here.
    pub endpoints: Vec<usize>,
    /// Registrations whose accesses count here, by whichever endpoint they come.
    pub regions: usize,
    waker: Arc<Waker>,
}

impl Cntr {
    /// Counts the end of an operation.
    pub fn count(&mut self, is_well: bool) {
        let place = if is_well { &mut self.value } else { &mut self.errors };
        *place = place.wrapping_add(1);
        self.waker.ring();
    }

    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// `struct fid_cntr`, and ours behind it.
#[repr(C)]
pub struct CntrObject {
    fid: FidCntr,
    pub shared: Arc<Shared>,
    pub number: usize,
    wait_obj: c_int,
    waker: Arc<Waker>,
}

/// # Safety
///
/// As `fi_cntr_open`.
pub unsafe fn open(
    shared: &Arc<Shared>,
    attr: Option<&CntrAttr>,
    out: *mut *mut FidCntr,
    context: *mut c_void,
) -> Result<c_int> {
    if attr.is_some_and(|attr| attr.events != 0 || attr.flags != 0) {
        return Err(Errno(libc::ENOSYS));
    }
    let wait_obj = wait::offered(attr.map_or(abi::WAIT_NONE, |attr| attr.wait_obj))?;
    let waker = Arc::new(Waker::new()?);
    let cntr =
        Cntr { value: 0, errors: 0, endpoints: Vec::new(), regions: 0, waker: waker.clone() };
    let number = shared.gate.with(|state| state.cntrs.add(cntr));
    let fid = Fid { class: abi::CLASS_CNTR, context, ops: &raw const OPS };
    let fid = FidCntr { fid, ops: &raw const CNTR_OPS };
    // SAFETY: the caller's promise.
    unsafe { give(out, CntrObject { fid, shared: shared.clone(), number, wait_obj, waker }) }
}

impl State {
    fn progress_cntr(&mut self, number: usize) {
        if self.cntrs.look(number).is_some_and(|cntr| cntr.regions > 0) {
            return self.progress_all();
        }
        let mut at = 0;
        while let Some(&endpoint) = self.cntrs.look(number).and_then(|cntr| cntr.endpoints.get(at))
        {
            self.progress(endpoint);
            at += 1;
        }
    }

    #[cold]
    fn progress_all(&mut self) {
        let all: Vec<usize> = self.endpoints.each().map(|(number, _)| number).collect();
        all.into_iter().for_each(|endpoint| self.progress(endpoint));
    }

    /// The endpoints that a counter hears of.
    fn endpoints_of(&self, cntr: &Cntr) -> Vec<usize> {
        if cntr.regions == 0 {
            return cntr.endpoints.clone();
        }
        self.endpoints.each().map(|(number, _)| number).collect()
    }
}

impl CntrObject {
    fn with<R>(&self, work: impl FnOnce(&mut Cntr) -> R) -> Result<R> {
        let find = |state: &mut State| state.cntrs.find(self.number).map(work);
        self.shared.gate.with(find).ok_or(Errno(libc::EINVAL))
    }

    fn progress(&self) {
        self.shared.gate.with(|state| state.progress_cntr(self.number));
    }

    /// Whether one may sleep until the waker wakes.
    fn prepare(&self) -> bool {
        self.shared.gate.with(|state| {
            state.progress_cntr(self.number);
            self.waker.silence();
            let Some(cntr) = state.cntrs.look(self.number) else { return false };
            let endpoints = state.endpoints_of(cntr);
            endpoints.iter().all(|endpoint| state.prepare_sleep(*endpoint))
        })
    }

    fn wait(&self, threshold: u64, timeout_ms: c_int) -> Result<c_int> {
        let (begun, until) = (Instant::now(), wait::until(timeout_ms));
        let errors = self.with(|cntr| cntr.errors)?;
        loop {
            self.progress();
            let (value, now) = self.with(|cntr| (cntr.value, cntr.errors))?;
            if value >= threshold {
                return Ok(0);
            }
            if now != errors {
                return Err(Errno(abi::EAVAIL));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Errno(libc::ETIMEDOUT));
            }
            if begun.elapsed() < Duration::from_micros(50) {
                std::hint::spin_loop();
            } else if self.prepare()
                && self.with(|cntr| cntr.value < threshold && cntr.errors == now)?
            {
                self.waker.wait(wait::left(until, Duration::from_millis(100)));
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Whether a program may sleep until something is counted.
///
/// # Safety
///
/// An open counter.
pub unsafe fn try_wait(fid: *mut Fid) -> Result<()> {
    // SAFETY: the caller's promise.
    let cntr: &CntrObject = unsafe { object(fid) }?;
    if cntr.prepare() { Ok(()) } else { Err(Errno(libc::EAGAIN)) }
}

call! {
    entry close(fid: *mut Fid) -> c_int {
        let cntr: &CntrObject = object(fid)?;
        if cntr.with(|cntr| !cntr.endpoints.is_empty() || cntr.regions > 0)? {
            return Err(Errno(libc::EBUSY));
        }
        cntr.shared.gate.with(|state| state.cntrs.remove(cntr.number));
        drop(take::<CntrObject, _>(fid)?);
        Ok(0)
    }
}

call! {
    entry control(fid: *mut Fid, command: c_int, into: *mut c_void) -> c_int {
        let cntr: &CntrObject = object(fid)?;
        wait::control(command, cntr.wait_obj, cntr.waker.descriptor(), into)
    }
}

call! {
    entry read(cntr: *mut FidCntr) -> u64 {
        let cntr: &CntrObject = object(cntr)?;
        cntr.progress();
        cntr.with(|cntr| cntr.value)
    }
}

call! {
    entry readerr(cntr: *mut FidCntr) -> u64 {
        let cntr: &CntrObject = object(cntr)?;
        cntr.progress();
        cntr.with(|cntr| cntr.errors)
    }
}

/// A change that the program makes.
macro_rules! change {
    ($name:ident, $cntr:ident, $value:ident => $change:expr) => {
        call! {
            entry $name(cntr: *mut FidCntr, $value: u64) -> c_int {
                object::<CntrObject, _>(cntr)?.with(|$cntr| {
                    $change;
                    $cntr.waker.ring();
                    0
                })
            }
        }
    };
}

change!(add, cntr, value => cntr.value = cntr.value.wrapping_add(value));
change!(set, cntr, value => cntr.value = value);
change!(adderr, cntr, value => cntr.errors = cntr.errors.wrapping_add(value));
change!(seterr, cntr, value => cntr.errors = value);

call! {
    entry wait_for(cntr: *mut FidCntr, threshold: u64, timeout_ms: c_int) -> c_int {
        object::<CntrObject, _>(cntr)?.wait(threshold, timeout_ms)
    }
}

static OPS: Ops = Ops { close: Some(close), control: Some(control), ..Ops::NONE };

static CNTR_OPS: OpsCntr = OpsCntr {
    size: size_of::<OpsCntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait_for),
    adderr: Some(adderr),
    seterr: Some(seterr),
};
