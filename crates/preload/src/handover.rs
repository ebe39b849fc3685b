//! From a program to the one that its process becomes.
//!
//! execve(2) keeps a process's locks and open files, and a failed one keeps everything. So the session
//! is not ended before it: what the next program needs is written into an anonymous file that it
//! inherits, and its copy of this library takes the session up when it is loaded, at once, since
//! nobody else keeps it alive. Descriptors that are closed on exec give up what they hold there, as
//! in the kernel. A program that runs without the library leaves the session to its grace.

use crate::boundary::{Inside, errno, set_errno};
use crate::open::Open;
use crate::{client, locks, real, seat, table};
use covey_stripe::client::{Handover, Held};
use covey_wire::{Bytes, Field, Name, Reader, record};
use libc::c_int;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io::{Read as _, Seek as _, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

record! {
    #[derive(Debug, PartialEq)]
    struct Head for () {
        magic: u64,
        /// Only the process itself goes on with its session, not a child that has inherited the file.
        pid: u32,
        /// The configuration file of the cluster.
        config: Name,
        descriptors: u32,
    }
}

record! {
    /// A descriptor that stays.
    #[derive(Debug, PartialEq)]
    struct Descriptor for () {
        fd: u32,
        /// Of the description's own locks.
        owner: u64,
        has_own_locks: u8,
    }
}

/// What is handed over: while it is held, a program that begins finds it.
pub struct Handed(c_int);

impl Drop for Handed {
    fn drop(&mut self) {
        let before = errno();
        // SAFETY: the descriptor is our own.
        unsafe { real::close()(self.0) };
        set_errno(before);
    }
}

/// Before the process becomes another program. It may turn out that it does not: nothing is given up
/// here, except a session that holds nothing.
pub fn prepare() -> Option<Handed> {
    let files: Vec<(c_int, Arc<Open>)> =
        table::lock().iter().map(|(fd, open)| (*fd, open.clone())).collect();
    if files.is_empty() {
        client::end();
        return None;
    }
    let client = client::existing()?;
    let mut session = client::wait_for(&client, client.hand_over());
    let (stay, go): (Vec<_>, Vec<_>) = files.into_iter().partition(|(fd, _)| stays(*fd));
    session.keep(|held| is_kept(held, &stay, &go));
    let distinct: BTreeMap<u64, &Arc<Open>> =
        stay.iter().map(|(_, open)| (open.owner, open)).collect();
    let counted = distinct.into_values().filter(|open| open.is_counted());
    session.opens = counted.map(|open| open.id()).collect();
    let head = Head {
        magic: MAGIC,
        pid: std::process::id(),
        config: Name::from(client.config.as_os_str().as_bytes()),
        descriptors: stay.len() as u32,
    };
    let mut bytes = Vec::new();
    head.put((), &mut bytes);
    for (fd, open) in &stay {
        let has_own_locks = u8::from(open.has_own_locks());
        Descriptor { fd: *fd as u32, owner: open.owner, has_own_locks }.put((), &mut bytes);
    }
    bytes.extend(session.encode());
    write(&bytes)
}

fn stays(fd: c_int) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { real::fcntl()(fd, libc::F_GETFD, 0) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// A process's lock goes with the first close of the file, a description's with its last one.
fn is_kept(held: &Held, stay: &[(c_int, Arc<Open>)], go: &[(c_int, Arc<Open>)]) -> bool {
    match held.lock.owner {
        locks::PROCESS => !go.iter().any(|(_, open)| open.id() == held.id),
        owner => stay.iter().any(|(_, open)| locks::own(open) == owner),
    }
}

fn write(bytes: &[u8]) -> Option<Handed> {
    // SAFETY: the name ends with a zero; the descriptor is our own, and moved out of the program's way.
    let handed = unsafe {
        let made = libc::memfd_create(NAME.as_ptr(), 0);
        if made < 0 {
            return None;
        }
        let high = real::fcntl()(made, libc::F_DUPFD, i64::from(seat::base()));
        if high >= 0 {
            real::close()(made);
        }
        Handed(if high >= 0 { high } else { made })
    };
    file(&handed).write_all(bytes).ok().map(|()| handed)
}

/// The anonymous file, which is not closed with it.
fn file(handed: &Handed) -> ManuallyDrop<std::fs::File> {
    // SAFETY: it is open, and stays so: nothing but `Handed` closes it.
    ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(handed.0) })
}

/// What this program was handed.
pub struct Inherited {
    pub session: Handover,
    pub config: std::path::PathBuf,
    descriptors: BTreeMap<c_int, Descriptor>,
}

impl Inherited {
    /// Who owned a descriptor's own locks, and whether there may be some.
    pub fn owner(&self, fd: c_int) -> Option<(u64, bool)> {
        self.descriptors.get(&fd).map(|known| (known.owner, known.has_own_locks != 0))
    }
}

/// Takes what was handed over; closes the file in any case. None for a file of anything else.
pub fn take(fd: c_int) -> Option<Inherited> {
    if !crate::open::target(fd).starts_with(b"/memfd:covey-session") {
        return None;
    }
    let handed = Handed(fd);
    let mut bytes = Vec::new();
    let mut file = file(&handed);
    file.rewind().ok()?;
    file.read_to_end(&mut bytes).ok()?;
    read(bytes)
}

fn read(bytes: Vec<u8>) -> Option<Inherited> {
    let bytes = Bytes::from(bytes);
    let mut from = Reader::new(bytes);
    let head = Head::get((), &mut from).ok()?;
    if head.magic != MAGIC || head.pid != std::process::id() {
        return None;
    }
    let mut descriptors = BTreeMap::new();
    for _ in 0..head.descriptors {
        let one = Descriptor::get((), &mut from).ok()?;
        descriptors.insert(c_int::try_from(one.fd).ok()?, one);
    }
    let session = from.bytes(from.remaining()).and_then(Handover::decode).ok()?;
    let config = std::ffi::OsStr::from_bytes(head.config.as_bytes()).into();
    Some(Inherited { session, config, descriptors })
}

/// Goes on with the session, with the open files that this program has inherited.
pub fn resume(inherited: Inherited, opens: Vec<Arc<Open>>) {
    let _inside = Inside::enter();
    let of_process = inherited.session.held.iter().filter(|held| held.lock.owner == locks::PROCESS);
    locks::locked_files().extend(of_process.map(|held| held.id));
    let has_nothing = opens.is_empty() && inherited.session.held.is_empty();
    client::resume(inherited, opens);
    if has_nothing {
        client::end();
    }
}

const NAME: &CStr = c"covey-session";
const MAGIC: u64 = 0x3176_7365_7663_7963;
