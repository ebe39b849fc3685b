//! Atomic operations on elements of a peer's memory.
//!
//! They are done by the peer's engine, one after the other in the order in which they were begun. Which there are is said
//! by [`kind_of`] and the engine's own tables: everything else is refused, by the queries too.

use super::messages::{Flags, Pieces, span};
use super::{Endpoint, EpObject, Op, Queues, Room};
use crate::abi::{self, AtomicAttr, FiAddr, FidEp, Ioc, MsgAtomic, OpsAtomic};
use crate::av::Av;
use crate::boundary::{Errno, Result, call, held, list, object, put};
use crate::info::TX;
use crate::slab::Slab;
use covey_layout::{Element, Op as Combine};
use covey_uzura::{Compare, Key, Local, Remote};
use libc::iovec;
use std::ffi::{c_int, c_void};

/// What an operation does with the elements there.
#[derive(Clone, Copy)]
enum What {
    Combine(Combine),
    Compare(Compare),
}

/// One of them. Pieces are of bytes.
struct Atomic<'a> {
    from: Pieces<'a>,
    compare: Option<Pieces<'a>>,
    result: Option<Pieces<'a>>,
    what: What,
    element: Element,
    there: There,
    flags: Flags,
    context: *mut c_void,
}

/// Whose memory, and where in it.
#[derive(Clone, Copy)]
struct There {
    peer: FiAddr,
    at: u64,
    key: u64,
}

/// Which form of the calls it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Update,
    Fetch,
    Compare,
}

/// By `enum fi_datatype`; complex and long ones are not there.
const ELEMENTS: [Element; 10] = [
    Element::I8,
    Element::U8,
    Element::I16,
    Element::U16,
    Element::I32,
    Element::U32,
    Element::I64,
    Element::U64,
    Element::F32,
    Element::F64,
];

/// By `enum fi_op`.
const OPERATIONS: [What; 19] = [
    What::Combine(Combine::Min),
    What::Combine(Combine::Max),
    What::Combine(Combine::Sum),
    What::Combine(Combine::Prod),
    What::Combine(Combine::Lor),
    What::Combine(Combine::Land),
    What::Combine(Combine::Bor),
    What::Combine(Combine::Band),
    What::Combine(Combine::Lxor),
    What::Combine(Combine::Bxor),
    What::Combine(Combine::NoOp),
    What::Combine(Combine::Replace),
    What::Compare(Compare::Equal),
    What::Compare(Compare::NotEqual),
    What::Compare(Compare::LessOrEqual),
    What::Compare(Compare::Less),
    What::Compare(Compare::GreaterOrEqual),
    What::Compare(Compare::Greater),
    What::Compare(Compare::Masked),
];

/// Bytes of one operation.
const BYTES_MAX: usize = 16 << 10;

/// The operation and the elements, where there is such a thing.
fn kind_of(form: Form, datatype: c_int, op: c_int) -> Result<(What, Element)> {
    let element = usize::try_from(datatype).ok().and_then(|at| ELEMENTS.get(at));
    let what = usize::try_from(op).ok().and_then(|at| OPERATIONS.get(at));
    let Some((what, element)) = what.copied().zip(element.copied()) else {
        return Err(Errno(libc::EOPNOTSUPP));
    };
    let fits = match (form, what) {
        // What is only read would have nowhere to go.
        (Form::Update, What::Combine(op)) => op != Combine::NoOp && op.is_defined_for(element),
        (Form::Fetch, What::Combine(op)) => op.is_defined_for(element),
        (Form::Compare, What::Compare(compare)) => compare.is_defined_for(element),
        _ => false,
    };
    if fits { Ok((what, element)) } else { Err(Errno(libc::EOPNOTSUPP)) }
}

/// `fi_query_atomic`: how many elements there may be.
pub fn query(datatype: c_int, op: c_int, flags: u64) -> Result<AtomicAttr> {
    let form = match flags {
        0 => Form::Update,
        abi::FETCH_ATOMIC => Form::Fetch,
        abi::COMPARE_ATOMIC => Form::Compare,
        _ => return Err(Errno(abi::EBADFLAGS)),
    };
    let (_, element) = kind_of(form, datatype, op)?;
    let size = element.bytes() as usize;
    Ok(AtomicAttr { count: BYTES_MAX / size, size })
}

