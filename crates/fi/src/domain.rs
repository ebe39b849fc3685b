//! The domain: what its endpoints, queues, counters, address vectors and registrations share, behind one gate.

use crate::abi::{
    self, AtomicAttr, AvAttr, CntrAttr, CqAttr, Fid, FidAv, FidCntr, FidCq, FidDomain, FidEp, Info,
    Ops, OpsDomain,
};
use crate::av::{self, Av};
use crate::boundary::{Errno, Result, call, give, held, object, put, take};
use crate::cntr::{self, Cntr};
use crate::cq::{self, Cq};
use crate::ep::{self, Endpoint};
use crate::fabric;
use crate::gate::Gate;
use crate::mr::{self, Region};
use crate::slab::Slab;
use crate::wait::{Progress, Waker};
use covey_wire::transport::ACCESS;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything of a domain that changes. One thread at a time has it.
#[derive(Default)]
pub struct State {
    pub endpoints: Slab<Endpoint>,
    pub cqs: Slab<Cq>,
    pub cntrs: Slab<Cntr>,
    pub avs: Slab<Av>,
    pub regions: Slab<Region>,
}

/// What all objects of a domain hold.
pub struct Shared {
    pub fabric: Arc<fabric::Shared>,
    pub gate: Gate<State>,
    /// `FI_MR_VIRT_ADDR`: remote addresses are those of the peer's memory, and not offsets.
    pub has_virtual_addresses: bool,
    /// `FI_MR_PROV_KEY`: keys are chosen here.
    pub chooses_keys: bool,
    /// `FI_RMA_EVENT`: what peers read and write here is counted, and so goes through our engines.
    pub reports_access: bool,
    /// What a thread that makes everything go on sleeps on.
    pub waker: Waker,
}

impl Shared {
    /// Tries something until it is done, which may take as long as an access of a peer. All others go on between the tries; and a
    /// peer that was stopped in the middle of an access is not waited for without end: then this may be called again.
    pub fn until_done(&self, mut is_done: impl FnMut(&mut State) -> bool) -> Result<()> {
        let (begun, mut tries) = (Instant::now(), 0_u32);
        while !self.gate.with(&mut is_done) {
            if begun.elapsed() >= ACCESS {
                return Err(Errno(libc::EBUSY));
            }
            tries += 1;
            match tries {
                ..100 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        Ok(())
    }
}

/// `struct fid_domain`, and ours behind it.
#[repr(C)]
pub struct Domain {
    fid: FidDomain,
    pub shared: Arc<Shared>,
    /// Goes with the domain.
    progress: Option<Progress>,
}

/// # Safety
///
/// As `fi_domain`.
pub unsafe fn open(
    fabric: &Arc<fabric::Shared>,
    info: &Info,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> Result<c_int> {
    // SAFETY: the caller's promise.
    let attr = unsafe { held(info.domain_attr) }?;
    let is_auto = attr.data_progress == abi::PROGRESS_AUTO;
    let locks = is_auto || attr.threading != abi::THREAD_DOMAIN;
    let is_basic = attr.mr_mode == abi::MR_BASIC;
    let shared = Arc::new(Shared {
        fabric: fabric.clone(),
        gate: Gate::new(locks, State::default()),
        has_virtual_addresses: is_basic || attr.mr_mode & abi::MR_VIRT_ADDR != 0,
        chooses_keys: is_basic || attr.mr_mode & abi::MR_PROV_KEY != 0,
        reports_access: info.caps & abi::RMA_EVENT != 0,
        waker: Waker::new()?,
    });
    let progress = if is_auto { Some(Progress::begin(&shared)?) } else { None };
    let fid = Fid { class: abi::CLASS_DOMAIN, context, ops: &raw const OPS };
    let fid = FidDomain { fid, ops: &raw const DOMAIN_OPS, mr: &raw const mr::OPS_MR };
    // SAFETY: the caller's promise; `Domain` begins with what C sees.
    unsafe { give(out, Domain { fid, shared, progress }) }
}

call! {
    entry close(fid: *mut Fid) -> c_int {
        let domain: &Domain = object(fid)?;
        // A thread that makes everything go on holds it too.
        let own = 1 + usize::from(domain.progress.is_some());
        if Arc::strong_count(&domain.shared) > own {
            return Err(Errno(libc::EBUSY));
        }
        drop(take::<Domain, _>(fid)?);
        Ok(0)
    }
}

call! {
    entry bind(_fid: *mut Fid, _to: *mut Fid, _flags: u64) -> c_int {
        // An event queue hears of nothing here: registrations are there at once.
        Ok(0)
    }
}

call! {
    entry open_av(
        domain: *mut FidDomain, attr: *mut AvAttr, out: *mut *mut FidAv, context: *mut c_void,
    ) -> c_int {
        av::open(&object::<Domain, _>(domain)?.shared, held(attr)?, out, context)
    }
}

call! {
    entry open_cq(
        domain: *mut FidDomain, attr: *mut CqAttr, out: *mut *mut FidCq, context: *mut c_void,
    ) -> c_int {
        cq::open(&object::<Domain, _>(domain)?.shared, attr.as_ref(), out, context)
    }
}

call! {
    entry open_cntr(
        domain: *mut FidDomain, attr: *mut CntrAttr, out: *mut *mut FidCntr, context: *mut c_void,
    ) -> c_int {
        cntr::open(&object::<Domain, _>(domain)?.shared, attr.as_ref(), out, context)
    }
}

call! {
    entry open_endpoint(
        domain: *mut FidDomain, info: *mut Info, out: *mut *mut FidEp, context: *mut c_void,
    ) -> c_int {
        ep::open(&object::<Domain, _>(domain)?.shared, held(info)?, out, context)
    }
}

call! {
    entry open_endpoint2(
        domain: *mut FidDomain,
        info: *mut Info,
        out: *mut *mut FidEp,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        if flags != 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        ep::open(&object::<Domain, _>(domain)?.shared, held(info)?, out, context)
    }
}

call! {
    entry query_atomic(
        _domain: *mut FidDomain,
        datatype: c_int,
        op: c_int,
        attr: *mut AtomicAttr,
        flags: u64,
    ) -> c_int {
        put(attr, ep::atomic::query(datatype, op, flags)?);
        Ok(0)
    }
}

static OPS: Ops = Ops { close: Some(close), bind: Some(bind), ..Ops::NONE };

static DOMAIN_OPS: OpsDomain = OpsDomain {
    av_open: Some(open_av),
    cq_open: Some(open_cq),
    endpoint: Some(open_endpoint),
    cntr_open: Some(open_cntr),
    query_atomic: Some(query_atomic),
    endpoint2: Some(open_endpoint2),
    ..OpsDomain::NONE
};
