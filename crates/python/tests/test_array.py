"""Numpy arrays in files: the same parts as numpy's, and how many requests they take."""

import concurrent.futures
import itertools
import multiprocessing
import operator
import pickle

import numpy as np
import pytest

ROWS, COLUMNS = 3000, 500


@pytest.fixture
def matrix(fs, place):
    content = np.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS)
    fs.pipe(f"{place}/m", content)
    with fs.array(f"{place}/m", (ROWS, COLUMNS), "f8", mode="r+") as array:
        yield array, content


def requests_of(cluster, work):
    before = cluster.requests()
    result = work()
    after = cluster.requests()
    return result, [
        (after[node][0] - before[node][0], after[node][1] - before[node][1]) for node in after
    ]


def test_a_column_is_one_request_to_each_server(cluster, matrix):
    array, content = matrix
    assert array.nbytes > 8 << 20, "it lies on all servers"
    column, requests = requests_of(cluster, lambda: array[:, 3])
    assert np.array_equal(column, content[:, 3])
    assert requests == [(1, 0)] * 4, "one read each, of 12 MB in 3000 pieces"

    def write():
        array[:, 3] = -column

    _, requests = requests_of(cluster, write)
    assert requests == [(0, 1)] * 4, "one write each, and nothing was read for it"
    content[:, 3] *= -1
    assert np.array_equal(array[...], content)


def test_a_part_that_one_server_has_asks_that_one(cluster, matrix):
    array, content = matrix
    block, requests = requests_of(cluster, lambda: array[100:110, 20:40])
    assert np.array_equal(block, content[100:110, 20:40])
    assert sorted(requests) == [(0, 0)] * 3 + [(1, 0)]


INDEXES = [
    (), ..., 0, -1, slice(None), slice(2, 5), slice(None, None, -1), slice(5, None, -2), slice(9, 3),
    (slice(None), 1), (slice(None), -2), (..., 0), (1, ...), (2, 3), (2, 3, 1), (-1, -1, -1),
    (slice(None), slice(None, None, 3)), (slice(None, None, -1), slice(1, 4), slice(None, None, -2)),
    (None, 1), (slice(None), None, 2), (1, None, ..., None), (slice(0, 1), slice(2, 3), slice(1, 2)),
    (slice(3, 3),), (np.int64(2), np.uint8(1)), slice(-100, 100), slice(100, 200), (0, slice(None), 0),
]


@pytest.mark.parametrize("order", ["C", "F"])
def test_every_index_names_what_it_names_in_numpy(fs, place, order):
    content = np.arange(6 * 7 * 5, dtype="i4").reshape(6, 7, 5)
    fs.pipe(f"{place}/a", b"head" + content.tobytes(order))
    array = fs.array(f"{place}/a", content.shape, "i4", mode="r+", offset=4, order=order)
    for number, index in enumerate(INDEXES):
        wanted, got = content[index], array[index]
        assert type(got) is type(wanted), index
        assert np.array_equal(got, wanted) and np.shape(got) == np.shape(wanted), index
        if np.size(wanted):
            value = np.random.default_rng(number).integers(0, 1000, np.shape(wanted), "i4")
            content[index] = array[index] = value
            assert np.array_equal(array[...], content), index
    content[1:3] = array[1:3] = 9
    content[:, ::-2, 1] = array[:, ::-2, 1] = np.arange(4)
    assert np.array_equal(array[...], content)
    assert np.array_equal(np.asarray(array), content)
    assert np.array_equal(array.T, content.T)
    assert fs.cat(f"{place}/a")[:4] == b"head"
    assert fs.size(f"{place}/a") == 4 + content.nbytes


def test_values_may_have_more_axes_as_in_numpy(fs, place):
    content = np.zeros((3, 40))
    array = fs.array(f"{place}/m", content.shape, mode="w+")
    for index, value in [
        ((0, slice(None)), np.ones((1, 40))),
        (..., np.full((1, 1, 3, 1), 2.0)),
        ((2, slice(3, 4)), np.full((1, 1), 4.0)),
        ((slice(None), 0, None), np.full((1, 3, 1), 5.0)),
    ]:
        content[index] = array[index] = value
        assert np.array_equal(array[...], content), index
    for value in [np.ones((2, 40)), np.ones((40, 1))]:
        with pytest.raises(ValueError):
            array[0, :] = value
    assert np.array_equal(array[...], content)


@pytest.mark.parametrize("value", [np.array(5), np.array(5.5), np.array([5]), np.array(True)], ids=repr)
@pytest.mark.parametrize("kind", [int, float, complex, operator.index])
def test_an_array_without_axes_is_the_number_that_it_is_in_numpy(fs, place, value, kind):
    array = fs.array(f"{place}/a", value.shape, value.dtype, mode="w+")
    array[...] = value
    try:
        wanted = kind(value)
    except TypeError as error:
        with pytest.raises(TypeError, match=str(error)):
            kind(array)
    else:
        assert kind(array) == wanted and type(kind(array)) is type(wanted)
    with pytest.raises(IndexError):
        array[array]


