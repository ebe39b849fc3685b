//! Cursors over shared bytes, and the field types that all messages are made of.
//!
//! A `Reader` never indexes and never copies a payload: what it hands out shares the buffer that
//! the message arrived in. The context of a table of messages gives the byte order of its integers:
//! little-endian as in 9P, big-endian as in iSCSI and on most of the Internet.

use crate::Blame;
use bytes::{Buf, BufMut, Bytes};
use std::fmt;

/// A cursor over one message. Fails with [`Blame::Malformed`] when the message is too short.
#[derive(Clone, Debug)]
pub struct Reader {
    rest: Bytes,
    /// What comes after it, where the message lies in two places.
    tail: Option<Bytes>,
}

macro_rules! integer {
    ($order:literal: $($name:ident $type:ty, $get:ident;)*) => {
        $(
            #[doc = concat!("Takes a ", $order, " `", stringify!($type), "`.")]
            pub fn $name(&mut self) -> Result<$type, Blame> {
                self.need(size_of::<$type>(), stringify!($type))?;
                self.gather(size_of::<$type>());
                Ok(self.rest.$get())
            }
        )*
    };
}

impl Reader {
    /// A cursor at the first byte of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Reader { rest: bytes, tail: None }
    }

    /// A cursor over a message whose end lies elsewhere. A payload that is all of `tail` is handed out
    /// from there; what lies in both places is copied.
    pub fn with_tail(bytes: Bytes, tail: Option<Bytes>) -> Self {
        Reader { rest: bytes, tail }
    }

    integer! {
        "little-endian":
        u8 u8, get_u8;
        u16 u16, get_u16_le;
        u32 u32, get_u32_le;
        u64 u64, get_u64_le;
    }

    integer! {
        "big-endian":
        u16_be u16, get_u16;
        u32_be u32, get_u32;
        u64_be u64, get_u64;
    }

    /// Takes `count` bytes, shared with the buffer.
    pub fn bytes(&mut self, count: usize) -> Result<Bytes, Blame> {
        self.need(count, "bytes")?;
        self.gather(count);
        Ok(self.rest.split_to(count))
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len() + self.tail.as_ref().map_or(0, Bytes::len)
    }

    /// Ends the message: bytes left over are an error.
    pub fn finish(self) -> Result<(), Blame> {
        match self.remaining() {
            0 => Ok(()),
            n => Err(Blame::Malformed(format!("{n} bytes after the last field"))),
        }
    }

    fn need(&self, count: usize, what: &str) -> Result<(), Blame> {
        if self.rest.len() >= count || self.remaining() >= count {
            return Ok(());
        }
        Err(Blame::Malformed(format!("{what} needs {count} bytes, {} left", self.remaining())))
    }

    /// Sees to it that the next `count` bytes, which are there, lie in one place.
    fn gather(&mut self, count: usize) {
        if self.rest.len() >= count {
            return;
        }
        let tail = self.tail.take().unwrap_or_default();
        self.rest =
            if self.rest.is_empty() { tail } else { [&self.rest[..], &tail].concat().into() };
    }
}

/// The order of an integer's bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The least significant byte first, as in 9P.
    Little,
    /// The most significant byte first: network byte order.
    Big,
}

/// What an encoding depends on besides the value: the byte order of a protocol's integers, and whatever else a
/// table of messages names as its context, such as the dialect that two peers have agreed on.
pub trait Context: Copy {
    /// The order of the protocol's integers.
    const ORDER: Order;
}

/// A protocol without dialects whose integers are little-endian.
impl Context for () {
    const ORDER: Order = Order::Little;
}

/// A protocol without dialects whose integers are big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BigEndian;

impl Context for BigEndian {
    const ORDER: Order = Order::Big;
}

/// A type that can stand in a message. `C` is the context that the encoding depends on.
pub trait Field<C: Context = ()>: Sized {
    /// Encoded size in bytes.
    fn size(&self, context: C) -> usize;
    /// Appends the encoding.
    fn put(&self, context: C, out: &mut Vec<u8>);
    /// Takes the field off the cursor.
    fn get(context: C, from: &mut Reader) -> Result<Self, Blame>;
}

macro_rules! integer_field {
    ($($type:ident $put_little:ident $put_big:ident $get_big:ident;)*) => {
        $(impl<C: Context> Field<C> for $type {
            fn size(&self, _: C) -> usize {
                size_of::<$type>()
            }
            fn put(&self, _: C, out: &mut Vec<u8>) {
                match C::ORDER {
                    Order::Little => out.$put_little(*self),
                    Order::Big => out.$put_big(*self),
                }
            }
            fn get(_: C, from: &mut Reader) -> Result<Self, Blame> {
                match C::ORDER {
                    Order::Little => from.$type(),
                    Order::Big => from.$get_big(),
                }
            }
        })*
    };
}
integer_field! {
    u8 put_u8 put_u8 u8;
    u16 put_u16_le put_u16 u16_be;
    u32 put_u32_le put_u32 u32_be;
    u64 put_u64_le put_u64 u64_be;
}

