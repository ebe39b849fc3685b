//! A turn of a coroutine: what it asks for is begun, and what it waited for is concluded.

use super::copies::announce;
use super::errand::Errand;
use super::files::{File, may_be_mapped, names, text};
use super::ops::{self, Op, Reply};
use super::{After, Answer, Begun, Copy, Ended, Ground, Request, Sent, Wait, Worker, no_stack};
use crate::coroutine::{Resumer, Step};
use crate::store::{NotReleased, Overfull, block_bytes};
use covey_ninep::tree::{Errno, Result};
use covey_wire::{Bytes, Span, fnv1a};
use std::mem;
use std::result::Result as StdResult;

/// What becomes of a request.
enum Next {
    /// The coroutine goes on at once.
    Answer(Answer),
    /// It goes to the end of the queue.
    Yield,
    /// It goes there and waits for a copy.
    Copy(Copy),
    /// It goes there and waits for a message of its own, which is sent.
    Errand(Errand, After),
    /// It goes there and waits for messages.
    Queue(Op, After),
    /// It waits outside the queue.
    Park(Op, After),
    /// It is no more.
    End,
}

impl<G: Ground> Worker<G> {
    /// Lets a coroutine run until it has to wait.
    #[inline]
    pub(super) fn turn(
        &mut self,
        by: &mut Resumer,
        cor: u32,
        answer: Answer,
    ) -> StdResult<(), Ended> {
        let (mut cor, mut answer) = (cor, answer);
        self.queue.begin_row();
        loop {
            // SAFETY: nobody is dropped before the request has been taken.
            let step = unsafe { self.slot(cor).cor.resume(by, answer) };
            // It may have given way to others.
            cor = self.queue.first().expect("who has run is there");
            let in_a_row = self.queue.count_in_row();
            let request = match step {
                Step::Overflow => return Err(Ended::Overflow(cor)),
                Step::Done => return self.end(cor),
                Step::Asks(request) => request,
            };
            let slot = self.cors[cor as usize].as_mut().expect("who has run is there");
            // What is asked most often, without anything that the other requests need.
            let quick = match *request {
                _ if self.trace.is_on() => None,
                Request::Read { fd, to, at } => self.files.copy(fd, true, to, at),
                Request::Write { fd, from, at } => self.files.copy(fd, false, from, at),
                Request::Finish(Begun(copy)) => {
                    slot.copy = copy;
                    answer = self.copy_slowly(cor)?;
                    continue;
                }
                Request::Yield => {
                    slot.wait = Wait::turn();
                    self.queue.step();
                    return Ok(());
                }
                _ => None,
            };
            if let Some(copy) = quick {
                slot.copy = copy;
                if let Some(now) = self.copy_at_once(cor, in_a_row)? {
                    answer = now;
                    continue;
                }
                self.slot(cor).wait = Wait::Copy;
                announce(&*self.ground, &copy);
                self.queue.set_idle(false);
                self.queue.step();
                return Ok(());
            }
            let request = mem::replace(request, Request::Yield);
            match self.begin(cor, request, in_a_row)? {
                Some(now) => answer = now,
                None => return Ok(()),
            }
        }
    }

    /// Begins what a coroutine asks for. None when it has to wait, or has ended.
    fn begin(
        &mut self,
        cor: u32,
        request: Request,
        in_a_row: u32,
    ) -> StdResult<Option<Answer>, Ended> {
        let wait = match self.begun(cor, request)? {
            Next::Answer(now) => return Ok(Some(now)),
            Next::End => return self.end(cor).map(|()| None),
            Next::Errand(errand, after) => Wait::Errand(errand, after),
            Next::Queue(op, after) => Wait::Message(Box::new(Sent { op, after })),
            Next::Park(op, after) => {
                self.slot(cor).wait = Wait::Message(Box::new(Sent { op, after }));
                self.queue.leave();
                self.parked.push_back(cor);
                return self.link.send(&mut *self.ground).map(|()| None);
            }
            Next::Yield => Wait::turn(),
            Next::Copy(copy) => {
                self.slot(cor).copy = copy;
                if let Some(now) = self.copy_at_once(cor, in_a_row)? {
                    return Ok(Some(now));
                }
                announce(&*self.ground, &copy);
                Wait::Copy
            }
        };
        if matches!(wait, Wait::Message(_)) {
            self.link.send(&mut *self.ground)?;
        }
        // Who is given way to is answered nothing.
        self.queue.set_idle(matches!(wait, Wait::Turn(_)));
        self.slot(cor).wait = wait;
        self.queue.step();
        Ok(None)
    }

    fn end(&mut self, cor: u32) -> StdResult<(), Ended> {
        let slot = self.cors[cor as usize].take().expect("it has just run");
        self.store.release_stack(slot.stack);
        self.queue.leave();
        Ok(self.trace.event(format_args!("end {cor}"))?)
    }

