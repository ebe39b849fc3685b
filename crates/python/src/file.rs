//! Open files: bytes at offsets, and scattered ones by layouts.

use crate::client::joined;
use crate::connection::{Cluster, Connection, caller};
use crate::many::{CHUNK_BYTES, read_far, read_into, write_range};
use crate::memory::{NewBytes, NoPython, Room, copied};
use crate::{error, view};
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::client::access;
use covey_stripe::ops::Id;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open regular file. Every call says where in the file it works, so threads may share it.
///
/// A child of a fork, and a session that was closed, opens the file again by its number when it is
/// used: whoever may not open it by then gets an error.
#[pyclass(frozen, weakref, module = "covey._covey")]
pub struct File {
    cluster: Arc<Cluster>,
    id: Id,
    access: u8,
    path: OsString,
    /// None once it is closed. Held only under the GIL, and never while it is released.
    open: Mutex<Option<Open>>,
}

/// A file as a connection has it.
#[derive(Clone)]
struct Open(Arc<Held>);

struct Held {
    /// There until it is dropped.
    file: Option<covey_stripe::client::File>,
    connection: Arc<Connection>,
}

impl Held {
    fn new(file: covey_stripe::client::File, connection: &Arc<Connection>) -> Held {
        Held { file: Some(file), connection: connection.clone() }
    }

    fn file(&self) -> &covey_stripe::client::File {
        self.file.as_ref().expect("it is dropped with its holder")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.connection.is_ours() {
            std::mem::forget(self.file.take());
        }
    }
}

impl File {
    /// A file that was just opened.
    pub fn new(
        cluster: Arc<Cluster>,
        connection: &Arc<Connection>,
        file: covey_stripe::client::File,
        access: u8,
        path: OsString,
    ) -> File {
        let id = file.id();
        let held = Held::new(file, connection);
        File { cluster, id, access, path, open: Mutex::new(Some(Open(Arc::new(held)))) }
    }

    /// The file in this process's session, opened again where it is another one by now.
    fn held(&self, py: Python<'_>, wanted: u8) -> PyResult<Arc<Held>> {
        let Some(Open(held)) = self.lock().clone() else {
            return Err(PyValueError::new_err("I/O operation on closed file"));
        };
        if self.access & wanted == 0 {
            let what = if wanted == access::READ { "reading" } else { "writing" };
            let refused = Errno::because(Errno::EBADF, format!("it is not open for {what}"));
            return Err(error::by_errno(py, &refused, &self.path));
        }
        let connection = self.cluster.connection(py)?;
        if held.connection.generation == connection.generation {
            return Ok(held);
        }
        let who = caller();
        let opening = connection.fs().open(&who, self.id, self.access);
        let file = connection.ask(py, &self.path, opening)?;
        let held = Arc::new(Held::new(file, &connection));
        let mut open = self.lock();
        if open.is_some() {
            *open = Some(Open(held.clone()));
        }
        Ok(held)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        held: &Held,
        call: impl Future<Output = covey_stripe::client::Result<T>> + Send,
    ) -> PyResult<T> {
        held.connection.ask(py, &self.path, call)
    }
}

#[pymethods]
impl File {
    /// The path by which it was opened.
    #[getter]
    fn path(&self) -> OsString {
        self.path.clone()
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    /// How many bytes it has now.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        let held = self.held(py, access::READ | access::WRITE)?;
        let inode = self.ask(py, &held, held.connection.fs().inode(self.id))?;
        Ok(inode.size)
    }

    /// Up to `count` bytes from an offset; fewer at the end of the file only.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        count: u64,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let held = self.held(py, access::READ)?;
        let end = offset.saturating_add(count);
        let call = read_far(held.connection.fs(), held.file(), offset, end);
        let (first, end) = self.ask(py, &held, call)?;
        let had = first.len();
        if offset + had as u64 >= end {
            return joined(py, first.pieces());
        }
        let Some(mut all) = NewBytes::zeros(py, end - offset) else {
            let what = format!("no memory for {} bytes of {:?}", end - offset, self.path);
            return Err(PyMemoryError::new_err(what));
        };
        let (mut room, rest) = all.bytes(py).split_at_mut(had);
        for piece in first.pieces() {
            let (here, behind) = room.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            room = behind;
        }
        drop(first);
        let from = offset + had as u64;
        let got = self.ask(py, &held, read_into(held.file(), from, rest, CHUNK_BYTES))?;
        Ok(all.filled(py, had + got))
    }

    /// Fills a buffer from an offset; answers how many bytes there were.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let held = self.held(py, access::READ)?;
        let mut room = Room::of(buffer)?;
        let call = read_into(held.file(), offset, room.bytes(), CHUNK_BYTES);
        self.ask(py, &held, call)
    }

    /// Writes all of some bytes at an offset.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let held = self.held(py, access::WRITE)?;
        let data = copied(data)?;
        let length = data.len();
        self.ask(py, &held, write_range(held.file(), offset, data))?;
        Ok(length)
    }

    /// Writes all of some bytes at the end, whoever else appends; answers where they went.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let held = self.held(py, access::WRITE)?;
        let data = copied(data)?;
        self.ask(py, &held, held.file().append(data.into()))
    }

    /// Sets the size: what is new reads as zeros.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let held = self.held(py, access::WRITE)?;
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        let who = caller();
        self.ask(py, &held, held.connection.fs().setattr_open(&who, self.id, change))?;
        Ok(())
    }

    /// Everything that was written reaches stable storage.
    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held(py, access::READ | access::WRITE)?;
        self.ask(py, &held, held.file().fsync())
    }

    /// Fills a buffer with the bytes that a layout names: from byte `offset` on elements of `item`
    /// bytes, repeated along `axes`, each (how many, how many bytes apart), the slowest first. Each
    /// server is asked once. Answers how many bytes, from the front, are not beyond the file's end.
    fn read_view(
        &self,
        py: Python<'_>,
        offset: u64,
        item: u64,
        axes: Vec<(u64, u64)>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let held = self.held(py, access::READ)?;
        let view = view::of(offset, item, &axes);
        let view = view.map_err(|errno| error::by_errno(py, &errno, &self.path))?;
        let mut room = Room::of(buffer)?;
        view::check_length(&view, room.length())?;
        let call = NoPython::new(held.file().read_view_into(&view, room.bytes()));
        self.ask(py, &held, call)
    }

    /// Writes a buffer to the bytes that a layout names; see `read_view`.
    fn write_view(
        &self,
        py: Python<'_>,
        offset: u64,
        item: u64,
        axes: Vec<(u64, u64)>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let held = self.held(py, access::WRITE)?;
        let view = view::of(offset, item, &axes);
        let view = view.map_err(|errno| error::by_errno(py, &errno, &self.path))?;
        let data = copied(data)?;
        view::check_length(&view, data.len())?;
        self.ask(py, &held, held.file().write_view(&view, data))
    }

    /// Closes it. Nothing was kept back, so only the time of the last change is owed; a second call
    /// does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(Open(held)) = self.lock().take() else { return Ok(()) };
        if self.access & access::WRITE == 0 || !held.connection.is_ours() {
            return Ok(());
        }
        self.ask(py, &held, held.file().flush())
    }

    fn __repr__(&self) -> String {
        format!("<covey.File {:?}>", self.path.display().to_string())
    }
}
