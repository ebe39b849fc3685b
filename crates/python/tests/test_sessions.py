"""Which file systems are the same, and how many sessions they take."""

import pickle
import shutil

import fsspec
import pytest

from conftest import Cluster, run

import covey


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("other") / "c", servers=1).up()
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def clean():
    yield
    covey.CoveyFileSystem.clear_instance_cache()


def test_the_environment_may_name_another_cluster_later(cluster, other, monkeypatch):
    monkeypatch.setenv("COVEY_CONFIG", cluster.config)
    first = fsspec.filesystem("covey")
    assert fsspec.filesystem("covey") is first
    monkeypatch.setenv("COVEY_CONFIG", other.config)
    second = fsspec.filesystem("covey")
    assert (first.config, second.config) == (cluster.config, other.config)
    assert first != second
    # What a session is called in the lists of servers.
    monkeypatch.setenv("COVEY_JOB", "another job")
    assert fsspec.filesystem("covey") is not second


def test_the_working_directory_may_name_another_cluster_later(cluster, other, monkeypatch, tmp_path):
    monkeypatch.delenv("COVEY_CONFIG", raising=False)
    found = []
    for one in [cluster, other]:
        place = tmp_path / one.directory.parent.name
        place.mkdir()
        shutil.copy(one.config, place / "covey.toml")
        monkeypatch.chdir(place)
        found.append(fsspec.filesystem("covey"))
    assert found[0] is not found[1] and len(found[0].client.servers()) == 4
    assert len(found[1].client.servers()) == 1


def test_a_file_that_names_another_cluster_now_is_another_file_system(cluster, other, tmp_path):
    config = tmp_path / "covey.toml"
    shutil.copy(cluster.config, config)
    first = fsspec.filesystem("covey", config=str(config))
    assert fsspec.filesystem("covey", config=str(config)) is first
    shutil.copy(other.config, config)
    second = fsspec.filesystem("covey", config=str(config))
    assert second is not first and len(second.client.servers()) == 1
    assert len(first.client.servers()) == 4


def test_a_pickled_file_system_is_of_the_same_cluster_or_an_error(cluster, other, monkeypatch, tmp_path):
    monkeypatch.delenv("COVEY_CONFIG", raising=False)
    places = [tmp_path / name for name in ("here", "there", "nowhere", "back")]
    for place, one in zip(places, [cluster, other, None, cluster]):
        place.mkdir()
        if one is not None:
            shutil.copy(one.config, place / "covey.toml")
    here, there, nowhere, back = places
    monkeypatch.chdir(here)
    given = [fsspec.filesystem("covey"), fsspec.filesystem("covey", config="covey.toml")]
    given.append(covey.CoveyFileSystem("covey.toml", True))
    made = [pickle.dumps(fs) for fs in given] + [given[0].to_json().encode()]

    def again():
        covey.CoveyFileSystem.clear_instance_cache()
        json = fsspec.AbstractFileSystem.from_json(made[-1].decode())
        return [*map(pickle.loads, made[:-1]), json]

    for place in [here, there, nowhere]:
        monkeypatch.chdir(place)
        for fs in again():
            assert fs.config == str(here / "covey.toml")
            assert fs.client.cluster_id == given[0].client.cluster_id
            assert len(fs.client.servers()) == 4
    assert pickle.loads(made[2]).auto_mkdir
    # Elsewhere the file may name another cluster, or not be there.
    shutil.copy(other.config, here / "covey.toml")
    for blob in made[:-1]:
        with pytest.raises(ValueError, match="names cluster"):
            pickle.loads(blob)
    (here / "covey.toml").unlink()
    monkeypatch.chdir(there)
    with pytest.raises(ValueError, match="hint: "):
        pickle.loads(made[0])
    monkeypatch.chdir(back)
    assert len(pickle.loads(made[0]).client.servers()) == 4


def test_a_closed_session_never_becomes_one_with_another_cluster(cluster, other, tmp_path):
    config = tmp_path / "covey.toml"
    shutil.copy(cluster.config, config)
    fs = fsspec.filesystem("covey", config=str(config))
    fs.client.close()
    shutil.copy(other.config, config)
    with pytest.raises(ValueError, match="names cluster"):
        fs.exists("/")
    shutil.copy(cluster.config, config)
    assert fs.exists("/")


def test_threads_share_a_session_which_ends_with_its_file_systems(cluster):
    done = run(cluster, """
        import concurrent.futures, fsspec, gc, pathlib, threading, time, covey
        def sessions():
            names = pathlib.Path("/proc/self/task").glob("*/comm")
            return sum(name.read_text() == "covey\\n" for name in names)
        go = threading.Barrier(8)
        def work(number):
            go.wait()
            fs = fsspec.filesystem("covey")
            fs.pipe(f"/of-thread-{number}", b"x")
            own = fsspec.filesystem("covey", skip_instance_cache=True)
            return own.cat_file(f"/of-thread-{number}")
        for _ in range(3):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                assert list(pool.map(work, range(8))) == [b"x"] * 8
        def until(wanted):
            while sessions() != wanted:
                time.sleep(0.01)
        # Of those that connected at the same time the losers end at once.
        until(1)
        covey.CoveyFileSystem.clear_instance_cache()
        gc.collect()
        until(0)
    """, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_closed_session_of_one_is_made_anew_for_all(cluster, place):
    first, second = cluster.filesystem(), cluster.filesystem()
    assert first.client is second.client
    first.pipe(f"{place}/f", b"x")
    first.client.close()
    assert second.cat_file(f"{place}/f") == b"x"
