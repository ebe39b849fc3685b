//! Names: what a client does with paths.

use crate::connection::{Cluster, Connection, caller};
use crate::error;
use crate::file::File;
use crate::many::{self, Content, Range};
use crate::memory::{NewBytes, copied};
use crate::stat::{Entry, Links, named, told};
use crate::walk::{self, Follow, is_link, names, resolve, resolve_parent};
use covey_ninep::tree::{Errno, Removal, SetAttr, SetTime};
use covey_stripe::client::{Error, Fs, Result, Taken, access};
use covey_stripe::ops::{Caller, DirEntry, Id, Inode, ROOT, rename};
use covey_wire::{Bytes, Name};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

/// A client of one cluster's file system. Paths are those of the file system: `a/b` means `/a/b`.
///
/// `config` names the cluster's covey.toml. Without it, the first that exists is taken: COVEY_CONFIG,
/// ./covey.toml, the file of the cluster that `covey up` started, ~/.config/covey/covey.toml,
/// /etc/covey/covey.toml.
#[pyclass(frozen, weakref, module = "covey._covey")]
pub struct Client {
    cluster: Arc<Cluster>,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (config=None))]
    fn new(py: Python<'_>, config: Option<PathBuf>) -> PyResult<Client> {
        let cluster = Arc::new(Cluster::find(config)?);
        cluster.connection(py)?;
        Ok(Client { cluster })
    }

    /// The covey.toml of the cluster.
    #[getter]
    fn config(&self) -> PathBuf {
        self.cluster.file()
    }

    /// The cluster's ID: 32 hexadecimal digits.
    #[getter]
    fn cluster_id(&self) -> &str {
        self.cluster.id()
    }

    /// The file of the cluster that a client would connect to, the cluster's ID, and what distinguishes it beside that:
    /// what the file says, and which key it names.
    #[staticmethod]
    #[pyo3(signature = (config=None))]
    fn identity(config: Option<PathBuf>) -> PyResult<(PathBuf, String, String)> {
        let cluster = Cluster::find(config)?;
        Ok((cluster.file(), cluster.id().to_owned(), cluster.identity()?))
    }

    /// What this process's umask takes from the modes of new files.
    #[staticmethod]
    #[pyo3(name = "umask")]
    fn mask() -> u32 {
        umask()
    }

    /// The names of the I/O servers.
    fn servers(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.cluster.connection(py)?.fs().servers())
    }

    /// Ends the session with the cluster. A later call begins a new one.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.cluster.close(py)
    }

    /// What is at a path, as a dictionary. `follow`: a symbolic link's target, where there is one.
    #[pyo3(signature = (path, follow=true))]
    fn stat<'py>(
        &self,
        py: Python<'py>,
        path: OsString,
        follow: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let connection = self.cluster.connection(py)?;
        let entry = connection.ask(py, &path, look(connection.fs(), path.as_bytes(), follow))?;
        told(py, &path, &entry, Links::Followed)
    }

    /// The entries of a directory, with their attributes; `name` is the whole path. Where the directory may be read but
    /// not entered, they have a name, a type, and the size None.
    fn list<'py>(&self, py: Python<'py>, path: OsString) -> PyResult<Bound<'py, PyList>> {
        let connection = self.cluster.connection(py)?;
        let entries = connection.ask(py, &path, entries(connection.fs(), path.as_bytes()))?;
        let list = PyList::empty(py);
        for (name, kind, entry) in &entries {
            let slash: &[u8] = if path.as_bytes().ends_with(b"/") { b"" } else { b"/" };
            let whole = os(&[path.as_bytes(), slash, name.as_bytes()].concat());
            list.append(match entry {
                Some(entry) => told(py, &whole, entry, Links::Told)?,
                None => named(py, &whole, *kind)?,
            })?;
        }
        Ok(list)
    }

    /// Makes a directory; its mode is cut by the process's umask.
    #[pyo3(signature = (path, mode=0o777))]
    fn mkdir(&self, py: Python<'_>, path: OsString, mode: u32) -> PyResult<()> {
        let mode = mode & !umask();
        self.on_entry(py, path, move |fs, who, dir, name| async move {
            fs.make(&who, dir, &name, DIRECTORY | mode, 0, Name::EMPTY).await.map(|_| ())
        })
    }

    /// Removes a file or symbolic link.
    fn unlink(&self, py: Python<'_>, path: OsString) -> PyResult<()> {
        self.on_entry(py, path, |fs, who, dir, name| async move {
            fs.unlink(&who, dir, &name, Removal::File).await
        })
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: OsString) -> PyResult<()> {
        self.on_entry(py, path, |fs, who, dir, name| async move {
            fs.unlink(&who, dir, &name, Removal::Directory).await
        })
    }

    /// Renames; a file that has the new name already is replaced, or without `replace` is an error.
    #[pyo3(signature = (old, new, replace=true))]
    fn rename(&self, py: Python<'_>, old: OsString, new: OsString, replace: bool) -> PyResult<()> {
        let flags = if replace { 0 } else { rename::NOREPLACE };
        let connection = self.cluster.connection(py)?;
        let (fs, who) = (connection.fs(), caller());
        let from = connection.ask(py, &old, resolve_parent(fs, &who, old.as_bytes()))?;
        let to = connection.ask(py, &new, resolve_parent(fs, &who, new.as_bytes()))?;
        let renamed = connection.wait(py, fs.rename(&who, from.0, &from.1, to.0, &to.1, flags))?;
        renamed.map_err(|error| error::between(error, old, new))
    }

    /// Makes a symbolic link at a path.
    fn symlink(&self, py: Python<'_>, target: OsString, path: OsString) -> PyResult<()> {
        self.on_entry(py, path, move |fs, who, dir, name| async move {
            let target = Name::from(target.as_bytes());
            fs.make(&who, dir, &name, LINK, 0, target).await.map(|_| ())
        })
    }

    /// Sets the size of a file: what is new reads as zeros.
    fn truncate(&self, py: Python<'_>, path: OsString, size: u64) -> PyResult<()> {
        self.set(py, path, SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// Sets the permission bits of a file.
    fn chmod(&self, py: Python<'_>, path: OsString, mode: u32) -> PyResult<()> {
        self.set(py, path, SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() })
    }

    /// Gives a file to a user and a group; None leaves what it is.
    #[pyo3(signature = (path, uid=None, gid=None))]
    fn chown(
        &self,
        py: Python<'_>,
        path: OsString,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> PyResult<()> {
        self.set(py, path, SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets the time of the last change of a file's content to now.
    fn touch(&self, py: Python<'_>, path: OsString) -> PyResult<()> {
        let now = Some(SetTime::Now);
        self.set(py, path, SetAttr { mtime: now, atime: now, ..SetAttr::default() })
    }

    /// Opens a regular file. `flags` are those of the module os: O_RDONLY, O_WRONLY or O_RDWR, with
    /// O_CREAT, O_EXCL and O_TRUNC.
    #[pyo3(signature = (path, flags=0, mode=0o666))]
    fn open(&self, py: Python<'_>, path: OsString, flags: i32, mode: u32) -> PyResult<File> {
        let connection = self.cluster.connection(py)?;
        let how = How::of(flags, mode);
        let opening = open(connection.fs(), path.as_bytes(), how);
        let file = connection.ask(py, &path, opening)?;
        Ok(File::new(self.cluster.clone(), &connection, file, how.access, path))
    }

    /// The content of many files, asked for at once. Each request is (path, first byte, end); an end of
    /// None is that of the file, and a small file whose path has no symbolic link takes one request.
    /// Answers bytes for each, or the error.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        requests: Vec<(OsString, u64, Option<u64>)>,
    ) -> PyResult<Bound<'py, PyList>> {
        let connection = self.cluster.connection(py)?;
        let (fs, who) = (connection.fs(), caller());
        let wanted: Vec<Range> =
            requests.iter().map(|(path, from, to)| (path.as_bytes(), *from, *to)).collect();
        let answers = connection.wait(py, many::read(fs, &who, &wanted))?;
        let (mut longer, mut rooms, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for ((path, ..), answer) in requests.iter().zip(answers) {
            done.push(match answer {
                Ok(Content::Here(data)) => Some(PyBytes::new(py, &data).into_any()),
                Ok(Content::Longer(found)) => match NewBytes::zeros(py, found.bytes()) {
                    Some(room) => {
                        rooms.push(room);
                        longer.push(found);
                        None
                    }
                    None => Some(failure(py, Errno::from(Errno::ENOMEM).into(), path)),
                },
                Err(error) => Some(failure(py, error, path)),
            });
        }
        let places = rooms.iter_mut().map(|room| room.bytes(py));
        let wanted = longer.into_iter().zip(places).collect();
        let mut counts = connection.wait(py, many::fill(wanted))?.into_iter().zip(rooms);
        let list = PyList::empty(py);
        for ((path, ..), done) in requests.iter().zip(done) {
            let filled = || {
                let (count, room) = counts.next()?;
                Some(match count {
                    Ok(count) => room.filled(py, count).into_any(),
                    Err(error) => failure(py, error, path),
                })
            };
            list.append(done.or_else(filled))?;
        }
        Ok(list)
    }

    /// Writes many files, at once: each item is a path and what its file is to hold. With `exclusive`
    /// an existing file is an error, else its content is replaced. Answers None for each, or the error.
    #[pyo3(signature = (items, exclusive=false))]
    fn write_many<'py>(
        &self,
        py: Python<'py>,
        items: Vec<(OsString, Bound<'py, PyAny>)>,
        exclusive: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let connection = self.cluster.connection(py)?;
        let (fs, who) = (connection.fs(), caller());
        let contents = items.iter().map(|(_, data)| copied(data)).collect::<PyResult<Vec<_>>>()?;
        let paths = items.iter().map(|(path, _)| path.as_bytes());
        let wanted: Vec<(&[u8], Bytes)> = paths.zip(contents).collect();
        let (mode, taken) = (0o666 & !umask(), Taken::unless(exclusive));
        let answers = connection.wait(py, many::write(fs, &who, wanted, mode, taken))?;
        failures(py, items.iter().map(|(path, _)| path.as_os_str()), answers)
    }

    /// Removes many files, at once. Answers None for each, or the error.
    fn unlink_many<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<OsString>,
    ) -> PyResult<Bound<'py, PyList>> {
        let connection = self.cluster.connection(py)?;
        let (fs, who) = (connection.fs(), caller());
        let wanted: Vec<&[u8]> = paths.iter().map(|path| path.as_bytes()).collect();
        let answers = connection.wait(py, many::unlink(fs, &who, wanted))?;
        failures(py, paths.iter().map(OsString::as_os_str), answers)
    }

    /// Copies a file's content within the file system.
    fn copy(&self, py: Python<'_>, from: OsString, to: OsString) -> PyResult<()> {
        let connection = self.cluster.connection(py)?;
        let fs = connection.fs();
        let read = How { access: access::READ, create: None, cut: false, mode: 0 };
        let source = connection.ask(py, &from, open(fs, from.as_bytes(), read))?;
        let write = How::of(O_CREAT | O_WRONLY, 0o666);
        let target = connection.ask(py, &to, open(fs, to.as_bytes(), write))?;
        if source.id() == target.id() {
            let same = Errno::because(Errno::EINVAL, "source and target are the same file");
            return Err(error::by_errno(py, &same, &to));
        }
        connection.ask(py, &to, many::copy(fs, &source, &target))
    }

    fn __repr__(&self) -> String {
        format!("covey.Client({:?})", self.cluster.file().display().to_string())
    }
}

