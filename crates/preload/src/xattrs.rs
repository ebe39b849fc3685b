//! Extended attributes.

use crate::boundary::{Result, export, refuse, serve};
use crate::client::{caller, client, wait};
use crate::place::by_path;
use crate::walk::{Follow, resolve};
use crate::{real, table};
use covey_stripe::ops::Id;
use covey_wire::Name;
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};
use std::ffi::CStr;

type Text = *const c_char;

/// # Safety
///
/// `text` ends with a zero.
unsafe fn name(text: Text) -> Name {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_bytes().into()
}

/// Copies what was found, or answers how long it is when there is no room at all.
unsafe fn copy_out(found: &[u8], to: *mut u8, room: size_t) -> Result<ssize_t> {
    if room > 0 && found.len() > room {
        return refuse(libc::ERANGE);
    }
    if room > 0 {
        // SAFETY: the program's buffer has as much room as it says.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), to, found.len()) };
    }
    Ok(found.len() as ssize_t)
}

unsafe fn value_of(id: Id, of: Text, to: *mut c_void, room: size_t) -> Result<ssize_t> {
    let client = client()?;
    // SAFETY: the program's own arguments.
    unsafe {
        let value = wait(&client, client.getxattr(&caller(), id, &name(of)))?;
        copy_out(&value, to.cast(), room)
    }
}

unsafe fn names_of(id: Id, to: *mut c_char, room: size_t) -> Result<ssize_t> {
    let client = client()?;
    let names = wait(&client, client.listxattr(&caller(), id))?;
    let list: Vec<u8> = names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
    // SAFETY: the program's own arguments.
    unsafe { copy_out(&list, to.cast(), room) }
}

unsafe fn set(id: Id, of: Text, value: *const c_void, size: size_t, flags: c_int) -> Result<c_int> {
    let client = client()?;
    // SAFETY: the program's own arguments.
    unsafe {
        let span = crate::data::Span::new(value.cast_mut().cast(), size);
        let value = crate::data::taken(span);
        wait(&client, client.setxattr(&caller(), id, &name(of), value, flags as u32))?;
    }
    Ok(0)
}

unsafe fn remove(id: Id, of: Text) -> Result<c_int> {
    let client = client()?;
    // SAFETY: the program's own arguments.
    wait(&client, client.removexattr(&caller(), id, &unsafe { name(of) }))?;
    Ok(0)
}

/// One call three ways: by path, by path of a link itself, by descriptor.
macro_rules! three {
    ($($work:ident: $path:ident $link:ident $fd:ident ($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        $(
            three!(@path $work $path Last ($($arg: $type),*) -> $ret);
            three!(@path $work $link NotLast ($($arg: $type),*) -> $ret);
            export! { fn $fd(fd: c_int $(, $arg: $type)*) -> $ret {
                match table::find(fd) {
                    // SAFETY: the program's own arguments.
                    None => unsafe { real::$fd()(fd $(, $arg)*) },
                    // SAFETY: the program's own arguments.
                    Some(open) => serve(|| unsafe { $work(open.id() $(, $arg)*) }),
                }
            } }
        )*
    };
    (@path $work:ident $path:ident $follow:ident ($($arg:ident: $type:ty),*) -> $ret:ty) => {
        export! { fn $path(path: Text $(, $arg: $type)*) -> $ret {
            // SAFETY: the program's own arguments.
            unsafe {
                by_path(AT_FDCWD, path, |path| real::$path()(path $(, $arg)*), |place| {
                    $work(resolve(place, Follow::$follow)?.node()?.id $(, $arg)*)
                })
            }
        } }
    };
}

three! {
    value_of: getxattr lgetxattr fgetxattr (of: Text, to: *mut c_void, room: size_t) -> ssize_t;
    names_of: listxattr llistxattr flistxattr (to: *mut c_char, room: size_t) -> ssize_t;
    set: setxattr lsetxattr fsetxattr (of: Text, value: *const c_void, size: size_t, flags: c_int) -> c_int;
    remove: removexattr lremovexattr fremovexattr (of: Text) -> c_int;
}
