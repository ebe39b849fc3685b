//! Messages without tags.

use super::EpObject;
use super::messages::{Flags, Incoming, Outgoing, Pieces};
use crate::abi::{self, FiAddr, FidEp, Msg, OpsMsg};
use crate::boundary::{Result, call, held, object};
use covey_uzura::Match;
use libc::iovec;
use std::ffi::c_void;

const SENT: u64 = abi::MSG | abi::SEND;
const RECEIVED: u64 = abi::MSG | abi::RECV;

/// # Safety
///
/// An open endpoint.
#[inline(always)]
unsafe fn send(
    ep: *mut FidEp,
    pieces: Pieces<'_>,
    to: FiAddr,
    flags: Flags,
    data: Option<u64>,
    context: *mut c_void,
) -> Result<isize> {
    let message = Outgoing { pieces, to, tag: None, kind: SENT, flags, data, context };
    // SAFETY: the caller's promise.
    unsafe { object::<EpObject, _>(ep) }?.send(message)?;
    Ok(0)
}

/// # Safety
///
/// An open endpoint.
#[inline(always)]
unsafe fn receive(
    ep: *mut FidEp,
    pieces: Pieces<'_>,
    from: FiAddr,
    flags: Flags,
    context: *mut c_void,
) -> Result<isize> {
    let message = Incoming { pieces, from, which: Match::Untagged, kind: RECEIVED, flags, context };
    // SAFETY: the caller's promise.
    unsafe { object::<EpObject, _>(ep) }?.receive(message)?;
    Ok(0)
}

call! {
    entry recv_msg(
        ep: *mut FidEp,
        into: *mut c_void,
        bytes: usize,
        _desc: *mut c_void,
        from: FiAddr,
        context: *mut c_void,
    ) -> isize {
        receive(ep, Pieces::One(into, bytes), from, Flags::OfEndpoint, context)
    }
}

call! {
    entry recvv_msg(
        ep: *mut FidEp,
        pieces: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        from: FiAddr,
        context: *mut c_void,
    ) -> isize {
        receive(ep, Pieces::of(pieces, count)?, from, Flags::OfEndpoint, context)
    }
}

call! {
    entry recvmsg_msg(ep: *mut FidEp, msg: *const Msg, flags: u64) -> isize {
        let msg = held(msg)?;
        let pieces = Pieces::of(msg.msg_iov, msg.iov_count)?;
        receive(ep, pieces, msg.addr, Flags::OfCall(flags), msg.context)
    }
}

call! {
    entry send_msg(
        ep: *mut FidEp,
        from: *const c_void,
        bytes: usize,
        _desc: *mut c_void,
        to: FiAddr,
        context: *mut c_void,
    ) -> isize {
        send(ep, Pieces::One(from.cast_mut(), bytes), to, Flags::OfEndpoint, None, context)
    }
}

call! {
    entry sendv_msg(
        ep: *mut FidEp,
        pieces: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        to: FiAddr,
        context: *mut c_void,
    ) -> isize {
        send(ep, Pieces::of(pieces, count)?, to, Flags::OfEndpoint, None, context)
    }
}

call! {
    entry sendmsg_msg(ep: *mut FidEp, msg: *const Msg, flags: u64) -> isize {
        let msg = held(msg)?;
        let pieces = Pieces::of(msg.msg_iov, msg.iov_count)?;
        let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(msg.data);
        send(ep, pieces, msg.addr, Flags::OfCall(flags), data, msg.context)
    }
}

call! {
    entry inject_msg(
        ep: *mut FidEp, from: *const c_void, bytes: usize, to: FiAddr,
    ) -> isize {
        let pieces = Pieces::One(from.cast_mut(), bytes);
        send(ep, pieces, to, Flags::Injected, None, std::ptr::null_mut())
    }
}

call! {
    entry senddata_msg(
        ep: *mut FidEp,
        from: *const c_void,
        bytes: usize,
        _desc: *mut c_void,
        data: u64,
        to: FiAddr,
        context: *mut c_void,
    ) -> isize {
        let pieces = Pieces::One(from.cast_mut(), bytes);
        send(ep, pieces, to, Flags::OfEndpoint, Some(data), context)
    }
}

call! {
    entry injectdata_msg(
        ep: *mut FidEp,
        from: *const c_void,
        bytes: usize,
        data: u64,
        to: FiAddr,
    ) -> isize {
        let pieces = Pieces::One(from.cast_mut(), bytes);
        send(ep, pieces, to, Flags::Injected, Some(data), std::ptr::null_mut())
    }
}

pub static OPS: OpsMsg = OpsMsg {
    size: size_of::<OpsMsg>(),
    recv: Some(recv_msg),
    recvv: Some(recvv_msg),
    recvmsg: Some(recvmsg_msg),
    send: Some(send_msg),
    sendv: Some(sendv_msg),
    sendmsg: Some(sendmsg_msg),
    inject: Some(inject_msg),
    senddata: Some(senddata_msg),
    injectdata: Some(injectdata_msg),
};
