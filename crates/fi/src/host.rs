//! The libfabric that has loaded us: its functions, found at run time, so that one library serves all versions.

use crate::abi::Info;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type Version = unsafe extern "C" fn() -> u32;

/// What we call of libfabric.
pub struct Host {
    dupinfo: DupInfo,
    freeinfo: FreeInfo,
    version: Version,
}

impl Host {
    /// The one that has loaded us; none where there is none.
    pub fn find() -> Option<&'static Host> {
        static HOST: OnceLock<Option<Host>> = OnceLock::new();
        HOST.get_or_init(Host::load).as_ref()
    }

    fn load() -> Option<Host> {
        let library = loaded();
        // SAFETY: functions of libfabric, with the types that its headers give them.
        unsafe {
            Some(Host {
                dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(function(
                    library,
                    c"fi_dupinfo",
                )?),
                freeinfo: std::mem::transmute::<*mut c_void, FreeInfo>(function(
                    library,
                    c"fi_freeinfo",
                )?),
                version: std::mem::transmute::<*mut c_void, Version>(function(
                    library,
                    c"fi_version",
                )?),
            })
        }
    }

    /// Its version: it leaves a provider out that has another one than the program asks for.
    pub fn version(&self) -> u32 {
        // SAFETY: it takes nothing.
        unsafe { (self.version)() }
    }

    /// An empty information, as long as this version has it.
    pub fn new_info(&self) -> *mut Info {
        // SAFETY: null asks for an empty one.
        unsafe { (self.dupinfo)(std::ptr::null()) }
    }

    /// Frees a list of them.
    ///
    /// # Safety
    ///
    /// Made by [`Host::new_info`], and used no more.
    pub unsafe fn free_info(&self, info: *mut Info) {
        // SAFETY: the caller's promise.
        unsafe { (self.freeinfo)(info) }
    }
}

fn function(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle of the loader, and a name with an end.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The libfabric of this process. A program may have loaded it without making its names known to others.
fn loaded() -> *mut c_void {
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
    // SAFETY: a name with an end; nothing is loaded.
    let found = unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), flags) };
    if !found.is_null() {
        return found;
    }
    let mut name: Option<CString> = None;
    // SAFETY: the function is called with what we give it, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(is_libfabric), (&raw mut name).cast()) };
    let by_name = name.map(|name| {
        // SAFETY: a name with an end; nothing is loaded.
        unsafe { libc::dlopen(name.as_ptr(), flags) }
    });
    by_name.filter(|found| !found.is_null()).unwrap_or(libc::RTLD_DEFAULT)
}

crate::boundary::call! {
    entry is_libfabric(info: *mut libc::dl_phdr_info, _size: usize, into: *mut c_void) -> c_int {
        let Some(name) = (*info).dlpi_name.as_ref() else { return Ok(0) };
        let name = CStr::from_ptr(name);
        let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if file.starts_with(b"libfabric") {
            *into.cast::<Option<CString>>() = Some(name.to_owned());
            return Ok(1);
        }
        Ok(0)
    }
}

/// A copy that libfabric frees.
pub fn copied(bytes: &[u8]) -> *mut c_void {
    // SAFETY: new memory of this many bytes, where it is not null.
    unsafe {
        let copy = libc::malloc(bytes.len());
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
        }
        copy
    }
}

/// A text that libfabric frees.
pub fn text(text: &CStr) -> *mut c_char {
    copied(text.to_bytes_with_nul()).cast()
}

/// The address that a node and a service are.
pub fn resolve(node: Option<&CStr>, service: Option<&CStr>) -> Option<SocketAddr> {
    let port = service.map_or(Some(0), |service| service.to_str().ok()?.parse().ok())?;
    let node = node.map_or(Some("0.0.0.0"), |node| node.to_str().ok())?;
    (node, port).to_socket_addrs().ok()?.next()
}

/// Where endpoints of this process listen, if the program does not say it: at the address of the environment, the
/// first one of this machine that others reach, else on loopback.
pub fn own_address() -> IpAddr {
    let named = covey_io::boundary::variable(c"COVEY_FI_ADDRESS");
    let named = named.and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
    named.or_else(first_address).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

fn first_address() -> Option<IpAddr> {
    let mut all: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: a place for a list.
    if unsafe { libc::getifaddrs(&raw mut all) } != 0 {
        return None;
    }
    let mut found = Vec::new();
    let mut next = all;
    // SAFETY: a list that ends with null, of entries that stay until it is freed.
    while let Some(one) = unsafe { next.as_ref() } {
        next = one.ifa_next;
        // SAFETY: null, or an address whose family says how long it is.
        let address = unsafe { one.ifa_addr.as_ref() };
        if let Some(address) = address
            && i32::from(address.sa_family) == libc::AF_INET
        {
            // SAFETY: an address of this family.
            let address = unsafe { &*one.ifa_addr.cast::<libc::sockaddr_in>() };
            found.push((one.ifa_flags, Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))));
        }
    }
    // SAFETY: the list that was made.
    unsafe { libc::freeifaddrs(all) };
    best_of(&found)
}

/// The first address of an interface that runs. One that has just come up does not do so for a while, and is better than
/// none.
fn best_of(all: &[(u32, Ipv4Addr)]) -> Option<IpAddr> {
    let with = |wanted: i32| {
        let (wanted, not) = (wanted as u32, libc::IFF_LOOPBACK as u32);
        let mut all = all.iter().filter(move |(flags, _)| flags & (wanted | not) == wanted);
        all.next().map(|(_, address)| (*address).into())
    };
    with(libc::IFF_UP | libc::IFF_RUNNING).or_else(|| with(libc::IFF_UP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_runs_is_better_than_one_that_is_up_and_that_better_than_loopback() {
        let [lo, down, up, runs] = [1, 2, 3, 4].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let [is_up, is_running] = [libc::IFF_UP, libc::IFF_UP | libc::IFF_RUNNING];
        let flags =
            [is_running | libc::IFF_LOOPBACK, 0, is_up, is_running].map(|flags| flags as u32);
        let all: Vec<_> = flags.into_iter().zip([lo, down, up, runs]).collect();
        assert_eq!(best_of(&all), Some(runs.into()));
        assert_eq!(best_of(&all[..3]), Some(up.into()));
        assert_eq!(best_of(&all[..2]), None);
    }
}
