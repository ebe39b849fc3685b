//! Asynchronous I/O: requests are gathered until somebody asks after one, then go as lists.
//!
//! aio_read(3) and aio_write(3) promise nothing until aio_error, aio_return or aio_suspend is called, so
//! what was queued on one file until then goes to each server as one request. Requests that tell of
//! their end by a signal or a thread go at once, since nobody may ever ask.

use crate::boundary::{Locked, Result, Stop, errno, export, fail, is_inside, lock, refuse, serve};
use crate::client::wait;
use crate::data::Span;
use crate::lists::{self, Piece};
use crate::open::Open;
use crate::{real, table};
use covey_ninep::tree::Errno;
use libc::{aiocb, c_int, sigevent, ssize_t, timespec};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

struct Job {
    block: usize,
    open: Arc<Open>,
    writes: bool,
    piece: Piece,
}

/// What became of a request: nothing yet, or what aio_return answers or aio_error tells.
type Outcome = Option<std::result::Result<isize, c_int>>;

static QUEUE: Mutex<Vec<Job>> = Mutex::new(Vec::new());
static OUTCOMES: Mutex<BTreeMap<usize, Outcome>> = Mutex::new(BTreeMap::new());
static KNOWN: AtomicUsize = AtomicUsize::new(0);

fn queue() -> Locked<Vec<Job>> {
    lock(&QUEUE)
}

fn outcomes() -> Locked<BTreeMap<usize, Outcome>> {
    lock(&OUTCOMES)
}

fn is_known(block: *const aiocb) -> bool {
    KNOWN.load(Ordering::Relaxed) > 0 && outcomes().contains_key(&(block as usize))
}

fn note(block: usize, outcome: Outcome) {
    if outcomes().insert(block, outcome).is_none() {
        KNOWN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs everything that is queued, from the program's side.
pub fn settle() {
    if !is_inside() && !queue().is_empty() {
        serve(|| {
            settle_all();
            Ok(0)
        });
    }
}

/// Runs everything that is queued, in its order; neighbours on one file that do the same go as one
/// list.
pub fn settle_all() {
    let jobs = std::mem::take(&mut *queue());
    let alike = |left: &Job, right: &Job| {
        Arc::ptr_eq(&left.open, &right.open) && left.writes == right.writes
    };
    for group in jobs.chunk_by(alike) {
        let pieces: Vec<Piece> = group.iter().map(|job| job.piece).collect();
        let done = if group[0].writes {
            lists::write(&group[0].open, &pieces)
                .map(|()| pieces.iter().map(|piece| piece.span.length()).collect())
        } else {
            lists::read(&group[0].open, &pieces)
        };
        let failed = match &done {
            Err(Stop::Errno(error)) => error.code as c_int,
            _ => libc::EIO,
        };
        for (at, job) in group.iter().enumerate() {
            let outcome = done.as_ref().map(|counts| counts[at] as isize).map_err(|_| failed);
            note(job.block, Some(outcome));
        }
    }
}

/// # Safety
///
/// `block` points to an aiocb of the program's.
unsafe fn submit(block: *mut aiocb, open: Arc<Open>, writes: bool) -> Result<c_int> {
    // SAFETY: the caller's promise.
    let request = unsafe { &*block };
    if request.aio_offset < 0 {
        return refuse(libc::EINVAL);
    }
    // SAFETY: the request vouches for its memory until it is over.
    let span = unsafe { Span::new(request.aio_buf.cast(), request.aio_nbytes) };
    if writes && open.flags() & libc::O_APPEND != 0 {
        // Goes to the end, wherever that is.
        // SAFETY: the program's own memory.
        let bytes = unsafe { crate::data::taken(span) };
        let (client, file) = open.to_write()?;
        let length = bytes.len() as isize;
        wait(&client, file.append(bytes.into()))?;
        note(block as usize, Some(Ok(length)));
        return Ok(0);
    }
    let piece = Piece { offset: request.aio_offset as u64, span };
    note(block as usize, None);
    let count = {
        let mut queue = queue();
        queue.push(Job { block: block as usize, open, writes, piece });
        queue.len()
    };
    if count >= QUEUE_MAX || request.aio_sigevent.sigev_notify != libc::SIGEV_NONE {
        settle_all();
    }
    Ok(0)
}

/// Tells the program that a request is over, the way it wants to be told.
fn notify(event: &sigevent) {
    if event.sigev_notify == libc::SIGEV_SIGNAL {
        // SAFETY: a signal to this process.
        unsafe { libc::sigqueue(libc::getpid(), event.sigev_signo, event.sigev_value) };
    }
}

/// SIGEV_THREAD has fields that libc's binding does not show.
fn can_notify(event: &sigevent) -> bool {
    matches!(event.sigev_notify, libc::SIGEV_NONE | libc::SIGEV_SIGNAL)
}

/// # Safety
///
/// `block` points to an aiocb of the program's.
unsafe fn begin(block: *mut aiocb, writes: bool, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let request = unsafe { &*block };
    let Some(open) = table::find(request.aio_fildes) else { return real() };
    let event = request.aio_sigevent;
    if !can_notify(&event) {
        return fail(libc::ENOSYS);
    }
    // SAFETY: the caller's promise.
    let done = serve(|| unsafe { submit(block, open, writes) });
    if done == 0 {
        notify(&event);
    }
    done
}

export! { fn aio_read | aio_read64(block: *mut aiocb) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { begin(block, false, || real::aio_read()(block)) }
} }
export! { fn aio_write | aio_write64(block: *mut aiocb) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { begin(block, true, || real::aio_write()(block)) }
} }
export! { fn aio_fsync | aio_fsync64(how: c_int, block: *mut aiocb) -> c_int {
    // SAFETY: the program's own arguments.
    let Some(open) = table::find(unsafe { (*block).aio_fildes }) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::aio_fsync()(how, block) };
    };
    serve(|| {
        settle_all();
        let (client, file) = open.file()?;
        wait(&client, file.fsync())?;
        note(block as usize, Some(Ok(0)));
        Ok(0)
    })
} }
export! { failing(libc::EIO) fn aio_error | aio_error64(block: *const aiocb) -> c_int {
    if !is_known(block) {
        // SAFETY: the program's own arguments.
        return unsafe { real::aio_error()(block) };
    }
    settle();
    match outcomes().get(&(block as usize)) {
        Some(Some(Ok(_))) => 0,
        Some(Some(Err(code))) => *code,
        // Another thread has it in hand.
        _ => libc::EINPROGRESS,
    }
} }
export! { fn aio_return | aio_return64(block: *mut aiocb) -> ssize_t {
    if !is_known(block) {
        // SAFETY: the program's own arguments.
        return unsafe { real::aio_return()(block) };
    }
    settle();
    let outcome = outcomes().remove(&(block as usize));
    KNOWN.fetch_sub(1, Ordering::Relaxed);
    match outcome {
        Some(Some(Ok(count))) => count,
        Some(Some(Err(code))) => fail(code),
        _ => fail(libc::EINVAL),
    }
} }
export! { fn aio_suspend | aio_suspend64(blocks: *const *const aiocb, count: c_int, limit: *const timespec) -> c_int {
    // SAFETY: the program's own list, which has `count` entries.
    let any = unsafe { (0..count.max(0) as usize).any(|at| is_known(*blocks.add(at))) };
    any.then(|| {
        settle();
        0
    })
} else { real::aio_suspend()(blocks, count, limit) } }
export! { fn aio_cancel | aio_cancel64(fd: c_int, block: *mut aiocb) -> c_int {
    const ALL_DONE: c_int = 2;
    if !table::is_ours(fd) {
        // SAFETY: the program's own arguments.
        return unsafe { real::aio_cancel()(fd, block) };
    }
    settle();
    ALL_DONE
} }

