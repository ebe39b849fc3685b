//! What the provider can do, and which wishes it refuses: before anything is opened.
//!
//! The tables at the end are all that is promised. A wish is one number of `fi_info`; it is refused with `FI_ENODATA` where
//! the table has less, and the whole is given otherwise.

use crate::abi::{self, DomainAttr, EpAttr, Info, RxAttr, TxAttr};
use crate::boundary::{Errno, Result, call};
use crate::host::{self, Host};
use covey_io::os::mixed::{ADDRESS_BYTES, Address};
use std::ffi::{CStr, c_char, c_int};

/// What a program asks for, all of it optional.
struct Wish<'a> {
    info: Option<&'a Info>,
    tx: Option<&'a TxAttr>,
    rx: Option<&'a RxAttr>,
    ep: Option<&'a EpAttr>,
    domain: Option<&'a DomainAttr>,
}

call! {
    entry getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const Info,
        out: *mut *mut Info,
    ) -> c_int {
        let wish = Wish::of(hints.as_ref());
        wish.check()?;
        let host = Host::find().ok_or(Errno(libc::ENODATA))?;
        let text = |text: *const c_char| (!text.is_null()).then(|| CStr::from_ptr(text));
        let addresses = wish.addresses(text(node), text(service), flags)?;
        let info = host.new_info();
        match info.as_mut() {
            None => Err(Errno(libc::ENOMEM)),
            Some(made) => {
                if let Err(errno) = wish.fill(made, version, addresses) {
                    host.free_info(info);
                    return Err(errno);
                }
                *out = info;
                Ok(0)
            }
        }
    }
}

/// As it is handed on; none where nothing is known.
type Place = Option<[u8; ADDRESS_BYTES]>;

