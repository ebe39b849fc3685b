"""The sessions of the manual's page do what it shows."""

import doctest
import pathlib
import re

import covey

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "manual" / "python.md"


def sessions(text):
    """The sessions of a page, as doctest reads them: an error that is shown is shown by its last line alone."""
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    last_line = re.compile(r"^(?=[A-Za-z]+Error: )", re.MULTILINE)
    return [last_line.sub("Traceback (most recent call last):\n", block) for block in blocks]


def test_the_page_shows_what_happens(cluster, monkeypatch):
    monkeypatch.setenv("COVEY_CONFIG", cluster.config)
    blocks = sessions(PAGE.read_text())
    assert len(blocks) >= 3
    # One after the other, as somebody pastes them.
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    failed, tried = runner.run(session, out=said.append)
    covey.CoveyFileSystem.clear_instance_cache()
    assert (failed, tried >= 15) == (0, True), "".join(said)


def test_a_session_is_compared():
    (block,) = sessions("```python\n>>> 1 + 1\n3\n>>> int('x')\nValueError: invalid\n```\n")
    session = doctest.DocTestParser().get_doctest(block, {}, "a", "a", 0)
    said = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(session, out=said.append)
    assert (failed, tried) == (2, 2)
    assert "Expected:\n    3\nGot:\n    2\n" in "".join(said)