    fn begun(&mut self, cor: u32, request: Request) -> StdResult<Next, Ended> {
        let begun = match request {
            Request::Read { fd, to, at } => self.begin_read(cor, fd, to, at)?,
            Request::Write { fd, from, at } => self.begin_write(cor, fd, from, at)?,
            Request::Finish(_) => unreachable!("none is begun while a trace is made"),
            Request::Terminate => Ok(Next::End),
            Request::Yield => {
                self.trace.event(format_args!("ask {cor} yield"))?;
                Ok(Next::Yield)
            }
            Request::CheckNew { stack } => {
                self.store.check_stack(stack).map(|()| now(0)).map_err(no_stack)
            }
            Request::Spawn(new) => self.spawn(*new)?.map(|number| now(number.into())),
            Request::Id => Ok(now(cor.into())),
            // It would not have been asked otherwise.
            Request::CheckStack => Ok(now(1)),
            Request::Open { path, mode } => self.begin_open(cor, path, mode)?,
            Request::Create { path, perm, mode } => self.begin_create(cor, path, perm, mode)?,
            Request::Close { fd } => {
                self.trace.event(format_args!("ask {cor} close {fd}"))?;
                let closed = self.files.close(fd).map(|_| now(0));
                // What tells the host so is to leave before the next errand.
                self.link.send(&mut *self.ground)?;
                closed
            }
            Request::Remove { path } => self.begin_remove(cor, path)?,
            Request::Seek { fd, offset, whence } => self.seek(fd, offset, whence),
            Request::Log { text } => {
                let line = self.ground.take(text);
                self.trace.event(format_args!("ask {cor} log {}", line.len()))?;
                self.log(line)
            }
            Request::ErrorText { into } => Ok(now(self.error_text(cor, into))),
            Request::ErrorCode => Ok(now(self.slot(cor).error.0.into())),
            Request::SetError { text, code } => {
                let text = self.ground.take(text);
                self.keep_error(cor, code, String::from_utf8_lossy(&text).into_owned());
                Ok(now(0))
            }
            Request::Fail { text, code } => {
                let text = self.ground.take(text);
                Err(Errno::because(code, String::from_utf8_lossy(&text)))
            }
            Request::Allocate { bytes } => self.allocate(bytes).map(|at| now(at as i64)),
            Request::Reallocate { address, bytes } => {
                self.reallocate(address, bytes).map(|at| now(at as i64))
            }
            Request::Release { address } => self.release(address).map(|()| now(0)),
        };
        Ok(match begun {
            Ok(next) => next,
            Err(error) => Next::Answer(self.failed(cor, error)),
        })
    }

    fn begin_open(&mut self, cor: u32, path: Span, mode: u32) -> StdResult<Result<Next>, Ended> {
        let path = self.ground.take(path);
        self.trace.event(format_args!("ask {cor} open {} {mode}", text(&path)))?;
        Ok(checked_names(&path).map(|names| {
            let maps = may_be_mapped(&path).then_some(self.number);
            message(ops::open(self.link.conn(), names, mode, maps), After::Nothing)
        }))
    }

    fn begin_create(
        &mut self,
        cor: u32,
        path: Span,
        perm: u32,
        mode: u32,
    ) -> StdResult<Result<Next>, Ended> {
        let path = self.ground.take(path);
        self.trace.event(format_args!("ask {cor} create {} {perm:o} {mode}", text(&path)))?;
        Ok(checked_names(&path).map(|names| {
            let maps = may_be_mapped(&path).then_some(self.number);
            message(ops::create(self.link.conn(), names, perm, mode, maps), After::Nothing)
        }))
    }

    fn begin_remove(&mut self, cor: u32, path: Span) -> StdResult<Result<Next>, Ended> {
        let path = self.ground.take(path);
        self.trace.event(format_args!("ask {cor} remove {}", text(&path)))?;
        Ok(checked_names(&path)
            .map(|names| message(ops::remove(self.link.conn(), names), After::Nothing)))
    }

