//! The provider, and the fabric: where everything begins.

use crate::abi::{
    self, EqAttr, FabricAttr, Fid, FidDomain, FidEq, FidFabric, Info, Ops, OpsFabric, Provider,
};
use crate::boundary::{Errno, call, give, held, object, take};
use crate::host::Host;
use crate::{domain, eq, info, wait};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

/// What all objects of a fabric hold.
#[derive(Debug)]
pub struct Shared {
    /// The version that the program speaks.
    pub api_version: u32,
}

/// `struct fid_fabric`, and ours behind it.
#[repr(C)]
pub struct Fabric {
    fid: FidFabric,
    pub shared: Arc<Shared>,
}

call! {
    export fi_prov_ini() -> *mut Provider, otherwise std::ptr::null_mut(), {
        let Some(host) = Host::find() else { return std::ptr::null_mut() };
        let provider = PROVIDER.0.get();
        // SAFETY: libfabric asks once, before it has told anybody of the place.
        unsafe {
            provider.write(Provider {
                version: info::PROVIDER_VERSION,
                fi_version: host.version(),
                context: [std::ptr::null_mut(); 4],
                name: info::NAME.as_ptr(),
                getinfo: Some(info::getinfo),
                fabric: Some(open),
                cleanup: Some(cleanup),
            });
        }
        provider
    }
}

/// What libfabric is given, and writes to. It lies in the library itself, so that it ends with it.
struct Place(UnsafeCell<Provider>);

// SAFETY: written before libfabric knows it, and only by libfabric after that.
unsafe impl Sync for Place {}

static PROVIDER: Place = Place(UnsafeCell::new(Provider {
    version: 0,
    fi_version: 0,
    context: [std::ptr::null_mut(); 4],
    name: std::ptr::null(),
    getinfo: None,
    fabric: None,
    cleanup: None,
}));

call! {
    quiet cleanup() {}
}

call! {
    entry open(attr: *const FabricAttr, out: *mut *mut FidFabric, context: *mut c_void) -> c_int {
        let attr = held(attr)?;
        if !attr.name.is_null() && CStr::from_ptr(attr.name) != info::NAME {
            return Err(Errno(libc::ENODATA));
        }
        let fid = Fid { class: abi::CLASS_FABRIC, context, ops: &raw const OPS };
        let fid = FidFabric { fid, ops: &raw const FABRIC_OPS, api_version: attr.api_version };
        let shared = Arc::new(Shared { api_version: attr.api_version });
        give(out, Fabric { fid, shared })
    }
}

call! {
    entry close(fid: *mut Fid) -> c_int {
        let fabric: &Fabric = object(fid)?;
        if Arc::strong_count(&fabric.shared) > 1 {
            return Err(Errno(libc::EBUSY));
        }
        drop(take::<Fabric, _>(fid)?);
        Ok(0)
    }
}

call! {
    entry open_domain(
        fabric: *mut FidFabric, info: *mut Info, out: *mut *mut FidDomain, context: *mut c_void,
    ) -> c_int {
        let fabric: &Fabric = object(fabric)?;
        domain::open(&fabric.shared, held(info)?, out, context)
    }
}

call! {
    entry open_domain2(
        fabric: *mut FidFabric,
        info: *mut Info,
        out: *mut *mut FidDomain,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        if flags != 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        let fabric: &Fabric = object(fabric)?;
        domain::open(&fabric.shared, held(info)?, out, context)
    }
}

call! {
    entry open_eq(
        fabric: *mut FidFabric, attr: *mut EqAttr, out: *mut *mut FidEq, context: *mut c_void,
    ) -> c_int {
        let fabric: &Fabric = object(fabric)?;
        eq::open(&fabric.shared, attr.as_ref(), out, context)
    }
}

call! {
    entry trywait(_fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
        let count = usize::try_from(count).map_err(|_| Errno(libc::EINVAL))?;
        for fid in crate::boundary::list(fids.cast_const(), count)? {
            wait::try_wait(*fid)?;
        }
        Ok(0)
    }
}

static OPS: Ops = Ops { close: Some(close), ..Ops::NONE };

static FABRIC_OPS: OpsFabric = OpsFabric {
    domain: Some(open_domain),
    eq_open: Some(open_eq),
    trywait: Some(trywait),
    domain2: Some(open_domain2),
    ..OpsFabric::NONE
};
