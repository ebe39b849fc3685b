//! Parts of arrays as layouts: axes to nested vectors.

use covey_layout::Layout;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::view::View;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The elements of `item` bytes that lie along axes, the slowest first, from a byte of the file on.
pub fn of(offset: u64, item: u64, axes: &[(u64, u64)]) -> Result<View> {
    let mut layout = Layout::bytes(item).map_err(refused)?;
    for &(count, stride) in axes.iter().rev() {
        let stride = i64::try_from(stride).map_err(|_| Errno::from(Errno::EFBIG))?;
        layout = Layout::hvector(count, 1, stride, &layout).map_err(refused)?;
    }
    View::new(&layout, 1, offset)
}

/// ValueError where a buffer has not exactly the view's bytes.
pub fn check_length(view: &View, bytes: usize) -> PyResult<()> {
    if view.bytes() == bytes as u64 {
        return Ok(());
    }
    let what = format!("the layout names {} bytes, the buffer has {bytes}", view.bytes());
    Err(PyValueError::new_err(what))
}

fn refused(error: covey_layout::Error) -> Errno {
    let code = match error {
        covey_layout::Error::Overflow { .. } => Errno::EFBIG,
        _ => Errno::EINVAL,
    };
    Errno::because(code, error.to_string())
}
