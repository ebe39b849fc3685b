"""Names and content, as Python programs use them."""

import concurrent.futures
import os
import pickle
import signal
import threading

import fsspec
import pytest


def test_errors_are_those_of_open_with_the_path_in_them(fs, place):
    fs.pipe(f"{place}/file", b"x")
    cases = [
        (FileNotFoundError, lambda: fs.open(f"{place}/none", "rb"), f"{place}/none"),
        (FileNotFoundError, lambda: fs.cat(f"{place}/none"), f"{place}/none"),
        (FileNotFoundError, lambda: fs.info(f"{place}/none"), f"{place}/none"),
        (FileNotFoundError, lambda: fs.ls(f"{place}/none"), f"{place}/none"),
        (FileNotFoundError, lambda: fs.rm_file(f"{place}/none"), f"{place}/none"),
        (FileNotFoundError, lambda: fs.open(f"{place}/none/file", "wb"), f"{place}/none/file"),
        (FileNotFoundError, lambda: fs.pipe(f"{place}/none/file", b"x"), f"{place}/none/file"),
        (FileExistsError, lambda: fs.open(f"{place}/file", "xb"), f"{place}/file"),
        (FileExistsError, lambda: fs.mkdir(f"{place}/file"), f"{place}/file"),
        (FileExistsError, lambda: fs.mkdir("/"), "/"),
        (FileExistsError, lambda: fs.makedirs("covey://"), "/"),
        (FileExistsError, lambda: fs.pipe(f"{place}/file", b"", mode="create"), f"{place}/file"),
        (NotADirectoryError, lambda: fs.open(f"{place}/file/a", "rb"), f"{place}/file/a"),
        (NotADirectoryError, lambda: fs.rmdir(f"{place}/file"), f"{place}/file"),
        (IsADirectoryError, lambda: fs.open(place, "rb"), place),
        (IsADirectoryError, lambda: fs.open(place, "wb"), place),
        (IsADirectoryError, lambda: fs.cat_file(place), place),
        (IsADirectoryError, lambda: fs.rm_file(place), place),
        (OSError, lambda: fs.rmdir(place), place),
        (OSError, lambda: fs.open(f"{place}/{'n' * 256}", "wb"), f"{place}/{'n' * 256}"),
    ]
    for kind, call, path in cases:
        with pytest.raises(kind) as raised:
            call()
        assert raised.value.filename == path, raised.value
        assert raised.value.errno, raised.value


def test_a_rename_that_fails_names_both_paths(fs, place):
    fs.pipe(f"{place}/file", b"x")
    fs.mkdir(f"{place}/dir")
    with pytest.raises(IsADirectoryError) as raised:
        fs.client.rename(f"{place}/file", f"{place}/dir")
    assert (raised.value.filename, raised.value.filename2) == (f"{place}/file", f"{place}/dir")


def test_a_zero_byte_in_a_name_is_refused(fs, place):
    for call in [fs.cat_file, fs.info, fs.ls, lambda path: fs.open(path, "wb")]:
        with pytest.raises((ValueError, OSError)):
            call(f"{place}/a\0b")


@pytest.mark.parametrize(
    "name",
    ["ü", "a b", "-rf", "new\nline", "ends with a blank ", os.fsdecode(b"\xff\xfe"), "#%?:", "ａ" * 80],
    ids=["umlaut", "blank", "option", "newline", "trailing", "not-utf8", "signs", "long"],
)
def test_names_are_bytes_but_for_the_slash(fs, place, name):
    path = f"{place}/{name}"
    fs.pipe(path, b"content")
    assert fs.ls(place, detail=False) == [path]
    assert fs.cat_file(path) == b"content"
    assert fs.info(path)["size"] == 7
    with fs.open(path, "ab") as file:
        file.write(b"!")
    fs.mv(path, f"{place}/plain")
    assert fs.cat(f"{place}/plain") == b"content!"
    assert not fs.exists(path)