impl Endpoint {
    fn atomic(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        atomic: &Atomic<'_>,
    ) -> Result<()> {
        let (flags, is_injected) = atomic.flags.of(self.tx_flags);
        if flags & !FLAGS != 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        let is_read_only = matches!(atomic.what, What::Combine(Combine::NoOp));
        let bytes = if is_read_only { atomic.result } else { Some(atomic.from) };
        let bytes = bytes.map_or(0, |pieces| pieces.bytes());
        let others = [atomic.compare, atomic.result].into_iter().flatten();
        if bytes == 0 || others.clone().any(|pieces| pieces.bytes() != bytes) {
            return Err(Errno(libc::EINVAL));
        }
        if bytes > if is_injected { TX.inject_size } else { BYTES_MAX } {
            return Err(Errno(libc::EMSGSIZE));
        }
        self.check_room(self.tx.cq, avs, queues)?;
        let peer = self.peer(avs, atomic.there.peer)?;
        // Operands are kept until the request has left.
        let mut kept = Vec::new();
        let mut operand = |pieces: Pieces<'_>| match pieces {
            Pieces::One(base, bytes) if !is_injected => span(base, bytes),
            pieces => {
                let (room, span) = Room::copied(&pieces, None);
                kept.extend(room.map(|room| *room));
                span
            }
        };
        let expected = atomic.compare.map(&mut operand);
        let from = (!is_read_only).then(|| operand(atomic.from));
        let (memory, before) = match atomic.result {
            None => (None, None),
            Some(Pieces::One(base, bytes)) => (None, Some(span(base, bytes))),
            Some(Pieces::Many(many)) => {
                let (room, span) = Room::scattered(many);
                (room, Some(span))
            }
        };
        kept.extend(memory.map(|room| *room));
        let direction = if before.is_some() { abi::READ } else { abi::WRITE };
        let op = Op {
            context: atomic.context,
            kind: abi::ATOMIC | direction,
            reports: self.reports(atomic.flags, flags),
            id: None,
            memory: Some(Box::new(Room::All(kept))),
            room: bytes,
        };
        let to = Remote { peer, key: Key(atomic.there.key), at: atomic.there.at, form: None };
        let token = self.ops.next() as u64;
        let local = |span| Local::bytes(span);
        let nothing = span(std::ptr::null_mut(), 0);
        let from = local(from.or(before).unwrap_or(nothing));
        let begun = match (atomic.what, before.map(local)) {
            (What::Combine(combine), None) => {
                self.engine.atomic(combine, atomic.element, from, to, token)
            }
            (What::Combine(combine), Some(before)) => {
                self.engine.atomic_fetch(combine, atomic.element, from, before, to, token)
            }
            (What::Compare(compare), before) => {
                let both = [local(expected.unwrap_or(nothing)), from];
                let before = before.unwrap_or(local(nothing));
                self.engine.atomic_compare(compare, atomic.element, both, before, to, token)
            }
        };
        self.begun(avs, queues, op, begun)
    }
}

/// Elements of the program, as bytes.
struct Elements(Vec<iovec>);

impl Elements {
    /// # Safety
    ///
    /// As many entries as it says.
    unsafe fn of(list_of: *const Ioc, count: usize, element: Element) -> Result<Elements> {
        if count > TX.iov_limit {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the caller's promise.
        let list = unsafe { list(list_of, count) }?;
        Ok(Elements(list.iter().map(|one| piece(one.addr, one.count, element)).collect()))
    }

    fn pieces(&self) -> Pieces<'_> {
        match &self.0[..] {
            [one] => Pieces::One(one.iov_base, one.iov_len),
            many => Pieces::Many(many),
        }
    }
}

fn piece(base: *mut c_void, count: usize, element: Element) -> iovec {
    iovec { iov_base: base, iov_len: count.saturating_mul(element.bytes() as usize) }
}

