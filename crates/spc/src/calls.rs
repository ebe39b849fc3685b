//! The functions of `covey_cell.h`. Each asks the worker and waits for its answer; nothing else is done on the caller's
//! stack, which may be small.

use crate::api::yield_now;
use crate::boundary::{apart, ask, export, memory, settled, text};
use crate::ground::Store;
use covey_cell::worker::{self, Cor, Request, Spawn};
use covey_io::os::program::GuardPage;
use covey_ninep::tree::Errno;
use covey_wire::Span;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

export! {
    /// Opens a file.
    fn spc_open(path: *const c_char, mode: c_int) -> c_int {
        if path.is_null() {
            return refuse(NO_PATH);
        }
        Request::Open { path: text(path), mode: mode as u32 }
    }
}
export! {
    /// Makes a file, or empties one, and opens it.
    fn spc_create(path: *const c_char, perm: c_uint, mode: c_int) -> c_int {
        if path.is_null() {
            return refuse(NO_PATH);
        }
        Request::Create { path: text(path), perm, mode: mode as u32 }
    }
}
export! {
    /// Closes a file.
    fn spc_close(fd: c_int) -> c_int {
        Request::Close { fd }
    }
}
export! {
    /// Removes a file.
    fn spc_remove(path: *const c_char) -> c_int {
        if path.is_null() {
            return refuse(NO_PATH);
        }
        Request::Remove { path: text(path) }
    }
}
export! {
    /// Reads where the descriptor is.
    free fn spc_read(fd: c_int, data: *mut c_void, count: c_uint) -> c_int {
        read(fd, data, count, None)
    } else -1
}
export! {
    /// Writes where the descriptor is.
    free fn spc_write(fd: c_int, data: *const c_void, count: c_uint) -> c_int {
        write(fd, data, count, None)
    } else -1
}
export! {
    /// Reads at an offset.
    free fn spc_pread(fd: c_int, data: *mut c_void, count: c_uint, offset: u64) -> c_int {
        read(fd, data, count, Some(offset))
    } else -1
}
export! {
    /// Writes at an offset.
    free fn spc_pwrite(fd: c_int, data: *const c_void, count: c_uint, offset: u64) -> c_int {
        write(fd, data, count, Some(offset))
    } else -1
}
export! {
    /// Moves a descriptor.
    fn spc_seek(fd: c_int, offset: i64, kind: c_int) -> i64 {
        Request::Seek { fd, offset, whence: kind as u32 }
    }
}
export! {
    /// Writes to the log. What is longer than a line is cut off.
    fn spc_vlog(format: *const c_char, arguments: *mut c_void) -> c_int {
        // The worker copies the line before anybody else can run.
        if format.is_null() {
            return refuse(NO_FORMAT);
        }
        Request::Log { text: apart(|| formatted(format, arguments)) }
    }
}
export! {
    /// Makes a coroutine.
    fn mkcor(
        function: Option<extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
        stack: *mut c_void,
        bytes: usize
    ) -> c_int {
        let Some(function) = function.filter(|_| !stack.is_null()) else {
            return refuse(NO_COROUTINE);
        };
        let stack = memory(stack, bytes as u64);
        // Asked before anything is written there: it may be another coroutine's.
        if ask(Request::CheckNew { stack }).is_err() {
            return Request::CheckNew { stack };
        }
        match apart(|| coroutine(function, argument, stack)) {
            Some(spawn) => Request::Spawn(spawn),
            None => refuse(TOO_SMALL),
        }
    }
}
export! {
    /// Lets the other coroutines run: `yield` in C, which is a word of Rust.
    free fn covey_cell_yield() -> c_int {
        yield_now();
        0
    } else -1
}
export! {
    /// Ends the coroutine. Outside any there is nothing to end but the process.
    free fn terminate() {
        let _ = ask(Request::Terminate);
        std::process::abort()
    } else ()
}
export! {
    /// The coroutine's number.
    fn corid() -> c_int {
        Request::Id
    }
}
export! {
    /// Whether the coroutine is within its stack: 0 if so.
    free fn checkstack() -> c_int {
        if ask(Request::CheckStack) == Ok(1) { 0 } else { -1 }
    } else -1
}
export! {
    /// Sets the coroutine's last error.
    free fn sp_werror(words: *const c_char, code: c_int) {
        let _ = ask(Request::SetError { text: text(words), code: code as u32 });
    } else ()
}
export! {
    /// The coroutine's last error.
    free fn sp_rerror(words: *mut *mut c_char, code: *mut c_int) {
        let into = apart(|| {
            ERROR.with_borrow_mut(|error| {
                error.clear();
                error.resize(LINE_BYTES, 0);
                memory(error.as_mut_ptr(), LINE_BYTES as u64 - 1)
            })
        });
        let _ = ask(Request::ErrorText { into });
        let number = ask(Request::ErrorCode).unwrap_or_default();
        if let Some(words) = words.as_mut() {
            *words = ptr::with_exposed_provenance_mut(into.address as usize);
        }
        if let Some(code) = code.as_mut() {
            *code = number as c_int;
        }
    } else ()
}
export! {
    /// Whether there was an error.
    free fn sp_haserror() -> c_int {
        c_int::from(ask(Request::ErrorCode).is_ok_and(|code| code > 0))
    } else 0
}
export! {
    /// Allocates.
    memory fn spc_malloc(bytes: usize) {
        Request::Allocate { bytes: bytes as u64 }
    }
}
export! {
    /// Allocates zeros, which is what allocations are.
    memory fn spc_calloc(count: usize, bytes: usize) {
        Request::Allocate { bytes: count.saturating_mul(bytes) as u64 }
    }
}
export! {
    /// Moves an allocation to one of another size, with its bytes. Both have to fit for a moment.
    memory fn spc_realloc(address: *mut c_void, bytes: usize) {
        if address.is_null() {
            return Request::Allocate { bytes: bytes as u64 };
        }
        let address = address.expose_provenance() as u64;
        Request::Reallocate { address, bytes: bytes as u64 }
    }
}
export! {
    /// Frees.
    free fn spc_free(address: *mut c_void) {
        if !address.is_null() {
            let _ = ask(Request::Release { address: address.expose_provenance() as u64 });
        }
    } else ()
}

