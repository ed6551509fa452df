"""The first difference of two states, by bits or within a tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daemon.learn.replay import difference
from daemon.learn.replay.difference import TOLERANCE, ArrayPlace, first_difference


def arrays(**changes: Any) -> dict[str, np.ndarray]:
    plain = {"W": np.eye(4, dtype=np.float32), "events": np.array(7), "none": np.zeros((0, 3), np.uint64)}
    return {name: array for name, array in {**plain, **changes}.items() if array is not None}


def changed(row: int, column: int, value: float) -> np.ndarray:
    W = np.eye(4, dtype=np.float32)
    W[row, column] = value
    return W


@pytest.mark.parametrize("block", [1, 4, 6, 1 << 20])
def test_the_first_row_and_how_many_differ_do_not_depend_on_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(difference, "BLOCK", block)
    other = changed(1, 3, 0.5)
    other[3, 0] = other[3, 2] = 9
    assert first_difference(arrays(), arrays(W=other)) == ArrayPlace("W", 1, 3, 0.0, 0.5, 2)
    assert first_difference(arrays(), arrays()) is None


def test_arrays_come_by_name_and_a_number_is_one_row() -> None:
    other = arrays(events=np.array(8), W=changed(2, 2, 0))
    assert first_difference(arrays(), other).array == "W"
    assert first_difference(arrays(), arrays(events=np.array(8))) == ArrayPlace("events", 0, 0, 7, 8, 1)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (arrays(W=None), "array W: recorded float32 [4, 4], recomputed none"),
        (arrays(W=np.eye(4)), "array W: recorded float32 [4, 4], recomputed float64 [4, 4]"),
        (
            arrays(none=np.zeros((1, 3), np.uint64)),
            "array none: recorded uint64 [0, 3], recomputed uint64 [1, 3]",
        ),
    ],
)
def test_another_shape_or_type_has_no_row(other: dict[str, np.ndarray], told: str) -> None:
    found = first_difference(arrays(), other)
    assert found.row is None
    assert str(found) == told


def test_bits_tell_what_numbers_do_not() -> None:
    nan = arrays(W=changed(0, 1, np.nan))
    assert first_difference(nan, {name: array.copy() for name, array in nan.items()}) is None
    assert first_difference(arrays(), arrays(W=changed(0, 1, -0.0))) is not None


def test_a_tolerance_is_for_floats_and_relative_to_the_largest() -> None:
    near = arrays(W=changed(0, 1, TOLERANCE * 0.9))
    assert first_difference(arrays(), near) is not None
    assert first_difference(arrays(), near, TOLERANCE) is None
    assert first_difference(arrays(), arrays(W=changed(0, 1, TOLERANCE * 1.1)), TOLERANCE) is not None
    large = arrays(W=100 * np.eye(4, dtype=np.float32))
    off = large["W"].copy()
    off[2, 1] = TOLERANCE * 90
    assert first_difference(large, arrays(W=off), TOLERANCE) is None
    assert first_difference(arrays(), arrays(events=np.array(8)), TOLERANCE) is not None
    assert first_difference(arrays(), arrays(W=changed(0, 1, np.nan)), TOLERANCE) is not None
