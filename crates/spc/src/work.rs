//! A worker from its beginning to its end: what the host has started it for.

use crate::boundary::export;
use crate::ground::Store;
use covey_cell::store::LocalStore;
use covey_cell::trace::Trace;
use covey_cell::worker::{Cor, Spawn, Worker};
use covey_io::boundary::variable;
use covey_io::os::program::{Program, leave_signals_to_others};
use covey_io::os::shm::area::{Card, greeted};
use covey_wire::Span;
use std::ffi::{CStr, CString, OsString, c_char, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::ptr;

/// The stack of a program's first coroutine, counted as the others are. It has a guard page, which is not.
const MAIN_STACK_BYTES: usize = 32 << 10;

export! {
    /// Runs a worker on this thread: its words are the number of the socket to its host, which is the worker's alone, the program,
    /// and the program's arguments. 0 when the program has ended, else 1, and the reason is on stderr.
    free fn covey_cell_work(count: c_int, words: *const *const c_char) -> c_int {
        let words = (0..count as usize).map(|index| CStr::from_ptr(*words.add(index)).to_owned());
        match work(&words.collect::<Vec<CString>>()) {
            Ok(()) => 0,
            Err(why) => {
                eprintln!("covey: worker: {why}");
                1
            }
        }
    } else 1
}

fn work(words: &[CString]) -> Result<(), String> {
    let [socket, program, ..] = words else { return Err("no socket and no program".into()) };
    let number = socket.to_str().ok().and_then(|text| text.parse().ok()).ok_or("no socket")?;
    // SAFETY: the host has opened it for this worker.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(number) });
    let (card, area, host, own) = greeted(&socket).map_err(|error| format!("no host: {error}"))?;
    leave_signals_to_others();
    let path = PathBuf::from(OsString::from_vec(program.to_bytes().to_vec()));
    let (loaded, store) = load(&path, card)?;
    // SAFETY: a program's cormain takes a number, arguments and environment, or nothing.
    let entry = unsafe { loaded.entry(c"cormain") };
    let entry = entry.ok_or_else(|| format!("{} has no function cormain", path.display()))?;
    let trace = trace(card.worker)?;
    let ground = Store::new(area, socket, host, own);
    let mut worker = Worker::new(ground, card.worker, card.uid, store, trace)
        .map_err(|ended| ended.to_string())?;
    let first = first(entry, card.worker, &words[1..])?;
    let ended = worker.start(first).and_then(|()| worker.run());
    worker.stop();
    keep(card.worker, worker.trace())?;
    ended.map_err(|ended| format!("{}: {ended}", card.worker))
}

/// Loads the program and counts its segments.
fn load(path: &Path, card: Card) -> Result<(Program, LocalStore), String> {
    let failed = |error| format!("cannot load {}: {error}", path.display());
    let loaded = Program::load(path).map_err(failed)?;
    let mut store = LocalStore::new(card.store_bytes);
    for segment in loaded.segments().map_err(failed)? {
        let held = store.hold_segment(segment);
        held.map_err(|full| format!("cannot run {}: {full}", path.display()))?;
    }
    Ok((loaded, store))
}

fn first(
    entry: covey_io::os::program::Entry,
    worker: u32,
    words: &[CString],
) -> Result<Spawn, String> {
    let words = words.to_vec();
    let body = move || {
        let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(ptr::null());
        entry(worker.into(), pointers.as_ptr(), environment());
    };
    let cor = Cor::new(MAIN_STACK_BYTES, body).map_err(|error| error.to_string())?;
    // Its address is nobody's: it is counted whatever else is.
    Ok(Spawn { cor, stack: Span::new(u64::MAX / 2, MAIN_STACK_BYTES as u64) })
}

fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: libc's own variable; nobody changes the environment while workers run.
    unsafe { environ }
}

/// Where a worker's trace goes, or comes from.
fn place(name: &CStr, worker: u32) -> Option<PathBuf> {
    let mut path = OsString::from_vec(variable(name)?);
    path.push(format!(".{worker}"));
    Some(path.into())
}

fn trace(worker: u32) -> Result<Trace, String> {
    if let Some(path) = place(c"COVEY_CELL_REPLAY", worker) {
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        return Ok(Trace::replay(&text));
    }
    Ok(place(c"COVEY_CELL_TRACE", worker).map_or_else(Trace::off, |_| Trace::record()))
}

fn keep(worker: u32, trace: &Trace) -> Result<(), String> {
    let Some(path) = place(c"COVEY_CELL_TRACE", worker) else { return Ok(()) };
    let written = std::fs::write(&path, trace.text());
    written.map_err(|error| {
        let path = String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned();
        format!("cannot write {path}: {error}")
    })
}
