//! The basic types that layouts are made of.

use std::fmt;

macro_rules! elements {
    ($($(#[$doc:meta])* $number:literal $name:ident $text:literal $bytes:literal;)*) => {
        /// A basic type, in the byte order of the machine whose memory it lies in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Element {
            $($(#[$doc])* $name,)*
        }

        impl Element {
            /// Every element, in the order of their numbers.
            pub const ALL: &'static [Element] = &[$(Element::$name),*];

            /// Its number on the wire.
            pub fn number(self) -> u8 {
                match self { $(Element::$name => $number),* }
            }

            /// Size in bytes, which is its alignment too.
            pub fn bytes(self) -> u64 {
                match self { $(Element::$name => $bytes),* }
            }

            /// The element of a number of the wire.
            pub fn of_number(number: u8) -> Option<Element> {
                match number { $($number => Some(Element::$name),)* _ => None }
            }
        }

        impl fmt::Display for Element {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Element::$name => $text),* })
            }
        }
    };
}

elements! {
    /// A byte that means nothing: never swapped, never added to.
    0 Byte "byte" 1;
    /// A signed 8-bit integer.
    1 I8 "i8" 1;
    /// An unsigned 8-bit integer.
    2 U8 "u8" 1;
    /// A signed 16-bit integer.
    3 I16 "i16" 2;
    /// An unsigned 16-bit integer.
    4 U16 "u16" 2;
    /// A signed 32-bit integer.
    5 I32 "i32" 4;
    /// An unsigned 32-bit integer.
    6 U32 "u32" 4;
    /// A signed 64-bit integer.
    7 I64 "i64" 8;
    /// An unsigned 64-bit integer.
    8 U64 "u64" 8;
    /// A 32-bit IEEE 754 number.
    9 F32 "f32" 4;
    /// A 64-bit IEEE 754 number.
    10 F64 "f64" 8;
}
