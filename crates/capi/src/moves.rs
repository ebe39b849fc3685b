//! Plans and targets: what moves bytes.

use crate::boundary::{Result, export, give, give_new, held, list, room};
use crate::results::Refusal;
use covey_layout::{Layout, Op, Plan, Shape, Signature, Target, View, ViewMut};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// `struct covey_memory`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CMemory {
    origin: *mut c_void,
    begin: i64,
    end: i64,
}

impl CMemory {
    fn check(&self) -> Result<()> {
        if self.begin > self.end {
            let Self { begin, end, .. } = self;
            return Err(Refusal::argument(format!("memory begins at {begin} and ends at {end}")));
        }
        Ok(())
    }

    /// # Safety
    ///
    /// Its bytes can be read, and overlap nothing that is written.
    unsafe fn view<'a>(&self) -> Result<View<'a>> {
        self.check()?;
        // SAFETY: the caller's promise.
        Ok(unsafe { View::from_raw(self.origin.cast_const().cast(), self.begin, self.end) })
    }

    /// # Safety
    ///
    /// Its bytes can be read and written, and overlap nothing else that the call uses.
    unsafe fn view_mut<'a>(&self) -> Result<ViewMut<'a>> {
        self.check()?;
        // SAFETY: the caller's promise.
        Ok(unsafe { ViewMut::from_raw(self.origin.cast(), self.begin, self.end) })
    }
}

/// `struct covey_form`.
#[repr(C)]
pub struct CForm {
    size: u64,
    begin: i64,
    end: i64,
    runs: u64,
    shape: c_int,
}

/// `struct covey_run`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CRun {
    offset: i64,
    bytes: u64,
    packed: u64,
}

/// `covey_target`: a target, and the layout's elements once they are asked for.
pub struct CTarget {
    target: Target,
    layout: Layout,
    count: u64,
    signature: OnceLock<Signature>,
}

impl CTarget {
    fn signature(&self) -> Result<&Signature> {
        if let Some(signature) = self.signature.get() {
            return Ok(signature);
        }
        let signature = Signature::new(&self.layout, self.count)?;
        Ok(self.signature.get_or_init(|| signature))
    }
}

/// The numbers of `enum covey_shape`.
fn shape(shape: Shape) -> c_int {
    match shape {
        Shape::Empty => 0,
        Shape::Contiguous { .. } => 1,
        Shape::Strided { .. } => 2,
        Shape::Strided2 { .. } => 3,
        Shape::Transposed { .. } => 4,
        Shape::Nested { .. } => 5,
        _ => 6,
    }
}

fn form(plan: &Plan) -> CForm {
    let (begin, end) = plan.hull();
    CForm { size: plan.size(), begin, end, runs: plan.run_count(), shape: shape(plan.shape()) }
}

/// The numbers of `enum covey_op` are the places in [`Op::ALL`].
pub fn op(number: c_int) -> Result<Op> {
    let known = usize::try_from(number).ok().and_then(|number| Op::ALL.get(number));
    known.copied().ok_or_else(|| Refusal::argument(format!("there is no operation {number}")))
}

export! {
    fn covey_plan_new(layout: *const Layout, count: u64, out: *mut *mut Plan) {
        give_new(out, Plan::new(held(layout, "layout")?, count)?)
    }
}

export! {
    free fn covey_plan_free(plan: *mut Plan)
}

export! {
    fn covey_plan_form(plan: *const Plan, out: *mut CForm) {
        give(out, form(held(plan, "plan")?))
    }
}

export! {
    fn covey_plan_runs(plan: *const Plan, at: u64, into: *mut CRun, count: usize, found: *mut usize) {
        let plan = held(plan, "plan")?;
        let into = room(into, count, "the room for runs")?;
        let mut runs = plan.runs(at..plan.size().max(at))?;
        let mut filled = 0;
        for (place, run) in into.iter_mut().zip(&mut runs) {
            *place = CRun { offset: run.offset, bytes: run.bytes, packed: run.packed };
            filled += 1;
        }
        give(found, filled)
    }
}

export! {
    fn covey_pack(plan: *const Plan, from: CMemory, at: u64, into: *mut c_void, bytes: usize) {
        let into = room(into.cast::<u8>(), bytes, "the room for packed bytes")?;
        Ok(held(plan, "plan")?.pack(from.view()?, at, into)?)
    }
}

export! {
    fn covey_target_new(layout: *const Layout, count: u64, out: *mut *mut CTarget) {
        let layout = held(layout, "layout")?;
        let target = Target::new(layout, count)?;
        let layout = layout.clone();
        give_new(out, CTarget { target, layout, count, signature: OnceLock::new() })
    }
}

export! {
    free fn covey_target_free(target: *mut CTarget)
}

export! {
    fn covey_target_form(target: *const CTarget, out: *mut CForm) {
        give(out, form(held(target, "target")?.target.plan()))
    }
}

export! {
    fn covey_unpack(target: *const CTarget, packed: *const c_void, bytes: usize, at: u64, into: CMemory) {
        let packed = list(packed.cast::<u8>(), bytes, "the packed bytes")?;
        Ok(held(target, "target")?.target.unpack(packed, at, into.view_mut()?)?)
    }
}

export! {
    fn covey_copy(target: *const CTarget, into: CMemory, plan: *const Plan, from: CMemory) {
        let target = &held(target, "target")?.target;
        Ok(target.copy_from(into.view_mut()?, held(plan, "plan")?, from.view()?)?)
    }
}

export! {
    fn covey_accumulate(target: *const CTarget, operation: c_int, packed: *const c_void, bytes: usize, at: u64, into: CMemory) {
        let target = held(target, "target")?;
        let packed = list(packed.cast::<u8>(), bytes, "the packed bytes")?;
        let signature = target.signature()?;
        Ok(target.target.accumulate(op(operation)?, signature, packed, at, into.view_mut()?)?)
    }
}

export! {
    fn covey_swap(layout: *const Layout, count: u64, packed: *mut c_void, bytes: usize, at: u64) {
        let packed = room(packed.cast::<u8>(), bytes, "the packed bytes")?;
        Ok(Signature::new(held(layout, "layout")?, count)?.swap(packed, at)?)
    }
}
