//! Programs in C that are loaded into a process: shared objects, their segments, and the stacks that they bring.

use covey_wire::Span;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::path::Path;

/// A shared object that was loaded. It stays as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct Program(*mut c_void);

/// The program's entry: a number, its arguments, its environment. A panic of a program in Rust passes through it.
pub type Entry = extern "C-unwind" fn(u64, *const *const c_char, *const *const c_char);

impl Program {
    /// Loads a shared object, and what it depends on.
    pub fn load(path: &Path) -> io::Result<Program> {
        Program::load_in(path, libc::RTLD_LOCAL)
    }

    /// The same; what it exports is there for those loaded later.
    fn load_global(path: &Path) -> io::Result<Program> {
        Program::load_in(path, libc::RTLD_GLOBAL)
    }

    fn load_in(path: &Path, scope: c_int) -> io::Result<Program> {
        use std::os::unix::ffi::OsStrExt;
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the constructors of the object run, which whoever names the object has asked for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
        if handle.is_null() { Err(last_error()) } else { Ok(Program(handle)) }
    }

    /// The address of what it exports under a name.
    pub fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is never closed.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// Its entry function.
    ///
    /// # Safety
    ///
    /// What the object exports under this name is a function that may be called with an entry's arguments, or with none.
    pub unsafe fn entry(self, name: &CStr) -> Option<Entry> {
        // SAFETY: promised by the caller.
        self.symbol(name)
            .map(|address| unsafe { std::mem::transmute::<*mut c_void, Entry>(address) })
    }

    /// Calls `int name(int, char **)` of it.
    ///
    /// # Safety
    ///
    /// What the object exports under this name is such a function.
    pub unsafe fn call(self, name: &CStr, words: &[CString]) -> Option<c_int> {
        let address = self.symbol(name)?;
        let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        // SAFETY: promised by the caller.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(c_int, *const *const c_char) -> c_int>(
                address,
            )
        };
        Some(function(words.len() as c_int, pointers.as_ptr()))
    }

    /// Its own segments, as they lie in memory: code, constants, variables, and this thread's variables that each thread has.
    pub fn segments(self) -> io::Result<Vec<Span>> {
        // SAFETY: the handle is that of a loaded object, of which the linker fills in its map.
        let map = unsafe {
            let mut map: *const LinkMap = std::ptr::null();
            let place = (&raw mut map).cast();
            if libc::dlinfo(self.0, libc::RTLD_DI_LINKMAP, place) != 0 || map.is_null() {
                return Err(last_error());
            }
            &*map
        };
        let mut search = Search { base: map.base, found: Vec::new() };
        // SAFETY: the callback gets the pointer back while `search` is alive.
        unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut search).cast()) };
        Ok(search.found)
    }
}

/// The beginning of what `link.h` calls a `link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
}

struct Search {
    base: usize,
    found: Vec<Span>,
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the linker gives a valid structure, and back what `segments` gave it.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    if info.dlpi_addr as usize != search.base {
        return 0;
    }
    // SAFETY: the linker says how many headers there are.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let loaded = loaded.map(|header| Span::new(info.dlpi_addr + header.p_vaddr, header.p_memsz));
    search.found.extend(loaded);
    // Of these the object has the values to begin with; a thread has them all, at a place that may not be known yet.
    let of_threads = headers.iter().filter(|header| header.p_type == libc::PT_TLS);
    let place = info.dlpi_tls_data.expose_provenance() as u64;
    search.found.extend(of_threads.map(|header| Span::new(place, header.p_memsz)));
    1
}

fn last_error() -> io::Error {
    // SAFETY: the text is of this thread until its next call of the linker.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() { c"unknown error" } else { CStr::from_ptr(text) }
    };
    io::Error::other(text.to_string_lossy().into_owned())
}