impl Client {
    fn set(&self, py: Python<'_>, path: OsString, change: SetAttr) -> PyResult<()> {
        let connection = self.cluster.connection(py)?;
        let who = caller();
        let call = async {
            let inode = resolve(connection.fs(), &who, path.as_bytes(), Follow::Last).await?;
            connection.fs().setattr(&who, inode.id, change).await.map(|_| ())
        };
        connection.ask(py, &path, call)
    }

    /// Does something with a directory and a name in it.
    fn on_entry<F>(
        &self,
        py: Python<'_>,
        path: OsString,
        work: impl FnOnce(Fs, Caller, Id, Name) -> F + Send,
    ) -> PyResult<()>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let connection: Arc<Connection> = self.cluster.connection(py)?;
        let call = async {
            let (fs, who) = (connection.fs(), caller());
            let (dir, name) = resolve_parent(fs, &who, path.as_bytes()).await?;
            work(fs.clone(), who, dir, name).await
        };
        connection.ask(py, &path, call)
    }
}

/// How a file is opened.
#[derive(Clone, Copy)]
struct How {
    access: u8,
    /// None: it must be there.
    create: Option<Taken>,
    cut: bool,
    mode: u32,
}

impl How {
    fn of(flags: i32, mode: u32) -> How {
        let access = match flags & 3 {
            0 => access::READ,
            O_WRONLY => access::WRITE,
            _ => access::READ | access::WRITE,
        };
        let taken = Taken::unless(flags & O_EXCL != 0);
        let create = (flags & O_CREAT != 0).then_some(taken);
        How { access, create, cut: flags & O_TRUNC != 0, mode: mode & !umask() }
    }
}

