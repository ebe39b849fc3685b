//! A worker from its beginning to its end: what the host has started it for.

use crate::boundary::export;
use crate::ground::Store;
use covey_cell::store::LocalStore;
use covey_cell::trace::Trace;
use covey_cell::worker::{Cor, Spawn, Worker};
use covey_io::boundary::variable;
use covey_io::os::program::{Program, leave_signals_to_others};
use covey_io::os::shm::area::{Card, greeted};
use std::ffi::{CStr, CString, OsString, c_char, c_int};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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
    let kept = worker.trace_mut().finish();
    let is_whole = worker.trace_mut().check_end();
    ended.map_err(|ended| format!("{}: {ended}", card.worker))?;
    kept.map_err(|error| format!("{}: cannot write its trace: {error}", card.worker))?;
    is_whole.map_err(|diverged| format!("{}: {diverged}", card.worker))
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
    // It is held as any other stack is: no coroutine is made on what the first one runs on.
    let made = Cor::with_stack(MAIN_STACK_BYTES, body);
    let (cor, stack) = made.map_err(|error| error.to_string())?;
    Ok(Spawn { cor, stack })
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

/// Records and replays line by line: neither takes memory that grows with the run.
fn trace(worker: u32) -> Result<Trace, String> {
    let mut trace = Trace::off();
    if let Some(path) = place(c"COVEY_CELL_REPLAY", worker) {
        let file = File::open(&path);
        let file = file.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        // What cannot be read differs from whatever happens.
        let line = |line: io::Result<String>| line.unwrap_or_else(|error| error.to_string());
        trace = Trace::replay_of(BufReader::new(file).lines().map(line));
    }
    if let Some(path) = place(c"COVEY_CELL_TRACE", worker) {
        let file = own_file(&path);
        let file = file.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        trace = trace.record_to(file);
    }
    Ok(trace)
}

/// A file for this user alone. One that is there is emptied if it is a plain file of this user's: in a directory of
/// everybody's a name may be taken.
fn own_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    // SAFETY: it has no conditions.
    if !found.is_file() || found.uid() != unsafe { libc::geteuid() } {
        let what = "the name is taken by what is no file of yours; hint: name another one";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    file.set_len(0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_trace_is_its_user_s_and_goes_through_no_link_to_what_is_there() {
        let dir = std::env::temp_dir().join(format!("covey-cell-trace-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory");
        let [plain, victim, link] = ["plain", "victim", "link"].map(|name| dir.join(name));
        own_file(&plain).expect("made").write_all(b"first, long").expect("written");
        own_file(&plain).expect("emptied").write_all(b"again").expect("written");
        assert_eq!(std::fs::read(&plain).expect("read"), b"again");
        let mode = std::fs::metadata(&plain).expect("found").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&victim, "precious").expect("written");
        symlink(&victim, &link).expect("linked");
        own_file(&link).expect_err("a link");
        own_file(&dir).expect_err("a directory");
        assert_eq!(std::fs::read(&victim).expect("read"), b"precious");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
