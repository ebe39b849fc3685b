//! Element-wise operations on packed bytes.

use crate::{Element, Op};

/// `into = into op from`, element by element. Both have the same whole number of elements, and the
/// operation is defined for the element.
pub(crate) fn combine(op: Op, element: Element, into: &mut [u8], from: &[u8]) {
    match element {
        Element::Byte | Element::U8 => integer::<u8, 1>(op, into, from),
        Element::I8 => integer::<i8, 1>(op, into, from),
        Element::I16 => integer::<i16, 2>(op, into, from),
        Element::U16 => integer::<u16, 2>(op, into, from),
        Element::I32 => integer::<i32, 4>(op, into, from),
        Element::U32 => integer::<u32, 4>(op, into, from),
        Element::I64 => integer::<i64, 8>(op, into, from),
        Element::U64 => integer::<u64, 8>(op, into, from),
        Element::F32 => float::<f32, 4>(op, into, from),
        Element::F64 => float::<f64, 8>(op, into, from),
    }
}

fn integer<T: Integer<N>, const N: usize>(op: Op, into: &mut [u8], from: &[u8]) {
    let truth = |is: bool| T::from(is);
    let is = |value: T| value != T::from(false);
    match op {
        Op::Band => each::<T, N>(into, from, |a, b| a & b),
        Op::Bor => each::<T, N>(into, from, |a, b| a | b),
        Op::Bxor => each::<T, N>(into, from, |a, b| a ^ b),
        Op::Land => each::<T, N>(into, from, |a, b| truth(is(a) & is(b))),
        Op::Lor => each::<T, N>(into, from, |a, b| truth(is(a) | is(b))),
        Op::Lxor => each::<T, N>(into, from, |a, b| truth(is(a) ^ is(b))),
        other => number::<T, N>(other, into, from),
    }
}

fn float<T: Number<N>, const N: usize>(op: Op, into: &mut [u8], from: &[u8]) {
    number::<T, N>(op, into, from);
}

fn number<T: Number<N>, const N: usize>(op: Op, into: &mut [u8], from: &[u8]) {
    match op {
        Op::Sum => each::<T, N>(into, from, T::sum),
        Op::Prod => each::<T, N>(into, from, T::product),
        Op::Min => each::<T, N>(into, from, |a, b| if b < a { b } else { a }),
        Op::Max => each::<T, N>(into, from, |a, b| if b > a { b } else { a }),
        Op::Replace => into.copy_from_slice(from),
        // Without effect, or refused before.
        _ => {}
    }
}

fn each<T: Number<N>, const N: usize>(into: &mut [u8], from: &[u8], op: impl Fn(T, T) -> T) {
    let (targets, _) = into.as_chunks_mut::<N>();
    let (sources, _) = from.as_chunks::<N>();
    for (target, source) in targets.iter_mut().zip(sources) {
        *target = op(T::of_bytes(*target), T::of_bytes(*source)).into_bytes();
    }
}

trait Number<const N: usize>: Copy + PartialOrd {
    fn of_bytes(bytes: [u8; N]) -> Self;
    fn into_bytes(self) -> [u8; N];
    /// Wraps around, as MPI's integers do.
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
}

trait Integer<const N: usize>:
    Number<N>
    + From<bool>
    + std::ops::BitAnd<Output = Self>
    + std::ops::BitOr<Output = Self>
    + std::ops::BitXor<Output = Self>
{
}

macro_rules! numbers {
    ($($type:ty, $bytes:literal, $sum:expr, $product:expr;)*) => {
        // The bytes are those of a program's own memory.
        $(#[allow(clippy::host_endian_bytes)]
        impl Number<$bytes> for $type {
            fn of_bytes(bytes: [u8; $bytes]) -> Self {
                <$type>::from_ne_bytes(bytes)
            }
            fn into_bytes(self) -> [u8; $bytes] {
                self.to_ne_bytes()
            }
            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }
            fn product(self, other: Self) -> Self {
                $product(self, other)
            }
        })*
    };
}

macro_rules! integers {
    ($($type:ident $bytes:literal)*) => {
        numbers! { $($type, $bytes, $type::wrapping_add, $type::wrapping_mul;)* }
        $(impl Integer<$bytes> for $type {})*
    };
}

integers! { i8 1 u8 1 i16 2 u16 2 i32 4 u32 4 i64 8 u64 8 }
numbers! {
    f32, 4, std::ops::Add::add, std::ops::Mul::mul;
    f64, 8, std::ops::Add::add, std::ops::Mul::mul;
}