/// What a call names beside its operands.
struct Call {
    form: Form,
    datatype: c_int,
    op: c_int,
    there: There,
    flags: Flags,
    context: *mut c_void,
}

/// The lists of a call: operands, what is compared, results.
type Lists = [(*const Ioc, usize); 3];

/// # Safety
///
/// An open endpoint; lists with their entries.
unsafe fn begin(ep: *mut FidEp, call: &Call, lists: Lists) -> Result<isize> {
    let (what, element) = kind_of(call.form, call.datatype, call.op)?;
    let [from, compare, result] = lists;
    // SAFETY: the caller's promise.
    let (ep, from, compare, result) = unsafe {
        (
            object::<EpObject, _>(ep)?,
            Elements::of(from.0, from.1, element)?,
            Elements::of(compare.0, compare.1, element)?,
            Elements::of(result.0, result.1, element)?,
        )
    };
    let atomic = Atomic {
        from: from.pieces(),
        compare: (call.form == Form::Compare).then(|| compare.pieces()),
        result: (call.form != Form::Update).then(|| result.pieces()),
        what,
        element,
        there: call.there,
        flags: call.flags,
        context: call.context,
    };
    ep.with(|endpoint, avs, mut queues| endpoint.atomic(avs, &mut queues, &atomic))?;
    Ok(0)
}

/// # Safety
///
/// As `fi_atomicmsg` and its like.
unsafe fn begin_msg(
    ep: *mut FidEp,
    msg: *const MsgAtomic,
    form: Form,
    flags: u64,
    [compare, result]: [(*const Ioc, usize); 2],
) -> Result<isize> {
    // SAFETY: the caller's promise.
    unsafe {
        let msg = held(msg)?;
        let [rma] = list(msg.rma_iov, msg.rma_iov_count)? else {
            return Err(Errno(libc::EINVAL));
        };
        let there = There { peer: msg.addr, at: rma.addr, key: rma.key };
        let (datatype, op, context) = (msg.datatype, msg.op, msg.context);
        let call = Call { form, datatype, op, there, flags: Flags::OfCall(flags), context };
        begin(ep, &call, [(msg.msg_iov, msg.iov_count), compare, result])
    }
}

const NONE: (*const Ioc, usize) = (std::ptr::null(), 0);

fn one(addr: *const c_void, count: usize) -> Ioc {
    Ioc { addr: addr.cast_mut(), count }
}

call! {
    entry write(
        ep: *mut FidEp,
        from: *const c_void,
        count: usize,
        _desc: *mut c_void,
        peer: FiAddr,
        at: u64,
        key: u64,
        datatype: c_int,
        op: c_int,
        context: *mut c_void,
    ) -> isize {
        let there = There { peer, at, key };
        let call = Call { form: Form::Update, datatype, op, there, flags: Flags::OfEndpoint, context };
        begin(ep, &call, [(&one(from, count), 1), NONE, NONE])
    }
}

call! {
    entry writev(
        ep: *mut FidEp,
        from: *const Ioc,
        _desc: *mut *mut c_void,
        count: usize,
        peer: FiAddr,
        at: u64,
        key: u64,
        datatype: c_int,
        op: c_int,
        context: *mut c_void,
    ) -> isize {
        let there = There { peer, at, key };
        let call = Call { form: Form::Update, datatype, op, there, flags: Flags::OfEndpoint, context };
        begin(ep, &call, [(from, count), NONE, NONE])
    }
}

call! {
    entry writemsg(ep: *mut FidEp, msg: *const MsgAtomic, flags: u64) -> isize {
        begin_msg(ep, msg, Form::Update, flags, [NONE, NONE])
    }
}

call! {
    entry inject(
        ep: *mut FidEp,
        from: *const c_void,
        count: usize,
        peer: FiAddr,
        at: u64,
        key: u64,
        datatype: c_int,
        op: c_int,
    ) -> isize {
        let (there, context) = (There { peer, at, key }, std::ptr::null_mut());
        let call = Call { form: Form::Update, datatype, op, there, flags: Flags::Injected, context };
        begin(ep, &call, [(&one(from, count), 1), NONE, NONE])
    }
}