DTYPES = ["?", "i1", ">f4", "c16", "M8[us]", "S5", "U3", [("x", "f4"), ("y", "i2", (2,))], "V7"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_of_any_size(fs, place, dtype):
    dtype = np.dtype(dtype)
    content = np.frombuffer(np.random.default_rng(1).integers(0, 2, 60 * dtype.itemsize, "u1"), "u1")
    content = np.frombuffer(content.tobytes(), dtype).reshape(10, 6)
    with fs.array(f"{place}/a", content.shape, dtype, mode="w+") as array:
        array[...] = content
        assert array[2:, ::2].tobytes() == content[2:, ::2].tobytes()
        assert array[:, 4].dtype == dtype
        assert array[3, 3].tobytes() == content[3, 3].tobytes()


def test_what_is_wrong_is_said_before_anything_moves(fs, place, matrix):
    array, content = matrix
    path = f"{place}/m"
    for index in [[0, 1], content > 3, 1.5, "x", (slice(None), [1]), True, np.array([1])]:
        with pytest.raises(IndexError):
            array[index]
        with pytest.raises(IndexError):
            array[index] = 0
    for index in [ROWS, -ROWS - 1, (0, COLUMNS), (0, 0, 0), (..., ...), 1 << 70]:
        with pytest.raises(IndexError):
            array[index]
    with pytest.raises(ValueError):
        array[slice(None, None, 0)]
    with pytest.raises(ValueError, match="broadcast"):
        array[:, 0] = np.zeros(7)
    with pytest.raises(ValueError):
        array[0, 0] = "no number"
    with pytest.raises(ValueError, match="needs"):
        fs.array(path, (ROWS + 1, COLUMNS))
    with pytest.raises(ValueError, match="needs"):
        fs.array(path, (ROWS, COLUMNS), offset=1)
    with pytest.raises(ValueError, match="reading only"):
        fs.array(path, (ROWS, COLUMNS))[0] = 1
    with pytest.raises(TypeError):
        fs.array(path, (3,), object)
    with pytest.raises((OverflowError, OSError)):
        fs.array(f"{place}/huge", (1 << 40, 1 << 40), mode="w+")
    with pytest.raises(ValueError):
        fs.array(path, (-1,))
    with pytest.raises(TypeError):
        fs.array(path, (1.5,))
    with pytest.raises(ValueError):
        fs.array(path, (2,), mode="a")
    with pytest.raises(FileNotFoundError):
        fs.array(f"{place}/none", (2,))
    assert np.array_equal(array[...], content)
    array.close()
    with pytest.raises(ValueError, match="closed"):
        array[0]


def test_the_client_checks_layouts_itself(fs, place):
    fs.pipe(f"{place}/f", b"0123456789")
    file = fs.client.open(f"{place}/f", 2)
    room = bytearray(4)
    assert file.read_view(1, 2, [(2, 5)], room) == 4
    assert room == b"1267"
    assert file.read_view(8, 2, [(2, 2)], room) == 2, "what is beyond the end is not there"
    assert room == b"89\0\0"
    for axes, item in [([(2, 5)], 1), ([(3, 5)], 2), ([], 2), ([(1 << 62, 1)], 4)]:
        with pytest.raises((ValueError, OSError)):
            file.read_view(0, item, axes, room)
    with pytest.raises((OSError, OverflowError)):
        file.read_view((1 << 64) - 1, 2, [(2, 5)], room)
    with pytest.raises((OSError, OverflowError)):
        file.read_view(0, 2, [(2, 1 << 63)], room)
    with pytest.raises((OSError, ValueError)):
        file.read_view(0, 1, [(2, 1)] * 40, room)
    with pytest.raises((ValueError, BufferError)):
        file.read_view(0, 2, [(2, 5)], b"read")
    file.write_view(0, 1, [(3, 4)], b"abc")
    assert fs.cat(f"{place}/f") == b"a123b567c9"


def test_a_saved_array_says_what_it_is(fs, place):
    for order, shape in itertools.product("CF", [(), (7,), (4, 6)]):
        content = np.asarray(np.random.default_rng(2).random(shape), order=order)
        with fs.open(f"{place}/a.npy", "wb") as file:
            np.save(file, content)
        array = fs.array(f"{place}/a.npy")
        assert array.shape == shape and array.dtype == content.dtype
        assert np.array_equal(array[...], content)
    with pytest.raises(ValueError):
        fs.pipe(f"{place}/text", b"no array")
        fs.array(f"{place}/text")


def test_a_new_array_is_zeros_and_sparse_parts_stay_so(fs, place):
    array = fs.array(f"{place}/new", (1 << 20, 1 << 10), "f8", mode="w+")
    assert array.nbytes == 1 << 33
    array[1 << 19, ::512] = 5
    assert array[1 << 19].sum() == 10
    assert not array[:10].any()
    assert array[:: 1 << 15, 512].sum() == 5


def columns_sum(array, column):
    return float(array[:, column].sum())


def test_an_array_goes_to_other_processes_and_is_not_made_anew_there(fs, place):
    made = fs.array(f"{place}/m", shape=(100, 4), dtype="f4", mode="w+", offset=16, order="F")
    made[:] = np.arange(400).reshape(100, 4)
    back = pickle.loads(pickle.dumps(made))
    assert (back.shape, back.dtype, back.offset, back.order) == (made.shape, made.dtype, 16, "F")
    back[0, 0] = 7
    assert made[0, 0] == 7
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        sums = list(pool.map(columns_sum, [made] * 4, range(4)))
    assert sums == [float(made[:, n].sum()) for n in range(4)]
    reading = pickle.loads(pickle.dumps(fs.array(f"{place}/m", shape=(100, 4), dtype="f4", offset=16)))
    with pytest.raises(ValueError, match="reading only"):
        reading[0, 0] = 1
