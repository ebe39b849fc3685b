//! What libfabric and its programs see: its structures and numbers, written from its public headers of 1.17, whose
//! layout 2.x keeps and adds to at the ends. A test compiles the same sizes and offsets against the headers.

pub mod atomic;
pub mod info;
pub mod objects;
pub mod transfer;

pub use atomic::*;
pub use info::*;
pub use objects::*;
pub use transfer::*;

use std::ffi::{c_char, c_int, c_void};

/// `FI_VERSION(major, minor)`.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// `fi_addr_t`.
pub type FiAddr = u64;
pub const ADDR_UNSPEC: FiAddr = u64::MAX;

macro_rules! flags {
    ($($name:ident $bit:literal)*) => { $(pub const $name: u64 = 1 << $bit;)* };
}

flags! {
    MSG 1 RMA 2 TAGGED 3 ATOMIC 4
    READ 8 WRITE 9 RECV 10 SEND 11 REMOTE_READ 12 REMOTE_WRITE 13
    MULTI_RECV 16 REMOTE_CQ_DATA 17 MORE 18 PEEK 19 FENCE 21
    COMPLETION 24 INJECT 25 INJECT_COMPLETE 26 TRANSMIT_COMPLETE 27 DELIVERY_COMPLETE 28
    MATCH_COMPLETE 31
    LOCAL_COMM 51 REMOTE_COMM 52 PROV_ATTR_ONLY 54 NUMERICHOST 55 RMA_EVENT 56 SOURCE 57 DIRECTED_RECV 59
}

/// Of a receive.
pub const CLAIM: u64 = 1 << 59;
pub const DISCARD: u64 = 1 << 58;
/// Of a bind.
pub const SELECTIVE_COMPLETION: u64 = 1 << 59;
/// Of an insertion into an address vector that reports each error.
pub const SYNC_ERR: u64 = 1 << 58;
/// Of a query of atomics.
pub const FETCH_ATOMIC: u64 = 1 << 58;
pub const COMPARE_ATOMIC: u64 = 1 << 59;

/// Modes.
pub const CONTEXT: u64 = 1 << 59;
pub const CONTEXT2: u64 = 1 << 52;

/// Orders.
pub const ORDER_SAS: u64 = 1 << 8;
pub const ORDER_RMA: u64 = 0xf << 32;
pub const ORDER_ATOMIC: u64 = 0xf << 36;

/// Memory registration modes.
pub const MR_BASIC: c_int = 1;
pub const MR_SCALABLE: c_int = 2;
pub const MR_VIRT_ADDR: c_int = 1 << 4;
pub const MR_PROV_KEY: c_int = 1 << 6;

macro_rules! numbers {
    ($type:ty: $($name:ident $value:literal)*) => { $(pub const $name: $type = $value;)* };
}

numbers! { c_int: AV_UNSPEC 0 AV_MAP 1 AV_TABLE 2 }
numbers! { c_int: PROGRESS_UNSPEC 0 PROGRESS_AUTO 1 PROGRESS_MANUAL 2 PROGRESS_CONTROL_UNIFIED 3 }
numbers! { c_int: THREAD_UNSPEC 0 THREAD_SAFE 1 THREAD_FID 2 THREAD_DOMAIN 3 THREAD_COMPLETION 4 THREAD_ENDPOINT 5 }
numbers! { c_int: RM_UNSPEC 0 RM_DISABLED 1 RM_ENABLED 2 }
numbers! { c_int: EP_UNSPEC 0 EP_RDM 3 }
numbers! { c_int: WAIT_NONE 0 WAIT_UNSPEC 1 WAIT_SET 2 WAIT_FD 3 WAIT_MUTEX_COND 4 WAIT_YIELD 5 WAIT_POLLFD 6 }
numbers! { c_int: CQ_UNSPEC 0 CQ_CONTEXT 1 CQ_MSG 2 CQ_DATA 3 CQ_TAGGED 4 }
numbers! { c_int: GETOPSFLAG 2 SETOPSFLAG 3 ALIAS 4 GETWAIT 5 ENABLE 6 GETWAITOBJ 16 }
numbers! { c_int: OPT_ENDPOINT 0 }
numbers! { c_int: OPT_MIN_MULTI_RECV 0 OPT_CM_DATA_SIZE 1 OPT_FI_HMEM_P2P 8 OPT_SHARED_MEMORY_PERMITTED 11 }
numbers! { usize: CLASS_FABRIC 1 CLASS_DOMAIN 2 CLASS_EP 3 CLASS_RX_CTX 5 CLASS_TX_CTX 7 CLASS_AV 11 CLASS_MR 12 CLASS_EQ 13 CLASS_CQ 14 CLASS_CNTR 15 }
numbers! { u32: FORMAT_UNSPEC 0 SOCKADDR_IN 2 }
/// Addresses as `io` makes them: `FI_PROV_SPECIFIC` and the letters CV.
pub const ADDR_COVEY: u32 = 1 << 31 | 0x4356;
/// The protocol: a provider's own.
pub const PROTO_COVEY: u32 = 1 << 31 | 0x4356;
/// Of an event that an application wrote.
pub const AV_COMPLETE: u32 = 5;

/// What libfabric adds to errno.
pub const EOTHER: i32 = 256;
pub const ETOOSMALL: i32 = 257;
pub const EOPBADSTATE: i32 = 258;
pub const EAVAIL: i32 = 259;
pub const EBADFLAGS: i32 = 260;
pub const ENOEQ: i32 = 261;
pub const EDOMAIN: i32 = 262;
pub const ENOCQ: i32 = 263;
pub const ENOKEY: i32 = 266;
pub const ENOAV: i32 = 267;
pub const ETRUNC: i32 = 265;

/// `struct fi_provider`.
#[repr(C)]
pub struct Provider {
    pub version: u32,
    pub fi_version: u32,
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo: Option<
        unsafe extern "C" fn(
            u32,
            *const c_char,
            *const c_char,
            u64,
            *const Info,
            *mut *mut Info,
        ) -> c_int,
    >,
    pub fabric:
        Option<unsafe extern "C" fn(*const FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int>,
    pub cleanup: Option<unsafe extern "C" fn()>,
}
