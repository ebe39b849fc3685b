//! Why one operation failed. Everything else goes on.

use std::fmt;

macro_rules! faults {
    ($($(#[$doc:meta])* $number:literal $name:ident $text:literal;)*) => {
        /// Why an operation was refused, or ended with an error. Each ends one operation only.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// Every fault, in the order of their numbers.
            pub const ALL: &'static [Fault] = &[$(Fault::$name),*];

            /// Its number on the wire, and in the C API; never 0.
            pub fn number(self) -> u8 {
                match self { $(Fault::$name => $number),* }
            }

            /// The fault of a number.
            pub fn of_number(number: u8) -> Option<Fault> {
                match number { $($number => Some(Fault::$name),)* _ => None }
            }
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Fault::$name => $text),* })
            }
        }
    };
}

faults! {
    /// The peer died, broke the protocol, or was let go. Whether the operation took place there is not known.
    1 PeerDead "the peer is dead";
    /// There is no such peer.
    2 NoPeer "no such peer";
    /// The registration was there and has been revoked.
    3 Revoked "the memory's registration was revoked";
    /// No registration ever had this key.
    4 WrongKey "no registration has this key";
    /// The registration does not permit this access.
    5 Denied "the registration does not permit this access";
    /// The access leaves the registered memory, or the buffer that was named.
    6 OutOfRange "the access leaves the memory";
    /// The message is longer than what was to receive it: that was filled, and the rest is lost.
    7 Truncated "the message is longer than its buffer";
    /// The operation was cancelled before it began.
    8 Cancelled "cancelled";
    /// Too many operations are under way: poll, and try again.
    9 Busy "too many operations are under way";
    /// A layout names bytes twice that are to be written, or cannot be sent.
    10 Layout "the layout cannot be used here";
    /// There is no such layout, or no such operation under way.
    11 NoSuch "no such handle";
    /// The two sides of a one-sided operation have different sizes.
    12 Sizes "the two sides have different sizes";
    /// The operation is not defined for these elements.
    13 Operation "the operation is not defined for these elements";
    /// The memory cannot be read or written.
    14 NoMemory "the memory cannot be accessed";
    /// Longer than the engine or its transport can do.
    15 TooLong "too long for one operation";
    /// The two sides of an operation overlap in memory.
    16 Overlap "the two sides overlap in memory";
    /// Between peers of different byte orders: the layouts of the two sides name elements of different sizes.
    17 Elements "the two sides have elements of different sizes";
    /// Another registration has this key.
    18 KeyTaken "another registration has this key";
    /// A peer has begun to access the memory and does not go on: it is stopped. Try again, and do not use the memory for
    /// anything else before.
    19 InUse "a peer is in the middle of an access to the memory";
}

impl std::error::Error for Fault {}

impl From<covey_wire::NoMemory> for Fault {
    fn from(no: covey_wire::NoMemory) -> Fault {
        match no {
            covey_wire::NoMemory::Overlap(..) => Fault::Overlap,
            covey_wire::NoMemory::Outside(_) => Fault::NoMemory,
        }
    }
}

impl From<covey_layout::Error> for Fault {
    fn from(error: covey_layout::Error) -> Fault {
        match error {
            covey_layout::Error::OutOfBounds { .. } => Fault::OutOfRange,
            covey_layout::Error::Sizes { .. } => Fault::Sizes,
            covey_layout::Error::Operation { .. } | covey_layout::Error::Split { .. } => {
                Fault::Operation
            }
            _ => Fault::Layout,
        }
    }
}