impl<C: Context> Field<C> for bool {
    fn size(&self, _: C) -> usize {
        1
    }
    fn put(&self, _: C, out: &mut Vec<u8>) {
        out.put_u8(u8::from(*self));
    }
    fn get(_: C, from: &mut Reader) -> Result<Self, Blame> {
        match from.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(Blame::Malformed(format!("bool is {n}"))),
        }
    }
}

impl<C: Context, T: Field<C>> Field<C> for Option<T> {
    fn size(&self, c: C) -> usize {
        1 + self.as_ref().map_or(0, |value| value.size(c))
    }
    fn put(&self, c: C, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.is_some()));
        if let Some(value) = self {
            value.put(c, out);
        }
    }
    fn get(c: C, from: &mut Reader) -> Result<Self, Blame> {
        Ok(if <bool as Field<C>>::get(c, from)? { Some(T::get(c, from)?) } else { None })
    }
}

/// A string of the wire: a 16-bit length and bytes. File names on Linux are bytes, so no encoding
/// is enforced; what is printed is made readable.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name(Bytes);

impl Name {
    /// The empty name.
    pub const EMPTY: Name = Name(Bytes::new());

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name for people: what is not UTF-8 is replaced.
    pub fn lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// A copy in memory of its own, for those who keep it: a name that came in a message keeps alive
    /// the whole buffer that the message came in.
    #[must_use]
    pub fn detached(&self) -> Name {
        Name::from(self.as_bytes())
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Name(Bytes::copy_from_slice(bytes))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name(text.into_bytes().into())
    }
}

impl From<Vec<u8>> for Name {
    fn from(bytes: Vec<u8>) -> Self {
        Name(bytes.into())
    }
}

impl From<Bytes> for Name {
    fn from(bytes: Bytes) -> Self {
        Name(bytes)
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lossy())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lossy())
    }
}

impl<C: Context> Field<C> for Name {
    fn size(&self, _: C) -> usize {
        2 + self.0.len()
    }
    fn put(&self, c: C, out: &mut Vec<u8>) {
        let length = u16::try_from(self.0.len()).expect("names are bounded before they are sent");
        length.put(c, out);
        out.extend_from_slice(&self.0);
    }
    fn get(c: C, from: &mut Reader) -> Result<Self, Blame> {
        let length = u16::get(c, from)?;
        Ok(Name(from.bytes(usize::from(length))?))
    }
}

/// A list of fields with a 16-bit count, as Twalk has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<C: Context, T: Field<C>> Field<C> for List<T> {
    fn size(&self, c: C) -> usize {
        2 + self.0.iter().map(|item| item.size(c)).sum::<usize>()
    }
    fn put(&self, c: C, out: &mut Vec<u8>) {
        let count = u16::try_from(self.0.len()).expect("lists are bounded before they are sent");
        count.put(c, out);
        self.0.iter().for_each(|item| item.put(c, out));
    }
    fn get(c: C, from: &mut Reader) -> Result<Self, Blame> {
        let count = u16::get(c, from)?;
        // Grows as items arrive: a hostile count cannot make it allocate.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(T::get(c, from)?);
        }
        Ok(List(items))
    }
}

#[cfg(test)]
mod tests {
    use crate::{BigEndian, Bytes, List, Name, Reader, messages};

    messages! {
        /// The same fields in both orders.
        enum Little for () {
            /// little-endian
            1 All { a: u16, b: u32, c: u64, name: Name, list: List<u16> },
        }
    }

    messages! {
        /// As above, in network byte order.
        enum Big for BigEndian {
            /// big-endian
            1 All { a: u16, b: u32, c: u64, name: Name, list: List<u16> },
        }
    }

    /// Two bytes of length or count, then the name's bytes or the items.
    const LITTLE: [u8; 23] =
        [0x02, 0x01, 6, 5, 4, 3, 14, 13, 12, 11, 10, 9, 8, 7, 1, 0, b'x', 2, 0, 1, 0, 0xff, 0];
    const BIG: [u8; 23] =
        [0x01, 0x02, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 1, b'x', 0, 2, 0, 1, 0, 0xff];

    #[test]
    fn a_table_has_the_byte_order_of_its_context() {
        let (a, b, c) = (0x0102, 0x0304_0506, 0x0708_090a_0b0c_0d0e);
        let (name, list) = (Name::from("x"), List(vec![1, 0xff]));
        let mut out = Vec::new();
        let little = Little::All { a, b, c, name: name.clone(), list: list.clone() };
        little.put_body((), &mut out);
        assert_eq!((&out[..], little.body_size(())), (&LITTLE[..], 23));
        out.clear();
        let big = Big::All { a, b, c, name, list };
        big.put_body(BigEndian, &mut out);
        assert_eq!((&out[..], big.body_size(BigEndian)), (&BIG[..], 23));
        let read = |bytes: &'static [u8]| Reader::new(Bytes::from_static(bytes));
        assert_eq!((big.number(), big.name()), (little.number(), little.name()));
        assert_eq!(Big::NUMBERS, Little::NUMBERS);
        assert_eq!(Little::take_body(1, (), &mut read(&LITTLE)), Ok(little));
        assert_eq!(Big::take_body(1, BigEndian, &mut read(&BIG)), Ok(big));
        for length in 0..BIG.len() {
            Big::take_body(1, BigEndian, &mut read(&BIG[..length])).unwrap_err();
        }
    }
}
