"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.durable import replacing


@pytest.fixture(params=[0o077, 0o022, 0o002], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield int(request.param)
    os.umask(before)


@pytest.mark.parametrize("mode", [None, 0o600, 0o640])
def test_who_may_read_a_file_is_what_was_said_or_what_the_umask_says(
    tmp_path: Path, umask: int, mode: int | None
) -> None:
    path = tmp_path / "file"
    for text in (b"before", b"after"):
        with replacing(path) if mode is None else replacing(path, mode) as file:
            assert not path.exists() or path.read_bytes() == b"before"
            file.write(text)
    assert path.stat().st_mode & 0o777 == (0o666 & ~umask if mode is None else mode)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_was_not_written_whole_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    writing = replacing(path)
    writing.__enter__().write(b"half")
    writing.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"file": b"before"}
