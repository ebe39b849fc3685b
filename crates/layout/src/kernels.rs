//! What moves bytes: the one place in this crate with `unsafe`.
//!
//! A [`View`] is a checked piece of memory with an origin. [`copy`] runs loops over two of them and picks the
//! kernel: a tiled transposition where one side walks along what the other walks across, else
//! blocks in the order of the target. Every kernel has a portable form that tests compare it with.

mod arithmetic;
mod blocks;
mod joint;
mod swap;
#[cfg(target_arch = "x86_64")]
mod tile;
mod transpose;
mod view;

pub(crate) use arithmetic::combine;
pub(crate) use joint::{Joint, copy};
pub(crate) use swap::swap;
pub use transpose::{Level, transpose};
pub use view::{View, ViewMut};
