//! Messages and one-sided transfers.

use super::FiAddr;
use super::objects::{FidEp, table};
use libc::iovec;
use std::ffi::c_void;

/// `struct fi_msg`.
#[repr(C)]
pub struct Msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_msg_tagged`.
#[repr(C)]
pub struct MsgTagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

/// `struct fi_rma_iov`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaIov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// `struct fi_msg_rma`.
#[repr(C)]
pub struct MsgRma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub rma_iov: *const RmaIov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

type Ep = *mut FidEp;
type Any = *mut c_void;
type Descs = *mut *mut c_void;

table! {
    /// `struct fi_ops_msg`.
    OpsMsg {
        recv: fn(Ep, Any, usize, Any, FiAddr, Any) -> isize,
        recvv: fn(Ep, *const iovec, Descs, usize, FiAddr, Any) -> isize,
        recvmsg: fn(Ep, *const Msg, u64) -> isize,
        send: fn(Ep, *const c_void, usize, Any, FiAddr, Any) -> isize,
        sendv: fn(Ep, *const iovec, Descs, usize, FiAddr, Any) -> isize,
        sendmsg: fn(Ep, *const Msg, u64) -> isize,
        inject: fn(Ep, *const c_void, usize, FiAddr) -> isize,
        senddata: fn(Ep, *const c_void, usize, Any, u64, FiAddr, Any) -> isize,
        injectdata: fn(Ep, *const c_void, usize, u64, FiAddr) -> isize,
    }
}

table! {
    /// `struct fi_ops_tagged`.
    OpsTagged {
        recv: fn(Ep, Any, usize, Any, FiAddr, u64, u64, Any) -> isize,
        recvv: fn(Ep, *const iovec, Descs, usize, FiAddr, u64, u64, Any) -> isize,
        recvmsg: fn(Ep, *const MsgTagged, u64) -> isize,
        send: fn(Ep, *const c_void, usize, Any, FiAddr, u64, Any) -> isize,
        sendv: fn(Ep, *const iovec, Descs, usize, FiAddr, u64, Any) -> isize,
        sendmsg: fn(Ep, *const MsgTagged, u64) -> isize,
        inject: fn(Ep, *const c_void, usize, FiAddr, u64) -> isize,
        senddata: fn(Ep, *const c_void, usize, Any, u64, FiAddr, u64, Any) -> isize,
        injectdata: fn(Ep, *const c_void, usize, u64, FiAddr, u64) -> isize,
    }
}

table! {
    /// `struct fi_ops_rma`.
    OpsRma {
        read: fn(Ep, Any, usize, Any, FiAddr, u64, u64, Any) -> isize,
        readv: fn(Ep, *const iovec, Descs, usize, FiAddr, u64, u64, Any) -> isize,
        readmsg: fn(Ep, *const MsgRma, u64) -> isize,
        write: fn(Ep, *const c_void, usize, Any, FiAddr, u64, u64, Any) -> isize,
        writev: fn(Ep, *const iovec, Descs, usize, FiAddr, u64, u64, Any) -> isize,
        writemsg: fn(Ep, *const MsgRma, u64) -> isize,
        inject: fn(Ep, *const c_void, usize, FiAddr, u64, u64) -> isize,
        writedata: fn(Ep, *const c_void, usize, Any, u64, FiAddr, u64, u64, Any) -> isize,
        injectdata: fn(Ep, *const c_void, usize, u64, FiAddr, u64, u64) -> isize,
    }
}
