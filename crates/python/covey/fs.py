"""``covey://`` for fsspec.

>>> import fsspec
>>> fs = fsspec.filesystem("covey")
>>> fs.pipe("/notes/a", b"text")
>>> fs.ls("/notes", detail=False)
['/notes/a']

Nothing is cached: a listing, a size and a read are what the servers say when they are asked.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from typing import TYPE_CHECKING, Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.config import apply_config
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from covey._covey import Client
from covey.file import Target, end_with_interpreter, keep, open_buffered, plain_mode

if TYPE_CHECKING:
    from covey.array import Array


# Clients by cluster and user: file systems share a session, also those that threads make for themselves. One that no file
# system uses any more ends.
_clients: weakref.WeakValueDictionary[Any, Client] = weakref.WeakValueDictionary()
_clients_lock = threading.Lock()


def _forget_lock() -> None:
    # Another thread of the parent may have held it.
    global _clients_lock
    _clients_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def _surroundings(config: Any) -> tuple[Any, ...]:
    """What a file system depends on beside its arguments: the cluster that is found, what its file says now, the key,
    the settings, and who connects."""
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith("COVEY_"))
    path, cluster_id, identity = Client.identity(config)
    return (os.fspath(path), cluster_id, identity, settings, os.geteuid(), os.getegid())


def _meant(config: Any, cluster_id: str | None) -> tuple[Any, ...]:
    """The surroundings of the cluster that is meant. A file system that was pickled names its cluster: elsewhere the same
    file may name another one, or lie in another place."""
    try:
        found = _surroundings(config)
    except FileNotFoundError:
        if cluster_id is None:
            raise
        found = _surroundings(None)
    file, found_id, *_ = found
    if cluster_id is not None and found_id != cluster_id:
        raise ValueError(
            f"{file} names cluster {found_id} here, and the file system is one of cluster {cluster_id}\n"
            f"hint: the covey.toml of that cluster must be at {config or file} here, "
            "or be the one that COVEY_CONFIG names"
        )
    return found


def _client(config: Any, surroundings: tuple[Any, ...]) -> Client:
    key = repr(surroundings)
    with _clients_lock:
        known = _clients.get(key)
    if known is not None:
        return known
    # Connecting takes its time: others go on meanwhile, and the first to be done wins.
    new = Client(config)
    with _clients_lock:
        kept = _clients.setdefault(key, new)
    if kept is new:
        end_with_interpreter(new)
    else:
        new.close()
    return kept


class _ByCluster(type(AbstractFileSystem)):
    """fsspec gives two calls with the same arguments the same instance: here only where they mean the same cluster. The
    arguments that it keeps, and pickles, say which: the whole path of its file, and its ID."""

    _now = threading.local()

    @property
    def _of_this_call(cls) -> Any:
        return getattr(cls._now, "surroundings", None)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        known = apply_config(cls, kwargs)
        config = args[0] if args else known.get("config")
        cls._now.surroundings = _meant(config, known.get("cluster_id"))
        config, cluster_id, *_ = cls._now.surroundings
        if args:
            args = (config, *args[1:])
        else:
            kwargs["config"] = config
        kwargs["cluster_id"] = cluster_id
        return super().__call__(*args, **kwargs)


class CoveyFileSystem(AbstractFileSystem, metaclass=_ByCluster):
    """The files of a Covey cluster, without a mount.

    ``config`` is the cluster's covey.toml. Without it, the first that exists is taken: COVEY_CONFIG,
    ./covey.toml, the file of the cluster that ``covey up`` started, ~/.config/covey/covey.toml,
    /etc/covey/covey.toml. ``covey://a/b``, ``covey:///a/b``, ``/a/b`` and ``a/b`` are the same file:
    an address names no host.

    ``cluster_id`` is the ID that the cluster must have, else it is a ValueError. A file system that is pickled carries
    the whole path of its file and the ID: where there is no such file, the one that is found without it must be of
    the same cluster.

    With ``auto_mkdir`` whatever makes a file makes the directories above it, too.

    Symbolic links are followed. In listings a link to a directory has the type ``link``, so that a
    walk down a tree ends.
    """

    protocol = "covey"
    root_marker = "/"
    # fsspec makes it known to intake and others.
    local_file = False
    _extra_tokenize_attributes = ("_of_this_call",)

    def __init__(
        self,
        config: str | os.PathLike[str] | None = None,
        auto_mkdir: bool = False,
        *,
        cluster_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config=config, auto_mkdir=auto_mkdir, cluster_id=cluster_id, **kwargs)
        self.auto_mkdir = auto_mkdir
        self.client = _client(config, type(self)._of_this_call or _meant(config, cluster_id))
        self.config = os.fspath(self.client.config)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith("covey::"):
            path = path[len("covey::") :]
        elif path.startswith("covey:"):
            path = path[len("covey:") :]
        return "/" + path.strip("/")

    # Names

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """What is at a path: size, type, mode, uid, gid, times."""
        return self.client.stat(self._strip_protocol(path))

    def exists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError as error:
            # As os.path.exists: what cannot be reached is not there. That nobody may use the cluster names no path.
            if error.filename is None:
                raise
            return False
        return True

    def lexists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is anything at a path, be it a link that leads nowhere."""
        try:
            self.client.stat(self._strip_protocol(path), follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The entries of a directory, sorted by name, or a file itself."""
        path = self._strip_protocol(path)
        try:
            entries = self.client.list(path)
        except NotADirectoryError:
            entries = [self.client.stat(path)]
        entries.sort(key=lambda entry: entry["name"])
        return entries if detail else [entry["name"] for entry in entries]

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = "omit",
        **kwargs: Any,
    ) -> Any:
        """As fsspec's, but ``on_error`` counts in all directories, and not only in the first."""
        if on_error == "omit":
            yield from super().walk(path, maxdepth, topdown, on_error, **kwargs)
            return

        def passed_on(error: OSError) -> None:
            if on_error == "raise":
                raise error
            on_error(error)

        yield from self._walk(self._strip_protocol(path), maxdepth, topdown, passed_on, **kwargs)

    def _walk(
        self, path: str, maxdepth: int | None, topdown: bool, on_error: Any, **kwargs: Any
    ) -> Any:
        for here, dirs, files in super().walk(path, 1, True, on_error, **kwargs):
            if topdown:
                yield here, dirs, files
            if maxdepth is None or maxdepth > 1:
                below = None if maxdepth is None else maxdepth - 1
                for name in list(dirs):
                    yield from self._walk(
                        self._join(here, name), below, topdown, on_error, **kwargs
                    )
            if not topdown:
                yield here, dirs, files

    @staticmethod
    def _join(above: str, name: str) -> str:
        return above.rstrip("/") + "/" + name

    def expand_path(self, path: Any, recursive: bool = False, *args: Any, **kwargs: Any) -> Any:
        """As fsspec's. What is to be copied or removed with all that is below must be seen: a directory that cannot be
        read is an error."""
        if recursive:
            kwargs.setdefault("on_error", _unless_missing)
        return super().expand_path(path, recursive, *args, **kwargs)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if path == "/":
            raise FileExistsError(17, "File exists", path)
        if create_parents:
            self.makedirs(self._parent(path), exist_ok=True)
        self.client.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if path == "/":
            if not exist_ok:
                raise FileExistsError(17, "File exists", path)
            return
        try:
            self._mkdir_unless(path, exist_ok)
        except FileNotFoundError:
            self.makedirs(self._parent(path), exist_ok=True)
            self._mkdir_unless(path, exist_ok)

    def _mkdir_unless(self, path: str, exist_ok: bool) -> None:
        try:
            self.client.mkdir(path)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: str) -> None:
        self.client.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.client.unlink(self._strip_protocol(path))

    def rm(
        self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        """Removes files; with ``recursive`` directories, too, and links without what they lead to."""
        # Patterns first: a link that one of them finds is removed, and not what it leads to.
        given = self.expand_path(path, recursive=False)
        links = [one for one in given if recursive and self._is_link(one)]
        others = [one for one in given if one not in links]
        paths = list(links)
        if others and recursive:
            paths += self.expand_path(
                others, recursive=True, maxdepth=maxdepth, assume_literal=True, on_error="omit"
            )
        else:
            paths += others
        directories = []
        for one, error in zip(paths, self.client.unlink_many(paths)):
            if error and not (recursive and isinstance(error, IsADirectoryError)):
                raise error
            if error:
                directories.append(one)
        # What is deeper has the longer path.
        for one in sorted(directories, key=len, reverse=True):
            if one != "/":
                self.client.rmdir(one)

    def _is_link(self, path: Any) -> bool:
        try:
            return self.client.stat(self._strip_protocol(path), follow=False)["islink"]
        except (FileNotFoundError, NotADirectoryError):
            return False

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Renames a file or a directory with all that is in it."""
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        # Into a directory that is there, as mv(1) does.
        if self._is_dir_there(new) and old != new:
            new = new.rstrip("/") + "/" + old.rsplit("/", 1)[-1]
        self.client.rename(old, new)

    def _is_dir_there(self, path: str) -> bool:
        """Whether it is a directory; an error where that cannot be told."""
        try:
            return self.info(path)["type"] == "directory" or self._leads_to_dir(path)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _leads_to_dir(self, path: str) -> bool:
        """Whether it is a symbolic link to a directory."""
        path = self._strip_protocol(path)
        return self._is_link(path) and self.isdir(path)

    mv_file = mv

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self._leads_to_dir(source):
            raise IsADirectoryError(21, "Is a link to a directory", source)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
        else:
            self._making(target, lambda: self.client.copy(source, target))

    def get_file(self, rpath: str, lpath: Any, *args: Any, **kwargs: Any) -> None:
        if self._leads_to_dir(rpath):
            raise IsADirectoryError(21, "Is a link to a directory", rpath)
        super().get_file(rpath, lpath, *args, **kwargs)

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """As fsspec's; with ``mode="create"`` nothing is replaced, be it made by others meanwhile."""
        if mode != "create" or os.path.isdir(lpath):
            super().put_file(lpath, rpath, callback=callback, mode=mode, **kwargs)
            return
        with open(lpath, "rb") as local:
            callback.set_size(os.fstat(local.fileno()).st_size)
            self.makedirs(self._parent(rpath), exist_ok=True)
            with self.open(rpath, "xb", **kwargs) as file:
                while data := local.read(_BLOCK_BYTES):
                    file.write(data)
                    callback.relative_update(len(data))

    def symlink(self, target: str, path: str) -> None:
        """Makes a symbolic link at ``path``; ``target`` is taken as it is."""
        self.client.symlink(target, self._strip_protocol(path))

    def chmod(self, path: str, mode: int) -> None:
        self.client.chmod(self._strip_protocol(path), mode)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file; of one that is there, sets the time, and with ``truncate`` empties it."""
        path = self._strip_protocol(path)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if truncate else 0)
        self._making(path, lambda: self.client.open(path, flags)).close()
        self.client.touch(path)

    def created(self, path: str) -> Any:
        return _when(self.info(path)["created"])

    def modified(self, path: str) -> Any:
        return _when(self.info(path)["mtime"])

    def ukey(self, path: str) -> str:
        info = self.info(path)
        return f"{info['ino']}-{info['size']}-{info['mtime']}"

    def _making(self, path: str, call: Any) -> Any:
        """Makes a file, and where it was asked for the directories above it."""
        try:
            return call()
        except FileNotFoundError:
            above = self._parent(path)
            if not self.auto_mkdir or self.exists(above):
                raise
            self.makedirs(above, exist_ok=True)
            return call()

    # Content

    def open(self, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        opened = super().open(path, mode, *args, **kwargs)
        if plain_mode(mode) != "r":
            # Text and compressed files have a buffer of their own around that of the file.
            keep(opened)
        return opened

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        path, target = self._strip_protocol(path), None
        plain = plain_mode(mode)
        if not autocommit and plain != "r":
            if plain[0] not in "wx":
                raise ValueError(
                    f"a transaction writes whole files: mode {mode!r} is not for {path}\n"
                    "hint: modes w and x are, and a and r+ outside of the transaction"
                )
            if plain[0] == "x" and self.lexists(path):
                raise FileExistsError(17, "File exists", path)
            target = Target(path, Client.umask(), is_new=plain[0] == "x")
            path = f"{path}.{secrets.token_hex(6)}.part"
        size = block_size or _BLOCK_BYTES
        if plain in ("r", "r+"):
            return open_buffered(self, path, mode, size)
        return self._making(path, lambda: open_buffered(self, path, mode, size, target))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        return self.cat_ranges([path], [start], [end], on_error="raise")[0]

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Ranges of files, all asked for at once."""
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * len(paths)
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("as many starts and ends as paths")
        requests: list[tuple[str, int, int | None]] = []
        failed: dict[int, OSError] = {}
        for path, start, end in zip(paths, starts, ends):
            path = self._strip_protocol(path)
            if (start or 0) < 0 or (end or 0) < 0:
                # Counted from the end, as in slices.
                try:
                    start, end, _ = slice(start, end).indices(self.info(path)["size"])
                except OSError as error:
                    failed[len(requests)] = error
                    start, end = 0, 0
            requests.append((path, start or 0, end))
        answers = self.client.read_many(requests)
        for at, error in failed.items():
            answers[at] = error
        if on_error == "raise":
            _first_error(answers)
        return answers

    def cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        start: int | None = None,
        end: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """The content of one file, or of many as a dictionary: these are asked for at once."""
        paths = self.expand_path(path, recursive=recursive)
        is_many = (
            len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)
        )
        if recursive:
            paths = [one for one in paths if not self.isdir(one)]
        answers = self.cat_ranges(paths, start, end, on_error=on_error, **kwargs)
        if not is_many:
            return answers[0]
        if on_error == "omit":
            return {p: a for p, a in zip(paths, answers) if not isinstance(a, Exception)}
        return dict(zip(paths, answers))

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        self.pipe({path: value}, mode=mode)

    def pipe(self, path: Any, value: Any = None, mode: str = "overwrite", **kwargs: Any) -> None:
        """Writes one file, or all of a dictionary at once: up to 64 KiB take one request each."""
        if isinstance(path, (str, os.PathLike)):
            path = {path: value}
        elif not isinstance(path, dict):
            raise ValueError("path must be str or dict")
        items = [(self._strip_protocol(one), memoryview(v).cast("B")) for one, v in path.items()]
        if len({one for one, _ in items}) < len(items):
            raise ValueError("two of the paths are the same file")
        if self._intrans:
            for one, _ in items:
                if mode == "create" and self.lexists(one):
                    raise FileExistsError(17, "File exists", one)
            for one, data in items:
                with self.open(one, "xb" if mode == "create" else "wb") as file:
                    file.write(data)
            return
        answers = self.client.write_many(items, exclusive=mode == "create")
        missing = [
            item
            for item, answer in zip(items, answers)
            if self.auto_mkdir and isinstance(answer, FileNotFoundError)
        ]
        if missing:
            for above in {self._parent(one) for one, _ in missing}:
                self.makedirs(above, exist_ok=True)
            answers = [a for a in answers if not isinstance(a, FileNotFoundError)]
            answers += self.client.write_many(missing, exclusive=mode == "create")
        _first_error(answers)

    # Arrays

    def array(
        self,
        path: str,
        shape: Any = None,
        dtype: Any = None,
        mode: str = "r",
        offset: int = 0,
        order: str = "C",
    ) -> Array:
        """A numpy array that stays in a file: see ``covey.Array``."""
        from covey.array import Array

        return Array(self, path, shape, dtype, mode, offset, order)


_BLOCK_BYTES = 1 << 20


def _first_error(answers: list[Any]) -> None:
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _when(seconds: float) -> Any:
    import datetime

    return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)
