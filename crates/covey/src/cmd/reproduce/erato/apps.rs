//! Figures 10 to 13 and table 1: matrix products and the linear solver, on `tune app`.

use super::part;
use crate::cmd::reproduce::bench::Bench;
use crate::cmd::reproduce::told::Part;

/// What is missing.
const WHY: &str = "`covey tune app` measures it, but nothing here sets it beside the paper yet";

/// Figures 10 to 13.
pub async fn figures(_bench: &mut Bench) -> Part {
    let mut part = part("fig10-13", "matrix products by data type, block, BLAS and size");
    part.leave_out("figures 10 to 13", WHY);
    part
}

/// Table 1.
pub async fn peaks(_bench: &mut Bench) -> Part {
    let mut part = part("table1", "peaks of 32 nodes");
    part.leave_out("table 1", WHY);
    part
}
