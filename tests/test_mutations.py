"""The mutations of `tests.mutations` are kept up with the code: each changes one place, and has its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations import all_mutations
from tests.mutations.mutation import NotFound, find, mutation, words

ROOT = Path(__file__).parents[1]


def test_each_finds_its_code_once_and_its_tests() -> None:
    lost = []
    for one in all_mutations():
        try:
            place = find(one, ROOT)
            assert place.after != place.before
            compile(place.after, str(place.path), "exec")
            words(one, ROOT)
        except (NotFound, SyntaxError) as problem:
            lost.append(f"{one.name}: {problem}")
    assert lost == []


@pytest.mark.parametrize("text", ["def f(): return 2", "def f(): return 1\ndef f(): return 1"])
def test_code_that_is_gone_or_there_twice_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "one.py").write_text(text)
    with pytest.raises(NotFound, match="places"):
        find(mutation("one", "streams", "", "return 1", "return 0", ""), tmp_path)


@pytest.mark.parametrize("tests", ["streams/test_one.py", "streams", "streams/test_one.py::test_a"])
def test_tests_that_are_gone_are_told(tmp_path: Path, tests: str) -> None:
    with pytest.raises(NotFound, match="no tests"):
        words(mutation("one", "streams", "", "", "", tests), tmp_path)