def test_every_mode_does_as_open_does(fs, place, tmp_path):
    def run(opener, path):
        seen = []
        for mode in ["wb", "ab", "r+b", "w+b", "a+b", "rb", "xb"]:
            try:
                with opener(path, mode) as file:
                    seen.append((mode, file.readable(), file.writable(), file.seekable(), file.tell()))
                    if file.writable():
                        seen.append(file.write(b"0123456789" * 3))
                        file.flush()
                    if file.readable():
                        file.seek(-4, 2)
                        seen.append((file.read(2), file.tell(), file.read(), file.read(1)))
                    if mode == "r+b":
                        file.seek(5)
                        file.write(b"xx")
                        seen.append(file.truncate(20))
            except OSError as error:
                seen.append((mode, type(error)))
        with opener(path, "rb") as file:
            seen.append(file.read())
        return seen

    ours = run(lambda path, mode: fs.open(path, mode), f"{place}/f")
    theirs = run(open, tmp_path / "f")
    assert ours == theirs


def test_text_lines_and_compression(fs, place):
    with fs.open(f"{place}/t", "w", encoding="utf-8") as file:
        file.write("eins\nzwei\ndreißig\n")
    with fs.open(f"{place}/t", "r", encoding="utf-8") as file:
        assert list(file) == ["eins\n", "zwei\n", "dreißig\n"]
    with fs.open(f"{place}/z", "wb", compression="gzip") as file:
        file.write(b"a" * 100_000)
    assert fs.size(f"{place}/z") < 1000
    with fs.open(f"{place}/z", "rb", compression="gzip") as file:
        assert file.read() == b"a" * 100_000


def test_a_large_file_has_its_bytes_at_every_offset(fs, place):
    data = os.urandom(1 << 20) * 20 + b"tail"
    fs.pipe(f"{place}/big", data)
    assert fs.cat(f"{place}/big") == data
    with fs.open(f"{place}/big") as file:
        assert file.size == len(data)
        assert file.read() == data
        for at, count in [(0, 1), (16383, 2), (4194303, 65540), (len(data) - 3, 10)]:
            file.seek(at)
            assert file.read(count) == data[at : at + count]
    ranges = fs.cat_ranges([f"{place}/big"] * 3, [0, 5_000_000, -4], [3, 5_000_010, None])
    assert ranges == [data[:3], data[5_000_000:5_000_010], b"tail"]
    assert fs.cat_file(f"{place}/big", start=16_000, end=17_000) == data[16_000:17_000]
    assert fs.cat_file(f"{place}/big", start=1 << 40) == b""
    fs.cp_file(f"{place}/big", f"{place}/copy")
    assert fs.cat(f"{place}/copy") == data
    fs.pipe(f"{place}/big", b"short")
    fs.cp_file(f"{place}/big", f"{place}/copy")
    assert fs.cat(f"{place}/copy") == b"short"


def test_a_file_is_not_copied_onto_itself(fs, place):
    fs.pipe(f"{place}/f", b"content")
    with pytest.raises(OSError):
        fs.client.copy(f"{place}/f", f"{place}/f")
    assert fs.cat(f"{place}/f") == b"content"


def test_many_files_at_once(fs, place):
    files = {f"{place}/{n}": bytes([n % 256]) * (n * 37) for n in range(500)}
    fs.pipe(files)
    assert fs.cat(list(files)) == files
    assert fs.cat(f"{place}/*") == files
    assert fs.du(place) == sum(map(len, files.values()))
    found = fs.cat([f"{place}/1", f"{place}/none"], on_error="return")
    assert found[f"{place}/1"] == files[f"{place}/1"]
    assert isinstance(found[f"{place}/none"], FileNotFoundError)
    assert fs.cat([f"{place}/1", f"{place}/none"], on_error="omit").keys() == {f"{place}/1"}
    fs.rm(list(files))
    assert fs.ls(place) == []


def test_links_are_followed_and_a_walk_down_a_tree_ends(fs, place):
    fs.mkdir(f"{place}/d")
    fs.pipe(f"{place}/d/f", b"content")
    fs.symlink("d/f", f"{place}/file")
    fs.symlink(".", f"{place}/round")
    fs.symlink("nowhere", f"{place}/dangling")
    fs.symlink("self", f"{place}/self")
    assert fs.cat(f"{place}/file") == b"content"
    assert fs.cat(f"{place}/round/round/file") == b"content"
    assert fs.info(f"{place}/file")["size"] == 7
    assert fs.info(f"{place}/round")["type"] == "directory"
    types = {e["name"].rsplit("/", 1)[1]: e["type"] for e in fs.ls(place)}
    assert types == {
        "d": "directory", "file": "file", "round": "link", "dangling": "link", "self": "link"
    }
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{place}/dangling")
    with pytest.raises(OSError, match="symbolic links"):
        fs.open(f"{place}/self", "rb")
    assert sorted(fs.find(f"{place}/d")) == [f"{place}/d/f"]
    fs.pipe(f"{place}/file", b"through")
    assert fs.cat(f"{place}/d/f") == b"through"
    fs.symlink("d", f"{place}/to-d")
    fs.rm(f"{place}/to-d", recursive=True)
    assert fs.cat(f"{place}/d/f") == b"through", "what a removed link led to stays"
    # By a pattern, too, and in a tree.
    fs.makedirs(f"{place}/tree/below")
    fs.pipe(f"{place}/tree/below/f", b"x")
    fs.symlink("../d", f"{place}/tree/to-d")
    fs.symlink("../../d", f"{place}/tree/below/to-d")
    with pytest.raises(IsADirectoryError):
        fs.cp(f"{place}/tree", f"{place}/copy", recursive=True)
    fs.rm(f"{place}/tree/*", recursive=True)
    assert fs.ls(f"{place}/tree") == []
    assert fs.cat(f"{place}/d/f") == b"through", "what a link in a pattern led to stays"


