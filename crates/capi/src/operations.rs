//! What an endpoint does: messages, one-sided operations, and the queue of their ends.

use crate::boundary::{Result, export, give, held_mut, list, place, room};
use crate::endpoint::{CEndpoint, NO_PEER, form, span};
use crate::moves::op;
use crate::results::{Refusal, of_fault};
use covey_uzura::{Completion, Fault, Key, Local, OpId, Remote, Rule, Source, Started, Tag};
use covey_wire::Peer;
use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

/// `struct covey_local`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CLocal {
    base: *mut c_void,
    bytes: u64,
    origin: u64,
    form: u64,
}

/// `struct covey_remote`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CRemote {
    key: u64,
    at: u64,
    form: u64,
    peer: u32,
}

/// `struct covey_message`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CMessage {
    what: CLocal,
    tag: u64,
    context: u64,
    peer: u32,
}

/// `struct covey_match`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CMatch {
    tag: u64,
    ignore: u64,
    peer: u32,
}

/// `struct covey_rule`.
#[repr(C)]
pub struct CRule {
    matches: CMatch,
    mask: *const c_void,
    value: *const c_void,
    header_bytes: usize,
    header: *mut c_void,
    payload: CLocal,
}

/// `struct covey_completion`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CCompletion {
    context: u64,
    tag: u64,
    bytes: u64,
    peer: u32,
    result: c_int,
}

/// `struct covey_probe`.
#[repr(C)]
pub struct CProbe {
    tag: u64,
    bytes: u64,
    peer: u32,
}

impl CLocal {
    fn local(&self) -> Result<Local> {
        let span = span(self.base, self.bytes);
        Ok(Local { span, origin: self.origin, form: form(self.form)? })
    }
}

impl CRemote {
    fn remote(&self) -> Result<Remote> {
        let form = form(self.form)?;
        Ok(Remote { peer: Peer(self.peer), key: Key(self.key), at: self.at, form })
    }
}

impl CMatch {
    fn source(&self) -> Source {
        if self.peer == NO_PEER { Source::Any } else { Source::From(Peer(self.peer)) }
    }

    fn tag(&self) -> Tag {
        Tag { value: self.tag, ignore: self.ignore }
    }
}

impl From<Completion> for CCompletion {
    fn from(completion: Completion) -> CCompletion {
        let Completion { context, result, peer, tag, bytes, .. } = completion;
        let result = result.map_or_else(of_fault, |()| 0);
        CCompletion { context, tag, bytes, peer: peer.0, result }
    }
}

impl CEndpoint {
    /// Every operation that was begun has one completion in the queue: C need not know which ended at once.
    ///
    /// # Safety
    ///
    /// `number` is null or a place for the number.
    unsafe fn begun(
        &mut self,
        started: std::result::Result<Started, Fault>,
        number: *mut u64,
    ) -> Result<()> {
        let begun = match started? {
            Started::Pending(operation) => operation.number(),
            Started::Done(completion) => {
                self.ended.push_back(completion.into());
                NOT_UNDER_WAY
            }
        };
        if !number.is_null() {
            // SAFETY: not null, so the caller's promise.
            unsafe { number.write(begun) };
        }
        Ok(())
    }

    /// Moves ends to the caller's list.
    fn collect(&mut self, into: &mut [CCompletion]) -> usize {
        let mut filled = 0;
        for place in into {
            let ended = self.ended.pop_front();
            let mut next = || self.engine.completion();
            let Some(one) = ended.or_else(|| next().map(Into::into)) else {
                break;
            };
            *place = one;
            filled += 1;
        }
        filled
    }

    /// Polls until something has ended, or until then.
    fn wait(&mut self, into: &mut [CCompletion], until: Option<Instant>) -> usize {
        let mut filled = self.collect(into);
        let mut is_first = true;
        while filled == 0 {
            let is_busy = self.engine.poll() > 0;
            filled = self.collect(into);
            // A peer that only keeps this side busy does not hold the caller up. The clock costs as much as some polls, so
            // where nothing happens the waiter looks at it.
            let looks = is_busy || std::mem::take(&mut is_first);
            if filled > 0 || looks && until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            let may_sleep = !is_busy && self.engine.is_idle();
            let transport = self.engine.transport();
            let is_over = !is_busy && self.waiter.wait_until(transport, may_sleep, until);
            if is_over {
                break;
            }
        }
        if filled > 0 {
            self.waiter.reset();
        }
        filled
    }
}

/// The number of an operation that has ended: there is none to be cancelled.
const NOT_UNDER_WAY: u64 = u64::MAX;

