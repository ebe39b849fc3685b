//! The objects of libfabric: each begins with `struct fid`, and points to tables of functions.

use super::FiAddr;
use super::atomic::OpsAtomic;
use super::info::Info;
use super::transfer::{OpsMsg, OpsRma, OpsTagged};
use libc::iovec;
use std::ffi::{c_char, c_int, c_void};

/// `struct fid`.
#[repr(C)]
pub struct Fid {
    pub class: usize,
    pub context: *mut c_void,
    pub ops: *const Ops,
}

/// Tables of functions: a size, then pointers that may be null.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident { $($name:ident: fn($($arg:ty),* $(,)?) -> $result:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        pub struct $table {
            pub size: usize,
            $(pub $name: Option<unsafe extern "C" fn($($arg),*) -> $result>,)*
        }

        // SAFETY: a table is never written to.
        unsafe impl Sync for $table {}

        impl $table {
            /// A table of functions that all refuse: programs call what they do not check.
            pub const NONE: $table = $table {
                size: size_of::<$table>(),
                $($name: Some({
                    type Refuses = unsafe extern "C" fn() -> isize;
                    // SAFETY: who is called looks at no argument, the caller takes all of them away again, and the
                    // refusal has the same register as the answer of any of these types.
                    unsafe {
                        std::mem::transmute::<Refuses, unsafe extern "C" fn($($arg),*) -> $result>(
                            $crate::boundary::refused,
                        )
                    }
                }),)*
            };
        }
    };
}
pub(crate) use table;

