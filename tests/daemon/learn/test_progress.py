"""Progress is a function of the applied records alone, however they were batched."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.manifest import PartitionPosition
from daemon.learn.state import Applied, Progress, add_in_order, branch, gap, other_log, repeats, seek


def applied(partition: int, start: int, stop: int, losses: np.ndarray, updated: int = 0) -> Applied:
    digest = hashlib.sha256(str(stop - 1).encode()).hexdigest()
    return Applied(partition, stop, digest, stop - start, {"updated": updated}, losses, newest_ts=stop)


def fresh(*partitions: int) -> Progress:
    return Progress({p: PartitionPosition(0, None) for p in partitions})


@given(
    losses=st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=60),
    cuts=st.sets(st.integers(1, 59)),
)
def test_batch_sizes_leave_no_trace(losses: list[float], cuts: set[int]) -> None:
    values = np.array(losses, dtype=np.float32)
    whole, parts = fresh(0), fresh(0)
    whole.advance(applied(0, 0, len(values), values, len(values)))
    edges = [0, *sorted(c for c in cuts if c < len(values)), len(values)]
    for start, stop in pairwise(edges):
        parts.advance(applied(0, start, stop, values[start:stop], stop - start))
    assert parts.snapshot() == whole.snapshot()


def test_runs_join_only_when_adjacent_in_one_partition() -> None:
    progress = fresh(0, 1)
    none = np.zeros(0, np.float32)
    for partition, start, stop in [(0, 0, 2), (0, 2, 3), (1, 0, 1), (0, 3, 4)]:
        progress.advance(applied(partition, start, stop, none))
    assert progress.snapshot().entries == ((0, 0, 3), (1, 0, 1), (0, 3, 4))
    assert progress.next_offsets() == {0: 4, 1: 1}
    assert progress.records == 5
    assert progress.watermark == 4


def test_a_snapshot_keeps_what_was_while_learning_goes_on() -> None:
    progress = fresh(0)
    progress.advance(applied(0, 0, 2, np.ones(2, np.float32), 2))
    taken = progress.snapshot()
    said = repr(taken)
    progress.advance(applied(0, 2, 5, np.ones(3, np.float32), 3))
    progress.control(seek("latest", {0: 5}, {0: 9}))
    assert repr(taken) == said


def test_watermark_is_the_newest_time_whatever_the_order() -> None:
    progress = fresh(0, 1)
    for partition, stop in ((0, 7), (1, 3)):
        progress.advance(applied(partition, 0, stop, np.zeros(0, np.float32)))
    assert progress.watermark == 7


def test_a_published_snapshot_is_forgotten_and_a_failed_one_kept() -> None:
    progress = fresh(0)
    none = np.zeros(0, np.float32)
    progress.advance(applied(0, 0, 2, none))
    failed = progress.snapshot()
    progress.advance(applied(0, 2, 5, none))
    assert failed.entries == ((0, 0, 2),)
    second = progress.snapshot()
    assert second.entries == ((0, 0, 2), (0, 2, 5))
    progress.advance(applied(0, 5, 6, none))
    progress.published(second)
    assert progress.moved
    assert progress.snapshot().entries == ((0, 5, 6),)


def test_control_entries_keep_their_place_and_set_positions() -> None:
    progress = fresh(0)
    none = np.zeros(0, np.float32)
    progress.advance(applied(0, 0, 2, none))
    progress.control(gap(0, 2, 9))
    assert progress.positions == {0: PartitionPosition(9)}  # no record there was learned: no digest
    progress.advance(applied(0, 9, 10, none))
    assert progress.snapshot().entries == ((0, 0, 2), gap(0, 2, 9), (0, 9, 10))


def test_what_could_not_be_read_is_no_run() -> None:
    progress = fresh(0)
    none = np.zeros(0, np.float32)
    progress.advance(applied(0, 0, 2, none))
    progress.advance(Applied(0, 7, None, 1, {"poison": 1}, none, unread="corrupt_batch"))
    progress.advance(applied(0, 7, 8, none))
    assert progress.snapshot().entries == (
        (0, 0, 2),
        {"control": "damaged", "partition": 0, "from": 2, "to": 7},
        (0, 7, 8),
    )
    assert progress.counters["poison"] == 1
    assert progress.records == 4


def test_another_log_has_positions_of_its_own() -> None:
    progress = fresh(0, 1)
    progress.control(other_log("earliest", {"topic_id": "a"}, {"topic_id": "b"}, {0: 3, 1: 4, 2: 0}))
    assert progress.next_offsets() == {0: 3, 1: 4, 2: 0}


@pytest.mark.parametrize(
    ("entry", "forgets"),
    [
        (seek("latest", {0: 5, 1: 2}, {0: 9, 1: 2}), False),
        (seek("earliest", {0: 5, 1: 12}, {0: 9, 1: 11}), True),
        (gap(0, 5, 9), False),
        (branch(3, "checkpoint"), False),
    ],
)
def test_only_going_back_asks_to_learn_again(entry: dict[str, object], forgets: bool) -> None:
    assert repeats(entry) is forgets


def test_moving_backwards_is_an_error() -> None:
    progress = fresh(0)
    with pytest.raises(ValueError, match="cannot move"):
        progress.advance(applied(0, 0, 0, np.zeros(0, np.float32)))


def test_losses_add_one_after_another() -> None:
    losses = np.array([1e8, 1e-3, 1e-3], np.float32)
    expected = 0.0
    for loss in losses:
        expected += float(loss)
    assert add_in_order(0.0, losses) == expected
