"""Open files as Python's own: buffered, with the methods of ``open()``'s.

The buffers are those of the module ``io``. What is in one has not been written yet: ``flush`` writes
it, as ``close`` does, and what is open when the interpreter exits is closed.
"""

from __future__ import annotations

import atexit
import errno
import io
import itertools
import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from covey._covey import Client, File

if TYPE_CHECKING:
    from covey.fs import CoveyFileSystem

# As open() has them, with b left out.
_FLAGS = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT,
    "a+": os.O_RDWR | os.O_CREAT,
}

_ALL = 1 << 62

# What may hold bytes that were not written yet, by the order in which it was made: what wraps a file is younger.
_written: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
# All that are open, also for reading.
_opened: weakref.WeakSet[Any] = weakref.WeakSet()


def plain_mode(mode: str) -> str:
    """A mode of open() for bytes, without its b and with its plus last."""
    letters = mode.replace("b", "").replace("t", "")
    plain = letters.replace("+", "") + ("+" if "+" in letters else "")
    if plain not in _FLAGS:
        raise ValueError(f"invalid mode: {mode!r}")
    return plain


class RawFile(io.RawIOBase):
    """An open file with a position, and nothing kept back."""

    def __init__(self, client: Client, path: str, mode: str, permissions: int = 0o666) -> None:
        self._mode = plain_mode(mode)
        self._file: File = client.open(path, _FLAGS[self._mode], permissions)
        self._at = 0
        self._is_in_doubt = False
        # The thread whose call waits: a signal's handler may fork within it.
        self._waiting: int | None = None
        self.name = path
        if self._mode[0] == "a":
            self._at = self._file.size()

    @property
    def mode(self) -> str:
        return self._mode[0] + "b" + self._mode[1:]

    @property
    def file(self) -> File:
        """What reads and writes at offsets."""
        return self._file

    def readable(self) -> bool:
        self._check()
        return self._mode in ("r", "r+", "w+", "x+", "a+")

    def writable(self) -> bool:
        self._check()
        return self._mode != "r"

    def seekable(self) -> bool:
        self._check()
        return True

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def readinto(self, buffer: Any) -> int:
        self._check()
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        got = self._wait(self._file.readinto, memoryview(buffer).cast("B"), self._at)
        self._at += got
        return got

    def readall(self) -> bytes:
        self._check()
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        # To the end, wherever that is by now: a small file takes one request.
        data = self._wait(self._file.pread, _ALL, self._at)
        self._at += len(data)
        return data

    def write(self, data: Any) -> int:
        self._check()
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        data = memoryview(data).cast("B")
        if self._mode[0] == "a":
            self._at = self._append(data) + len(data)
        else:
            self._wait(self._file.pwrite, data, self._at)
            self._at += len(data)
        return len(data)

    def _append(self, data: memoryview) -> int:
        if self._is_in_doubt:
            what = "an append was interrupted, and is in the file or not"
            raise OSError(errno.EIO, what, self.name)
        try:
            return self._wait(self._file.append, data)
        except BaseException as error:
            # A signal: the append goes on, and must not be made again by whoever flushes next.
            self._is_in_doubt = not isinstance(error, OSError) or error.errno is None
            raise

    def _wait(self, call: Any, *arguments: Any) -> Any:
        self._waiting = threading.get_ident()
        try:
            return call(*arguments)
        finally:
            self._waiting = None

    @property
    def is_within(self) -> bool:
        """Whether this thread is in a call, and has been interrupted in it."""
        return self._waiting == threading.get_ident()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += self._wait(self._file.size)
        elif whence != os.SEEK_SET:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if not 0 <= offset < 1 << 63:
            raise ValueError(f"no file has a byte {offset}")
        self._at = offset
        return offset

    def tell(self) -> int:
        self._check()
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._check()
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        size = self._at if size is None else size
        self._wait(self._file.truncate, size)
        return size

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                # There is none where it could not be opened.
                if hasattr(self, "_file"):
                    self._file.close()


@dataclass(frozen=True)
class Target:
    """The name that a file of a transaction gets when it is committed."""

    path: str
    # Of the process when the file was opened: a new file's mode lacks its bits.
    umask: int
    # Whether nothing may have the name by then.
    is_new: bool

    def dress(self, client: Client, part: str) -> None:
        """Gives the part, which only its owner may use, the mode of what it replaces, and where that is permitted its
        owner and group."""
        try:
            old = client.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            old = {"type": "none"}
        if self.is_new or old["type"] != "file":
            client.chmod(part, 0o666 & ~self.umask)
            return
        new = client.stat(part)
        if (new["uid"], new["gid"]) != (old["uid"], old["gid"]):
            _give(client, part, old)
            new = client.stat(part)
        mode = old["mode"] & 0o7777
        if new["uid"] != old["uid"]:
            mode &= ~0o4000
        if new["gid"] != old["gid"]:
            # To another group what all others may do.
            mode = mode & ~0o2070 | (mode & (mode << 3) & 0o070)
        client.chmod(part, mode)