/// Runs a worker's program on this thread, by the library for it: the program's own copy, or else `library`. `words` are the
/// number of a socket, which is the library's from here on, the program, and its arguments. What the library answers.
pub fn work(library: Option<&Path>, program: &Path, words: &[CString]) -> io::Result<c_int> {
    super::place::usual_turns();
    let shared = match library {
        Some(library) => Some(Program::load_global(library)?),
        None => None,
    };
    let loaded = Program::load(program)?;
    for object in [Some(loaded), shared].into_iter().flatten() {
        // SAFETY: the name is that of Covey's own library, whose function it is.
        if let Some(status) = unsafe { object.call(c"covey_cell_work", words) } {
            return Ok(status);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "there is no libcovey-cell.so"))
}

/// A copy of a shared object with variables of its own: the path by which it is loaded, and what keeps that path.
pub fn private_copy(program: &Path) -> io::Result<(std::path::PathBuf, std::fs::File)> {
    use std::os::fd::AsRawFd;
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut copy = std::fs::File::from(rustix::fs::memfd_create("covey-program", flags)?);
    io::copy(&mut std::fs::File::open(program)?, &mut copy)?;
    Ok((format!("/proc/self/fd/{}", copy.as_raw_fd()).into(), copy))
}

/// Waits until the other end of a socket is gone.
pub fn wait_for_hangup(socket: &std::os::unix::net::UnixStream) {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
        if poll(&mut fds, None).is_ok_and(|count| count > 0) {
            return;
        }
    }
}

/// A page that nobody can touch, for as long as this lives.
#[derive(Debug)]
pub struct GuardPage(usize);

impl GuardPage {
    /// Protects the lowest whole page of a stack, where at least three more stay.
    ///
    /// # Safety
    ///
    /// The memory is a stack of the caller's, and nobody uses its lowest page meanwhile.
    pub unsafe fn below(stack: Span) -> Option<GuardPage> {
        let page = (stack.address as usize).next_multiple_of(PAGE);
        let end = stack.end()? as usize;
        (page + 4 * PAGE <= end).then_some(())?;
        // SAFETY: promised by the caller; the page is given back as it was when this is dropped.
        let result = unsafe { protect(page, libc::PROT_NONE) };
        (result == 0).then_some(GuardPage(page))
    }
}

impl Drop for GuardPage {
    fn drop(&mut self) {
        // SAFETY: memory of the stack, as it was before.
        unsafe { protect(self.0, libc::PROT_READ | libc::PROT_WRITE) };
    }
}

/// # Safety
///
/// The page is mapped, and changing what may be done with it breaks nobody.
unsafe fn protect(page: usize, protection: c_int) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(page), PAGE, protection) }
}

/// Signals that may come at any time are for other threads than this one from here on: it may run on a small stack.
pub fn leave_signals_to_others() {
    // SAFETY: the set is a plain structure; the mask is this thread's.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Binds this thread to a CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The CPUs that this thread may run on.
pub fn cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_loaded_and_has_segments_and_an_unknown_one_is_an_error() {
        let libm = Program::load(Path::new("libm.so.6")).expect("libm");
        assert!(libm.symbol(c"cos").is_some() && libm.symbol(c"no_such_name").is_none());
        let bytes: u64 = libm.segments().expect("segments").iter().map(|span| span.bytes).sum();
        assert!(bytes > 1000, "{bytes}");
        let error = Program::load(Path::new("/no/such.so")).expect_err("there is none");
        assert!(error.to_string().contains("/no/such.so"), "{error}");
    }

    #[test]
    fn a_guard_page_needs_three_more_pages() {
        let mut stack = vec![0_u8; 6 * PAGE];
        let address = stack.as_mut_ptr().expose_provenance() as u64;
        let page = address.next_multiple_of(PAGE as u64);
        // SAFETY: the memory is this test's, which does not touch it meanwhile.
        unsafe {
            assert!(GuardPage::below(Span::new(page, 4 * PAGE as u64 - 1)).is_none());
            assert!(GuardPage::below(Span::new(page, 4 * PAGE as u64)).is_some());
        }
        stack.fill(1);
    }
}
