//! Reading and writing the memory of peers.

use super::messages::{Flags, Pieces, span};
use super::progress::Ended;
use super::{Endpoint, EpObject, Op, Queues, Room};
use crate::abi::{self, FiAddr, FidEp, MsgRma, OpsRma};
use crate::av::Av;
use crate::boundary::{Errno, Result, call, held, list, object};
use crate::info::{EP, TX};
use crate::slab::Slab;
use covey_uzura::{Fault, Key, Local, Remote, Started};
use libc::iovec;
use std::ffi::c_void;

/// One of them.
struct Transfer<'a> {
    pieces: Pieces<'a>,
    peer: FiAddr,
    /// Where in the peer's memory.
    at: u64,
    key: u64,
    /// `READ` or `WRITE`.
    direction: u64,
    flags: Flags,
    data: Option<u64>,
    context: *mut c_void,
}

impl Endpoint {
    #[inline]
    fn transfer(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        transfer: &Transfer<'_>,
    ) -> Result<()> {
        let is_write = transfer.direction == abi::WRITE;
        let (flags, is_injected) = transfer.flags.of(self.tx_flags);
        if flags & !(if is_write { WRITE_FLAGS } else { READ_FLAGS }) != 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        let bytes = transfer.pieces.bytes();
        let is_injected = is_injected && is_write;
        if bytes > if is_injected { TX.inject_size } else { EP.max_msg_size } {
            return Err(Errno(libc::EMSGSIZE));
        }
        self.check_room(self.tx.cq, avs, queues)?;
        let peer = self.peer(avs, transfer.peer)?;
        let (memory, local) = match transfer.pieces {
            Pieces::One(base, bytes) if !is_injected || bytes == 0 => (None, span(base, bytes)),
            pieces if is_write => Room::copied(&pieces, self.spare.take()),
            Pieces::Many(many) => Room::scattered(many),
            Pieces::One(base, bytes) => (None, span(base, bytes)),
        };
        let op = Op {
            context: transfer.context,
            kind: abi::RMA | transfer.direction,
            reports: self.reports(transfer.flags, flags),
            id: None,
            memory,
            room: bytes,
        };
        let remote = Remote { peer, key: Key(transfer.key), at: transfer.at, form: None };
        let (local, token) = (Local::bytes(local), self.ops.next() as u64);
        let begun = match (is_write, transfer.data) {
            (false, _) => self.engine.get(local, remote, token),
            (true, None) => self.engine.put(local, remote, token),
            (true, Some(data)) => self.engine.put_telling(local, remote, data, token),
        };
        self.begun(avs, queues, op, begun)
    }

    /// Keeps an operation that goes on, and reports one that has ended; what its peer's memory refused is an end too.
    #[inline]
    pub(super) fn begun(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        op: Op,
        begun: std::result::Result<Started, Fault>,
    ) -> Result<()> {
        match begun {
            Ok(_) | Err(Fault::Busy | Fault::NoPeer | Fault::TooLong | Fault::PeerDead) => {
                self.message_begun(avs, queues, op, begun)
            }
            Err(fault) => {
                let ended = Ended { result: Err(fault), ..Ended::of_nothing() };
                self.finish(avs, queues, op, &ended);
                Ok(())
            }
        }
    }
}

/// # Safety
///
/// An open endpoint.
#[inline]
unsafe fn begin(ep: *mut FidEp, transfer: &Transfer<'_>) -> Result<isize> {
    // SAFETY: the caller's promise.
    let ep = unsafe { object::<EpObject, _>(ep) }?;
    ep.with(|endpoint, avs, mut queues| endpoint.transfer(avs, &mut queues, transfer))?;
    Ok(0)
}

/// # Safety
///
/// As `fi_readmsg` and `fi_writemsg`.
unsafe fn begin_msg(
    ep: *mut FidEp,
    msg: *const MsgRma,
    direction: u64,
    flags: u64,
) -> Result<isize> {
    // SAFETY: the caller's promise.
    unsafe {
        let msg = held(msg)?;
        let pieces = Pieces::of(msg.msg_iov, msg.iov_count)?;
        let [there] = list(msg.rma_iov, msg.rma_iov_count)? else {
            return Err(Errno(libc::EINVAL));
        };
        if there.len != pieces.bytes() {
            return Err(Errno(libc::EINVAL));
        }
        let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(msg.data);
        let (peer, at, key, context) = (msg.addr, there.addr, there.key, msg.context);
        let flags = Flags::OfCall(flags);
        begin(ep, &Transfer { pieces, peer, at, key, direction, flags, data, context })
    }
}

/// Makes the entry points of one transfer, each with what it says.
macro_rules! transfers {
    ($($name:ident($($arg:ident: $type:ty),*; $peer:ident, $at:ident, $key:ident $(, $last:ident)?)
        $direction:ident, $flags:ident, $pieces:expr, $data:expr, $context:expr;)*) => {
        $(call! {
            entry $name(
                ep: *mut FidEp,
                $($arg: $type,)*
                $peer: FiAddr,
                $at: u64,
                $key: u64,
                $($last: *mut c_void,)?
            ) -> isize {
                begin(ep, &Transfer {
                    pieces: $pieces,
                    peer: $peer,
                    at: $at,
                    key: $key,
                    direction: abi::$direction,
                    flags: Flags::$flags,
                    data: $data,
                    context: $context,
                })
            }
        })*
    };
}

transfers! {
    read(base: *mut c_void, bytes: usize, _desc: *mut c_void; peer, at, key, context)
        READ, OfEndpoint, Pieces::One(base, bytes), None, context;
    readv(pieces: *const iovec, _desc: *mut *mut c_void, count: usize; peer, at, key, context)
        READ, OfEndpoint, Pieces::of(pieces, count)?, None, context;
    write(base: *const c_void, bytes: usize, _desc: *mut c_void; peer, at, key, context)
        WRITE, OfEndpoint, Pieces::One(base.cast_mut(), bytes), None, context;
    writev(pieces: *const iovec, _desc: *mut *mut c_void, count: usize; peer, at, key, context)
        WRITE, OfEndpoint, Pieces::of(pieces, count)?, None, context;
    inject(base: *const c_void, bytes: usize; peer, at, key)
        WRITE, Injected, Pieces::One(base.cast_mut(), bytes), None, std::ptr::null_mut();
    writedata(base: *const c_void, bytes: usize, _desc: *mut c_void, data: u64; peer, at, key, context)
        WRITE, OfEndpoint, Pieces::One(base.cast_mut(), bytes), Some(data), context;
    injectdata(base: *const c_void, bytes: usize, data: u64; peer, at, key)
        WRITE, Injected, Pieces::One(base.cast_mut(), bytes), Some(data), std::ptr::null_mut();
}

call! {
    entry readmsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
        begin_msg(ep, msg, abi::READ, flags)
    }
}

call! {
    entry writemsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
        begin_msg(ep, msg, abi::WRITE, flags)
    }
}

pub static OPS: OpsRma = OpsRma {
    size: size_of::<OpsRma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};

const READ_FLAGS: u64 = abi::COMPLETION | abi::MORE | ENDS | abi::INJECT;
const WRITE_FLAGS: u64 = READ_FLAGS | abi::REMOTE_CQ_DATA;
/// When it is done: always when the memory is there.
const ENDS: u64 =
    abi::INJECT_COMPLETE | abi::TRANSMIT_COMPLETE | abi::DELIVERY_COMPLETE | abi::MATCH_COMPLETE;
