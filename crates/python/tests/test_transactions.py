"""Transactions: names at their end, with the modes and owners of what is replaced."""

import os

import pytest

from conftest import run


def mode_of(fs, path):
    return fs.info(path)["mode"] & 0o7777


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o4755, 0o444])
def test_what_is_replaced_keeps_its_mode_and_owner(fs, place, mode):
    path = f"{place}/f"
    fs.pipe(path, b"old")
    if os.geteuid() == 0:
        fs.client.chown(path, 1234, 2345)
    fs.chmod(path, mode)
    before = fs.info(path)
    with fs.transaction:
        fs.pipe(path, b"new")
        with fs.open(f"{place}/g", "wb"):
            pass
    after = fs.info(path)
    assert fs.cat(path) == b"new" and after["ino"] != before["ino"]
    assert [after[key] for key in ("mode", "uid", "gid")] == [before[key] for key in ("mode", "uid", "gid")]


def test_nobody_else_reads_what_has_no_name_yet(fs, place):
    before = os.umask(0o027)
    try:
        with fs.transaction:
            fs.pipe(f"{place}/new", b"secret")
            (part,) = fs.ls(place, detail=False)
            assert mode_of(fs, part) == 0o600
            os.umask(0o777)
    finally:
        os.umask(before)
    assert mode_of(fs, f"{place}/new") == 0o640, "by the umask with which it was opened"


def test_another_group_gets_no_more_than_all_others(cluster, fs, place):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    fs.chmod(place, 0o777)
    for name, mode in [("a", 0o664), ("b", 0o6670), ("c", 0o640)]:
        fs.pipe(f"{place}/{name}", b"old")
        fs.client.chown(f"{place}/{name}", 1234, 2345)
        fs.chmod(f"{place}/{name}", mode)
    done = run(cluster, f"""
        import os, fsspec
        fs = fsspec.filesystem("covey")
        fs.exists("/")
        os.setgroups([]); os.setegid(65534); os.seteuid(65534)
        with fs.transaction:
            for name in "abc":
                fs.pipe(f"{place}/{{name}}", b"new")
    """)
    assert done.returncode == 0, done.stderr
    infos = [fs.info(f"{place}/{name}") for name in "abc"]
    assert {(info["uid"], info["gid"]) for info in infos} == {(65534, 65534)}
    assert [info["mode"] & 0o7777 for info in infos] == [0o644, 0o600, 0o600]


def test_a_new_file_replaces_nothing(fs, place, tmp_path):
    (tmp_path / "local").write_bytes(b"local")
    fs.pipe(f"{place}/old", b"old")
    with fs.transaction:
        for name in ["old", "new"]:
            try:
                fs.put_file(str(tmp_path / "local"), f"{place}/{name}", mode="create")
            except FileExistsError:
                assert name == "old"
        with fs.open(f"{place}/x", "xb") as file:
            file.write(b"x")
    assert fs.cat(f"{place}/old") == b"old"
    assert fs.cat(f"{place}/new") == b"local" and fs.cat(f"{place}/x") == b"x"
    assert len(fs.ls(place)) == 3
    with pytest.raises(FileExistsError):
        fs.put_file(str(tmp_path / "local"), f"{place}/new", mode="create")


def test_a_name_that_was_taken_meanwhile_stays_what_it_is(cluster, fs, place):
    other = cluster.filesystem()
    with pytest.raises(FileExistsError):
        with fs.transaction:
            with fs.open(f"{place}/f", "xb") as file:
                file.write(b"mine")
            fs.pipe(f"{place}/g", b"mine", mode="create")
            other.pipe(f"{place}/f", b"theirs")
    assert fs.cat(f"{place}/f") == b"theirs"
    assert fs.ls(place, detail=False) == [f"{place}/f"], "neither a part, nor the file after it"


def test_a_transaction_refuses_to_append(fs, place):
    with fs.transaction, pytest.raises(ValueError, match="hint: "):
        fs.open(f"{place}/f", "ab")
    assert fs.ls(place) == []
