//! Numbered results, and the text of the last refusal.

use crate::boundary::export;
use covey_layout::Error;
use covey_uzura::Fault;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};

/// Why a call was refused, in words.
#[derive(Debug)]
pub struct Refusal {
    number: c_int,
    text: String,
}

impl Refusal {
    /// A refusal with its number.
    pub fn of(number: Number, text: String) -> Refusal {
        Refusal { number: number as c_int, text }
    }

    /// A pointer or number of the caller's that means nothing.
    pub fn argument(text: String) -> Refusal {
        Refusal::of(Number::Argument, text)
    }
}

macro_rules! numbers {
    ($($number:literal $name:ident $in_c:literal $text:literal;)*) => {
        /// The results of `covey.h`.
        // Those of the engine's faults are made from the faults.
        #[allow(dead_code)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Number {
            $($name = $number,)*
        }

        /// Number, name in C, and text of each.
        pub const NUMBERS: &[(c_int, &str, &CStr)] = &[$(($number, $in_c, $text)),*];
    };
}

numbers! {
    0 Ok "COVEY_OK" c"done";
    -1 Argument "COVEY_ERR_ARGUMENT" c"a pointer is null, or a number means nothing";
    -2 Bounds "COVEY_ERR_BOUNDS" c"the layout touches bytes that the memory does not have";
    -3 Overlap "COVEY_ERR_OVERLAP" c"a layout to write to names a byte twice";
    -4 Entangled "COVEY_ERR_ENTANGLED" c"pieces interleave so that an overlap would take too long to find";
    -5 Overflow "COVEY_ERR_OVERFLOW" c"an offset or a size leaves the range of offsets";
    -6 Depth "COVEY_ERR_DEPTH" c"layouts are nested too deeply";
    -7 Entries "COVEY_ERR_ENTRIES" c"the description lists too many pieces";
    -8 Long "COVEY_ERR_LONG" c"the encoded description is too long";
    -9 Subarray "COVEY_ERR_SUBARRAY" c"a subarray does not lie in its array";
    -10 Packed "COVEY_ERR_PACKED" c"a range reaches beyond the end of the packed bytes";
    -11 Sizes "COVEY_ERR_SIZES" c"source and target do not pack to the same size";
    -12 Split "COVEY_ERR_SPLIT" c"a range of the packed bytes cuts an element";
    -13 Operation "COVEY_ERR_OPERATION" c"the operation is not defined for an element";
    -14 Malformed "COVEY_ERR_MALFORMED" c"the bytes are no description";
    -15 Version "COVEY_ERR_VERSION" c"a description of a version that is not known";
    -16 Room "COVEY_ERR_ROOM" c"the result does not fit the room for it";
    -17 Unsupported "COVEY_ERR_UNSUPPORTED" c"this cannot be described as a layout";
    -18 Internal "COVEY_ERR_INTERNAL" c"a fault of libcovey itself";
    -19 Io "COVEY_ERR_IO" c"the system refused it";
    -33 PeerDead "COVEY_ERR_PEER_DEAD" c"the peer is dead";
    -34 NoPeer "COVEY_ERR_NO_PEER" c"no such peer";
    -35 Revoked "COVEY_ERR_REVOKED" c"the memory's registration was revoked";
    -36 WrongKey "COVEY_ERR_WRONG_KEY" c"no registration has this key";
    -37 Denied "COVEY_ERR_DENIED" c"the registration does not permit this access";
    -38 OutOfRange "COVEY_ERR_OUT_OF_RANGE" c"the access leaves the memory";
    -39 Truncated "COVEY_ERR_TRUNCATED" c"the message is longer than its buffer";
    -40 Cancelled "COVEY_ERR_CANCELLED" c"cancelled";
    -41 Busy "COVEY_ERR_BUSY" c"too many operations are under way";
    -42 Layout "COVEY_ERR_LAYOUT" c"the layout cannot be used here";
    -43 NoSuch "COVEY_ERR_NO_SUCH" c"no such handle";
    -44 Unequal "COVEY_ERR_UNEQUAL" c"the two sides have different sizes";
    -45 Undefined "COVEY_ERR_UNDEFINED" c"the operation is not defined for these elements";
    -46 NoMemory "COVEY_ERR_NO_MEMORY" c"the memory cannot be accessed";
    -47 TooLong "COVEY_ERR_TOO_LONG" c"too long for one operation";
    -48 Overlapping "COVEY_ERR_OVERLAPPING" c"the two sides overlap in memory";
    -49 Elements "COVEY_ERR_ELEMENTS" c"the two sides have elements of different sizes";
    -50 KeyTaken "COVEY_ERR_KEY_TAKEN" c"another registration has this key";
    -51 InUse "COVEY_ERR_IN_USE" c"a peer is in the middle of an access to the memory";
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        use Error::*;
        let number = match error {
            OutOfBounds { .. } => Number::Bounds,
            Origin { .. } => Number::Argument,
            Overlap { .. } => Number::Overlap,
            Entangled { .. } => Number::Entangled,
            Overflow { .. } => Number::Overflow,
            TooDeep { .. } => Number::Depth,
            TooLarge { .. } => Number::Entries,
            TooLong { .. } => Number::Long,
            Subarray { .. } => Number::Subarray,
            Packed { .. } => Number::Packed,
            Sizes { .. } => Number::Sizes,
            Split { .. } => Number::Split,
            Operation { .. } => Number::Operation,
            Malformed(_) => Number::Malformed,
            Version { .. } => Number::Version,
            _ => Number::Unsupported,
        };
        Refusal::of(number, error.to_string())
    }
}

/// The result of an operation of the engine: its faults have their numbers here from -33 on.
pub fn of_fault(fault: Fault) -> c_int {
    -32 - c_int::from(fault.number())
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal { number: of_fault(fault), text: fault.to_string() }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        Refusal::of(Number::Io, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps the text of a refusal for this thread, and answers its number.
pub fn tell(refusal: Refusal) -> c_int {
    let text = CString::new(refusal.text).unwrap_or_default();
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| last.replace(text));
    refusal.number
}

export! {
    /// The text of a result; of a number that is none, one that says so.
    text fn covey_strerror(result: c_int) -> *const c_char {
        let known = NUMBERS.iter().find(|(number, ..)| *number == result);
        known.map_or(c"not a result of libcovey", |(_, _, text)| text).as_ptr()
    }
}

export! {
    /// The text of this thread's last refusal, with its figures.
    text fn covey_last_error() -> *const c_char {
        // What is pointed to stays until the next refusal of this thread.
        LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
    }
}
