"""Numpy arrays in files, of which parts are moved by layouts.

An index made of whole numbers and slices names bytes at equal distances. They travel as that
description, and each server answers, in one message, those of them that it has: nothing else of the
file is read, and a write needs no read before.
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from covey.fs import CoveyFileSystem


class Array:
    """An array in a file. Indexing reads, assignment writes; nothing is kept in memory.

    The modes are those of ``numpy.memmap``: ``r`` and ``r+`` open a file that is long enough, ``w+``
    makes it, or empties it, and sets its size. The array begins at byte ``offset``. Without a shape
    the file is one of ``numpy.save``, and says itself what is in it.

    >>> matrix = fs.array("/m", shape=(1000, 500), dtype="f8", mode="w+")
    >>> matrix[:, 3] = range(1000)
    >>> matrix[10:13, 3]
    array([10., 11., 12.])
    """

    def __init__(
        self,
        fs: CoveyFileSystem,
        path: str,
        shape: Any = None,
        dtype: Any = None,
        mode: str = "r",
        offset: int = 0,
        order: str = "C",
    ) -> None:
        if mode not in _FLAGS:
            raise ValueError(f"mode is one of {', '.join(_FLAGS)}, not {mode!r}")
        if order not in ("C", "F"):
            raise ValueError(f"order is C or F, not {order!r}")
        if offset < 0:
            raise ValueError(f"an array cannot begin at byte {offset}")
        self._fs = fs
        self.path: str = fs._strip_protocol(path)
        if shape is None:
            if mode == "w+":
                raise ValueError("a new array needs a shape and a dtype")
            if dtype is not None or offset:
                raise ValueError("a file of numpy.save says itself what is in it: give a shape, too")
            shape, dtype, offset, order = _header(fs, self.path)
        shape = (shape,) if np.ndim(shape) == 0 else shape
        self.shape: tuple[int, ...] = tuple(operator.index(n) for n in shape)
        self.dtype: np.dtype[Any] = np.dtype(np.float64 if dtype is None else dtype)
        if self.dtype.hasobject:
            raise TypeError(f"{self.dtype} holds Python objects, which a file cannot")
        if self.dtype.subdtype is not None:
            raise TypeError(f"elements of {self.dtype} are arrays: more axes hold them")
        if self.dtype.itemsize == 0:
            raise TypeError(f"elements of {self.dtype} have no bytes")
        if any(n < 0 for n in self.shape):
            raise ValueError(f"negative dimensions: {self.shape}")
        self.mode, self.offset, self.order = mode, offset, order
        if self.offset + self.nbytes >= 1 << 63:
            raise OverflowError(f"an array of {self.nbytes} bytes is longer than a file can be")
        self._strides = _strides(self.shape, self.dtype.itemsize, order)
        self._file = fs.client.open(self.path, _FLAGS[mode])
        self._make_or_check()

    def _make_or_check(self) -> None:
        needed = self.offset + self.nbytes
        if self.mode == "w+":
            self._file.truncate(needed)
            return
        size = self._file.size()
        if size < needed:
            self._file.close()
            raise ValueError(
                f"{self.path} has {size} bytes, an array {self.shape} of {self.dtype} "
                f"from byte {self.offset} on needs {needed}"
            )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> np.ndarray[Any, Any]:
        return self[...].T

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"covey.Array({self.path!r}, shape={self.shape}, dtype={self.dtype.name!r})"

    def __reduce__(self) -> Any:
        # In another process it is opened, not made anew.
        mode = "r" if self.mode == "r" else "r+"
        fields = (self._fs, self.path, self.shape, self.dtype, mode, self.offset, self.order)
        return Array, fields

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the array lies in a file: memory is a copy of it")
        return self[...].astype(dtype or self.dtype, copy=False)

    def __int__(self) -> int:
        return int(self._only())

    def __float__(self) -> float:
        return float(self._only())

    def __complex__(self) -> complex:
        return complex(self._only())

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return operator.index(self[()])

    def _only(self) -> Any:
        if self.shape:
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        return self[()]

    def __iter__(self) -> Any:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        part = self._part(index)
        # In the order of the file: a server walks it without going back.
        slowest_first = part.slowest_first()
        data = np.empty([part.counts[axis] for axis in slowest_first], self.dtype)
        if data.size:
            got = self._move(self._file.read_view, part, slowest_first, data)
            if got < data.nbytes:
                raise EOFError(f"{self.path} has become shorter than the array")
        result = part.as_asked(data, slowest_first)
        return result[()] if part.is_element else result

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.mode == "r":
            raise ValueError(f"{self.path} is open for reading only: mode 'r+' is for both")
        part = self._part(index)
        # Of zero bytes: only its shape is wanted.
        asked = part.as_asked(np.broadcast_to(False, part.counts), list(range(len(part.counts))))
        value = np.asarray(value, self.dtype)
        # As numpy does: axes that are too many, in front and of length 1, are left out.
        extra = max(value.ndim - asked.ndim, 0)
        if all(n == 1 for n in value.shape[:extra]):
            value = value.reshape(value.shape[extra:])
        value = np.broadcast_to(value, asked.shape)
        if not value.size:
            return
        slowest_first = part.slowest_first()
        filed = part.as_filed(value, slowest_first)
        for start, piece in _pieces(filed, [part.strides[axis] for axis in slowest_first]):
            data = np.ascontiguousarray(piece)
            self._move(self._file.write_view, part, slowest_first, data, start)

    def _move(
        self, how: Any, part: _Part, slowest_first: list[int], data: Any, start: int = 0
    ) -> Any:
        axes = list(zip(data.shape, (part.strides[axis] for axis in slowest_first)))
        item, axes = _joined(self.dtype.itemsize, axes)
        return how(self.offset + part.start + start, item, axes, data.reshape(-1).view(np.uint8))

    def _part(self, index: Any) -> _Part:
        return _Part(self.shape, self._strides, index)

    def flush(self) -> None:
        """What was written reaches stable storage."""
        self._file.fsync()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Array:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _Part:
    """The part of an array that an index names: where it starts, and its axes, all forwards."""

    def __init__(self, shape: tuple[int, ...], strides: list[int], index: Any) -> None:
        self.start = 0
        self.counts: list[int] = []
        self.strides: list[int] = []
        # Which axes were asked for backwards, and where axes of length 1 were asked for.
        self.backwards: list[bool] = []
        self.new: list[int] = []
        at = 0
        given = _whole_index(index, len(shape))
        asked = index if isinstance(index, tuple) else (index,)
        self.is_element = len(asked) == len(shape) and all(_is_number(one) for one in asked)
        for one in given:
            if one is None:
                self.new.append(len(self.counts) + len(self.new))
                continue
            self._take(one, shape[at], strides[at], at)
            at += 1

    def _take(self, one: Any, length: int, stride: int, axis: int) -> None:
        if not isinstance(one, slice):
            number = one.__index__()
            if not -length <= number < length:
                raise IndexError(
                    f"index {number} is out of bounds for axis {axis} with size {length}"
                )
            self.start += (number % length) * stride
            return
        first, end, step = one.indices(length)
        count = len(range(first, end, step))
        if step < 0 and count:
            first += (count - 1) * step
        self.start += first * stride if count else 0
        self.counts.append(count)
        self.strides.append(abs(step) * stride)
        self.backwards.append(step < 0)

    def slowest_first(self) -> list[int]:
        """The axes in the order of the file."""
        return sorted(range(len(self.counts)), key=lambda axis: -self.strides[axis])

    def as_asked(self, data: Any, order: list[int]) -> Any:
        """An array in the order of the file as the index wants it."""
        data = data.transpose(np.argsort(order)) if order else data
        # With the dots an array without axes stays one.
        data = data[(*self._turns(), ...)]
        return np.expand_dims(data, tuple(self.new)) if self.new else data

    def as_filed(self, value: Any, order: list[int]) -> Any:
        """An array as the index wants it in the order of the file."""
        value = value.squeeze(tuple(self.new)) if self.new else value
        value = value[(*self._turns(), ...)]
        return value.transpose(order) if order else value

    def _turns(self) -> list[slice]:
        return [slice(None, None, -1 if back else 1) for back in self.backwards]


# Most bytes of an assignment that are copied at a time.
_PIECE_BYTES = 32 << 20

_FLAGS = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
}


def _is_number(one: Any) -> bool:
    return hasattr(one, "__index__") and not isinstance(one, (bool, np.bool_, np.ndarray, Array))


def _whole_index(index: Any, ndim: int) -> tuple[Any, ...]:
    """An index with one entry for each axis, beside new ones. IndexError for all but numbers and slices."""
    given = index if isinstance(index, tuple) else (index,)
    for one in given:
        is_known = one is None or one is Ellipsis or isinstance(one, slice) or _is_number(one)
        if not is_known:
            raise IndexError(
                "only whole numbers, slices, `...` and None index an array in a file, "
                f"not {type(one).__name__}: read a slice, and index that"
            )
    dots = [at for at, one in enumerate(given) if one is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis (`...`)")
    missing = ndim - sum(one is not None and one is not Ellipsis for one in given)
    if missing < 0:
        raise IndexError(
            f"too many indices: array is {ndim}-dimensional, but {ndim - missing} were indexed"
        )
    at = dots[0] if dots else len(given)
    return given[:at] + (slice(None),) * missing + given[at + len(dots) :]


def _strides(shape: tuple[int, ...], item: int, order: str) -> list[int]:
    strides, step = [0] * len(shape), item
    axes = range(len(shape)) if order == "F" else reversed(range(len(shape)))
    for axis in axes:
        strides[axis] = step
        step *= shape[axis]
    return strides


def _joined(item: int, axes: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """The same bytes by fewer axes: whole rows are one piece."""
    axes = [axis for axis in axes if axis[0] != 1]
    while axes and axes[-1][1] == item:
        item *= axes.pop()[0]
    return item, axes


def _pieces(filed: Any, strides: list[int]) -> Any:
    """Parts of what is to be written, each with where it starts: each takes memory for a copy, and one number that is
    assigned to all of a large array takes none before."""
    axis = next((at for at, count in enumerate(filed.shape) if count > 1), None)
    if filed.nbytes <= _PIECE_BYTES or axis is None:
        yield 0, filed
        return
    count = filed.shape[axis]
    step = max(1, count * _PIECE_BYTES // filed.nbytes)
    before = (slice(None),) * axis
    for first in range(0, count, step):
        for start, piece in _pieces(filed[(*before, slice(first, first + step))], strides):
            yield first * strides[axis] + start, piece


def _header(fs: CoveyFileSystem, path: str) -> tuple[Any, Any, int, str]:
    """What a file of numpy.save says of itself."""
    from numpy.lib import format

    with fs.open(path, "rb", block_size=4096) as file:
        version = format.read_magic(file)
        read = {(1, 0): format.read_array_header_1_0, (2, 0): format.read_array_header_2_0}
        if version not in read:
            raise ValueError(f"{path} is a .npy file of version {version}, which is not known")
        shape, is_fortran, dtype = read[version](file)
        return shape, dtype, file.tell(), "F" if is_fortran else "C"
