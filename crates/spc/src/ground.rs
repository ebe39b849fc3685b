//! The world of a worker: its process's memory as the local store, the area that it shares with its host, and their bells.

use covey_cell::mailbox::WorkerBox;
use covey_cell::store::{BLOCK_BYTES, block_bytes};
use covey_cell::worker::{Copied, Ground};
use covey_io::os::clock;
use covey_io::os::shm::area::{Area, Handed, MappedFile, handed, handed_over};
use covey_io::os::shm::{Bell, Pace, Patience, Waiter};
use covey_ninep::tree::{Errno, Result};
use covey_wire::{Bytes, Span};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::rc::Rc;
use std::time::Instant;

pub struct Store {
    area: Rc<Area>,
    socket: UnixStream,
    host: Bell,
    own: Bell,
    waiter: Waiter,
    /// By number: 0 is the area itself.
    mapped: Vec<Kept>,
}

/// What this worker has under a number.
#[derive(Default)]
enum Kept {
    #[default]
    Nothing,
    File(MappedFile),
    /// It was handed over and could not be mapped: it does not come again.
    Lost,
}

impl Store {
    pub fn new(area: Area, socket: UnixStream, host: Bell, own: Bell) -> Store {
        let waiter = Waiter::new(Patience::default());
        Store { area: Rc::new(area), socket, host, own, waiter, mapped: Vec::new() }
    }

    /// Where the memory of a file is; none where it is not all there.
    #[inline]
    fn place(&self, mapping: u32, pointer: u64, bytes: u64) -> Option<Span> {
        match mapping {
            0 => self.area.span(pointer, bytes),
            number => self.file(number).and_then(|file| file.span(pointer, bytes)),
        }
    }

    #[inline]
    fn file(&self, number: u32) -> Option<&MappedFile> {
        match self.mapped.get(number as usize) {
            Some(Kept::File(file)) => Some(file),
            _ => None,
        }
    }

    /// Takes in all that the host has sent.
    fn take_in(&mut self) -> Result<()> {
        while let Some(handed) = handed(&self.socket)? {
            self.keep(handed)?;
        }
        Ok(())
    }

    fn keep(&mut self, handed: Handed) -> Result<()> {
        let (number, kept) = match handed {
            Handed::File(number, Ok(file)) => (number as usize, Kept::File(file)),
            Handed::File(number, Err(_)) => (number as usize, Kept::Lost),
            Handed::Back(number) => (number as usize, Kept::Nothing),
        };
        if number >= MAPPINGS_MAX {
            return Err(Errno::because(Errno::EPROTO, "host hands over too many files"));
        }
        if self.mapped.len() <= number {
            self.mapped.resize_with(number + 1, Kept::default);
        }
        self.mapped[number] = kept;
        Ok(())
    }

    /// What was copied is worth nothing if some of the file's memory was not there.
    #[inline]
    fn copied(&self, mapping: u32) -> Copied {
        match self.file(mapping) {
            Some(file) if !file.is_whole() => Copied::Refused,
            _ => Copied::Whole,
        }
    }
}

impl Ground for Store {
    type Memory = Area;

    fn memory(&self) -> &Rc<Area> {
        &self.area
    }

