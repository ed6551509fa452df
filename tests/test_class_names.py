"""A class's name stands for one thing: who searches for it finds one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.house import PACKAGES, names_defined_twice

ROOT = Path(__file__).parents[1]


def test_no_name_of_a_class_stands_for_a_second_thing() -> None:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 100
    assert names_defined_twice(files) == []


@pytest.mark.parametrize("second", ["class Place: ...", "Place = tuple[int, int]", "Place: TypeAlias = int"])
def test_a_second_thing_is_told(tmp_path: Path, second: str) -> None:
    files = [tmp_path / "one.py", tmp_path / "two.py"]
    files[0].write_text("class Place: ...")
    files[1].write_text(second)
    assert names_defined_twice(files) == ["Place"]
    files[1].write_text("Other = 1")
    assert names_defined_twice(files) == []