async fn open(fs: &Fs, path: &[u8], how: How) -> Result<covey_stripe::client::File> {
    let who = caller();
    // To cut is to write: the right to it is the server's to check.
    let needed = how.access | if how.cut { access::WRITE } else { 0 };
    let (id, size, file) = match how.create {
        None => existing(fs, &who, path, needed).await?,
        Some(taken) => created(fs, &who, path, How { access: needed, ..how }, taken).await?,
    };
    if how.cut && size > 0 {
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        fs.setattr_open(&who, id, empty).await?;
    }
    Ok(file)
}

type Opened = (Id, u64, covey_stripe::client::File);

async fn existing(fs: &Fs, who: &Caller, path: &[u8], access: u8) -> Result<Opened> {
    let straight = names(path)?;
    let is_straight = !straight.is_empty() && straight.iter().all(|name| name.as_bytes() != b"..");
    if is_straight && !path.ends_with(b"/") {
        match fs.open_read(who, ROOT, &straight, access, 0).await {
            Ok(opening) => return regular(opening.inode, opening.file),
            Err(error) if !leads_elsewhere(&error) => return Err(error),
            Err(_) => {}
        }
    }
    let inode = resolve(fs, who, path, Follow::Last).await?;
    let file = fs.open(who, inode.id, access).await?;
    regular(inode, file)
}

