"""Files of a Covey cluster without a mount.

``covey.fs`` is the fsspec file system ``covey://``, by which pandas, pyarrow, dask and others reach
them; ``covey.Array`` is a numpy array that stays in a file, of which a column moves as one request to
each server. ``covey.Client`` is what both stand on: blocking calls with paths, offsets and buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from covey._covey import Client, File

if TYPE_CHECKING:
    from covey.array import Array
    from covey.fs import CoveyFileSystem

__all__ = ["Array", "Client", "CoveyFileSystem", "File"]


def __getattr__(name: str) -> Any:
    # Numpy and fsspec are imported by those who need them.
    if name == "CoveyFileSystem":
        from covey.fs import CoveyFileSystem

        return CoveyFileSystem
    if name == "Array":
        from covey.array import Array

        return Array
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