    fn begin_read(
        &mut self,
        cor: u32,
        fd: i32,
        to: Span,
        at: Option<u64>,
    ) -> StdResult<Result<Next>, Ended> {
        let offset = match self.files.find(fd) {
            Ok(file) => at.unwrap_or(file.offset),
            Err(error) => return Ok(Err(error)),
        };
        self.trace.event(format_args!("ask {cor} read {fd} {} at {offset}", to.bytes))?;
        if let Some(copy) = self.files.copy(fd, true, to, at) {
            return Ok(Ok(Next::Copy(copy)));
        }
        let is_replay = self.trace.is_replay();
        let (link, ground) = (&mut self.link, &mut *self.ground);
        Ok(self.files.find(fd).map(|file| {
            let moved = at.is_none().then(|| (fd, file.advance(to.bytes)));
            let after = After::Data { to, moved };
            if file.blocks {
                let read = || ops::read(&file.fid, offset, to.bytes, true);
                return Next::Park(if is_replay { ops::nothing() } else { read() }, after);
            }
            match link.read((file.fid.number(), offset), to.bytes, ground) {
                Some(errand) => Next::Errand(errand, after),
                None => Next::Queue(ops::read(&file.fid, offset, to.bytes, false), after),
            }
        }))
    }

    fn begin_write(
        &mut self,
        cor: u32,
        fd: i32,
        from: Span,
        at: Option<u64>,
    ) -> StdResult<Result<Next>, Ended> {
        let offset = match self.files.find(fd) {
            Ok(file) => at.unwrap_or(file.offset),
            Err(error) => return Ok(Err(error)),
        };
        self.trace.event(format_args!("ask {cor} write {fd} {} at {offset}", from.bytes))?;
        if let Some(copy) = self.files.copy(fd, false, from, at) {
            return Ok(Ok(Next::Copy(copy)));
        }
        let is_replay = self.trace.is_replay();
        let (link, ground) = (&mut self.link, &mut *self.ground);
        Ok(self.files.find(fd).map(|file| {
            let moved = at.is_none().then(|| (fd, file.advance(from.bytes)));
            let after = After::Written { count: from.bytes, moved };
            if file.blocks {
                let write = || ops::write(&file.fid, offset, ground.take(from), true);
                return Next::Park(if is_replay { ops::nothing() } else { write() }, after);
            }
            match link.write((file.fid.number(), offset), from, ground) {
                Some(errand) => Next::Errand(errand, after),
                None => Next::Queue(ops::write(&file.fid, offset, ground.take(from), false), after),
            }
        }))
    }

    /// Takes the answer to messages.
    pub(super) fn finish(&mut self, cor: u32, sent: Sent) -> StdResult<Answer, Ended> {
        let result = self.wait_for(sent.op)?;
        self.conclude(cor, result, sent.after)
    }

    /// The answer from the host becomes that of the coroutine.
    pub(super) fn conclude(
        &mut self,
        cor: u32,
        result: Result<Reply>,
        after: After,
    ) -> StdResult<Answer, Ended> {
        let answer = result.and_then(|reply| self.take_reply(reply, after));
        // A file that was not taken is clunked, and that is to leave before the next errand.
        self.link.send(&mut *self.ground)?;
        self.answer(cor, answer, after)
    }

    /// The number becomes the answer of the coroutine.
    #[inline]
    pub(super) fn answer(
        &mut self,
        cor: u32,
        answer: Result<i64>,
        after: After,
    ) -> StdResult<Answer, Ended> {
        if !self.trace.is_on() {
            // Nobody wants to know of it.
        } else if let (Ok(count), After::Data { to, .. }) = (&answer, after) {
            self.trace_data(cor, to, *count as u64)?;
        } else {
            let code = answer.as_ref().map_or_else(|error| -i64::from(error.code), |count| *count);
            self.trace.event(format_args!("done {cor} {code}"))?;
        }
        Ok(match answer {
            Ok(number) => Answer::number(number as u64),
            Err(error) => {
                self.not_moved(after);
                self.failed(cor, error)
            }
        })
    }

    /// What has failed has moved no descriptor: who asks once more asks for the same bytes.
    fn not_moved(&mut self, after: After) {
        match after {
            After::Data { to, moved } => self.settle(moved, 0, to.bytes),
            After::Written { count, moved } => self.settle(moved, 0, count),
            After::Nothing | After::End { .. } => {}
        }
    }

    pub(super) fn take_reply(&mut self, reply: Reply, after: After) -> Result<i64> {
        match (reply, after) {
            (Reply::Opened(file, mapping), _) => self.take_file(file, mapping).map(i64::from),
            (Reply::Data(pieces), After::Data { to, moved }) => {
                let mut at = 0;
                for piece in pieces {
                    let part = to.part(at, piece.len() as u64).ok_or(Errno::EPROTO)?;
                    self.ground.give(part, &piece);
                    at += part.bytes;
                }
                self.settle(moved, at, to.bytes);
                Ok(at as i64)
            }
            (Reply::Count(written), After::Written { count, moved }) => {
                self.settle(moved, written, count);
                Ok(written as i64)
            }
            (Reply::Count(size), After::End { fd, offset }) => {
                let end = size.checked_add_signed(offset).ok_or(Errno::EINVAL)?;
                self.files.find(fd)?.offset = end;
                Ok(end as i64)
            }
            _ => Ok(0),
        }
    }