/// Why a call makes no sense, and the number of the error.
type Refusal = (&'static str, u32);
const TOO_SMALL: Refusal = ("the stack is too small", Errno::EINVAL);
const NO_COROUTINE: Refusal = ("a coroutine needs a function and a stack", Errno::EINVAL);
const NO_PATH: Refusal = ("the path is a null pointer", Errno::EINVAL);
const NO_FORMAT: Refusal = ("the format is a null pointer", Errno::EINVAL);
const NO_MEMORY: Refusal = ("the data is a null pointer", Errno::EINVAL);

/// An error is an answer like any other.
#[cold]
fn refuse((words, code): Refusal) -> Request {
    Request::Fail { text: memory(words.as_ptr(), words.len() as u64), code }
}

#[inline(always)]
fn read(fd: c_int, data: *mut c_void, count: c_uint, at: Option<u64>) -> c_int {
    settled(match transferred(data, count) {
        // SAFETY: all coroutines of a worker's thread are those of its worker, and the memory is the caller's.
        Some(to) => unsafe { worker::read::<Store>(fd, to, at) },
        None => Err(refuse(NO_MEMORY)),
    }) as c_int
}

#[inline(always)]
fn write(fd: c_int, data: *const c_void, count: c_uint, at: Option<u64>) -> c_int {
    settled(match transferred(data, count) {
        // SAFETY: the same.
        Some(from) => unsafe { worker::write::<Store>(fd, from, at) },
        None => Err(refuse(NO_MEMORY)),
    }) as c_int
}

/// What a transfer reads or writes: of a longer one its beginning, since the count that was transferred is an `int`. None where
/// there is nothing at all.
#[inline]
fn transferred(data: *const c_void, count: c_uint) -> Option<Span> {
    let bytes = count.min(TRANSFER_BYTES_MAX);
    (bytes == 0 || !data.is_null()).then(|| memory(data, bytes.into()))
}

/// As for read(2) of Linux.
const TRANSFER_BYTES_MAX: c_uint = 0x7fff_f000;
/// Longest line of the log, and longest text of an error, in bytes.
const LINE_BYTES: usize = 1024;

// Apart from the variables of the thread themselves, for which a library that is loaded late has some hundred bytes.
thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ERROR: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" {
    /// A `va_list` is passed by its address on all machines that we know.
    fn vsnprintf(
        to: *mut c_char,
        bytes: usize,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int;
}

/// # Safety
///
/// `format` is a text, and `arguments` are what it names.
unsafe fn formatted(format: *const c_char, arguments: *mut c_void) -> Span {
    LINE.with_borrow_mut(|line| {
        line.resize(LINE_BYTES, 0);
        let to = line.as_mut_ptr();
        // SAFETY: promised by the caller; there is room for a line.
        let bytes = unsafe { vsnprintf(to.cast(), LINE_BYTES, format, arguments) };
        memory(to, (bytes.max(0) as u64).min(LINE_BYTES as u64 - 1))
    })
}

/// # Safety
///
/// The stack is the coroutine's alone until it has ended; the function may be called with the argument.
unsafe fn coroutine(
    function: extern "C" fn(*mut c_void),
    argument: *mut c_void,
    stack: Span,
) -> Option<Box<Spawn>> {
    // SAFETY: promised by the caller.
    let guard = unsafe { GuardPage::below(stack) };
    let usable = if guard.is_some() { above_guard(stack) } else { stack };
    // SAFETY: promised by the caller.
    let cor = unsafe { Cor::on(usable, Box::new(guard), move || function(argument)) };
    cor.ok().map(|cor| Box::new(Spawn { cor, stack }))
}

/// What stays of a stack above its guard page.
fn above_guard(stack: Span) -> Span {
    let begin = stack.address.next_multiple_of(PAGE) + PAGE;
    Span::new(begin, stack.address + stack.bytes - begin)
}

const PAGE: u64 = 4096;
