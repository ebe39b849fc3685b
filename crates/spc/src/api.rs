//! The same for programs in Rust: typed, safe, and as short as with async files, but without `async`.
//!
//! ```
//! use covey_cell_lib::api::{File, Mode, log, spawn};
//!
//! fn sum(worker: u64, _words: Vec<String>) {
//!     spawn(32 << 10, move || {
//!         let file = File::open("#r/numbers", Mode::Any).unwrap();
//!         let mut block = [0; 8192];
//!         while let Ok(count @ 1..) = file.read(&mut block) {
//!             log(&format!("worker {worker} read {count} bytes\n"));
//!         }
//!     })
//!     .unwrap();
//! }
//! covey_cell_lib::program!(sum);
//! ```

use crate::boundary::{apart, ask};
use crate::ground::Store;
use covey_cell::coroutine::{STACK_BYTES_MIN, give_way};
use covey_cell::worker::{self, Cor, Request, Spawn, mode};
use covey_ninep::tree::Errno;
use covey_wire::Span;
use std::cell::Cell;
use std::marker::PhantomData;

/// What calls answer.
pub type Result<T> = std::result::Result<T, Errno>;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For reading.
    Read,
    /// For writing.
    Write,
    /// For both.
    Both,
    /// For both, made where it is not there, or else for reading.
    Any,
}

impl Mode {
    fn number(self) -> u32 {
        match self {
            Mode::Read => mode::READ,
            Mode::Write => mode::WRITE,
            Mode::Both => mode::BOTH,
            Mode::Any => mode::ANY,
        }
    }
}

/// From where a file's place is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// From the beginning.
    Start,
    /// From where it is.
    Here,
    /// From the end.
    End,
}

/// An open file. Dropped, it is closed. All its calls let other coroutines run while they wait.
#[derive(Debug)]
pub struct File {
    fd: i32,
    /// It is of the worker that has opened it, so of this thread.
    _here: PhantomData<Cell<()>>,
}

impl File {
    /// Opens a file.
    pub fn open(path: &str, mode: Mode) -> Result<File> {
        file(Request::Open { path: bytes(path.as_bytes()), mode: mode.number() })
    }

    /// Makes a file, or empties one that is there, and opens it.
    pub fn create(path: &str, perm: u32, mode: Mode) -> Result<File> {
        file(Request::Create { path: bytes(path.as_bytes()), perm, mode: mode.number() })
    }

    /// Reads where the file is; 0 at the end.
    pub fn read(&self, into: &mut [u8]) -> Result<usize> {
        read(self.fd, room(into), None)
    }

    /// Reads at an offset; 0 behind the end.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        read(self.fd, room(into), Some(offset))
    }

    /// Writes where the file is.
    pub fn write(&self, from: &[u8]) -> Result<usize> {
        write(self.fd, bytes(from), None)
    }

    /// Writes at an offset.
    pub fn write_at(&self, from: &[u8], offset: u64) -> Result<usize> {
        write(self.fd, bytes(from), Some(offset))
    }

    /// Moves to another place; where it is then.
    pub fn seek(&self, offset: i64, from: From) -> Result<u64> {
        let whence = from as u32;
        done(Request::Seek { fd: self.fd, offset, whence }).map(|at| at as u64)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = ask(Request::Close { fd: self.fd });
    }
}

/// Removes a file.
pub fn remove(path: &str) -> Result<()> {
    done(Request::Remove { path: bytes(path.as_bytes()) }).map(drop)
}

/// Writes to the log.
pub fn log(text: &str) {
    let _ = ask(Request::Log { text: bytes(text.as_bytes()) });
}

/// Lets other coroutines run.
#[inline]
pub fn yield_now() {
    if !give_way() {
        let _ = ask(Request::Yield);
    }
}

/// The number of this coroutine.
pub fn id() -> u32 {
    done(Request::Id).map_or(0, |number| number as u32)
}

/// Makes a coroutine on a new stack, with a guard page: its number. A closure that panics ends the worker.
pub fn spawn(stack_bytes: usize, body: impl FnOnce() + 'static) -> Result<u32> {
    let stack_bytes = stack_bytes.max(STACK_BYTES_MIN);
    let made = apart(move || {
        let cor = Cor::new(stack_bytes, body)?;
        Ok::<_, Errno>(Box::new(Spawn { cor, stack: next_stack(stack_bytes) }))
    })?;
    done(Request::Spawn(made)).map(|number| number as u32)
}

/// A place for a stack that no other memory has, since it is counted by where it is.
fn next_stack(bytes: usize) -> Span {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(u64::MAX / 4) });
    Span::new(NEXT.replace(NEXT.get() + bytes as u64), bytes as u64)
}

fn file(request: Request) -> Result<File> {
    done(request).map(|fd| File { fd: fd as i32, _here: PhantomData })
}

#[inline]
fn read(fd: i32, to: Span, at: Option<u64>) -> Result<usize> {
    // SAFETY: all coroutines of a worker's thread are those of its worker, and the memory is the caller's.
    counted(unsafe { worker::read::<Store>(fd, to, at) })
}

#[inline]
fn write(fd: i32, from: Span, at: Option<u64>) -> Result<usize> {
    // SAFETY: the same.
    counted(unsafe { worker::write::<Store>(fd, from, at) })
}

/// What the coroutine has done by itself, or else the answer to what is to be asked.
#[inline]
fn counted(transferred: std::result::Result<u64, Request>) -> Result<usize> {
    transferred
        .or_else(|request| done(request).map(|count| count as u64))
        .map(|count| count as usize)
}

fn done(request: Request) -> Result<i64> {
    ask(request).map_err(|code| {
        let mut words = [0; 256];
        let bytes = ask(Request::ErrorText { into: room(&mut words) }).unwrap_or_default();
        let words = &words[..words.len().min(bytes as usize)];
        Errno::because(code, String::from_utf8_lossy(words))
    })
}

fn bytes(from: &[u8]) -> Span {
    Span::new(from.as_ptr().expose_provenance() as u64, from.len() as u64)
}

fn room(into: &mut [u8]) -> Span {
    Span::new(into.as_mut_ptr().expose_provenance() as u64, into.len() as u64)
}

/// A list of texts that ends with null.
#[doc(hidden)]
pub type Words = *const *const std::ffi::c_char;

/// The texts of a list that ends with null.
///
/// # Safety
///
/// It is such a list.
#[doc(hidden)]
pub unsafe fn texts(list: *const *const std::ffi::c_char) -> Vec<String> {
    let mut texts = Vec::new();
    for index in 0.. {
        // SAFETY: promised by the caller: null ends it.
        let text = unsafe { *list.add(index) };
        if text.is_null() {
            break;
        }
        // SAFETY: promised by the caller.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        texts.push(text.to_string_lossy().into_owned());
    }
    texts
}