def test_ranges_go_with_any_way_to_read(fs, place):
    fs.pipe({f"{place}/a": b"0123456789", f"{place}/b": b"abc"})
    assert fs.cat(f"{place}/a", start=2, end=4) == b"23"
    assert fs.cat([f"{place}/a", f"{place}/b"], start=-2) == {f"{place}/a": b"89", f"{place}/b": b"bc"}
    got = fs.cat_ranges([f"{place}/none", f"{place}/b"], [-1, -1], [None, None], on_error="return")
    assert isinstance(got[0], FileNotFoundError) and got[1] == b"c"
    with pytest.raises(ValueError, match="same file"):
        fs.pipe({f"{place}/a": b"", f"covey:/{place}/a": b"x"})
    with fs.transaction, pytest.raises(FileExistsError):
        fs.pipe(f"{place}/a", b"new", mode="create")
    assert fs.cat(f"{place}/a") == b"0123456789"


def test_a_transaction_gives_names_at_its_end_or_never(fs, place):
    fs.pipe(f"{place}/a", b"old")
    with fs.transaction:
        with fs.open(f"{place}/a", "wb") as file:
            file.write(b"new")
        fs.pipe(f"{place}/b", b"b")
        assert fs.cat(f"{place}/a") == b"old"
    assert fs.cat(f"{place}/a") == b"new"
    with pytest.raises(KeyError):
        with fs.transaction:
            with fs.open(f"{place}/a", "wb") as file:
                file.write(b"never")
            raise KeyError
    assert fs.cat(f"{place}/a") == b"new"
    assert fs.ls(place, detail=False) == [f"{place}/a", f"{place}/b"]


def test_a_closed_file_says_so(fs, place):
    file = fs.open(f"{place}/f", "wb")
    raw = file.raw
    file.close()
    file.close()
    for call in [lambda: file.write(b"x"), lambda: file.tell(), lambda: raw.write(b"x")]:
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(ValueError, match="closed"):
        raw.file.pwrite(b"x", 0)


def test_a_file_open_for_one_thing_refuses_the_other(fs, place):
    with fs.open(f"{place}/f", "wb") as file:
        with pytest.raises(OSError):
            file.read()
        with pytest.raises(OSError):
            file.raw.file.pread(1, 0)
    with fs.open(f"{place}/f", "rb") as file:
        with pytest.raises(OSError):
            file.write(b"x")
        with pytest.raises(OSError):
            file.raw.file.pwrite(b"x", 0)


def test_what_no_file_can_hold_is_refused(fs, place):
    with fs.open(f"{place}/f", "w+b") as file:
        with pytest.raises(ValueError):
            file.seek(-1)
        with pytest.raises((ValueError, OverflowError)):
            file.seek(1 << 63)
        with pytest.raises(OSError):
            file.raw.file.pwrite(b"x", (1 << 63) - 1)
        with pytest.raises(OverflowError):
            file.raw.file.pwrite(b"x", 1 << 64)
        assert file.raw.file.pread(10, (1 << 64) - 1) == b""
        with pytest.raises((ValueError, BufferError)):
            file.raw.file.readinto(b"read-only", 0)


