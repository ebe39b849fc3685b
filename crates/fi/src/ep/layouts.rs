//! `covey_fi.h`: operations on scattered data, for programs that know Covey. They find them by `fi_open_ops`.

use super::messages::{Flags, span};
use super::{EpObject, Op};
use crate::abi::{self, FiAddr, Fid, FidEp};
use crate::boundary::{Errno, Result, call, held, list, object, put};
use covey_layout::Layout;
use covey_uzura::{Done, Form, Key, Local, Message, Remote, Source, Tag};
use std::ffi::{CStr, c_char, c_int, c_void};

/// `struct covey_fi_local`.
#[repr(C)]
pub struct CLocal {
    base: *mut c_void,
    bytes: u64,
    origin: u64,
    form: u64,
}

/// `struct covey_fi_remote`.
#[repr(C)]
pub struct CRemote {
    peer: FiAddr,
    key: u64,
    at: u64,
    form: u64,
}

/// `struct covey_fi_ops`.
#[repr(C)]
struct LayoutOps {
    size: usize,
    commit: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, *mut u64) -> c_int,
    uncommit: unsafe extern "C" fn(*mut FidEp, u64) -> c_int,
    tsend: unsafe extern "C" fn(*mut FidEp, *const CLocal, FiAddr, u64, *mut c_void, u64) -> isize,
    trecv: unsafe extern "C" fn(
        *mut FidEp,
        *const CLocal,
        FiAddr,
        u64,
        u64,
        *mut c_void,
        u64,
    ) -> isize,
    write: Transfer,
    read: Transfer,
}

type Transfer =
    unsafe extern "C" fn(*mut FidEp, *const CLocal, *const CRemote, *mut c_void, u64) -> isize;

/// Layouts that are ready, and the bytes that each has. Their numbers for C begin with 1.
#[derive(Debug, Default)]
pub struct Forms(Vec<Option<(Form, u64)>>);

impl Forms {
    fn add(&mut self, form: Form, bytes: u64) -> u64 {
        let free = self.0.iter().position(Option::is_none).unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[free] = Some((form, bytes));
        free as u64 + 1
    }

    fn place(&mut self, number: u64) -> Result<&mut Option<(Form, u64)>> {
        let index = usize::try_from(number.wrapping_sub(1)).unwrap_or(usize::MAX);
        self.0.get_mut(index).filter(|form| form.is_some()).ok_or(Errno(libc::EINVAL))
    }

    fn find(&mut self, number: u64) -> Result<Option<(Form, u64)>> {
        if number == 0 { Ok(None) } else { self.place(number).map(|form| *form) }
    }

    /// Memory of the program, and the bytes of it that are meant.
    fn local(&mut self, local: &CLocal) -> Result<(Local, usize)> {
        let form = self.find(local.form)?;
        let bytes = form.map_or(local.bytes, |(_, bytes)| bytes);
        let bytes = usize::try_from(bytes).map_err(|_| Errno(libc::EMSGSIZE))?;
        let all = usize::try_from(local.bytes).map_err(|_| Errno(libc::EINVAL))?;
        let form = form.map(|(form, _)| form);
        Ok((Local { span: span(local.base, all), origin: local.origin, form }, bytes))
    }
}

fn check(flags: u64, known: u64) -> Result<()> {
    if flags & !known == 0 { Ok(()) } else { Err(Errno(abi::EBADFLAGS)) }
}

fn op(kind: u64, reports: bool, room: usize, context: *mut c_void) -> Op {
    Op { context, kind, reports, id: None, memory: None, room }
}

call! {
    entry commit(
        ep: *mut FidEp, layout: *const c_void, bytes: usize, count: u64, number: *mut u64,
    ) -> c_int {
        let encoded = list(layout.cast::<u8>(), bytes)?;
        let layout = Layout::decode(encoded.to_vec().into()).map_err(|_| Errno(libc::EINVAL))?;
        let all = layout.size().checked_mul(count).ok_or(Errno(libc::EMSGSIZE))?;
        let made = object::<EpObject, _>(ep)?.with(|endpoint, _, _| {
            let form = endpoint.engine.commit(&layout, count).map_err(|_| Errno(libc::EINVAL))?;
            Ok(endpoint.forms.add(form, all))
        })?;
        put(number, made);
        Ok(0)
    }
}

call! {
    entry uncommit(ep: *mut FidEp, number: u64) -> c_int {
        object::<EpObject, _>(ep)?.with(|endpoint, _, _| {
            let form = endpoint.forms.place(number)?.take();
            let freed = form.map(|(form, _)| endpoint.engine.free(form));
            if matches!(freed, Some(Ok(()))) { Ok(0) } else { Err(Errno(libc::EINVAL)) }
        })
    }
}

