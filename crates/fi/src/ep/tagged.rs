//! Tagged messages.

use super::EpObject;
use super::messages::{Flags, Incoming, Outgoing, Pieces};
use crate::abi::{self, FiAddr, FidEp, MsgTagged, OpsTagged};
use crate::boundary::{Result, call, held, object};
use covey_uzura::Tag;
use libc::iovec;
use std::ffi::c_void;

const SENT: u64 = abi::TAGGED | abi::SEND;
const RECEIVED: u64 = abi::TAGGED | abi::RECV;

/// # Safety
///
/// An open endpoint.
#[inline(always)]
unsafe fn send(
    ep: *mut FidEp,
    pieces: Pieces<'_>,
    to: FiAddr,
    tag: u64,
    flags: Flags,
    data: Option<u64>,
    context: *mut c_void,
) -> Result<isize> {
    let message = Outgoing { pieces, to, tag: Some(tag), kind: SENT, flags, data, context };
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
    tag: Tag,
    flags: Flags,
    context: *mut c_void,
) -> Result<isize> {
    let message = Incoming { pieces, from, which: tag.into(), kind: RECEIVED, flags, context };
    // SAFETY: the caller's promise.
    unsafe { object::<EpObject, _>(ep) }?.receive(message)?;
    Ok(0)
}

call! {
    entry trecv(
        ep: *mut FidEp,
        into: *mut c_void,
        bytes: usize,
        _desc: *mut c_void,
        from: FiAddr,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize {
        let tag = Tag { value: tag, ignore };
        receive(ep, Pieces::One(into, bytes), from, tag, Flags::OfEndpoint, context)
    }
}

call! {
    entry trecvv(
        ep: *mut FidEp,
        pieces: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        from: FiAddr,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize {
        let tag = Tag { value: tag, ignore };
        receive(ep, Pieces::of(pieces, count)?, from, tag, Flags::OfEndpoint, context)
    }
}

call! {
    entry trecvmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
        let msg = held(msg)?;
        let tag = Tag { value: msg.tag, ignore: msg.ignore };
        let pieces = Pieces::of(msg.msg_iov, msg.iov_count)?;
        receive(ep, pieces, msg.addr, tag, Flags::OfCall(flags), msg.context)
    }
}

call! {
    entry tsend(
        ep: *mut FidEp,
        from: *const c_void,
        bytes: usize,
        _desc: *mut c_void,
        to: FiAddr,
        tag: u64,
        context: *mut c_void,
    ) -> isize {
        send(ep, Pieces::One(from.cast_mut(), bytes), to, tag, Flags::OfEndpoint, None, context)
    }
}

call! {
    entry tsendv(
        ep: *mut FidEp,
        pieces: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        to: FiAddr,
        tag: u64,
        context: *mut c_void,
    ) -> isize {
        send(ep, Pieces::of(pieces, count)?, to, tag, Flags::OfEndpoint, None, context)
    }
}

call! {
    entry tsendmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
        let msg = held(msg)?;
        let pieces = Pieces::of(msg.msg_iov, msg.iov_count)?;
        let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(msg.data);
        send(ep, pieces, msg.addr, msg.tag, Flags::OfCall(flags), data, msg.context)
    }
}

call! {
    entry tinject(
        ep: *mut FidEp, from: *const c_void, bytes: usize, to: FiAddr, tag: u64,
    ) -> isize {
        let pieces = Pieces::One(from.cast_mut(), bytes);
        send(ep, pieces, to, tag, Flags::Injected, None, std::ptr::null_mut())
    }
}

call! {
    entry tsenddata(
        ep: *mut FidEp,
        from: *const c_void,
        bytes: usize,
        _desc: *mut c_void,
        data: u64,
        to: FiAddr,
        tag: u64,
        context: *mut c_void,
    ) -> isize {
        let pieces = Pieces::One(from.cast_mut(), bytes);
        send(ep, pieces, to, tag, Flags::OfEndpoint, Some(data), context)
    }
}

call! {
    entry tinjectdata(
        ep: *mut FidEp,
        from: *const c_void,
        bytes: usize,
        data: u64,
        to: FiAddr,
        tag: u64,
    ) -> isize {
        let pieces = Pieces::One(from.cast_mut(), bytes);
        send(ep, pieces, to, tag, Flags::Injected, Some(data), std::ptr::null_mut())
    }
}

pub static OPS: OpsTagged = OpsTagged {
    size: size_of::<OpsTagged>(),
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: Some(tsend),
    sendv: Some(tsendv),
    sendmsg: Some(tsendmsg),
    inject: Some(tinject),
    senddata: Some(tsenddata),
    injectdata: Some(tinjectdata),
};