def test_threads_share_a_file_and_a_file_system(fs, place):
    threads, rounds, piece = 8, 20, 5000
    with fs.open(f"{place}/f", "w+b") as file:
        raw, go = file.raw.file, threading.Barrier(threads)

        def work(number):
            go.wait()
            for at in range(rounds):
                raw.pwrite(bytes([number]) * piece, (at * threads + number) * piece)
                fs.pipe(f"{place}/{number}-{at}", bytes([number]))
                assert fs.cat(f"{place}/{number}-{at}") == bytes([number])

        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        expected = b"".join(bytes([n]) * piece for n in range(threads))
        assert raw.pread(threads * rounds * piece, 0) == expected * rounds
    assert len(fs.ls(place)) == threads * rounds + 1


def test_appends_of_many_meet_in_no_byte(fs, place):
    def work(number):
        with fs.open(f"{place}/log", "ab", block_size=1) as file:
            for _ in range(50):
                file.write(b"%d" % number * 10)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    content = fs.cat(f"{place}/log")
    pieces = [content[at : at + 10] for at in range(0, len(content), 10)]
    assert sorted(pieces) == sorted([b"%d" % n * 10 for n in range(4)] * 50)


def test_a_child_of_a_fork_has_a_session_of_its_own(fs, place):
    fs.pipe(f"{place}/f", b"from the parent")
    with fs.open(f"{place}/f", "r+b") as file, fs.open(f"{place}/pending", "wb") as pending:
        pending.write(b"parent's")
        child = os.fork()
        if child == 0:
            try:
                # Two ways: the same file system, and a file that was open.
                assert fs.cat(f"{place}/f") == b"from the parent"
                assert file.read() == b"from the parent"
                file.raw.file.pwrite(b"CHILD", 0)
                fs.pipe(f"{place}/child", b"x")
                os._exit(0)
            except BaseException as error:
                os.write(2, repr(error).encode())
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        file.seek(0)
        assert file.read() == b"CHILD" + b"from the parent"[5:]
    assert fs.cat(f"{place}/pending") == b"parent's"
    assert fs.exists(f"{place}/child")


def test_forks_in_the_midst_of_other_threads_calls(fs, place):
    fs.pipe({f"{place}/{n}": b"%d" % n for n in range(4)})
    is_over = threading.Event()

    def work(number):
        while not is_over.is_set():
            assert fs.cat(f"{place}/{number}") == b"%d" % number

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = [pool.submit(work, number) for number in range(4)]
        for _ in range(30):
            child = os.fork()
            if child == 0:
                ok = fs.cat_file(f"{place}/1") == b"1"
                os._exit(0 if ok else 1)
            assert os.waitpid(child, 0)[1] == 0
        is_over.set()
        for one in done:
            one.result()


def test_more_than_memory_holds_is_an_error_at_once(fs, place):
    with fs.open(f"{place}/holes", "w+b") as file:
        file.truncate((1 << 63) - 1)
        for call in [file.read, lambda: fs.cat_file(f"{place}/holes")]:
            with pytest.raises((OSError, MemoryError), match="[mM]emory"):
                call()
        assert fs.cat_file(f"{place}/holes", start=1 << 60, end=(1 << 60) + 3) == b"\0\0\0"


def test_a_closed_session_begins_anew(cluster, place):
    fs = cluster.filesystem()
    with fs.open(f"{place}/f", "w+b") as file:
        file.write(b"before")
        file.flush()
        fs.client.close()
        file.write(b" after")
        file.seek(0)
        assert file.read() == b"before after"


def test_a_file_system_travels_by_pickle_to_another_process(cluster):
    fs = fsspec.filesystem("covey", config=cluster.config)
    again = pickle.loads(pickle.dumps(fs))
    assert again.config == fs.config
    assert again.exists("/")


def test_modes_times_and_umask(fs, place):
    before = os.umask(0o027)
    try:
        fs.pipe(f"{place}/f", b"")
        fs.mkdir(f"{place}/d")
        fs.touch(f"{place}/t")
    finally:
        os.umask(before)
    assert fs.info(f"{place}/f")["mode"] & 0o777 == 0o640
    assert fs.info(f"{place}/t")["mode"] & 0o777 == 0o640
    assert fs.info(f"{place}/d")["mode"] & 0o777 == 0o750
    fs.chmod(f"{place}/f", 0o600)
    assert fs.info(f"{place}/f")["mode"] & 0o777 == 0o600
    earlier = fs.modified(f"{place}/f")
    fs.pipe(f"{place}/f", b"x")
    assert fs.modified(f"{place}/f") > earlier >= fs.created(f"{place}/f")


