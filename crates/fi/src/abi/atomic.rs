//! Atomic operations.

use super::FiAddr;
use super::objects::{FidEp, table};
use std::ffi::{c_int, c_void};

/// `struct fi_atomic_attr`.
#[repr(C)]
pub struct AtomicAttr {
    pub count: usize,
    pub size: usize,
}

/// `struct fi_ioc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

/// `struct fi_rma_ioc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaIoc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

/// `struct fi_msg_atomic`.
#[repr(C)]
pub struct MsgAtomic {
    pub msg_iov: *const Ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub rma_iov: *const RmaIoc,
    pub rma_iov_count: usize,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

type Ep = *mut FidEp;
type Any = *mut c_void;
type From = *const c_void;
type Descs = *mut *mut c_void;
type Iocs = *const Ioc;
type Results = *mut Ioc;

table! {
    /// `struct fi_ops_atomic`.
    OpsAtomic {
        write: fn(Ep, From, usize, Any, FiAddr, u64, u64, c_int, c_int, Any) -> isize,
        writev: fn(Ep, Iocs, Descs, usize, FiAddr, u64, u64, c_int, c_int, Any) -> isize,
        writemsg: fn(Ep, *const MsgAtomic, u64) -> isize,
        inject: fn(Ep, From, usize, FiAddr, u64, u64, c_int, c_int) -> isize,
        readwrite: fn(
            Ep, From, usize, Any, Any, Any, FiAddr, u64, u64, c_int, c_int, Any,
        ) -> isize,
        readwritev: fn(
            Ep, Iocs, Descs, usize, Results, Descs, usize, FiAddr, u64, u64, c_int, c_int, Any,
        ) -> isize,
        readwritemsg: fn(Ep, *const MsgAtomic, Results, Descs, usize, u64) -> isize,
        compwrite: fn(
            Ep, From, usize, Any, From, Any, Any, Any, FiAddr, u64, u64, c_int, c_int, Any,
        ) -> isize,
        compwritev: fn(
            Ep, Iocs, Descs, usize, Iocs, Descs, usize, Results, Descs, usize, FiAddr, u64, u64,
            c_int, c_int, Any,
        ) -> isize,
        compwritemsg: fn(
            Ep, *const MsgAtomic, Iocs, Descs, usize, Results, Descs, usize, u64,
        ) -> isize,
        writevalid: fn(Ep, c_int, c_int, *mut usize) -> c_int,
        readwritevalid: fn(Ep, c_int, c_int, *mut usize) -> c_int,
        compwritevalid: fn(Ep, c_int, c_int, *mut usize) -> c_int,
    }
}