export! {
    fn covey_endpoint_send(endpoint: *mut CEndpoint, peer: u32, tag: u64, what: CLocal, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let what = what.local()?;
        let started = endpoint.engine.send(Peer(peer), tag, what, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_send_all(endpoint: *mut CEndpoint, messages: *const CMessage, count: usize, begun: *mut usize) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (messages, begun) = (list(messages, count, "the list of messages")?, place(begun)?);
        begun.write(0);
        let (mut ended, mut done) = (Vec::new(), 0);
        let sent = endpoint.engine.together(|engine| {
            messages.iter().try_for_each(|message| {
                let CMessage { what, tag, context, peer } = *message;
                if let Started::Done(completion) = engine.send(Peer(peer), tag, what.local()?, context)? {
                    ended.push(completion);
                }
                done += 1;
                Ok(())
            })
        });
        endpoint.ended.extend(ended.into_iter().map(CCompletion::from));
        begun.write(done);
        sent
    }
}

export! {
    fn covey_endpoint_send_headed(endpoint: *mut CEndpoint, peer: u32, tag: u64, header: *const c_void, header_bytes: usize, what: CLocal, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let header = list(header.cast::<u8>(), header_bytes, "the header")?;
        let what = what.local()?;
        let started = endpoint.engine.send_headed(Peer(peer), tag, header, what, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_receive(endpoint: *mut CEndpoint, matches: CMatch, into: CLocal, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (source, tag) = (matches.source(), matches.tag());
        let into = into.local()?;
        let started = endpoint.engine.receive(source, tag, into, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_place(endpoint: *mut CEndpoint, rule: *const CRule, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let rule = crate::boundary::held(rule, "rule")?;
        let rule = Rule {
            from: rule.matches.source(),
            tag: rule.matches.tag(),
            mask: list(rule.mask.cast::<u8>(), rule.header_bytes, "the mask")?,
            value: list(rule.value.cast::<u8>(), rule.header_bytes, "the value")?,
            header: span(rule.header, rule.header_bytes as u64),
            payload: rule.payload.local()?,
        };
        let started = endpoint.engine.place(&rule, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_probe(endpoint: *mut CEndpoint, matches: CMatch, out: *mut CProbe) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        endpoint.engine.poll();
        let found = endpoint.engine.probe(matches.source(), matches.tag());
        give(out, found.map_or(CProbe { tag: 0, bytes: 0, peer: NO_PEER }, |found| CProbe {
            tag: found.tag,
            bytes: found.bytes,
            peer: found.peer.0,
        }))
    }
}

export! {
    fn covey_endpoint_cancel(endpoint: *mut CEndpoint, operation: u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let is_none = operation == NOT_UNDER_WAY;
        if !is_none
            && endpoint.engine.cancel(OpId::of_number(operation))
        {
            return Ok(());
        }
        Err(Refusal::from(Fault::NoSuch))
    }
}

export! {
    fn covey_endpoint_put(endpoint: *mut CEndpoint, from: CLocal, to: CRemote, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (from, to) = (from.local()?, to.remote()?);
        let started = endpoint.engine.put(from, to, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_get(endpoint: *mut CEndpoint, into: CLocal, from: CRemote, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (into, from) = (into.local()?, from.remote()?);
        let started = endpoint.engine.get(into, from, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_accumulate(endpoint: *mut CEndpoint, what: c_int, from: CLocal, to: CRemote, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (op, from, to) = (op(what)?, from.local()?, to.remote()?);
        let started = endpoint.engine.accumulate(op, from, to, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_fetch(endpoint: *mut CEndpoint, what: c_int, from: CLocal, before: CLocal, to: CRemote, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (from, before) = (from.local()?, before.local()?);
        let (op, to) = (op(what)?, to.remote()?);
        let started = endpoint.engine.fetch(op, from, before, to, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_compare_swap(endpoint: *mut CEndpoint, expected: CLocal, new: CLocal, before: CLocal, to: CRemote, context: u64, operation: *mut u64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (expected, new, before) = (expected.local()?, new.local()?, before.local()?);
        let to = to.remote()?;
        let started = endpoint.engine.compare_swap(expected, new, before, to, context);
        endpoint.begun(started, operation)
    }
}

export! {
    fn covey_endpoint_poll(endpoint: *mut CEndpoint, into: *mut CCompletion, count: usize, found: *mut usize) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (into, found) = (room(into, count, "the room for completions")?, place(found)?);
        endpoint.engine.poll();
        found.write(endpoint.collect(into));
        Ok(())
    }
}

export! {
    fn covey_endpoint_wait(endpoint: *mut CEndpoint, into: *mut CCompletion, count: usize, found: *mut usize, ms: i64) {
        let endpoint = held_mut(endpoint, "endpoint")?;
        let (into, found) = (room(into, count, "the room for completions")?, place(found)?);
        if into.is_empty() {
            return Err(Refusal::argument("there is no room for a completion".to_owned()));
        }
        let wait = u64::try_from(ms).ok().map(Duration::from_millis);
        let until = wait.and_then(|wait| Instant::now().checked_add(wait));
        found.write(endpoint.wait(into, until));
        Ok(())
    }
}
