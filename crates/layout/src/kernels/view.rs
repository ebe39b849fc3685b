//! Memory with an origin and bounds.

use crate::Error;
use std::fmt;
use std::marker::PhantomData;

macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $slice:ty, $pointer:ty, $as_ptr:ident, $access:literal) => {
        $(#[$doc])*
        pub struct $name<'a> {
            origin: $pointer,
            /// Of the first byte and the one behind the last, from the origin.
            begin: i64,
            end: i64,
            lifetime: PhantomData<$slice>,
        }

        impl<'a> $name<'a> {
            /// A buffer with its origin `origin` bytes from its start: where displacement 0 lies.
            pub fn at(buffer: $slice, origin: usize) -> Result<$name<'a>, Error> {
                let bytes = buffer.len();
                if origin > bytes {
                    return Err(Error::Origin { origin, bytes });
                }
                let base = buffer.$as_ptr();
                // A slice never has more bytes than an `isize` counts.
                Ok($name {
                    origin: base.wrapping_add(origin),
                    begin: -(origin as i64),
                    end: (bytes - origin) as i64,
                    lifetime: PhantomData,
                })
            }

            /// Memory that is no slice: shared with other processes, or not ours alone.
            ///
            /// # Safety
            ///
            #[doc = concat!("All bytes from `begin` to `end`, relative to `origin`, can be ", $access, " for the lifetime `'a`.")]
            /// They do not overlap the other side of an operation. Bytes that others
            /// change meanwhile are copied in any state.
            pub unsafe fn from_raw(origin: $pointer, begin: i64, end: i64) -> $name<'a> {
                $name { origin, begin, end, lifetime: PhantomData }
            }

            /// Refuses bytes that it does not have.
            pub(crate) fn check(&self, (from, to): (i64, i64)) -> Result<(), Error> {
                if from == to || (self.begin <= from && to <= self.end) {
                    return Ok(());
                }
                let buffer = (self.begin, self.end);
                Err(Error::OutOfBounds { layout: (from, to), buffer })
            }

            /// Where an offset lies. Only within the bounds may it be used.
            pub(super) fn pointer(&self, offset: i64) -> $pointer {
                self.origin.wrapping_offset(offset as isize)
            }
        }

        impl<'a> From<$slice> for $name<'a> {
            fn from(buffer: $slice) -> Self {
                // The start of a buffer never lies behind its end.
                let end = buffer.len() as i64;
                $name { origin: buffer.$as_ptr(), begin: 0, end, lifetime: PhantomData }
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}..{})"), self.begin, self.end)
            }
        }
    };
}

view! {
    /// Memory to read from.
    View, &'a [u8], *const u8, as_ptr, "read"
}
view! {
    /// Memory to write to.
    ViewMut, &'a mut [u8], *mut u8, as_mut_ptr, "read and written"
}

impl ViewMut<'_> {
    /// The same memory, to read what was there before.
    pub(crate) fn read(&self) -> View<'_> {
        View {
            origin: self.origin.cast_const(),
            begin: self.begin,
            end: self.end,
            lifetime: PhantomData,
        }
    }
}