call! {
    entry readwrite(
        ep: *mut FidEp,
        from: *const c_void,
        count: usize,
        _desc: *mut c_void,
        result: *mut c_void,
        _result_desc: *mut c_void,
        peer: FiAddr,
        at: u64,
        key: u64,
        datatype: c_int,
        op: c_int,
        context: *mut c_void,
    ) -> isize {
        let there = There { peer, at, key };
        let call = Call { form: Form::Fetch, datatype, op, there, flags: Flags::OfEndpoint, context };
        begin(ep, &call, [(&one(from, count), 1), NONE, (&one(result, count), 1)])
    }
}

call! {
    entry readwritev(
        ep: *mut FidEp,
        from: *const Ioc,
        _desc: *mut *mut c_void,
        count: usize,
        result: *mut Ioc,
        _result_desc: *mut *mut c_void,
        result_count: usize,
        peer: FiAddr,
        at: u64,
        key: u64,
        datatype: c_int,
        op: c_int,
        context: *mut c_void,
    ) -> isize {
        let there = There { peer, at, key };
        let call = Call { form: Form::Fetch, datatype, op, there, flags: Flags::OfEndpoint, context };
        begin(ep, &call, [(from, count), NONE, (result, result_count)])
    }
}

call! {
    entry readwritemsg(
        ep: *mut FidEp,
        msg: *const MsgAtomic,
        result: *mut Ioc,
        _result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) -> isize {
        begin_msg(ep, msg, Form::Fetch, flags, [NONE, (result, result_count)])
    }
}

call! {
    entry compwrite(
        ep: *mut FidEp,
        from: *const c_void,
        count: usize,
        _desc: *mut c_void,
        compare: *const c_void,
        _compare_desc: *mut c_void,
        result: *mut c_void,
        _result_desc: *mut c_void,
        peer: FiAddr,
        at: u64,
        key: u64,
        datatype: c_int,
        op: c_int,
        context: *mut c_void,
    ) -> isize {
        let there = There { peer, at, key };
        let call = Call { form: Form::Compare, datatype, op, there, flags: Flags::OfEndpoint, context };
        let lists = [one(from, count), one(compare, count), one(result, count)];
        begin(ep, &call, [(&lists[0], 1), (&lists[1], 1), (&lists[2], 1)])
    }
}

call! {
    entry compwritev(
        ep: *mut FidEp,
        from: *const Ioc,
        _desc: *mut *mut c_void,
        count: usize,
        compare: *const Ioc,
        _compare_desc: *mut *mut c_void,
        compare_count: usize,
        result: *mut Ioc,
        _result_desc: *mut *mut c_void,
        result_count: usize,
        peer: FiAddr,
        at: u64,
        key: u64,
        datatype: c_int,
        op: c_int,
        context: *mut c_void,
    ) -> isize {
        let there = There { peer, at, key };
        let call = Call { form: Form::Compare, datatype, op, there, flags: Flags::OfEndpoint, context };
        begin(ep, &call, [(from, count), (compare, compare_count), (result, result_count)])
    }
}

call! {
    entry compwritemsg(
        ep: *mut FidEp,
        msg: *const MsgAtomic,
        compare: *const Ioc,
        _compare_desc: *mut *mut c_void,
        compare_count: usize,
        result: *mut Ioc,
        _result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) -> isize {
        let both = [(compare, compare_count), (result.cast_const(), result_count)];
        begin_msg(ep, msg, Form::Compare, flags, both)
    }
}

/// Makes the entry points that say how many elements there may be.
macro_rules! valid {
    ($($name:ident $flags:expr;)*) => {
        $(call! {
            entry $name(_ep: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
                put(count, query(datatype, op, $flags)?.count);
                Ok(0)
            }
        })*
    };
}

valid! {
    writevalid 0;
    readwritevalid abi::FETCH_ATOMIC;
    compwritevalid abi::COMPARE_ATOMIC;
}

pub static OPS: OpsAtomic = OpsAtomic {
    size: size_of::<OpsAtomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};

const FLAGS: u64 = abi::COMPLETION
    | abi::MORE
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE;
