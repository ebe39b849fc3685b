"""What goes wrong: rights, dead servers, signals, exits."""

import os
import signal
import time

import pytest

from conftest import Cluster, run

import covey

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become two users")
NOBODY, OTHER = 65534, 12345


@needs_root
def test_rights_are_those_of_the_user_that_the_process_acts_for(fs, place):
    fs.chmod(place, 0o777)
    try:
        os.seteuid(NOBODY)
        fs.pipe(f"{place}/secret", b"nobody's")
        fs.chmod(f"{place}/secret", 0o600)
        os.seteuid(0)
        os.seteuid(OTHER)
        fs.pipe(f"{place}/mine", b"OTHER's")
        os.seteuid(0)
        os.seteuid(NOBODY)
        # To empty a file is to write it, however it is opened.
        with pytest.raises(PermissionError):
            fs.client.open(f"{place}/mine", os.O_RDONLY | os.O_TRUNC, 0o666)
        assert fs.cat(f"{place}/mine") == b"OTHER's"
        os.seteuid(0)
        os.seteuid(OTHER)
        calls = [
            lambda: fs.cat_file(f"{place}/secret"),
            lambda: fs.open(f"{place}/secret", "wb"),
            lambda: fs.chmod(f"{place}/secret", 0o666),
            lambda: fs.pipe("/taken", b""),
            lambda: fs.mkdir("/taken"),
        ]
        for call in calls:
            with pytest.raises(PermissionError) as raised:
                call()
            assert raised.value.filename in (f"{place}/secret", "/taken")
    finally:
        os.seteuid(0)
    assert fs.info(f"{place}/secret")["uid"] == NOBODY
    assert fs.cat(f"{place}/secret") == b"nobody's"


@needs_root
def test_another_user_is_told_who_may(cluster, fs):
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            # What the parent had is its own: its connection as root is not gone on with.
            for call in [lambda: fs.ls("/"), cluster.filesystem]:
                with pytest.raises(PermissionError, match="others go through a mount"):
                    call()
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_no_cluster_is_an_error_with_hints(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="covey genconfig"):
        covey.Client(tmp_path / "none.toml")
    (tmp_path / "wrong.toml").write_text("what = 'is this'\n")
    with pytest.raises(OSError, match="wrong.toml"):
        covey.Client(tmp_path / "wrong.toml")


def eventually(call):
    """What a call answers once a server is back that counted as dead."""
    end = time.monotonic() + 10
    while True:
        try:
            return call()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@pytest.fixture
def doomed(tmp_path):
    cluster = Cluster(tmp_path / "c", servers=2).up()
    yield cluster
    cluster.down()


def test_a_dead_server_is_a_clear_error_soon_and_comes_back(doomed):
    fs = doomed.filesystem()
    data = os.urandom(6 << 20)
    fs.pipe("/big", data)
    fs.pipe("/small", b"lies with the metadata")
    os.kill(doomed.pid("io1"), signal.SIGKILL)
    for call in [lambda: fs.cat_file("/big"), lambda: fs.array("/big", (6 << 20,), "u1")[::4096]]:
        begun = time.monotonic()
        with pytest.raises(OSError, match="server io1") as raised:
            call()
        assert time.monotonic() - begun < 10
        assert raised.value.filename == "/big"
    assert fs.cat("/small") == b"lies with the metadata"
    doomed.up()
    assert eventually(lambda: fs.cat_file("/big")) == data

    os.kill(doomed.pid("meta"), signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(OSError, match="server meta"):
        fs.cat_file("/small")
    with pytest.raises(OSError, match="server meta"):
        fs.exists("/small")
    with pytest.raises(OSError, match="cannot connect to cluster"):
        covey.Client(doomed.config)
    assert time.monotonic() - begun < 20
    doomed.up()
    assert eventually(lambda: fs.cat_file("/small")) == b"lies with the metadata"


def test_a_signal_ends_a_wait(doomed):
    fs = doomed.filesystem()
    fs.pipe("/f", b"x")
    meta = doomed.pid("meta")
    os.kill(meta, signal.SIGSTOP)
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        begun = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            fs.cat_file("/f")
        assert time.monotonic() - begun < 2
    finally:
        signal.signal(signal.SIGALRM, before)
        os.kill(meta, signal.SIGCONT)
    assert fs.cat("/f") == b"x"


def test_what_is_open_at_the_end_is_written(cluster, fs, place):
    done = run(cluster, f"""
        import fsspec
        fs = fsspec.filesystem("covey")
        kept = fs.open({place!r} + "/open", "wb")
        kept.write(b"never closed")
        read = fs.open({place!r} + "/open", "rb")
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert fs.cat(f"{place}/open") == b"never closed"


def test_text_and_compressed_files_open_at_the_end_are_written(cluster, fs, place):
    done = run(cluster, f"""
        import fsspec
        fs = fsspec.filesystem("covey")
        text = fs.open({place!r} + "/text", "w")
        text.write("never closed")
        packed = fs.open({place!r} + "/packed", "wt", compression="gzip")
        packed.write("never closed" * 1000)
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert fs.cat(f"{place}/text") == b"never closed"
    with fs.open(f"{place}/packed", "rb", compression="gzip") as file:
        assert file.read() == b"never closed" * 1000


def test_a_child_that_ends_as_programs_do_writes_nothing_again(cluster, fs, place):
    done = run(cluster, f"""
        import fsspec, os, sys
        fs = fsspec.filesystem("covey")
        log, text = fs.open({place!r} + "/log", "ab"), fs.open({place!r} + "/text", "w")
        log.write(b"once ")
        text.write("once ")
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        log.write(b"again")
        text.write("again")
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert fs.cat(f"{place}/log") == fs.cat(f"{place}/text") == b"once again"


def test_an_exit_with_threads_at_work_ends(cluster, fs, place):
    done = run(cluster, f"""
        import fsspec, threading, time
        fs = fsspec.filesystem("covey")
        def work():
            while True:
                fs.pipe({place!r} + "/t", b"x" * 100_000)
                fs.cat({place!r} + "/t")
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.5)
    """)
    assert done.returncode == 0, done.stderr


def test_an_end_with_servers_gone_says_what_was_lost(doomed):
    done = run(doomed, f"""
        import fsspec, os, signal
        fs = fsspec.filesystem("covey")
        kept = fs.open("/f", "wb")
        kept.write(b"never written")
        os.kill({doomed.pid("meta")}, signal.SIGKILL)
    """)
    assert "covey: cannot close /f" in done.stderr
    doomed.up()


def test_workers_of_multiprocessing_read(cluster, fs, place):
    fs.pipe({f"{place}/{n}": b"%d" % n for n in range(50)})
    done = run(cluster, f"""
        import fsspec, multiprocessing
        fs = fsspec.filesystem("covey")
        def size(n):
            return int(fs.cat({place!r} + f"/{{n}}"))
        if __name__ == "__main__":
            for way in ["fork"]:
                with multiprocessing.get_context(way).Pool(4) as pool:
                    assert pool.map(size, range(50)) == list(range(50))
    """)
    assert done.returncode == 0, done.stderr
