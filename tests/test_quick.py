"""What `--quick` leaves out by name is there: a test of another name would run in silence again."""

from __future__ import annotations

from pathlib import Path

from tests.harness.quick import LEFT_OUT

ROOT = Path(__file__).parents[1]


def is_there(start: str) -> bool:
    path, _, test = start.partition("::")
    return any(one.is_dir() or f"def {test}" in one.read_text() for one in ROOT.glob(f"{path}*"))


def test_what_is_left_out_is_there() -> None:
    assert [start for start in LEFT_OUT if not is_there(start)] == []
