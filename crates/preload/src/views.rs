//! A view of a file as a layout, carried out by the servers: what the MPI-IO shim calls.

use crate::boundary::{Result, Stop, export, refuse, serve};
use crate::client::wait;
use crate::report::COUNTS;
use crate::table;
use covey_layout::{Layout, Plan};
use covey_ninep::tree::Errno;
use covey_stripe::view::View;
use covey_wire::Bytes;
use libc::{c_int, c_void, size_t, ssize_t};

// The packed bytes `from` to `from + bytes` of a layout that is repeated from byte `origin` on.
export! { fn covey_read_view(
    fd: c_int, layout: *const c_void, layout_bytes: size_t, origin: u64, from: u64,
    memory: *mut c_void, bytes: size_t
) -> ssize_t {
    let open = table::find(fd);
    serve(|| {
        let Some(open) = open else { return refuse(libc::EBADF) };
        // SAFETY: the program's own memory.
        let (view, room) = unsafe {
            (tiled(layout, layout_bytes, origin, from, bytes)?, writable(memory.cast(), bytes))
        };
        let (client, file) = open.to_read()?;
        let there = wait(&client, file.read_view_into(&view, room))?;
        count_view(&view);
        COUNTS.read_bytes.add(there as u64);
        Ok(there as ssize_t)
    })
} }

export! { fn covey_write_view(
    fd: c_int, layout: *const c_void, layout_bytes: size_t, origin: u64, from: u64,
    memory: *const c_void, bytes: size_t
) -> ssize_t {
    let open = table::find(fd);
    serve(|| {
        let Some(open) = open else { return refuse(libc::EBADF) };
        // SAFETY: the program's own memory.
        let (view, data) = unsafe {
            let view = tiled(layout, layout_bytes, origin, from, bytes)?;
            (view, copied(memory.cast(), bytes))
        };
        let (client, file) = open.to_write()?;
        wait(&client, file.write_view(&view, data))?;
        if open.flags() & (libc::O_DSYNC | libc::O_SYNC) != 0 {
            wait(&client, file.fsync())?;
        }
        count_view(&view);
        COUNTS.written_bytes.add(bytes as u64);
        Ok(bytes as ssize_t)
    })
} }

/// # Safety
///
/// There must be `bytes` bytes at `memory`, for this call alone.
unsafe fn writable<'a>(memory: *mut u8, bytes: usize) -> &'a mut [u8] {
    if bytes == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(memory, bytes) }
}

/// # Safety
///
/// There must be `bytes` bytes at `memory`.
unsafe fn copied(memory: *const u8, bytes: usize) -> Bytes {
    if bytes == 0 {
        return Bytes::new();
    }
    // SAFETY: the caller's promise.
    Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(memory, bytes) })
}

/// Some bytes of as many copies of a layout as it takes.
///
/// # Safety
///
/// There must be `layout_bytes` bytes at `layout`.
unsafe fn tiled(
    layout: *const c_void,
    layout_bytes: usize,
    origin: u64,
    from: u64,
    bytes: usize,
) -> Result<View> {
    // SAFETY: the caller's promise.
    let layout = Layout::decode(unsafe { copied(layout.cast(), layout_bytes) });
    let layout = layout.map_err(|error| Errno::because(Errno::EINVAL, error.to_string()))?;
    let far = || Stop::from(Errno::EFBIG);
    let to = from.checked_add(bytes as u64).ok_or_else(far)?;
    let size = layout.size();
    if size == 0 && bytes > 0 {
        return refuse(libc::EINVAL);
    }
    // Whole copies before the first byte are skipped, so that the description is that of what is meant.
    let (first, end) = match size {
        0 => (0, 0),
        size => (from / size, to.div_ceil(size)),
    };
    let skipped = i128::from(layout.bounds().extent()) * i128::from(first);
    let origin = u64::try_from(i128::from(origin) + skipped).map_err(|_| far())?;
    let view = View::new(&layout, end - first, origin)?;
    Ok(view.part(from - first * size..to - first * size)?)
}

// Whether a layout can be a view: as many bytes and as long as its maker says, data in file order, and no
// byte twice, not even in the next copy.
export! { failing(0) fn covey_is_view(
    layout: *const c_void, layout_bytes: size_t, size: u64, extent: u64
) -> c_int {
    // SAFETY: the program's own memory.
    let layout = Layout::decode(unsafe { copied(layout.cast(), layout_bytes) });
    c_int::from(layout.is_ok_and(|layout| is_view(&layout, size, extent)))
} }

fn is_view(layout: &Layout, size: u64, extent: u64) -> bool {
    let is_same = layout.size() == size && u64::try_from(layout.bounds().extent()) == Ok(extent);
    let Ok(plan) = Plan::new(layout, 1) else { return false };
    let Ok(runs) = plan.runs(0..plan.size()) else { return false };
    if !is_same || plan.run_count() > RUNS_MAX {
        return false;
    }
    let (low, high) = plan.hull();
    let mut end = low.max(0);
    let mut follows = |offset: i64, bytes: u64| {
        let is_behind = offset >= end;
        end = offset + bytes as i64;
        is_behind
    };
    let mut runs = runs;
    u64::try_from(high - low).is_ok_and(|span| span <= extent)
        && runs.all(|run| follows(run.offset, run.bytes))
}

fn count_view(view: &View) {
    COUNTS.lists.add(1);
    COUNTS.list_pieces.add(view.range_count());
}

/// More pieces than this in one copy stay with the MPI library.
const RUNS_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use covey_layout::{Block, Element};

    #[test]
    fn a_view_is_in_file_order_and_names_no_byte_twice() {
        let byte = Layout::element(Element::Byte);
        let column = |stride, extent| {
            let column = Layout::hvector(3, 2, stride, &byte).expect("it is small");
            Layout::resized(0, extent, &column).expect("it is small")
        };
        assert!(is_view(&column(8, 18), 6, 18));
        assert!(!is_view(&column(8, 17), 6, 17), "the next copy begins in this one");
        assert!(!is_view(&column(8, 18), 6, 19), "the maker says something else");
        assert!(!is_view(&column(1, 18), 6, 18), "pieces overlap");
        assert!(!is_view(&column(-8, 18), 6, 18), "backwards");
        let places = [-4, 0].map(|displacement| Block { count: 1, displacement });
        let before = Layout::hindexed(&places, &byte).expect("it is small");
        assert!(!is_view(&before, 2, 5), "before the first byte");
    }

    #[test]
    fn whole_copies_before_the_first_byte_are_skipped() {
        let byte = Layout::element(Element::Byte);
        let column = Layout::hvector(2, 3, 5, &byte).expect("it is small");
        let column = Layout::resized(0, 10, &column).expect("it is small");
        let bytes = column.encode().expect("it is small");
        // SAFETY: it is a vector.
        let view =
            |from, count| unsafe { tiled(bytes.as_ptr().cast(), bytes.len(), 100, from, count) };
        let ranges = |from, count| view(from, count).map(|view| view.ranges().collect::<Vec<_>>());
        assert_eq!(ranges(14, 6).ok(), Some(vec![(122, 123), (125, 128), (130, 132)]));
        assert_eq!(ranges(12, 0).ok(), Some(vec![]));
        assert!(view(u64::MAX, 1).is_err());
        assert!(view(6 << 60, 1).is_err());
    }
}