    fn wait(&mut self, mailbox: &WorkerBox<Area>) -> std::result::Result<(), String> {
        match self.waiter.pace() {
            Pace::Spin => std::hint::spin_loop(),
            Pace::Yield => std::thread::yield_now(),
            Pace::Sleep if mailbox.prepare_sleep().map_err(|broken| broken.to_string())? => {
                let has_spoken = self.own.sleep(self.socket.as_fd(), self.waiter.sleep_max());
                mailbox.woke();
                if has_spoken {
                    if is_closed(&self.socket) {
                        return Err("it has ended".into());
                    }
                    // What is wrong is found out by who asks for the file.
                    let _ = self.take_in();
                }
            }
            Pace::Sleep => {}
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.waiter.reset();
    }

    fn ring(&mut self) {
        self.host.ring();
    }

    fn now(&self) -> Instant {
        clock::monotonic()
    }

    fn adopt(&mut self, mapping: u32) -> Result<()> {
        // The host sends it before it answers. What has come may also replace what had this number.
        self.take_in()?;
        loop {
            match self.mapped.get(mapping as usize) {
                Some(Kept::File(_)) => return Ok(()),
                Some(Kept::Lost) => return Err(Errno::ENOMEM.into()),
                _ => {
                    let handed = handed_over(&self.socket)?;
                    self.keep(handed)?;
                }
            }
        }
    }

    #[inline]
    fn fetch(&self, mapping: u32, pointer: u64, to: Span) -> Copied {
        let Some(from) = self.place(mapping, pointer, to.bytes) else { return Copied::Refused };
        prefetch_pages(from, LATE_BYTES_MAX);
        // SAFETY: `place` answers mapped memory; the program has named the other as its own, as for read(2).
        unsafe { copy(from, to) };
        self.copied(mapping)
    }

    #[inline]
    fn put(&self, from: Span, mapping: u32, pointer: u64) -> Copied {
        let Some(to) = self.place(mapping, pointer, from.bytes) else { return Copied::Refused };
        // SAFETY: `place` answers mapped memory; the program has named the other as its own, as for write(2).
        unsafe { copy(from, to) };
        self.copied(mapping)
    }

    #[inline]
    fn prefetch(&self, mapping: u32, pointer: u64, bytes: u64) {
        if bytes > EARLY_BYTES_MAX {
            return;
        }
        if let Some(place) = self.place(mapping, pointer, bytes) {
            prefetch_pages(place, EARLY_BYTES_MAX);
        }
    }

    fn take(&self, from: Span) -> Bytes {
        let address = ptr::with_exposed_provenance(from.address as usize);
        // SAFETY: the program has named the memory as its own, as for write(2).
        Bytes::copy_from_slice(unsafe { slice(address, from.bytes) })
    }

    fn give(&self, to: Span, bytes: &[u8]) {
        let from = Span::new(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64);
        debug_assert!(from.bytes <= to.bytes);
        // SAFETY: the program has named the memory as its own, as for read(2).
        unsafe { copy(from, Span::new(to.address, from.bytes)) };
    }

    fn allocate(&mut self, bytes: u64) -> Option<Span> {
        let layout = layout(bytes)?;
        // SAFETY: the layout has at least a byte.
        let memory = unsafe { alloc_zeroed(layout) };
        (!memory.is_null()).then(|| Span::new(memory.expose_provenance() as u64, bytes))
    }

    fn release(&mut self, block: Span) {
        let memory = ptr::with_exposed_provenance_mut(block.address as usize);
        let layout = layout(block.bytes).expect("it was allocated with this layout");
        // SAFETY: it was allocated here, with this layout; the store has forgotten it.
        unsafe { dealloc(memory, layout) };
    }
}

/// Aligned as transfers of a Cell's are fastest, and as large as is counted.
fn layout(bytes: u64) -> Option<Layout> {
    let bytes = usize::try_from(block_bytes(bytes)).ok()?;
    Layout::from_size_align(bytes, BLOCK_BYTES as usize).ok()
}

/// # Safety
///
/// Both are memory that may be used so; they do not overlap.
#[inline]
unsafe fn copy(from: Span, to: Span) {
    let source = ptr::with_exposed_provenance::<u8>(from.address as usize);
    let target = ptr::with_exposed_provenance_mut::<u8>(to.address as usize);
    // SAFETY: promised by the caller.
    unsafe { ptr::copy_nonoverlapping(source, target, to.bytes as usize) };
}

/// # Safety
///
/// The memory may be read, and nobody changes it meanwhile.
unsafe fn slice<'a>(address: *const u8, bytes: u64) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(address, bytes as usize) }
}

/// Asks for the first lines of each page of a block, or of its first bytes.
#[inline(always)]
fn prefetch_pages(block: Span, bytes_max: u64) {
    let (mut page, end) = (block.address, block.address + block.bytes.min(bytes_max));
    while page < end {
        prefetch_lines(page);
        page = (page & !(PAGE - 1)) + PAGE;
    }
}

/// Asks for lines from an address on, into the first cache. One instruction asks for all of them, since it is from the
/// addresses of one instruction that a processor learns how to go on: a compiler would write a loop with several.
#[inline(always)]
fn prefetch_lines(from: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless.
    unsafe {
        std::arch::asm!(
            "2:",
            "prefetcht0 [{at}]",
            "add {at}, {line}",
            "dec {left}",
            "jnz 2b",
            at = inout(reg) from => _,
            left = inout(reg) PAGE_LINES => _,
            line = const LINE,
            options(nostack, readonly),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Whether the other end of a socket is gone, with nothing left to be read.
fn is_closed(socket: &UnixStream) -> bool {
    let mut byte = [0];
    // SAFETY: one byte of room; the socket is open.
    let got = unsafe {
        use std::os::fd::AsRawFd;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        libc::recv(socket.as_raw_fd(), byte.as_mut_ptr().cast(), 1, flags)
    };
    got == 0
}

/// A block that is asked for while another one is copied: as large as the first cache has room for beside that one and both
/// buffers.
const EARLY_BYTES_MAX: u64 = 8 << 10;
/// Of a block that is copied: as many pages as a processor can have on their way.
const LATE_BYTES_MAX: u64 = 16 << 10;
/// Lines of each page that are asked for. A processor goes on by itself, but stops at each end of a page, and begins the next
/// one with a walk through the page tables: it is these two waits that are saved. All lines would take as long to ask for.
const PAGE_LINES: u64 = 16;
#[cfg(target_arch = "x86_64")]
const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// More than a host has.
const MAPPINGS_MAX: usize = 1 << 20;