    fn take_file(&mut self, mut file: File, mapping: Option<u32>) -> Result<i32> {
        // One that cannot be taken in is used by messages.
        if mapping.is_some_and(|mapping| self.ground.adopt(mapping).is_err()) {
            file.map = None;
        }
        self.files.add(file)
    }

    pub(super) fn settle(&mut self, moved: Option<(i32, u64)>, count: u64, asked: u64) {
        if let Some((fd, at)) = moved
            && count < asked
        {
            self.moved_back(fd, at, count, asked);
        }
    }

    /// The descriptor was moved on by all that was asked for: by less, if nobody has moved it since.
    pub(super) fn moved_back(&mut self, fd: i32, at: u64, count: u64, asked: u64) {
        if let Ok(file) = self.files.find(fd)
            && file.offset == at.saturating_add(asked)
        {
            file.offset = at.saturating_add(count);
        }
    }

    fn seek(&mut self, fd: i32, offset: i64, whence: u32) -> Result<Next> {
        let file = self.files.find(fd)?;
        let base = match whence {
            0 => 0,
            1 => file.offset,
            2 => return Ok(message(ops::size(&file.fid), After::End { fd, offset })),
            _ => return Err(Errno::because(Errno::EINVAL, format!("seek of type {whence}"))),
        };
        let to = base.checked_add_signed(offset).filter(|to| i64::try_from(*to).is_ok());
        file.offset = to.ok_or_else(|| Errno::because(Errno::EINVAL, "seek before the start"))?;
        Ok(now(file.offset as i64))
    }

    fn log(&mut self, line: Bytes) -> Result<Next> {
        let log = self.files.log.as_ref().ok_or(Errno::EBADF)?;
        let after = After::Written { count: line.len() as u64, moved: None };
        Ok(message(ops::write(log, 0, line, false), after))
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        let full = |full: Overfull| Errno::because(Errno::ENOMEM, full.to_string());
        // What it takes is more than was asked for.
        let bytes = block_bytes(bytes);
        self.store.check_block(bytes).map_err(full)?;
        let block = self.ground.allocate(bytes).ok_or(Errno::ENOMEM)?;
        self.store.hold_block(block).map_err(full).inspect_err(|_| {
            self.ground.release(block);
        })?;
        Ok(block.address)
    }

    fn reallocate(&mut self, address: u64, bytes: u64) -> Result<u64> {
        let old = self.store.block(address).ok_or(NotReleased::Unknown(address));
        let old = old.map_err(not_released)?;
        let new = self.allocate(bytes)?;
        let kept = self.ground.take(Span::new(address, old.bytes.min(bytes)));
        self.ground.give(Span::new(new, kept.len() as u64), &kept);
        if let Err(error) = self.release(address) {
            self.release(new)?;
            return Err(error);
        }
        Ok(new)
    }

    fn release(&mut self, address: u64) -> Result<()> {
        let block = self.store.release_block(address).map_err(not_released)?;
        self.ground.release(block);
        Ok(())
    }

    fn error_text(&mut self, cor: u32, into: Span) -> i64 {
        let error = self.cors[cor as usize].as_ref().map_or("", |slot| &slot.error.1);
        let fits = error.len().min(into.bytes as usize);
        let bytes = error.len() as i64;
        let text = error.as_bytes()[..fits].to_vec();
        self.ground.give(Span::new(into.address, fits as u64), &text);
        bytes
    }

    pub(super) fn failed(&mut self, cor: u32, error: Errno) -> Answer {
        self.keep_error(cor, error.code, error.to_string());
        Answer::error(error.code)
    }

    fn keep_error(&mut self, cor: u32, code: u32, text: String) {
        if let Some(slot) = &mut self.cors[cor as usize] {
            slot.error = (code, text);
        }
    }

    fn trace_data(&mut self, cor: u32, local: Span, count: u64) -> StdResult<(), Ended> {
        let data = self.ground.take(Span::new(local.address, count));
        let sum = fnv1a(&data);
        Ok(self.trace.event(format_args!("done {cor} {count} {sum:016x}"))?)
    }
}

fn not_released(why: NotReleased) -> Errno {
    let code = match why {
        NotReleased::Unknown(_) => Errno::EINVAL,
        NotReleased::InUse(_) => Errno::EBUSY,
    };
    Errno::because(code, why.to_string())
}

fn now(number: i64) -> Next {
    Next::Answer(Answer::number(number as u64))
}

fn message(op: Op, after: After) -> Next {
    Next::Queue(op, after)
}

fn checked_names(path: &[u8]) -> Result<Vec<covey_wire::Name>> {
    let names = names(path)?;
    ops::check_length(&names)?;
    Ok(names)
}
