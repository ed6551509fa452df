"""How far it is to the end, when offsets need not hold a record."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streams import partitions as ahead
from streams.open import MemorySource
from streams.partitions import past_gaps
from streams.source import UNKNOWN, RecordBatch

Bounds = dict[int, tuple[int, int]]


class Gaps(MemorySource):
    """Records at some offsets only, below an end of its own."""

    def __init__(self, records: Mapping[int, list[int]], end: int) -> None:
        self._records, self._end = records, end
        self._at: dict[int, int] = {}
        self.looked: list[int] = []

    def assign(self, positions: Mapping[int, int], known: Mapping[int, str] = UNKNOWN) -> None:
        self._at = dict(positions)

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        (partition,) = self._at
        self.looked.append(partition)
        left = [offset for offset in self._records[partition] if offset >= self._at[partition]][:max_records]
        self._at[partition] = left[-1] + 1 if left else self._end
        none = [None] * len(left)
        return RecordBatch(partition, left, [0] * len(left), none, none, [()] * len(left)) if left else None

    def reached(self) -> dict[int, int]:
        return dict(self._at)


def test_what_holds_no_record_is_passed() -> None:
    source = Gaps({0: [1, 2], 1: [1, 7], 2: []}, 10)
    bounds: Bounds = {0: (0, 10), 1: (0, 10), 2: (4, 10)}
    assert past_gaps(source, {0: 3, 1: 3}, bounds) == {0: 10, 1: 7, 2: 10}


def test_who_stands_at_the_end_or_far_from_it_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MOST_WITHOUT_RECORDS", 9)
    source = Gaps({0: [], 1: []}, 10)
    assert past_gaps(source, {0: 0, 1: 10}, {0: (0, 10), 1: (0, 10)}) == {0: 0, 1: 10}
    assert source.looked == []
    assert past_gaps(source, {0: 1}, {0: (0, 10)}) == {0: 10}


def test_what_has_expired_is_not_ahead() -> None:
    assert past_gaps(Gaps({0: [6]}, 9), {0: 2}, {0: (5, 9)}) == {0: 6}
