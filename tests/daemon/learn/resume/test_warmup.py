"""The sample that maps are fitted on."""

from __future__ import annotations

import numpy as np
import pytest

from daemon.learn.resume.fitting import Sample, usable
from learners.block import SparseBlock
from streams.decode import BatchDecoder
from streams.event import SpaceSpec, ViewSpec
from streams.source import RecordBatch
from tests.daemon.learn.conftest import DIM, make_events


@pytest.mark.parametrize(
    ("indices", "values", "good"),
    [
        ([0, 3], [1, 1], True),
        ([], [], True),
        ([3, 0], [1, 1], False),
        ([1, 1], [1, 1], False),
        ([0, 4], [1, 1], False),
        ([-1, 2], [1, 1], False),
        ([0, 3], [1, np.inf], False),
    ],
)
def test_rows_the_learner_would_refuse_are_left_out_of_the_sample(
    indices: list[int], values: list[float], good: bool
) -> None:
    pointers = np.array([0, len(indices)], np.int64)
    row = SparseBlock(pointers, np.array(indices, np.int32), np.array(values, np.float32), 4)
    assert usable(row) is good


@pytest.mark.parametrize("wanted", [1, 4, 7, 100])
def test_where_polls_end_leaves_no_trace_in_the_sample(wanted: int) -> None:
    space = SpaceSpec("default", (ViewSpec("x", "dense", DIM),))
    decoder, events = BatchDecoder(space, None, "t"), make_events(6)
    samples = []
    for size in (1, 4, 6):
        samples.append(Sample(wanted))
        for at in range(0, len(events), size):
            values = events[at : at + size]
            n = len(values)
            batch = RecordBatch(0, list(range(at, at + n)), [0] * n, values, [None] * n, [()] * n)
            samples[-1].add(decoder.decode(batch))
    assert {len(sample) for sample in samples} == {min(wanted, 18)}
    assert len({sample.blocks()["x"].values.tobytes() for sample in samples}) == 1
