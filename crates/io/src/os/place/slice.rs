//! How long the turns of a thread are where others want its CPU.
//!
//! Linux 6.12 lets a thread say it (`sched_runtime` of SCHED_OTHER). Its share stays what it was; but who wakes with
//! shorter turns runs at once, and does not wait until its turn is over. Before that version nothing changes.

use super::at_start;
use libc::{SYS_sched_getattr, SYS_sched_setattr, c_long, sched_attr};
use std::io;
use std::time::Duration;

/// A turn of those that make way: longer than what Linux gives, which is 0.7 to 2.8 ms by the number of CPUs, and no
/// longer than another of them may wait.
const LONG: Duration = Duration::from_millis(10);

/// Has the calling thread, and whatever it starts from now on, make way for threads that wake on its CPU: for who moves
/// much data beside programs that wait for messages. What fails leaves it as it is.
pub fn make_way() {
    // Where placement is off, or there is one CPU only, this is, too.
    if at_start().is_some() {
        let _ = set_slice(LONG);
    }
}

/// Takes [`make_way`] back for the calling thread: for a program of somebody else.
pub fn usual_turns() {
    let _ = set_slice(Duration::ZERO);
}

fn set_slice(slice: Duration) -> io::Result<()> {
    let mut attributes = attributes()?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    attributes.sched_runtime = slice.as_nanos() as u64;
    // SAFETY: the pointer is to a live value of the type and size that the call reads.
    checked(unsafe { libc::syscall(SYS_sched_setattr, 0, &raw const attributes, 0) })
}

fn attributes() -> io::Result<sched_attr> {
    let bytes = size_of::<sched_attr>() as u32;
    // SAFETY: all of its fields are numbers.
    let mut attributes: sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live value of the size that is said.
    checked(unsafe { libc::syscall(SYS_sched_getattr, 0, &raw mut attributes, bytes, 0) })?;
    attributes.size = bytes;
    Ok(attributes)
}

fn checked(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The turn of the calling thread; zero where Linux does not say.
    fn slice() -> io::Result<Duration> {
        Ok(Duration::from_nanos(attributes()?.sched_runtime))
    }

    fn on_another_thread<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(act).join().unwrap()
    }

    #[test]
    fn who_makes_way_hands_that_on_and_it_can_be_taken_back() {
        if at_start().is_none() {
            return;
        }
        let usual = slice().unwrap();
        let (own, its_threads, after) = on_another_thread(|| {
            make_way();
            let own = slice().unwrap();
            let its_threads = on_another_thread(|| slice().unwrap());
            usual_turns();
            (own, its_threads, slice().unwrap())
        });
        // A kernel that does not know of it says zero, or nothing of this.
        if usual.is_zero() || own == usual {
            return;
        }
        assert_eq!((own, its_threads, after), (LONG, LONG, usual));
        assert_eq!(slice().unwrap(), usual, "another thread's is its own");
    }

    #[test]
    fn a_lowered_priority_stays() {
        let (before, after) = on_another_thread(|| {
            // SAFETY: it takes no pointers.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
            let before = attributes().unwrap().sched_nice;
            make_way();
            (before, attributes().unwrap().sched_nice)
        });
        assert_eq!((before, after), (5, 5));
    }
}
