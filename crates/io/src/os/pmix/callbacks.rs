//! What the library calls, from a thread of its own. Everything is turned into an event and passed on; no callback
//! waits or panics.

use super::library::Proc;
use super::{Done, ERR_NOT_FOUND, ERROR, Event, OPERATION_SUCCEEDED, RANK_WILDCARD, SUCCESS};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::mpsc::Sender;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// `pmix_op_cbfunc_t`.
pub(super) type OpCallback = unsafe extern "C" fn(c_int, *mut c_void);
/// `pmix_modex_cbfunc_t`.
pub(super) type ModexCallback =
    unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void, Option<Release>, *mut c_void);
/// `pmix_dmodex_response_fn_t`.
pub(super) type DmodexCallback = unsafe extern "C" fn(c_int, *mut c_char, usize, *mut c_void);
/// `pmix_notification_fn_t`.
pub(super) type NotificationFn = unsafe extern "C" fn(
    usize,
    c_int,
    *const Proc,
    *mut c_void,
    usize,
    *mut c_void,
    usize,
    Option<EventCallback>,
    *mut c_void,
);
/// `pmix_event_notification_cbfunc_fn_t`.
type EventCallback =
    unsafe extern "C" fn(c_int, *mut c_void, usize, *const c_void, *mut c_void, *mut c_void);
/// `pmix_release_cbfunc_t`.
type Release = unsafe extern "C" fn(*mut c_void);

/// Where events go.
static EVENTS: OnceLock<UnboundedSender<Event>> = OnceLock::new();

/// The channel of events; None when there is one already.
pub(super) fn open() -> Option<UnboundedReceiver<Event>> {
    let (sender, events) = unbounded_channel();
    EVENTS.set(sender).ok().map(|()| events)
}

/// Passes an event on. Ranks that flood us are processes of the user whose job this is; each waits for its answer.
pub(super) fn send(event: Event) {
    if let Some(events) = EVENTS.get() {
        let _ = events.send(event);
    }
}

/// The table of functions that the library is given (`pmix_server_module_t`): those we have, in their places, and
/// nothing in all others, more than any version has.
pub(super) fn module() -> *const c_void {
    struct Table([*const c_void; 64]);
    // SAFETY: the pointers are to functions, which any thread may call.
    unsafe impl Send for Table {}
    // SAFETY: nothing changes the table.
    unsafe impl Sync for Table {}
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [std::ptr::null(); 64];
        table[0] = client_connected as *const c_void;
        table[1] = client_finalized as *const c_void;
        table[2] = abort as *const c_void;
        table[3] = fence as *const c_void;
        table[4] = direct_modex as *const c_void;
        Table(table)
    });
    table.0.as_ptr().cast()
}

/// Answers a fence or a question.
pub(super) fn answer(callback: ModexCallback, object: usize, data: Option<Vec<u8>>) {
    let object = std::ptr::without_provenance_mut::<c_void>(object);
    let Some(data) = data else {
        // SAFETY: the library gave callback and object for one call, which is this one.
        return unsafe {
            callback(ERR_NOT_FOUND, std::ptr::null(), 0, object, None, std::ptr::null_mut())
        };
    };
    let data = Box::new(data);
    let (bytes, count) = (data.as_ptr().cast::<c_char>(), data.len());
    let release = Box::into_raw(data).cast::<c_void>();
    // SAFETY: callback and object are for one call; the data lives until the library calls `released`.
    unsafe { callback(SUCCESS, bytes, count, object, Some(released), release) }
}

unsafe extern "C" fn released(data: *mut c_void) {
    // SAFETY: `answer` gave it, and the library calls this once.
    drop(unsafe { Box::from_raw(data.cast::<Vec<u8>>()) });
}

/// A call has ended: whoever waits is told.
pub(super) unsafe extern "C" fn finished(status: c_int, object: *mut c_void) {
    // SAFETY: `waiting` gave a boxed sender, for one call.
    let tell = unsafe { Box::from_raw(object.cast::<Sender<i32>>()) };
    let _ = tell.send(status);
}

