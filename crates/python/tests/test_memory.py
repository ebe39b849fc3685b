"""How much memory large reads and assignments take: a program that has little of it is an own process."""

import pytest

from conftest import run

LIMITED = """
    import fsspec, os, resource
    fs = fsspec.filesystem("covey")
    path, size = {path!r}, 384 << 20
    with fs.open(path, "wb") as file:
        file.write(b"begin")
        file.truncate(size - 3)
        file.seek(size - 3)
        file.write(b"end")
    warm = fs.cat_file(path, end=40 << 20)
    del warm
    def limit(more):
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + int(more), resource.RLIM_INFINITY))
    def is_right(data):
        return len(data) == size and data[:5] == b"begin" and data[-3:] == b"end"
"""


@pytest.mark.parametrize("way", ["fs.cat_file(path)", "fs.cat([path])[path]", "fs.open(path).read()"])
def test_a_large_file_takes_its_size_and_not_twice(cluster, place, way):
    done = run(cluster, LIMITED.format(path=f"{place}/big") + f"""
    limit(1.5 * size)
    assert is_right({way})
    """, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", ["fs.cat_file(path)", "fs.open(path).read()"])
def test_where_memory_lacks_there_is_an_error_and_the_program_goes_on(cluster, place, way):
    done = run(cluster, LIMITED.format(path=f"{place}/big") + f"""
    limit(0.6 * size)
    for _ in range(2):
        try:
            {way}
            os._exit(3)
        except (MemoryError, OSError) as error:
            assert "emory" in str(error), error
    assert fs.cat_file(path, end=5) == b"begin"
    """, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_is_assigned_to_a_large_array_is_copied_piece_by_piece(cluster, place):
    done = run(cluster, LIMITED.format(path=f"{place}/big") + f"""
    import numpy as np
    shape = (1 << 12, 1 << 13)
    array = fs.array({place!r} + "/array", shape, "f8", mode="w+")
    array[0, 0] = array[0, 1] = 0
    limit(200 << 20)
    array[...] = 7
    assert array[-1, -1] == 7 and array[:, 5].sum() == 7 << 12
    array[:, ::-2] = np.arange(1 << 12)
    # Every other column from the last one on: the last has the first number.
    assert array[3, -1] == 0 and array[3, -2] == 7 and array[3, 1] == (1 << 12) - 1
    """, timeout=120)
    assert done.returncode == 0, done.stderr
