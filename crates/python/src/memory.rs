//! Memory of Python objects, by the buffer protocol: the only place with `unsafe` blocks about it.

use covey_wire::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Writable memory of an object, which stays where it is as long as this lives.
pub struct Room(PyBuffer<u8>);

impl Room {
    /// BufferError for what cannot be written, or lies scattered.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Room> {
        let buffer = PyBuffer::<u8>::get(object)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err("the buffer cannot be written"));
        }
        check(&buffer)?;
        Ok(Room(buffer))
    }

    /// Bytes of it.
    pub fn length(&self) -> usize {
        self.0.len_bytes()
    }

    /// The bytes, to be filled. As with `readinto` of any file, threads of the program that use them
    /// meanwhile find old bytes or new ones.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.length() == 0 {
            return &mut [];
        }
        // SAFETY: the object keeps this many contiguous bytes in place while the buffer is held, they
        // were checked to be writable, and bytes have no invalid values.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.length()) }
    }
}

/// A bytes object that nobody else has yet, to be filled.
pub struct NewBytes(Py<PyBytes>);

impl NewBytes {
    /// Zeros. None where there is not that much memory: files with holes may be larger than any.
    pub fn zeros(py: Python<'_>, length: u64) -> Option<NewBytes> {
        let length = usize::try_from(length).ok()?;
        let made = PyBytes::new_with(py, length, |_| Ok(())).ok()?;
        Some(NewBytes(made.unbind()))
    }

    /// The bytes.
    pub fn bytes(&mut self, py: Python<'_>) -> &mut [u8] {
        let length = self.0.bind(py).as_bytes().len();
        if length == 0 {
            return &mut [];
        }
        // SAFETY: Python lets who has made a bytes object fill it as long as nobody else has it; this is the only
        // reference, which lives as long as the slice, and objects do not move.
        unsafe {
            let start = pyo3::ffi::PyBytes_AsString(self.0.as_ptr());
            std::slice::from_raw_parts_mut(start.cast::<u8>(), length)
        }
    }

    /// The object, of which this many bytes were filled: copied where the file has become shorter meanwhile.
    pub fn filled(self, py: Python<'_>, count: usize) -> Bound<'_, PyBytes> {
        let all = self.0.into_bound(py);
        match all.as_bytes().get(..count) {
            Some(part) if part.len() < all.as_bytes().len() => PyBytes::new(py, part),
            _ => all,
        }
    }
}

/// A future of the striping client, which holds nothing of Python's. The compiler cannot see that some
/// of them are `Send` (rust-lang/rust#102211), which is how calls without the GIL are told from others.
pub struct NoPython<T>(Pin<Box<T>>);

impl<T: Future> NoPython<T> {
    /// `call` is one of the client's own futures, and refers to bytes and the client only.
    pub fn new(call: T) -> Self {
        NoPython(Box::pin(call))
    }
}

impl<T: Future> Future for NoPython<T> {
    type Output = T::Output;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T::Output> {
        self.0.as_mut().poll(context)
    }
}

// SAFETY: the thread that made the call polls and drops it: it never changes threads, only the GIL is
// let go meanwhile.
unsafe impl<T> Send for NoPython<T> {}

/// A copy of an object's bytes, taken under the GIL.
pub fn copied(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let buffer = PyBuffer::<u8>::get(object)?;
    check(&buffer)?;
    if buffer.len_bytes() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the object keeps this many contiguous bytes in place while the buffer is held.
    let bytes =
        unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) };
    let mut copy = Vec::new();
    // A failure to allocate must not end the interpreter.
    if copy.try_reserve_exact(bytes.len()).is_err() {
        return Err(PyMemoryError::new_err(format!("no memory for {} bytes", bytes.len())));
    }
    copy.extend_from_slice(bytes);
    Ok(Bytes::from(copy))
}

fn check(buffer: &PyBuffer<u8>) -> PyResult<()> {
    if buffer.is_c_contiguous() {
        return Ok(());
    }
    Err(PyValueError::new_err("the buffer is not contiguous"))
}
