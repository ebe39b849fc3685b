"""Tables: what pandas and pyarrow write, they read."""

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
import pyarrow.dataset  # noqa: E402
import pyarrow.fs  # noqa: E402
import pyarrow.parquet as parquet  # noqa: E402


@pytest.fixture
def frame():
    rows = 200_000
    random = np.random.default_rng(7)
    return pd.DataFrame(
        {"n": np.arange(rows), "x": random.random(rows), "kind": random.choice(["a", "b"], rows)}
    )


def test_pandas_by_its_address(cluster, place, frame):
    url, options = f"covey:/{place}/t.parquet", {"config": cluster.config}
    frame.to_parquet(url, storage_options=options)
    pd.testing.assert_frame_equal(pd.read_parquet(url, storage_options=options), frame)
    only = pd.read_parquet(url, columns=["x"], storage_options=options)
    pd.testing.assert_frame_equal(only, frame[["x"]])
    url = f"covey:/{place}/t.csv"
    frame[:1000].to_csv(url, index=False, storage_options=options)
    again = pd.read_csv(url, storage_options=options)
    pd.testing.assert_frame_equal(again, frame[:1000])


def test_the_environment_names_the_cluster(cluster, place, frame, monkeypatch):
    monkeypatch.setenv("COVEY_CONFIG", cluster.config)
    frame.to_parquet(f"covey:/{place}/t.parquet")
    assert len(pd.read_parquet(f"covey:/{place}/t.parquet")) == len(frame)


def test_pyarrow_with_the_file_system(fs, place, frame):
    table = pa.Table.from_pandas(frame)
    parquet.write_table(table, f"{place}/t.parquet", filesystem=fs, row_group_size=20_000)
    assert parquet.read_table(f"{place}/t.parquet", filesystem=fs).equals(table)
    rows = parquet.read_table(f"{place}/t.parquet", filesystem=fs, filters=[("n", "<", 10)])
    assert rows.column("n").to_pylist() == list(range(10))


def test_pyarrow_datasets_in_directories(fs, place, frame):
    table = pa.Table.from_pandas(frame)
    ours = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(fs))
    pa.dataset.write_dataset(
        table, f"{place}/set", filesystem=ours, format="parquet", partitioning=["kind"],
        partitioning_flavor="hive",
    )
    assert fs.ls(f"{place}/set", detail=False) == [f"{place}/set/kind=a", f"{place}/set/kind=b"]
    found = pa.dataset.dataset(f"{place}/set", filesystem=ours, partitioning="hive")
    assert found.count_rows() == len(frame)
    assert found.to_table(filter=pa.dataset.field("kind") == "a").num_rows == (frame.kind == "a").sum()