def run_in_child(work):
    """Whether a child of a fork has done it within a minute: what hangs is an error, and not the end of the tests."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_a_fork_while_another_thread_writes_leaves_the_child_no_lock(fs, place):
    is_over = threading.Event()
    with fs.open(f"{place}/f", "wb", block_size=100) as file, fs.open(f"{place}/f", "rb") as read:

        def work():
            while not is_over.is_set():
                file.write(b"x" * 1000)
                read.seek(0)
                read.read(10)

        def child():
            assert read.tell() >= 0
            read.seek(0)
            assert read.read(3) == b"xxx"
            file.flush()
            file.close()

        file.write(b"x" * 1000)
        file.flush()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(40):
                assert run_in_child(child)
        finally:
            is_over.set()
            thread.join()
    content = fs.cat(f"{place}/f")
    assert len(content) % 1000 == 0 and content == b"x" * len(content), "each write once"


def test_a_fork_by_a_signal_amid_a_call_does_not_go_on_with_the_parents(fs, place):
    data = os.urandom(1 << 20) * 64
    fs.pipe(f"{place}/big", data)
    children, parent = [], os.getpid()

    def handler(*_):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
        else:
            children.append(child)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                got = fs.cat_file(f"{place}/big")
            except OSError as error:
                # Only a child: its call was the parent's, and it makes another one.
                ok = os.getpid() != parent and "before the fork" in str(error)
                ok = ok and fs.cat_file(f"{place}/big", end=10) == data[:10]
                os._exit(0 if ok else 1)
            if os.getpid() != parent:
                os._exit(0 if got == data else 1)
            assert got == data
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


@pytest.fixture
def denied(fs, place):
    """A tree of which another user may not read one directory, and may only list another."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    fs.makedirs(f"{place}/open/deep")
    fs.pipe({f"{place}/open/f": b"x", f"{place}/open/deep/g": b"x"})
    for name in ["shut", "listed"]:
        fs.makedirs(f"{place}/open/{name}")
        fs.pipe(f"{place}/open/{name}/h", b"x")
        fs.mkdir(f"{place}/open/{name}/d")
    fs.chmod(f"{place}/open/shut", 0o700)
    fs.chmod(f"{place}/open/listed", 0o744)
    fs.mkdir(f"{place}/out")
    fs.chmod(f"{place}/out", 0o777)
    os.seteuid(12345)
    yield f"{place}/open"
    os.seteuid(0)


def test_a_directory_that_may_not_be_read_is_left_out_or_an_error_as_asked(fs, denied):
    readable = [f"{denied}/deep/g", f"{denied}/f", f"{denied}/listed/h"]
    assert fs.find(denied) == readable
    assert [here for here, _, _ in fs.walk(denied)][0] == denied
    errors = []
    assert fs.find(denied, on_error=errors.append) == readable
    shut = {error.filename for error in errors}
    assert f"{denied}/shut" in shut and all(isinstance(e, PermissionError) for e in errors)
    with pytest.raises(PermissionError):
        fs.find(denied, on_error="raise")
    for topdown in [True, False]:
        with pytest.raises(PermissionError):
            list(fs.walk(denied, topdown=topdown, on_error="raise"))
        walked = list(fs.walk(denied, topdown=topdown, on_error=lambda error: None))
        assert walked[0 if topdown else -1][0] == denied
        assert len(list(fs.walk(denied, maxdepth=1, topdown=topdown, on_error="raise"))) == 1
    assert fs.glob(f"{denied}/*/*") == [
        f"{denied}/deep/g", f"{denied}/listed/d", f"{denied}/listed/h"
    ]
    with pytest.raises(PermissionError):
        fs.glob(f"{denied}/**", on_error="raise")
    # One name, of which no more is known.
    names = {entry["name"]: (entry["type"], entry["size"]) for entry in fs.ls(f"{denied}/listed")}
    assert names == {f"{denied}/listed/d": ("directory", None), f"{denied}/listed/h": ("file", None)}
    with pytest.raises(PermissionError):
        fs.ls(f"{denied}/shut")
    assert not fs.exists(f"{denied}/shut/h") and not fs.isfile(f"{denied}/shut/h")


def test_a_copy_of_a_tree_leaves_nothing_out_silently(fs, place, denied):
    with pytest.raises(PermissionError) as raised:
        fs.cp(denied, f"{place}/out/copy", recursive=True)
    assert raised.value.filename in (f"{denied}/shut", f"{denied}/listed/d")
