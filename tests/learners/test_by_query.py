"""Steps of one query in a row, as lists give them: multiplied once, and of an arm added once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.block import DenseBlock, TripletBatch
from learners.errors import BlockError
from learners.oasis import Oasis, OasisByQuery, OasisConfig
from learners.outcome import REJECTED, UPDATED

DIM, EVENTS, PAIRS = 100, 400, 7
"""A room of 8 steps; lists that end nowhere near where it is full."""
WEIGHTS = np.linspace(0.2, 1, EVENTS)


def lists(seed: int = 0) -> TripletBatch:
    """Pairs list by list, with a query that is malformed and one of zeros among them."""
    rows = np.random.default_rng(seed).standard_normal((3, EVENTS, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    query = np.repeat(rows[0], PAIRS, axis=0)[:EVENTS]
    query[40], query[50], query[60] = np.nan, 0, -query[60]
    query[70:72, 3] += 0.5  # unlike the rest of its list, but not from the first number on
    return TripletBatch(*map(DenseBlock, (query, rows[1], rows[2])))


def learned(kind: type[Oasis], cuts: list[int], config: OasisConfig | None = None) -> tuple[Any, list[bytes]]:
    learner, batch, infos = kind(DIM, config), lists(), []
    for start, stop in itertools.pairwise([0, *sorted(cuts), EVENTS]):
        info = learner.learn_many(batch.slice(start, stop), WEIGHTS[start:stop])
        infos += [one.tobytes() for one in (info.outcome, info.loss, info.tau)]
        state = {name: np.array(one) for name, one in learner.state().items()}
        learner = kind.from_state(state, config)
    return learner, [b"".join(infos[n::3]) for n in range(3)]


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (Oasis, None),
        (OasisByQuery, None),
        (Oasis, OasisConfig(0.1, "online")),
        (OasisByQuery, OasisConfig(0.02)),
    ],
)
@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(0, EVENTS), max_size=9) | st.just(list(range(1, EVENTS))))
def test_bits_of_lists_do_not_depend_on_how_they_are_cut(
    kind: type[Oasis], config: OasisConfig | None, cuts: list[int]
) -> None:
    (cut, told), (whole, told_whole) = learned(kind, cuts, config), learned(kind, [], config)
    assert told == told_whole
    assert all(one.tobytes() == whole.state()[name].tobytes() for name, one in cut.state().items())


def test_steps_that_are_summed_are_those_of_oasis_but_for_rounding() -> None:
    summed, plain = learned(OasisByQuery, [])[0], learned(Oasis, [])[0]
    assert summed.events == plain.events
    assert np.abs(summed.W - plain.W).max() < 1e-5
    assert np.abs(plain.W - np.eye(DIM)).max() > 0.01
    assert summed.base.tobytes() != plain.base.tobytes()


def test_events_between_lists_are_refused_as_everywhere() -> None:
    learner = OasisByQuery(DIM)
    info = learner.learn_many(lists())
    assert info.outcome[40] == REJECTED
    assert np.flatnonzero(info.outcome == REJECTED).tolist() == [40]
    assert (info.outcome == UPDATED).sum() > EVENTS // 2


def test_a_list_longer_than_the_room_is_learned_as_a_whole() -> None:
    rows = np.random.default_rng(1).standard_normal((2, EVENTS, DIM)).astype(np.float32) / 10
    query = np.repeat(rows[0][:1], EVENTS, axis=0)
    batch = TripletBatch(*map(DenseBlock, (query, rows[0], rows[1])))
    summed, plain = OasisByQuery(DIM), Oasis(DIM)
    summed.learn_many(batch)
    plain.learn_many(batch)
    assert np.abs(summed.W - plain.W).max() < 1e-5


def test_rows_of_another_dimension_are_refused() -> None:
    with pytest.raises(BlockError, match="map them alike"):
        OasisByQuery(DIM + 1).learn_many(lists())
