//! INIT: what the kernel offers, what this mount takes of it.

use super::Result;
use crate::abi::Request;
use crate::abi::flags::init::*;
use crate::abi::reply::{InitOut, encode};
use crate::takeover::state::Settled;
use crate::transport::{Answer, DATA_BYTES_MAX};
use covey_ninep::tree::Errno;
use covey_stripe::ops::Consistency;

/// Answers INIT for the file system; what was settled, unless the kernel asks again.
pub fn init(request: &Request, consistency: Consistency) -> Result<(Answer, Option<Settled>)> {
    let out = agree(request, wanted(consistency))?;
    let settled = Settled {
        minor: out.minor,
        flags: u64::from(out.flags) | u64::from(out.flags2) << 32,
        write_bytes_max: out.max_write,
    };
    Ok((answer(out), (settled.write_bytes_max > 0).then_some(settled)))
}

/// Answers INIT, and takes what is `wanted` of what the kernel offers.
pub fn settle(request: &Request, wanted: u64) -> Result<Answer> {
    agree(request, wanted).map(answer)
}

/// Weaker modes have rules of their own for the kernel's pages: what a mount writes itself is no reason to drop them.
fn wanted(consistency: Consistency) -> u64 {
    match consistency {
        Consistency::Strict => WANTED,
        _ => WANTED & !AUTO_INVAL_DATA,
    }
}

/// Why a mount cannot go on with what another version has settled with its kernel, if it cannot.
pub fn misses(settled: Settled) -> Option<String> {
    let Settled { minor, flags, write_bytes_max } = settled;
    let unknown = flags & !WANTED;
    match () {
        () if !(MINOR_MIN..=MINOR).contains(&minor) => Some(format!(
            "it speaks FUSE {MAJOR}.{minor} with the kernel, this version {MAJOR}.{MINOR_MIN} to {MAJOR}.{MINOR}"
        )),
        () if unknown != 0 => {
            Some(format!("it has FUSE features that are unknown here ({unknown:#x})"))
        }
        () if write_bytes_max > DATA_BYTES_MAX => Some(format!(
            "it takes writes of {write_bytes_max} bytes, this version of {DATA_BYTES_MAX} at most"
        )),
        () => None,
    }
}

fn agree(request: &Request, wanted: u64) -> Result<InitOut> {
    let &Request::Init { major, minor, max_readahead, flags, ref rest } = request else {
        return Err(Errno::EINVAL.into());
    };
    if major > MAJOR {
        // The kernel asks again with our major number.
        return Ok(InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() });
    }
    if major < MAJOR || minor < MINOR_MIN {
        tracing::error!("fuse: the kernel speaks {major}.{minor}, {MAJOR}.{MINOR_MIN} is needed");
        return Err(Errno::because(Errno::EPROTO, "the kernel's FUSE is too old"));
    }
    let mut offered = u64::from(flags);
    if let (true, Some(high)) = (offered & INIT_EXT != 0, rest.0.first_chunk::<4>()) {
        offered |= u64::from(u32::from_le_bytes(*high)) << 32;
    }
    let taken = offered & wanted;
    tracing::debug!("fuse: kernel {major}.{minor} offers {offered:#x}, taken {taken:#x}");
    Ok(InitOut {
        major: MAJOR,
        minor: minor.min(MINOR),
        max_readahead,
        flags: taken as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: DATA_BYTES_MAX,
        time_gran: 1,
        max_pages: (DATA_BYTES_MAX / PAGE_BYTES) as u16,
        flags2: (taken >> 32) as u32,
        ..InitOut::default()
    })
}

fn answer(out: InitOut) -> Answer {
    Answer::Small(encode(&out))
}

/// What this mount knows how to use.
const WANTED: u64 = ASYNC_READ
    | POSIX_LOCKS
    | ATOMIC_O_TRUNC
    | EXPORT_SUPPORT
    | BIG_WRITES
    | FLOCK_LOCKS
    | AUTO_INVAL_DATA
    | ASYNC_DIO
    | PARALLEL_DIROPS
    | MAX_PAGES
    | HANDLE_KILLPRIV_V2
    | INIT_EXT
    | DO_READDIRPLUS
    | READDIRPLUS_AUTO
    | DIRECT_IO_ALLOW_MMAP;

const MAJOR: u32 = 7;

/// The newest minor version whose structs are known here.
const MINOR: u32 = 40;

/// Linux 5.4.
const MINOR_MIN: u32 = 31;

/// Requests that the kernel sends without a process waiting for each: readahead, write-back.
const BACKGROUND_MAX: u16 = 64;

const PAGE_BYTES: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Rest;
    use covey_wire::{Bytes, Field, Reader};

    fn negotiate(minor: u32, flags: u64) -> Result<InitOut> {
        let mut high = ((flags >> 32) as u32).to_le_bytes().to_vec();
        high.resize(48, 0);
        let request = Request::Init {
            major: 7,
            minor,
            max_readahead: 1 << 17,
            flags: flags as u32,
            rest: Rest(Bytes::from(high)),
        };
        let (Answer::Small(bytes), _) = init(&request, Consistency::Strict)? else {
            panic!("not a struct")
        };
        Ok(<InitOut as Field>::get((), &mut Reader::new(bytes.into())).expect("64 bytes"))
    }

    #[test]
    fn only_what_the_kernel_offers_is_taken() {
        let offered = ASYNC_READ | INIT_EXT | DIRECT_IO_ALLOW_MMAP | 1 << 37;
        let out = negotiate(45, offered).expect("spoken");
        let taken = u64::from(out.flags) | u64::from(out.flags2) << 32;
        assert_eq!(taken, ASYNC_READ | INIT_EXT | DIRECT_IO_ALLOW_MMAP);
        assert_eq!((out.major, out.minor, out.max_pages), (7, 40, 256));
    }

    #[test]
    fn the_high_flags_of_a_kernel_without_the_extension_mean_nothing() {
        let out = negotiate(35, DIRECT_IO_ALLOW_MMAP).expect("spoken");
        assert_eq!((out.flags2, out.minor), (0, 35));
    }

    #[test]
    fn a_successor_is_content_with_what_it_would_have_settled_and_with_less() {
        let all = Settled { minor: MINOR, flags: WANTED, write_bytes_max: DATA_BYTES_MAX };
        assert_eq!(misses(all), None);
        assert_eq!(misses(Settled { minor: MINOR_MIN, flags: 0, write_bytes_max: 4096 }), None);
        for newer in [
            Settled { minor: MINOR + 1, ..all },
            Settled { minor: MINOR_MIN - 1, ..all },
            Settled { flags: all.flags | 1 << 50, ..all },
            Settled { write_bytes_max: DATA_BYTES_MAX + 1, ..all },
        ] {
            assert!(misses(newer).is_some(), "{newer:?}");
        }
    }

    #[test]
    fn a_kernel_before_7_31_is_refused() {
        assert!(negotiate(30, 0).is_err());
        assert!(negotiate(31, 0).is_ok());
    }
}
