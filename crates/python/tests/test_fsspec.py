"""fsspec's own tests for implementations."""

import fsspec
import pytest
from fsspec.tests import abstract

import covey


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, cluster):
        # As fsspec tests its own local files.
        return cluster.filesystem(auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, fs):
        fs.makedirs("/of-fsspec")
        yield "/of-fsspec"
        fs.rm("/of-fsspec", recursive=True)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


def test_the_installed_package_is_found_by_its_protocol():
    assert fsspec.get_filesystem_class("covey") is covey.CoveyFileSystem
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="fsspec.specs", name="covey")
    assert entry.value == "covey.fs:CoveyFileSystem"


@pytest.mark.parametrize("url", ["covey://a/b", "covey:///a/b", "/a/b", "a/b", "/a/b/", "covey:/a/b"])
def test_an_address_names_no_host(url):
    assert covey.CoveyFileSystem._strip_protocol(url) == "/a/b"


def test_the_root_has_all_its_spellings():
    for root in ["", "/", "covey://", "covey:///"]:
        assert covey.CoveyFileSystem._strip_protocol(root) == "/"