/// What a rank of this node has put.
pub(super) unsafe extern "C" fn known(
    status: c_int,
    data: *mut c_char,
    count: usize,
    object: *mut c_void,
) {
    // SAFETY: `ask` gave a boxed token, for one call.
    let token = *unsafe { Box::from_raw(object.cast::<u64>()) };
    let data = (status == SUCCESS).then(|| copied(data, count));
    send(Event::Known { token, data });
}

/// A rank has broken off.
pub(super) unsafe extern "C" fn lost(
    _: usize,
    _: c_int,
    source: *const Proc,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    callback: Option<EventCallback>,
    object: *mut c_void,
) {
    // SAFETY: the source is null or the library's for this call.
    if let Some(source) = unsafe { source.as_ref() } {
        send(Event::Lost(source.rank));
    }
    if let Some(callback) = callback {
        let null = std::ptr::null_mut();
        // SAFETY: the library waits for this one call before it goes on with the event.
        unsafe { callback(SUCCESS, null, 0, std::ptr::null(), null, object) };
    }
}

extern "C" fn client_connected(
    proc: *const Proc,
    _: *mut c_void,
    _: Option<OpCallback>,
    _: *mut c_void,
) -> c_int {
    tell_of(proc, Event::Joined)
}

extern "C" fn client_finalized(
    proc: *const Proc,
    _: *mut c_void,
    _: Option<OpCallback>,
    _: *mut c_void,
) -> c_int {
    tell_of(proc, Event::Finalized)
}

fn tell_of(proc: *const Proc, event: fn(u32) -> Event) -> c_int {
    // SAFETY: the process is null or the library's for this call.
    match unsafe { proc.as_ref() } {
        Some(proc) => {
            send(event(proc.rank));
            OPERATION_SUCCEEDED
        }
        None => ERROR,
    }
}

#[allow(clippy::too_many_arguments)]
extern "C" fn abort(
    proc: *const Proc,
    _: *mut c_void,
    status: c_int,
    message: *const c_char,
    _: *mut Proc,
    _: usize,
    _: Option<OpCallback>,
    _: *mut c_void,
) -> c_int {
    let why = if message.is_null() {
        String::new()
    } else {
        // SAFETY: the message is a string with its end.
        unsafe { CStr::from_ptr(message) }.to_string_lossy().trim_end().to_owned()
    };
    // SAFETY: the process is null or the library's for this call.
    let rank = unsafe { proc.as_ref() }.map_or(0, |proc| proc.rank);
    send(Event::Abort { rank, code: status, why });
    OPERATION_SUCCEEDED
}

#[allow(clippy::too_many_arguments)]
extern "C" fn fence(
    procs: *const Proc,
    count: usize,
    _: *const c_void,
    _: usize,
    data: *mut c_char,
    bytes: usize,
    callback: Option<ModexCallback>,
    object: *mut c_void,
) -> c_int {
    let brought = copied(data, bytes);
    if !data.is_null() {
        // SAFETY: the library leaves its data, which it has got from malloc, to the host.
        unsafe { libc::free(data.cast()) };
    }
    let Some(answer) = callback else { return ERROR };
    let ranks = if procs.is_null() {
        Vec::new()
    } else {
        // SAFETY: so many processes stand there, for this call.
        unsafe { std::slice::from_raw_parts(procs, count) }.iter().map(|proc| proc.rank).collect()
    };
    let ranks = if ranks.contains(&RANK_WILDCARD) { Vec::new() } else { ranks };
    send(Event::Fence { ranks, data: brought, done: Done { answer, object: object.addr() } });
    SUCCESS
}

extern "C" fn direct_modex(
    proc: *const Proc,
    _: *const c_void,
    _: usize,
    callback: Option<ModexCallback>,
    object: *mut c_void,
) -> c_int {
    // SAFETY: the process is null or the library's for this call.
    match (unsafe { proc.as_ref() }, callback) {
        (Some(proc), Some(answer)) => {
            send(Event::Ask { rank: proc.rank, done: Done { answer, object: object.addr() } });
            SUCCESS
        }
        _ => ERROR,
    }
}

fn copied(data: *const c_char, count: usize) -> Vec<u8> {
    if data.is_null() || count == 0 {
        Vec::new()
    } else {
        // SAFETY: so many bytes stand there, for this call.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), count) }.to_vec()
    }
}