call! {
    entry tsend(
        ep: *mut FidEp,
        what: *const CLocal,
        to: FiAddr,
        tag: u64,
        context: *mut c_void,
        flags: u64,
    ) -> isize {
        let what = held(what)?;
        check(flags, abi::COMPLETION | abi::DELIVERY_COMPLETE)?;
        object::<EpObject, _>(ep)?.with(|endpoint, avs, mut queues| {
            endpoint.check_room(endpoint.tx.cq, avs, &mut queues)?;
            let (local, bytes) = endpoint.forms.local(what)?;
            let peer = endpoint.peer(avs, to)?;
            let is_delivered = flags & abi::DELIVERY_COMPLETE != 0;
            let done = if is_delivered { Done::Delivered } else { Done::Sent };
            let reports = endpoint.reports(Flags::OfCall(flags), flags);
            let op = op(abi::TAGGED | abi::SEND, reports, bytes, context);
            let envelope = Message { tag: Some(tag), data: None, done, header: &[] };
            let token = endpoint.ops.next() as u64;
            let begun = endpoint.engine.send_message(peer, &envelope, local, token);
            endpoint.begun(avs, &mut queues, op, begun).map(|()| 0)
        })
    }
}

call! {
    entry trecv(
        ep: *mut FidEp,
        into: *const CLocal,
        from: FiAddr,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
        flags: u64,
    ) -> isize {
        let into = held(into)?;
        check(flags, abi::COMPLETION)?;
        object::<EpObject, _>(ep)?.with(|endpoint, avs, mut queues| {
            endpoint.check_room(endpoint.rx.cq, avs, &mut queues)?;
            let (local, room) = endpoint.forms.local(into)?;
            let is_directed = endpoint.caps & abi::DIRECTED_RECV != 0;
            let from = if is_directed && from != abi::ADDR_UNSPEC {
                Source::From(endpoint.peer(avs, from)?)
            } else {
                Source::Any
            };
            let reports = !endpoint.rx.is_selective || flags & abi::COMPLETION != 0;
            let op = op(abi::TAGGED | abi::RECV, reports, room, context);
            let token = endpoint.ops.next() as u64;
            let begun = endpoint.engine.receive(from, Tag { value: tag, ignore }, local, token);
            endpoint.begun(avs, &mut queues, op, begun).map(|()| 0)
        })
    }
}

/// # Safety
///
/// An open endpoint, and what the pointers point to.
unsafe fn transfer(
    ep: *mut FidEp,
    local: *const CLocal,
    remote: *const CRemote,
    direction: u64,
    context: *mut c_void,
    flags: u64,
) -> Result<isize> {
    check(flags, abi::COMPLETION)?;
    // SAFETY: the caller's promise.
    let (ep, local, remote) = unsafe { (object::<EpObject, _>(ep)?, held(local)?, held(remote)?) };
    ep.with(|endpoint, avs, mut queues| {
        endpoint.check_room(endpoint.tx.cq, avs, &mut queues)?;
        let (local, bytes) = endpoint.forms.local(local)?;
        let form = endpoint.forms.find(remote.form)?.map(|(form, _)| form);
        let peer = endpoint.peer(avs, remote.peer)?;
        let remote = Remote { peer, key: Key(remote.key), at: remote.at, form };
        let reports = endpoint.reports(Flags::OfCall(flags), flags);
        let op = op(abi::RMA | direction, reports, bytes, context);
        let token = endpoint.ops.next() as u64;
        let begun = if direction == abi::WRITE {
            endpoint.engine.put(local, remote, token)
        } else {
            endpoint.engine.get(local, remote, token)
        };
        endpoint.begun(avs, &mut queues, op, begun).map(|()| 0)
    })
}

call! {
    entry write(
        ep: *mut FidEp, from: *const CLocal, to: *const CRemote, context: *mut c_void, flags: u64,
    ) -> isize {
        transfer(ep, from, to, abi::WRITE, context, flags)
    }
}

call! {
    entry read(
        ep: *mut FidEp, into: *const CLocal, from: *const CRemote, context: *mut c_void, flags: u64,
    ) -> isize {
        transfer(ep, into, from, abi::READ, context, flags)
    }
}

call! {
    entry ops_open(
        _ep: *mut Fid, name: *const c_char, flags: u64, ops: *mut *mut c_void, _context: *mut c_void,
    ) -> c_int {
        if name.is_null() || ops.is_null() || flags != 0 {
            return Err(Errno(libc::EINVAL));
        }
        if CStr::from_ptr(name) != NAME {
            return Err(Errno(libc::ENOSYS));
        }
        put(ops, (&raw const OPS).cast_mut().cast());
        Ok(0)
    }
}

/// `COVEY_FI_OPS`.
const NAME: &CStr = c"covey layouts 1";

static OPS: LayoutOps =
    LayoutOps { size: size_of::<LayoutOps>(), commit, uncommit, tsend, trecv, write, read };