/// Whether a symbolic link may be in the way of what was asked for by its names alone.
pub fn leads_elsewhere(error: &Error) -> bool {
    matches!(error.code(), Errno::ENOTDIR | Errno::ELOOP)
}

async fn created(fs: &Fs, who: &Caller, path: &[u8], how: How, taken: Taken) -> Result<Opened> {
    if path.ends_with(b"/") {
        return Err(Errno::EISDIR.into());
    }
    let (dir, name) = resolve_parent(fs, who, path).await?;
    match fs.create(who, dir, &name, how.mode, taken, how.access).await {
        Ok((inode, file)) => regular(inode, file),
        Err(error) if error.code() == Errno::ELOOP && taken == Taken::Open => {
            existing(fs, who, path, how.access).await
        }
        Err(error) => Err(error),
    }
}

fn regular(inode: Inode, file: covey_stripe::client::File) -> Result<Opened> {
    match () {
        () if inode.is_dir() => Err(Errno::EISDIR.into()),
        () if !inode.is_regular() => {
            Err(Errno::because(Errno::EOPNOTSUPP, "it is no regular file").into())
        }
        () => Ok((inode.id, inode.size, file)),
    }
}

async fn look(fs: &Fs, path: &[u8], follow: bool) -> Result<Entry> {
    let who = caller();
    let inode = resolve(fs, &who, path, Follow::NotLast).await?;
    if !follow || !is_link(&inode) {
        return Ok(Entry { inode, target: None });
    }
    let target = unless_nowhere(resolve(fs, &who, path, Follow::Last).await)?;
    Ok(Entry { inode, target })
}

/// What a link leads to; None where that is nothing, or nothing of the caller's. That it cannot be told is an error.
fn unless_nowhere(target: Result<Inode>) -> Result<Option<Inode>> {
    const NOWHERE: [u32; 4] = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP, Errno::EACCES];
    match target {
        Err(error) if NOWHERE.contains(&error.code()) => Ok(None),
        other => other.map(Some),
    }
}

/// The type of each entry, and what it is; None where the caller may read the directory's names and no more.
type Entries = Vec<(Name, u8, Option<Entry>)>;

async fn entries(fs: &Fs, path: &[u8]) -> Result<Entries> {
    let who = &caller();
    let dir = resolve(fs, who, path, Follow::Last).await?;
    if !dir.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    let found = fs.entries(who, dir.id).await?;
    let mut entries = Vec::with_capacity(found.len());
    for DirEntry { name, kind, inode, .. } in found {
        let target = match &inode {
            Some(link) if is_link(link) => {
                unless_nowhere(walk::through(fs, who, dir.id, &link.target).await)?
            }
            _ => None,
        };
        entries.push((name.detached(), kind, inode.map(|inode| Entry { inode, target })));
    }
    Ok(entries)
}

/// A path as the system has it.
pub fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// Pieces as one bytes object, copied once.
pub fn joined<'py>(py: Python<'py>, pieces: &[Bytes]) -> PyResult<Bound<'py, PyBytes>> {
    let length = pieces.iter().map(Bytes::len).sum();
    PyBytes::new_with(py, length, |mut room| {
        for piece in pieces {
            let (here, rest) = room.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            room = rest;
        }
        Ok(())
    })
}

fn failure<'py>(py: Python<'py>, error: Error, path: &OsStr) -> Bound<'py, PyAny> {
    error::raised(py, error, path).into_value(py).into_bound(py).into_any()
}

fn failures<'py, 'a>(
    py: Python<'py>,
    paths: impl Iterator<Item = &'a OsStr>,
    answers: Vec<Result<()>>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (path, answer) in paths.zip(answers) {
        match answer {
            Ok(()) => list.append(py.None())?,
            Err(error) => list.append(failure(py, error, path))?,
        }
    }
    Ok(list)
}

/// This process's umask, which Linux shows without changing it.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}

/// The bits of a mode that make it a directory's, and a symbolic link's.
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_777;
/// As in fcntl.h.
const O_WRONLY: i32 = 0o1;
const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