impl<'a> Wish<'a> {
    /// # Safety
    ///
    /// What it points to is there.
    unsafe fn of(info: Option<&'a Info>) -> Wish<'a> {
        // SAFETY: the caller's promise.
        unsafe {
            Wish {
                info,
                tx: info.and_then(|info| info.tx_attr.as_ref()),
                rx: info.and_then(|info| info.rx_attr.as_ref()),
                ep: info.and_then(|info| info.ep_attr.as_ref()),
                domain: info.and_then(|info| info.domain_attr.as_ref()),
            }
        }
    }

    fn caps(&self) -> u64 {
        self.info.map_or(0, |info| info.caps)
    }

    /// Everything that can be refused.
    fn check(&self) -> Result<()> {
        let is_known = |format| matches!(format, abi::FORMAT_UNSPEC | abi::ADDR_COVEY);
        let mut all = vec![self.caps() & !(CAPS | ASKED) == 0];
        all.extend(self.info.map(|info| is_known(info.addr_format)));
        all.extend(self.ep.map(ep_fits));
        all.extend(self.tx.map(|tx| tx_fits(tx, self.caps())));
        all.extend(self.rx.map(|rx| rx_fits(rx, self.caps())));
        all.extend(self.domain.map(domain_fits));
        // SAFETY: what the hints point to is there.
        all.extend(unsafe { self.names_fit() });
        if all.into_iter().all(|fits| fits) { Ok(()) } else { Err(Errno(libc::ENODATA)) }
    }

    /// # Safety
    ///
    /// Names have an end.
    unsafe fn names_fit(&self) -> Option<bool> {
        // SAFETY: the caller's promise.
        unsafe {
            let fabric = self.info.and_then(|info| info.fabric_attr.as_ref());
            let fabric = fabric.map_or(std::ptr::null_mut(), |fabric| fabric.name);
            let domain = self.domain.map_or(std::ptr::null_mut(), |domain| domain.name);
            let is_ours = |name: *mut c_char| name.is_null() || CStr::from_ptr(name) == NAME;
            Some(is_ours(fabric) && is_ours(domain))
        }
    }

    /// Source and destination: what the program has, or what its node and service mean.
    fn addresses(
        &self,
        node: Option<&CStr>,
        service: Option<&CStr>,
        flags: u64,
    ) -> Result<(Place, Place)> {
        let given = |bytes: usize, place: *const std::ffi::c_void| -> Result<Place> {
            if place.is_null() || bytes == 0 {
                return Ok(None);
            }
            if bytes != ADDRESS_BYTES {
                return Err(Errno(libc::ENODATA));
            }
            // SAFETY: the program says that so many bytes are there.
            Ok(Some(unsafe { *place.cast::<[u8; ADDRESS_BYTES]>() }))
        };
        let (mut source, mut destination) = match self.info {
            Some(info) => {
                (given(info.src_addrlen, info.src_addr)?, given(info.dest_addrlen, info.dest_addr)?)
            }
            None => (None, None),
        };
        if node.is_some() || service.is_some() {
            let found = host::resolve(node, service).ok_or(Errno(libc::ENODATA))?;
            let found = Some(Address::of_tcp(found).encode());
            if flags & abi::SOURCE != 0 {
                source = found;
            } else if node.is_some() {
                destination = found;
            }
        }
        Ok((source, destination))
    }

    /// Says what there is, as near to the wish as it can be said.
    ///
    /// # Safety
    ///
    /// An empty information of libfabric's own.
    unsafe fn fill(&self, info: &mut Info, version: u32, places: (Place, Place)) -> Result<()> {
        // SAFETY: libfabric makes all parts of an information.
        let (tx, rx, ep, domain, fabric) = unsafe {
            let parts = (info.tx_attr.as_mut(), info.rx_attr.as_mut(), info.ep_attr.as_mut());
            let (Some(tx), Some(rx), Some(ep)) = parts else { return Err(Errno(libc::ENOMEM)) };
            let parts = (info.domain_attr.as_mut(), info.fabric_attr.as_mut());
            let (Some(domain), Some(fabric)) = parts else { return Err(Errno(libc::ENOMEM)) };
            (tx, rx, ep, domain, fabric)
        };
        let caps = self.granted();
        (info.caps, info.mode, info.addr_format) = (caps, 0, abi::ADDR_COVEY);
        let own = || Address::of_tcp((host::own_address(), 0).into()).encode();
        (info.src_addr, info.src_addrlen) = handed(Some(places.0.unwrap_or_else(own)));
        (info.dest_addr, info.dest_addrlen) = handed(places.1);
        *tx = TX;
        tx.caps = self.tx.map_or(0, |tx| tx.caps);
        tx.caps = if tx.caps == 0 { caps & TX.caps } else { granted(tx.caps) & TX.caps };
        tx.op_flags = self.tx.map_or(0, |tx| tx.op_flags);
        tx.msg_order = order(self.tx.map_or(0, |tx| tx.msg_order));
        *rx = RX;
        rx.caps = self.rx.map_or(0, |rx| rx.caps);
        let wish = if rx.caps == 0 { caps } else { granted(rx.caps) };
        rx.caps = wish & (RX.caps | ASKED);
        rx.op_flags = self.rx.map_or(0, |rx| rx.op_flags);
        rx.msg_order = order(self.rx.map_or(0, |rx| rx.msg_order));
        rx.total_buffered_recv = self.rx.map_or(0, |rx| rx.total_buffered_recv);
        *ep = EP;
        *domain = DOMAIN;
        (domain.name, fabric.name) = (host::text(NAME), host::text(NAME));
        fabric.api_version = version;
        fabric.prov_version = PROVIDER_VERSION;
        if let Some(wish) = self.domain {
            let or = |wish: c_int, ours: c_int| if wish == 0 { ours } else { wish };
            domain.threading = or(wish.threading, DOMAIN.threading);
            domain.control_progress = or(wish.control_progress, DOMAIN.control_progress);
            domain.data_progress = or(wish.data_progress, DOMAIN.data_progress);
            domain.av_type = wish.av_type;
            domain.mr_mode = mr_mode(wish.mr_mode);
        }
        // Before libfabric 1.5 it was a word for one of two ways, and not bits.
        if version < abi::version(1, 5) && domain.mr_mode == 0 {
            domain.mr_mode = abi::MR_SCALABLE;
        }
        Ok(())
    }

    fn granted(&self) -> u64 {
        if self.caps() == 0 { CAPS } else { granted(self.caps()) }
    }
}

/// The capabilities that were asked for, what these imply, and what costs nothing.
fn granted(wish: u64) -> u64 {
    let mut caps = wish | FREE;
    let implied = |kinds: u64, directions: u64| {
        if wish & kinds != 0 && wish & directions == 0 { directions } else { 0 }
    };
    caps |= implied(abi::MSG | abi::TAGGED, abi::SEND | abi::RECV);
    caps |= implied(abi::RMA | abi::ATOMIC, ONE_SIDED);
    // It takes memory out of the reach of peers, so only those have it that ask for it.
    caps & (CAPS | ASKED)
}

/// A program that asks for no order is told the one that there is.
fn order(wish: u64) -> u64 {
    if wish == 0 { ORDER } else { wish }
}

/// Basic registration is what it is; otherwise the only thing taken up is that addresses are virtual.
fn mr_mode(wish: c_int) -> c_int {
    match wish {
        abi::MR_BASIC | abi::MR_SCALABLE => wish,
        wish => wish & abi::MR_VIRT_ADDR,
    }
}

fn handed(place: Place) -> (*mut std::ffi::c_void, usize) {
    place.map_or((std::ptr::null_mut(), 0), |bytes| (host::copied(&bytes), bytes.len()))
}

fn ep_fits(wish: &EpAttr) -> bool {
    matches!(wish.ep_type, abi::EP_UNSPEC | abi::EP_RDM)
        && matches!(wish.protocol, 0 | abi::PROTO_COVEY)
        && (wish.protocol == 0 || at_most(wish.protocol_version, EP.protocol_version))
        && at_most(wish.max_msg_size, EP.max_msg_size)
        && at_most(wish.msg_prefix_size, EP.msg_prefix_size)
        && at_most(wish.max_order_raw_size, EP.max_order_raw_size)
        && at_most(wish.max_order_war_size, EP.max_order_war_size)
        && at_most(wish.max_order_waw_size, EP.max_order_waw_size)
        && wish.mem_tag_format.leading_zeros() >= EP.mem_tag_format.leading_zeros()
        && at_most(wish.tx_ctx_cnt, EP.tx_ctx_cnt)
        && at_most(wish.rx_ctx_cnt, EP.rx_ctx_cnt)
        && wish.auth_key_size == 0
}

fn tx_fits(wish: &TxAttr, caps: u64) -> bool {
    has(granted_of(caps), wish.caps)
        && has(OP_FLAGS_TX, wish.op_flags)
        && has(ORDER, wish.msg_order)
        && at_most(wish.comp_order, TX.comp_order)
        && at_most(wish.inject_size, TX.inject_size)
        && at_most(wish.size, TX.size)
        && at_most(wish.iov_limit, TX.iov_limit)
        && at_most(wish.rma_iov_limit, TX.rma_iov_limit)
}

fn rx_fits(wish: &RxAttr, caps: u64) -> bool {
    has(granted_of(caps), wish.caps)
        && has(OP_FLAGS_RX, wish.op_flags)
        && has(ORDER, wish.msg_order)
        && at_most(wish.comp_order, RX.comp_order)
        && at_most(wish.size, RX.size)
        && at_most(wish.iov_limit, RX.iov_limit)
}

/// What the parts of an endpoint may ask for: nothing that the whole was not asked for.
fn granted_of(caps: u64) -> u64 {
    if caps == 0 { CAPS } else { granted(caps) }
}

fn domain_fits(wish: &DomainAttr) -> bool {
    (abi::THREAD_UNSPEC..=abi::THREAD_ENDPOINT).contains(&wish.threading)
        && (abi::PROGRESS_UNSPEC..=abi::PROGRESS_CONTROL_UNIFIED).contains(&wish.control_progress)
        && (abi::PROGRESS_UNSPEC..=abi::PROGRESS_MANUAL).contains(&wish.data_progress)
        && (abi::RM_UNSPEC..=abi::RM_ENABLED).contains(&wish.resource_mgmt)
        && (abi::AV_UNSPEC..=abi::AV_TABLE).contains(&wish.av_type)
        && at_most(wish.mr_key_size, DOMAIN.mr_key_size)
        && at_most(wish.cq_data_size, DOMAIN.cq_data_size)
        && at_most(wish.cq_cnt, DOMAIN.cq_cnt)
        && at_most(wish.ep_cnt, DOMAIN.ep_cnt)
        && at_most(wish.tx_ctx_cnt, DOMAIN.tx_ctx_cnt)
        && at_most(wish.rx_ctx_cnt, DOMAIN.rx_ctx_cnt)
        && at_most(wish.max_ep_tx_ctx, DOMAIN.max_ep_tx_ctx)
        && at_most(wish.max_ep_rx_ctx, DOMAIN.max_ep_rx_ctx)
        && at_most(wish.max_ep_stx_ctx, DOMAIN.max_ep_stx_ctx)
        && at_most(wish.max_ep_srx_ctx, DOMAIN.max_ep_srx_ctx)
        && at_most(wish.cntr_cnt, DOMAIN.cntr_cnt)
        && at_most(wish.mr_iov_limit, DOMAIN.mr_iov_limit)
        && has(DOMAIN.caps, wish.caps)
        && wish.auth_key_size == 0
        && at_most(wish.max_err_data, DOMAIN.max_err_data)
        && at_most(wish.mr_cnt, DOMAIN.mr_cnt)
}

fn at_most<T: PartialOrd>(wish: T, ours: T) -> bool {
    wish <= ours
}

fn has(all: u64, wish: u64) -> bool {
    wish & !all == 0
}

/// The name of provider, fabric and domain.
pub const NAME: &CStr = c"covey";
pub const PROVIDER_VERSION: u32 = abi::version(0, 1);

/// Everything.
pub const CAPS: u64 = abi::RMA
    | abi::ATOMIC
    | ONE_SIDED
    | abi::MSG
    | abi::TAGGED
    | abi::SEND
    | abi::RECV
    | abi::DIRECTED_RECV
    | FREE;
/// What is there only where it was asked for.
const ASKED: u64 = abi::RMA_EVENT;
const ONE_SIDED: u64 = abi::READ | abi::WRITE | abi::REMOTE_READ | abi::REMOTE_WRITE;
const REMOTE: u64 = abi::REMOTE_READ | abi::REMOTE_WRITE;
/// What is there whether it was asked for or not.
const FREE: u64 = COMM | abi::SOURCE | abi::MULTI_RECV;
/// Where peers may be: the domain's, not its endpoints'.
const COMM: u64 = abi::LOCAL_COMM | abi::REMOTE_COMM;
/// What is received is ordered as it was sent, and atomic operations as they were begun.
const ORDER: u64 = abi::ORDER_SAS | abi::ORDER_ATOMIC;
/// Flags that may hold for all operations of an endpoint.
const OP_FLAGS_TX: u64 = abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE
    | abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE;
const OP_FLAGS_RX: u64 = abi::COMPLETION | abi::MULTI_RECV;

pub const TX: TxAttr = TxAttr {
    caps: CAPS & !(REMOTE | abi::RECV | abi::DIRECTED_RECV | FREE),
    mode: 0,
    op_flags: 0,
    msg_order: ORDER,
    comp_order: 0,
    inject_size: 4096,
    size: 4096,
    iov_limit: 4,
    rma_iov_limit: 1,
    tclass: 0,
};

pub const RX: RxAttr = RxAttr {
    caps: CAPS & !(abi::SEND | abi::READ | abi::WRITE | COMM),
    mode: 0,
    op_flags: 0,
    msg_order: ORDER,
    comp_order: 0,
    total_buffered_recv: 0,
    size: 32768,
    iov_limit: 4,
};

pub const EP: EpAttr = EpAttr {
    ep_type: abi::EP_RDM,
    protocol: abi::PROTO_COVEY,
    protocol_version: 1,
    max_msg_size: 1 << 40,
    msg_prefix_size: 0,
    max_order_raw_size: 16 << 10,
    max_order_war_size: 16 << 10,
    max_order_waw_size: 16 << 10,
    mem_tag_format: u64::MAX,
    tx_ctx_cnt: 1,
    rx_ctx_cnt: 1,
    auth_key_size: 0,
    auth_key: std::ptr::null_mut(),
};

const DOMAIN: DomainAttr = DomainAttr {
    domain: std::ptr::null_mut(),
    name: std::ptr::null_mut(),
    threading: abi::THREAD_SAFE,
    control_progress: abi::PROGRESS_MANUAL,
    data_progress: abi::PROGRESS_MANUAL,
    resource_mgmt: abi::RM_ENABLED,
    av_type: abi::AV_UNSPEC,
    mr_mode: 0,
    mr_key_size: 8,
    cq_data_size: 8,
    cq_cnt: 1 << 16,
    ep_cnt: 1 << 10,
    tx_ctx_cnt: 1 << 10,
    rx_ctx_cnt: 1 << 10,
    max_ep_tx_ctx: 1,
    max_ep_rx_ctx: 1,
    max_ep_stx_ctx: 0,
    max_ep_srx_ctx: 0,
    cntr_cnt: 1 << 16,
    mr_iov_limit: 1,
    caps: COMM,
    mode: 0,
    auth_key: std::ptr::null_mut(),
    auth_key_size: 0,
    max_err_data: 0,
    mr_cnt: 1 << 20,
    tclass: 0,
};
