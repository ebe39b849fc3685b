//! The library's functions, and the few of its types whose form must be known: the process's name, and an array. The
//! others it builds itself (`PMIx_Info_list_*`, from version 4 on).

use super::callbacks::{DmodexCallback, NotificationFn, OpCallback};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::sync::OnceLock;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    /// Ends with a NUL.
    pub name: [c_char; 256],
    pub rank: u32,
}

impl Proc {
    /// A name that is too long is cut, as the library does.
    pub fn new(name: &CStr, rank: u32) -> Proc {
        let mut proc = Proc { name: [0; 256], rank };
        let bytes = name.to_bytes().iter().take(255);
        bytes.zip(&mut proc.name).for_each(|(byte, place)| *place = byte.cast_signed());
        proc
    }
}

/// `pmix_data_array_t`.
#[repr(C)]
struct Array {
    kind: u16,
    size: usize,
    array: *mut c_void,
}

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($type:ty),*) -> $result:ty;)*) => {
        /// The functions that we call.
        pub(super) struct Library {
            $(pub $field: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        impl Library {
            fn find(handle: *mut c_void) -> io::Result<Library> {
                Ok(Library { $($field: {
                    let address = symbol(handle, $name)?;
                    // SAFETY: the library's headers declare the function of this name with these types.
                    unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(address)
                    }
                },)* })
            }
        }
    };
}

functions! {
    server_init = c"PMIx_server_init": fn(*const c_void, *mut c_void, usize) -> c_int;
    register_nspace = c"PMIx_server_register_nspace":
        fn(*const c_char, c_int, *mut c_void, usize, OpCallback, *mut c_void) -> c_int;
    register_client = c"PMIx_server_register_client":
        fn(*const Proc, u32, u32, *mut c_void, OpCallback, *mut c_void) -> c_int;
    setup_fork = c"PMIx_server_setup_fork": fn(*const Proc, *mut *mut *mut c_char) -> c_int;
    dmodex_request = c"PMIx_server_dmodex_request": fn(*const Proc, DmodexCallback, *mut c_void) -> c_int;
    register_event_handler = c"PMIx_Register_event_handler":
        fn(*mut c_int, usize, *mut c_void, usize, NotificationFn, *const c_void, *mut c_void) -> c_int;
    info_list_start = c"PMIx_Info_list_start": fn() -> *mut c_void;
    info_list_add = c"PMIx_Info_list_add": fn(*mut c_void, *const c_char, *const c_void, u16) -> c_int;
    info_list_convert = c"PMIx_Info_list_convert": fn(*mut c_void, *mut c_void) -> c_int;
}

fn symbol(handle: *mut c_void, name: &CStr) -> io::Result<*mut c_void> {
    // SAFETY: the handle is open, and the name has its end.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() {
        Err(io::Error::other(format!(
            "libpmix has no {}: it is older than 4",
            name.to_string_lossy()
        )))
    } else {
        Ok(address)
    }
}

impl Library {
    /// Loads it, once.
    pub fn load() -> io::Result<&'static Library> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        let loaded = LIBRARY.get_or_init(|| Library::open().map_err(|error| error.to_string()));
        loaded.as_ref().map_err(|why| io::Error::other(why.clone()))
    }

    fn open() -> io::Result<Library> {
        // SAFETY: the name has its end. The library's initialisers run; it is a well-known one from the system's path.
        let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            let name = NAME.to_string_lossy();
            return Err(io::Error::other(format!(
                "{name} is not installed; hint: apt-get install libpmix2"
            )));
        }
        Library::find(handle)
    }
}

/// A list of keys and values that is being made. What is given to the library for good is never freed: a job has
/// one description.
pub(super) struct Info {
    library: &'static Library,
    list: *mut c_void,
}

impl Info {
    pub fn new(library: &'static Library) -> Info {
        // SAFETY: it takes nothing and answers a new list.
        Info { library, list: unsafe { (library.info_list_start)() } }
    }

    pub fn text(&mut self, key: &str, value: &CString) -> io::Result<()> {
        self.add(key, value.as_ptr().cast(), STRING)
    }

    pub fn number(&mut self, key: &str, value: u32) -> io::Result<()> {
        self.add(key, (&raw const value).cast(), UINT32)
    }

    pub fn short(&mut self, key: &str, value: u16) -> io::Result<()> {
        self.add(key, (&raw const value).cast(), UINT16)
    }

    pub fn rank(&mut self, key: &str, value: u32) -> io::Result<()> {
        self.add(key, (&raw const value).cast(), PROC_RANK)
    }

    /// A list as one value.
    pub fn group(&mut self, key: &str, list: Info) -> io::Result<()> {
        let array = Box::leak(Box::new(list.convert()?));
        self.add(key, (&raw const *array).cast(), DATA_ARRAY)
    }

    /// The array, and how many entries it has.
    pub fn finish(self) -> io::Result<(*mut c_void, usize)> {
        let array = self.convert()?;
        Ok((array.array, array.size))
    }

    fn convert(&self) -> io::Result<Array> {
        let mut array = Array { kind: 0, size: 0, array: std::ptr::null_mut() };
        // SAFETY: the list is the library's, and the array has the form that it fills.
        let status =
            unsafe { (self.library.info_list_convert)(self.list, (&raw mut array).cast()) };
        super::check("PMIx_Info_list_convert", status).map(|()| array)
    }

    fn add(&mut self, key: &str, value: *const c_void, kind: u16) -> io::Result<()> {
        let key = super::text(key)?;
        // SAFETY: the value has the type that `kind` names and is copied.
        let status = unsafe { (self.library.info_list_add)(self.list, key.as_ptr(), value, kind) };
        super::check("PMIx_Info_list_add", status)
    }
}

const NAME: &CStr = c"libpmix.so.2";
// pmix_common.h, the types of values.
const STRING: u16 = 3;
const UINT16: u16 = 13;
const UINT32: u16 = 14;
const DATA_ARRAY: u16 = 39;
const PROC_RANK: u16 = 40;
