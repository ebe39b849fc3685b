//! Layouts: made, asked, encoded, decoded.

use crate::boundary::{Result, export, give, give_new, held, list, room};
use crate::results::{Number, Refusal};
use covey_layout::{Axis, Block, Element, Layout, Member, Order};
use std::ffi::{c_int, c_void};

/// `struct covey_block`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CBlock {
    count: u64,
    displacement: i64,
}

/// `struct covey_member`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CMember {
    count: u64,
    displacement: i64,
    layout: *const Layout,
}

/// `struct covey_axis`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CAxis {
    size: u64,
    start: u64,
    part: u64,
}

/// `struct covey_bounds`.
#[repr(C)]
pub struct CBounds {
    lower: i64,
    upper: i64,
    true_lower: i64,
    true_upper: i64,
    size: u64,
}

fn blocks(list: &[CBlock]) -> Vec<Block> {
    list.iter().map(|&CBlock { count, displacement }| Block { count, displacement }).collect()
}

fn element(number: c_int) -> Result<Element> {
    let known = u8::try_from(number).ok().and_then(Element::of_number);
    known.ok_or_else(|| Refusal::argument(format!("there is no element {number}")))
}

export! {
    fn covey_layout_element(number: c_int, out: *mut *mut Layout) {
        give_new(out, Layout::element(element(number)?))
    }
}

export! {
    fn covey_layout_contiguous(count: u64, inner: *const Layout, out: *mut *mut Layout) {
        give_new(out, Layout::contiguous(count, held(inner, "inner")?)?)
    }
}

export! {
    fn covey_layout_vector(count: u64, block: u64, stride: i64, inner: *const Layout, out: *mut *mut Layout) {
        give_new(out, Layout::vector(count, block, stride, held(inner, "inner")?)?)
    }
}

export! {
    fn covey_layout_hvector(count: u64, block: u64, stride: i64, inner: *const Layout, out: *mut *mut Layout) {
        give_new(out, Layout::hvector(count, block, stride, held(inner, "inner")?)?)
    }
}

export! {
    fn covey_layout_indexed(first: *const CBlock, count: usize, inner: *const Layout, out: *mut *mut Layout) {
        let blocks = blocks(list(first, count, "the list of blocks")?);
        give_new(out, Layout::indexed(&blocks, held(inner, "inner")?)?)
    }
}

export! {
    fn covey_layout_hindexed(first: *const CBlock, count: usize, inner: *const Layout, out: *mut *mut Layout) {
        let blocks = blocks(list(first, count, "the list of blocks")?);
        give_new(out, Layout::hindexed(&blocks, held(inner, "inner")?)?)
    }
}

export! {
    fn covey_layout_struct(first: *const CMember, count: usize, out: *mut *mut Layout) {
        let members = list(first, count, "the list of members")?.iter().map(|member| {
            let layout = held(member.layout, "a member's layout")?.clone();
            Ok(Member { count: member.count, displacement: member.displacement, layout })
        });
        give_new(out, Layout::structure(&members.collect::<Result<Vec<_>>>()?)?)
    }
}

export! {
    fn covey_layout_subarray(first: *const CAxis, count: usize, order: c_int, inner: *const Layout, out: *mut *mut Layout) {
        let order = match order {
            0 => Order::C,
            1 => Order::Fortran,
            other => return Err(Refusal::argument(format!("there is no order {other}"))),
        };
        let axes = list(first, count, "the list of axes")?.iter();
        let axes: Vec<Axis> =
            axes.map(|&CAxis { size, start, part }| Axis { size, start, part }).collect();
        give_new(out, Layout::subarray(&axes, order, held(inner, "inner")?)?)
    }
}

export! {
    fn covey_layout_resized(lower: i64, extent: i64, inner: *const Layout, out: *mut *mut Layout) {
        give_new(out, Layout::resized(lower, extent, held(inner, "inner")?)?)
    }
}

export! {
    fn covey_layout_dup(layout: *const Layout, out: *mut *mut Layout) {
        give_new(out, held(layout, "layout")?.clone())
    }
}

export! {
    free fn covey_layout_free(layout: *mut Layout)
}

export! {
    fn covey_layout_bounds(layout: *const Layout, out: *mut CBounds) {
        let layout = held(layout, "layout")?;
        let bounds = layout.bounds();
        give(out, CBounds {
            lower: bounds.lower,
            upper: bounds.upper,
            true_lower: bounds.true_lower,
            true_upper: bounds.true_upper,
            size: layout.size(),
        })
    }
}

export! {
    fn covey_layout_encode(layout: *const Layout, into: *mut c_void, bytes: usize, needed: *mut usize) {
        let encoded = held(layout, "layout")?.encode()?;
        give(needed, encoded.len())?;
        if encoded.len() > bytes {
            let text = format!("layout takes {} bytes encoded, room is {bytes}", encoded.len());
            return Err(Refusal::of(Number::Room, text));
        }
        room(into.cast::<u8>(), bytes, "the room")?[..encoded.len()].copy_from_slice(&encoded);
        Ok(())
    }
}

export! {
    fn covey_layout_decode(encoded: *const c_void, bytes: usize, out: *mut *mut Layout) {
        let encoded = list(encoded.cast::<u8>(), bytes, "the encoded description")?;
        give_new(out, Layout::decode(encoded.to_vec().into())?)
    }
}
