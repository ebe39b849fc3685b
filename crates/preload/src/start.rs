//! What happens when the library is loaded, and when the process ends.

use crate::boundary::export;
use crate::{cwd, descriptors, exec, settings, stdio};

export! {
/// Run by the loader before the program's own first line.
callback fn start() {
    crate::boundary::report_panics();
    if settings::settings().report {
        crate::boundary::keep_stderr();
    }
    descriptors::inherit();
    stdio::inherit();
    {
        let _inside = crate::boundary::Inside::enter();
        cwd::inherit();
    }
    // SAFETY: the functions live as long as the process: the library is never unloaded.
    unsafe {
        libc::pthread_atfork(
            Some(exec::before_fork),
            Some(exec::after_fork_in_parent),
            Some(exec::after_fork_in_child),
        );
        libc::atexit(end);
    }
} }

export! {
/// Runs after everything that the program has asked to run at its end.
callback fn end() {
    // SAFETY: null means all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    exec::end();
} }

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg(test)]
const _: extern "C" fn() = start;
