//! Extended attributes: not served without a mount. Programs take EOPNOTSUPP as "has none".

use crate::boundary::{export, fail};
use crate::place::by_path;
use crate::{real, table};
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};

type Text = *const c_char;

macro_rules! refused {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        $(export! { fn $name(path: Text $(, $arg: $type)*) -> $ret {
            // SAFETY: the program's own arguments.
            unsafe {
                by_path(AT_FDCWD, path, |path| real::$name()(path $(, $arg)*), |_place| {
                    crate::boundary::refuse(libc::EOPNOTSUPP)
                })
            }
        } })*
    };
}

macro_rules! refused_by_fd {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        $(export! { fn $name(fd: c_int $(, $arg: $type)*) -> $ret {
            if table::is_ours(fd) {
                return fail(libc::EOPNOTSUPP);
            }
            // SAFETY: the program's own arguments.
            unsafe { real::$name()(fd $(, $arg)*) }
        } })*
    };
}

refused! {
    fn getxattr(name: Text, value: *mut c_void, room: size_t) -> ssize_t;
    fn lgetxattr(name: Text, value: *mut c_void, room: size_t) -> ssize_t;
    fn setxattr(name: Text, value: *const c_void, size: size_t, flags: c_int) -> c_int;
    fn lsetxattr(name: Text, value: *const c_void, size: size_t, flags: c_int) -> c_int;
    fn listxattr(list: *mut c_char, room: size_t) -> ssize_t;
    fn llistxattr(list: *mut c_char, room: size_t) -> ssize_t;
    fn removexattr(name: Text) -> c_int;
    fn lremovexattr(name: Text) -> c_int;
}

refused_by_fd! {
    fn fgetxattr(name: Text, value: *mut c_void, room: size_t) -> ssize_t;
    fn fsetxattr(name: Text, value: *const c_void, size: size_t, flags: c_int) -> c_int;
    fn flistxattr(list: *mut c_char, room: size_t) -> ssize_t;
    fn fremovexattr(name: Text) -> c_int;
}
