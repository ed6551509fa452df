"""A line whose fsync failed may stand torn on the disk: the next one begins afresh and can be read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from checkpoints import LocalStore, WriteFailed, history

from .disk import FaultyDisk

KEY = "history.jsonl"


def test_the_line_after_a_failed_fsync_is_read_whatever_became_of_the_one_before(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, error=errno.EIO)
    store = LocalStore(tmp_path, disk.fs)
    store.append_line(KEY, b'{"number": 1}')
    disk.fail_on = ("fsync", KEY, 2)
    with pytest.raises(WriteFailed):
        store.append_line(KEY, b'{"number": 2}')
    path = tmp_path / KEY
    stands = path.stat().st_size
    store.append_line(KEY, b'{"number": 2}')
    store.append_line(KEY, b'{"number": 3}')
    assert [line["number"] for line in history(store)] == [1, 2, 3]
    whole = path.read_bytes()
    lost = whole[: stands - 8] + bytes(8) + whole[stands:]  # its pages were dropped: nothing ends the line
    path.write_bytes(lost)
    assert [line["number"] for line in history(LocalStore(tmp_path))] == [1, 2, 3]
    assert disk.retried == []