def _give(client: Client, part: str, old: dict[str, Any]) -> None:
    """Gives a file the owner and the group of another, or the group alone, as far as that is permitted."""
    for owner in ({"uid": old["uid"], "gid": old["gid"]}, {"gid": old["gid"]}):
        try:
            client.chown(part, **owner)
            return
        except PermissionError:
            pass


class _Opened:
    """What fsspec and its users ask of an open file beside reading and writing."""

    fs: CoveyFileSystem
    path: str
    blocksize: int
    # Where it goes when it is committed; None where it is there already.
    target: Target | None = None
    raw: RawFile
    # Whether a part of it could not be written when it was closed.
    is_broken: bool = False

    def _set(self, fs: CoveyFileSystem, path: str, target: Target | None, blocksize: int) -> None:
        self.fs, self.path, self.target, self.blocksize = fs, path, target, blocksize
        _opened.add(self)

    def _renew(self) -> None:
        """In a child of a fork: another buffer with another lock, for a thread of the parent may have held this one,
        and will never let it go here. What was in the buffer is the parent's to write."""
        raw = self.raw
        if raw.closed or raw.is_within:
            return
        at = max(0, self.tell())  # type: ignore[attr-defined]
        super().__init__(raw, self.blocksize)  # type: ignore[call-arg]
        raw.seek(at)

    @property
    def full_name(self) -> str:
        return self.fs.unstrip_protocol(self.path)

    @property
    def size(self) -> int:
        return self.raw.file.size()

    def info(self) -> dict[str, Any]:
        return self.fs.info(self.path)

    def fsync(self) -> None:
        """Everything that was written reaches stable storage."""
        if self.raw.writable():
            self.flush()  # type: ignore[attr-defined]
        self.raw.file.fsync()

    def close(self) -> None:
        try:
            super().close()  # type: ignore[misc]
        except BaseException:
            self.is_broken = True
            raise

    def commit(self) -> None:
        """Gives a file of a transaction its name."""
        if self.target is not None:
            self.close()
            if self.is_broken:
                raise OSError(errno.EIO, "not all of it could be written", self.target.path)
            self.target.dress(self.fs.client, self.path)
            self.fs.client.rename(self.path, self.target.path, replace=not self.target.is_new)
            self.path, self.target = self.target.path, None

    def discard(self) -> None:
        """Drops a file of a transaction."""
        if self.target is not None:
            try:
                self.close()
            finally:
                self.fs.client.unlink(self.path)
                self.target = None


class BufferedReader(_Opened, io.BufferedReader):
    """A file open for reading."""


class BufferedWriter(_Opened, io.BufferedWriter):
    """A file open for writing."""


class BufferedRandom(_Opened, io.BufferedRandom):
    """A file open for both."""


def open_buffered(
    fs: CoveyFileSystem, path: str, mode: str, blocksize: int, target: Target | None = None
) -> BufferedReader | BufferedWriter | BufferedRandom:
    """Opens a file with a buffer of ``blocksize`` bytes. One that gets its name later is its owner's alone until then."""
    raw = RawFile(fs.client, path, mode, 0o666 if target is None else 0o600)
    plain = plain_mode(mode)
    kind = BufferedRandom if "+" in plain else BufferedReader if plain == "r" else BufferedWriter
    opened = kind(raw, blocksize)
    opened._set(fs, path, target, blocksize)
    if plain != "r":
        keep(opened)
    return opened


def keep(opened: Any) -> None:
    """Has it closed when the interpreter exits, before what it wraps."""
    _written[next(_numbers)] = opened


def end_with_interpreter(client: Client) -> None:
    """Has a client's session ended when the interpreter exits."""
    _clients.add(client)


def _youngest_first() -> list[Any]:
    return [opened for _, opened in sorted(_written.items(), key=lambda item: -item[0])]


def _tell(verb: str, opened: Any, error: Exception) -> None:
    name = getattr(opened, "path", None) or getattr(opened, "name", "a file")
    os.write(2, f"covey: cannot {verb} {name}: {error}\n".encode(errors="replace"))


@atexit.register
def _end() -> None:
    for opened in _youngest_first():
        try:
            opened.close()
        except Exception as error:  # The others are closed nevertheless.
            _tell("close", opened, error)
    for client in list(_clients):
        try:
            client.close()
        except Exception:
            pass  # The servers end the session themselves after a while.


def _before_fork() -> None:
    # What is in a buffer then would be written by parent and child.
    for opened in _youngest_first():
        try:
            if not opened.closed:
                opened.flush()
        except Exception as error:
            _tell("write", opened, error)


def _in_child() -> None:
    for opened in list(_opened):
        try:
            opened._renew()
        except Exception:
            pass  # It is of no use to the child, and says so when it is used.


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