table! {
    /// `struct fi_ops`.
    Ops {
        close: fn(*mut Fid) -> c_int,
        bind: fn(*mut Fid, *mut Fid, u64) -> c_int,
        control: fn(*mut Fid, c_int, *mut c_void) -> c_int,
        ops_open: fn(*mut Fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
        tostr: fn(*const Fid, *mut c_char, usize) -> c_int,
        ops_set: fn(*mut Fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
    }
}

/// `struct fid_fabric`.
#[repr(C)]
pub struct FidFabric {
    pub fid: Fid,
    pub ops: *const OpsFabric,
    pub api_version: u32,
}

table! {
    /// `struct fi_ops_fabric`.
    OpsFabric {
        domain: fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> c_int,
        passive_ep: fn(*mut FidFabric, *mut Info, *mut *mut c_void, *mut c_void) -> c_int,
        eq_open: fn(*mut FidFabric, *mut EqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
        wait_open: fn(*mut FidFabric, *mut c_void, *mut *mut c_void) -> c_int,
        trywait: fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
        domain2: fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, u64, *mut c_void) -> c_int,
    }
}

/// `struct fid_domain`.
#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const OpsDomain,
    pub mr: *const OpsMr,
}

table! {
    /// `struct fi_ops_domain`.
    OpsDomain {
        av_open: fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
        cq_open: fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
        endpoint: fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
        scalable_ep: fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
        cntr_open: fn(*mut FidDomain, *mut CntrAttr, *mut *mut FidCntr, *mut c_void) -> c_int,
        poll_open: fn(*mut FidDomain, *mut c_void, *mut *mut c_void) -> c_int,
        stx_ctx: fn(*mut FidDomain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
        srx_ctx: fn(*mut FidDomain, *mut c_void, *mut *mut FidEp, *mut c_void) -> c_int,
        query_atomic: fn(*mut FidDomain, c_int, c_int, *mut super::atomic::AtomicAttr, u64) -> c_int,
        query_collective: fn(*mut FidDomain, c_int, *mut c_void, u64) -> c_int,
        endpoint2: fn(*mut FidDomain, *mut Info, *mut *mut FidEp, u64, *mut c_void) -> c_int,
    }
}

table! {
    /// `struct fi_ops_mr`.
    OpsMr {
        reg: fn(
            *mut Fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void,
        ) -> c_int,
        regv: fn(
            *mut Fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void,
        ) -> c_int,
        regattr: fn(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> c_int,
    }
}

/// `struct fid_mr`.
#[repr(C)]
pub struct FidMr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// The beginning of `struct fi_mr_attr`.
#[repr(C)]
pub struct MrAttr {
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: c_int,
    pub device: u64,
}

/// `struct fi_av_attr`.
#[repr(C)]
pub struct AvAttr {
    pub av_type: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// `struct fid_av`.
#[repr(C)]
pub struct FidAv {
    pub fid: Fid,
    pub ops: *const OpsAv,
}

table! {
    /// `struct fi_ops_av`, as far as 1.17 has it.
    OpsAv {
        insert: fn(*mut FidAv, *const c_void, usize, *mut FiAddr, u64, *mut c_void) -> c_int,
        insertsvc: fn(
            *mut FidAv, *const c_char, *const c_char, *mut FiAddr, u64, *mut c_void,
        ) -> c_int,
        insertsym: fn(
            *mut FidAv, *const c_char, usize, *const c_char, usize, *mut FiAddr, u64, *mut c_void,
        ) -> c_int,
        remove: fn(*mut FidAv, *mut FiAddr, usize, u64) -> c_int,
        lookup: fn(*mut FidAv, FiAddr, *mut c_void, *mut usize) -> c_int,
        straddr: fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
        av_set: fn(*mut FidAv, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    }
}

/// `struct fi_eq_attr`.
#[repr(C)]
pub struct EqAttr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_set: *mut c_void,
}

/// `struct fi_eq_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EqEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_eq_err_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EqErrEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// `struct fid_eq`.
#[repr(C)]
pub struct FidEq {
    pub fid: Fid,
    pub ops: *const OpsEq,
}

table! {
    /// `struct fi_ops_eq`.
    OpsEq {
        read: fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
        readerr: fn(*mut FidEq, *mut EqErrEntry, u64) -> isize,
        write: fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
        sread: fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
        strerror: fn(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }
}

/// `struct fi_cq_attr`.
#[repr(C)]
pub struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

/// `struct fi_cq_tagged_entry`; the shorter formats are its beginning.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CqEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

impl CqEntry {
    /// One that says no more.
    #[inline]
    pub fn of(op_context: *mut c_void, flags: u64) -> CqEntry {
        CqEntry { op_context, flags, len: 0, buf: std::ptr::null_mut(), data: 0, tag: 0 }
    }
}

/// `struct fi_cq_err_entry`, as far as 1.17 has it; from 1.20 on a source address follows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CqErrEntry {
    pub entry: CqEntry,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// `struct fid_cq`.
#[repr(C)]
pub struct FidCq {
    pub fid: Fid,
    pub ops: *const OpsCq,
}

table! {
    /// `struct fi_ops_cq`.
    OpsCq {
        read: fn(*mut FidCq, *mut c_void, usize) -> isize,
        readfrom: fn(*mut FidCq, *mut c_void, usize, *mut FiAddr) -> isize,
        readerr: fn(*mut FidCq, *mut CqErrEntry, u64) -> isize,
        sread: fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
        sreadfrom: fn(
            *mut FidCq, *mut c_void, usize, *mut FiAddr, *const c_void, c_int,
        ) -> isize,
        signal: fn(*mut FidCq) -> c_int,
        strerror: fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }
}

/// `struct fi_cntr_attr`.
#[repr(C)]
pub struct CntrAttr {
    pub events: c_int,
    pub wait_obj: c_int,
    pub wait_set: *mut c_void,
    pub flags: u64,
}

/// `struct fid_cntr`.
#[repr(C)]
pub struct FidCntr {
    pub fid: Fid,
    pub ops: *const OpsCntr,
}

table! {
    /// `struct fi_ops_cntr`.
    OpsCntr {
        read: fn(*mut FidCntr) -> u64,
        readerr: fn(*mut FidCntr) -> u64,
        add: fn(*mut FidCntr, u64) -> c_int,
        set: fn(*mut FidCntr, u64) -> c_int,
        wait: fn(*mut FidCntr, u64, c_int) -> c_int,
        adderr: fn(*mut FidCntr, u64) -> c_int,
        seterr: fn(*mut FidCntr, u64) -> c_int,
    }
}

/// `struct fid_ep`.
#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const OpsEp,
    pub cm: *const OpsCm,
    pub msg: *const OpsMsg,
    pub rma: *const OpsRma,
    pub tagged: *const OpsTagged,
    pub atomic: *const OpsAtomic,
    pub collective: *const c_void,
}

table! {
    /// `struct fi_ops_ep`.
    OpsEp {
        cancel: fn(*mut Fid, *mut c_void) -> isize,
        getopt: fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
        setopt: fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
        tx_ctx: fn(*mut FidEp, c_int, *mut c_void, *mut *mut FidEp, *mut c_void) -> c_int,
        rx_ctx: fn(*mut FidEp, c_int, *mut c_void, *mut *mut FidEp, *mut c_void) -> c_int,
        rx_size_left: fn(*mut FidEp) -> isize,
        tx_size_left: fn(*mut FidEp) -> isize,
    }
}

table! {
    /// `struct fi_ops_cm`.
    OpsCm {
        setname: fn(*mut Fid, *mut c_void, usize) -> c_int,
        getname: fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
        getpeer: fn(*mut FidEp, *mut c_void, *mut usize) -> c_int,
        connect: fn(*mut FidEp, *const c_void, *const c_void, usize) -> c_int,
        listen: fn(*mut c_void) -> c_int,
        accept: fn(*mut FidEp, *const c_void, usize) -> c_int,
        reject: fn(*mut c_void, *mut Fid, *const c_void, usize) -> c_int,
        shutdown: fn(*mut FidEp, u64) -> c_int,
        join: fn(*mut FidEp, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int,
    }
}
