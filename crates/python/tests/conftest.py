"""A cluster of this machine for all tests, and a directory of its own for each.

COVEY names the binary, else it is the one of PATH.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap

import fsspec
import pytest


def binary():
    found = os.environ.get("COVEY") or shutil.which("covey")
    if found is None:
        pytest.skip("needs the program `covey`: COVEY names it")
    return found


class Cluster:
    """What `covey up` started in a directory."""

    def __init__(self, directory, servers=4):
        self.directory = directory
        self.servers = servers
        self.config = str(directory / "covey.toml")

    def run(self, *arguments):
        command = [binary(), *arguments]
        environment = {**os.environ, "COVEY_CONFIG": self.config}
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
        return done.stdout

    def up(self):
        self.run("up", "--dir", str(self.directory), "-n", str(self.servers))
        return self

    def down(self):
        self.run("down", "--dir", str(self.directory))

    def pid(self, node):
        return int((self.directory / "run" / f"{node}.pid").read_text().split()[0])

    def requests(self):
        """Reads and writes of each I/O server so far."""
        stats = json.loads(self.run("--json", "stats"))
        nodes = [f"io{n + 1}" for n in range(self.servers)]
        counts = ("data.reads", "data.writes")
        return {node: [stats[node][count]["value"] for count in counts] for node in nodes}

    def filesystem(self, **options):
        return fsspec.filesystem(
            "covey", config=self.config, skip_instance_cache=True, use_listings_cache=False, **options
        )


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster") / "c"
    cluster = Cluster(directory).up()
    # Others than root reach its sockets, too.
    for above in [directory, *directory.parents]:
        if str(above) in ("/", "/tmp"):
            break
        above.chmod(0o755)
    yield cluster
    cluster.down()


@pytest.fixture(scope="session")
def filesystem(cluster):
    return cluster.filesystem()


@pytest.fixture
def fs(filesystem):
    return filesystem


@pytest.fixture
def place(fs, request):
    """A directory in the file system."""
    # No name of its own says anything to a shell or to fsspec.
    path = f"/{re.sub('[^a-z0-9]+', '-', request.node.name)[:100]}-{os.getpid()}"
    fs.makedirs(path)
    yield path
    fs.rm(path, recursive=True)


def run(cluster, program, timeout=30):
    """Runs a program of its own."""
    program = textwrap.dedent(program)
    environment = {**os.environ, "COVEY_CONFIG": cluster.config}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, timeout=timeout, text=True,
        capture_output=True, cwd="/",
    )