export! { fn lio_listio | lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int {
    // SAFETY: the program's own list, which has `count` entries.
    let blocks: Vec<*mut aiocb> = unsafe {
        (0..count.max(0) as usize).map(|at| *list.add(at)).filter(|block| !block.is_null()).collect()
    };
    // SAFETY: the program's own request, which is not null.
    let ours = |block: &*mut aiocb| unsafe { table::is_ours((**block).aio_fildes) };
    let (mine, others): (Vec<_>, Vec<_>) = blocks.into_iter().partition(ours);
    if mine.is_empty() || is_inside() {
        // SAFETY: the program's own arguments.
        return unsafe { real::lio_listio()(mode, list, count, event) };
    }
    let mut failed = false;
    for block in &mine {
        // SAFETY: the program's own request, which is not null.
        let (code, fd) = unsafe { ((**block).aio_lio_opcode, (**block).aio_fildes) };
        let Some(open) = table::find(fd) else { continue };
        if code == libc::LIO_NOP {
            continue;
        }
        // SAFETY: the program's own request, which is not null.
        let begun = serve(|| unsafe { submit(*block, open, code == libc::LIO_WRITE) });
        if begun < 0 {
            note(*block as usize, Some(Err(errno())));
            failed = true;
        }
    }
    let rest = if others.is_empty() {
        0
    } else {
        // SAFETY: a list of the program's requests, which lives through the call.
        unsafe { real::lio_listio()(mode, others.as_ptr(), others.len() as c_int, event) }
    };
    // SAFETY: null, or the program's own.
    let tells = unsafe { event.as_ref() }.filter(|event| event.sigev_notify != libc::SIGEV_NONE);
    if mode == libc::LIO_WAIT || tells.is_some() {
        settle();
    }
    if mode == libc::LIO_WAIT {
        let outcomes = outcomes();
        failed |= mine.iter().any(|block| matches!(outcomes.get(&(*block as usize)), Some(Some(Err(_)))));
    } else if let (Some(event), true) = (tells, others.is_empty()) {
        notify(event);
    }
    if failed {
        return fail(Errno::EIO as c_int);
    }
    rest
} }

/// Requests that wait at most before they go.
const QUEUE_MAX: usize = 1024;
