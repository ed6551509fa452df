"""Laws of every learner: how events are cut into batches changes nothing, and nothing but an event does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import UPDATED, DenseBlock, SparseBlock

from .examples import block, dense, matrices, rows, spoiled, triplets
from .learners_under_test import EACH_IMPLEMENTATION, EACH_IMPLEMENTATION_INPUT, EVERY_INPUT
from .under_test import DIM, UnderTest, bits, saved, without_counters

WEIGHTS = [0.0, 0.5, 1.0, 2.0, -1.0]
SEEDS, COUNTS = st.integers(0, 2**32 - 1), st.integers(20, 40)
CUTS = st.lists(st.integers(0, 40), min_size=2, max_size=6)
EXAMPLES = 3
"""Of streams, for each of some hundred settings and inputs: what is wrong with one is wrong with most."""


@EVERY_INPUT
@given(seed=SEEDS, n=COUNTS, cuts=CUTS)
@settings(max_examples=EXAMPLES)
def test_many_at_once_equals_one_by_one_bit_for_bit(
    subject: UnderTest, kind: str, seed: int, n: int, cuts: list[int]
) -> None:
    batch = spoiled(triplets(seed, n, DIM, kind), seed)
    weights = np.random.default_rng(seed).choice(WEIGHTS, n)
    whole, single, split = subject.make(), subject.make(), subject.make()
    info = whole.learn_many(batch, weights)
    for t in range(n):
        step = single.learn_many(batch.slice(t, t + 1), weights[t : t + 1])
        for name in ("outcome", "loss", "tau", "reason"):
            assert getattr(step, name)[0] == getattr(info, name)[t]
    for start, stop in pairwise([0, *sorted(min(cut, n) for cut in cuts), n]):
        split.learn_many(batch.slice(start, stop), weights[start:stop])
    assert bits(whole) == bits(single) == bits(split)


@EVERY_INPUT
@given(seed=SEEDS, n=COUNTS, cuts=CUTS, pieces=st.integers(1, 5))
@settings(max_examples=EXAMPLES)
def test_what_was_taken_gives_another_copy_the_same_bits(
    subject: UnderTest, kind: str, seed: int, n: int, cuts: list[int], pieces: int
) -> None:
    """Whatever way it was cut. Counters of events are not part of what a copy is asked for."""
    batch = spoiled(triplets(seed, n, DIM, kind), seed)
    weights = np.random.default_rng(seed).choice(WEIGHTS, n)
    learner, copy = subject.make(), subject.make()
    for start, stop in pairwise([0, *sorted(min(cut, n) for cut in cuts), n]):
        part, own = batch.slice(start, stop), weights[start:stop]
        info = learner.learn_many(part, own)
        before = bits(learner)
        told = learner.taken(part, info, own)
        assert bits(learner) == before
        for steps in told:
            for at in range(0, max(1, len(steps)), pieces):
                copy.replay(steps.slice(at, at + pieces))
    assert without_counters(bits(copy)) == without_counters(bits(learner))
    queries, items = batch.query, triplets(seed, 5, DIM, kind).clicked
    assert copy.similarity(queries, items).tobytes() == learner.similarity(queries, items).tobytes()


@EACH_IMPLEMENTATION_INPUT
def test_what_was_taken_keeps_nothing_of_the_batch(subject: UnderTest, kind: str) -> None:
    batch, learner, copy = triplets(4, 30, DIM, kind), subject.make(), subject.make()
    told = learner.taken(batch, learner.learn_many(batch))
    overwrite(batch.query, batch.clicked, batch.skipped)
    for steps in told:
        copy.replay(steps)
    assert without_counters(bits(copy)) == without_counters(bits(learner))


def overwrite(*parts: DenseBlock | SparseBlock) -> None:
    """Let all values be 5."""
    for part in parts:
        part.values[...] = 5


@EACH_IMPLEMENTATION_INPUT
def test_no_events_are_no_change(subject: UnderTest, kind: str) -> None:
    learner, none = subject.make(), triplets(0, 0, DIM, kind)
    before = bits(learner)
    info = learner.learn_many(none)
    assert len(info) == 0
    assert not learner.taken(none, info)
    assert bits(learner) == before
    assert learner.similarity(none.query, block(np.ones((3, DIM), np.float32), kind)).shape == (0, 3)


@EACH_IMPLEMENTATION_INPUT
def test_scoring_changes_nothing_and_repeats(subject: UnderTest, kind: str) -> None:
    batch, learner = triplets(1, 40, DIM, kind), subject.make()
    learner.learn_many(batch)
    before = bits(learner)
    first = learner.similarity(batch.query, batch.clicked)
    second = learner.similarity(batch.query, batch.clicked)
    assert first.dtype == np.float32
    assert first.tobytes() == second.tobytes()
    assert bits(learner) == before


@EACH_IMPLEMENTATION_INPUT
def test_input_is_neither_changed_nor_kept(subject: UnderTest, kind: str) -> None:
    batch, learner = triplets(1, 40, DIM, kind), subject.make()
    same, weights = subject.make(), np.full(40, 0.5)
    copies = matrices(batch)
    info = learner.learn_many(batch, weights)
    same.learn_many(batch, weights)
    for part, copy in zip((batch.query, batch.clicked, batch.skipped), copies, strict=True):
        np.testing.assert_array_equal(dense(part), copy)
    np.testing.assert_array_equal(weights, 0.5)
    state, loss = bits(learner), info.loss.copy()
    overwrite(batch.query, batch.clicked, batch.skipped)
    weights[...] = 7
    assert bits(learner) == state
    np.testing.assert_array_equal(info.loss, loss)
    learner.learn_many(triplets(2, 20, DIM, kind))
    same.learn_many(triplets(2, 20, DIM, kind))
    assert bits(learner) == bits(same)


@EACH_IMPLEMENTATION
def test_a_clone_is_equal_and_independent(subject: UnderTest) -> None:
    kind, learner = subject.inputs[0], subject.make()
    learner.learn_many(triplets(1, 30, DIM, kind))
    clone, before = learner.clone(), bits(learner)
    assert bits(clone) == before
    clone.learn_many(triplets(2, 30, DIM, kind))
    assert bits(learner) == before
    assert bits(clone) != before
    learner.learn_many(triplets(2, 30, DIM, kind))
    assert bits(learner) == bits(clone)


@EVERY_INPUT
def test_a_saved_state_goes_on_as_if_never_stopped(subject: UnderTest, kind: str) -> None:
    learner = subject.make()
    learner.learn_many(triplets(1, 32, DIM, kind))
    kept = saved(learner)
    resumed, taken_over = subject.restored(kept), subject.restored(saved(learner), copy=False)
    queries, items = block(rows(np.random.default_rng(0), 5, DIM), kind), triplets(3, 7, DIM, kind).clicked
    assert resumed.similarity(queries, items).tobytes() == learner.similarity(queries, items).tobytes()
    for each in (learner, resumed, taken_over):
        each.learn_many(triplets(2, 32, DIM, kind))
    assert bits(learner) == bits(resumed) == bits(taken_over)
    assert {name: array.tobytes() for name, array in kept.items()} != bits(learner)


@EACH_IMPLEMENTATION
def test_the_order_of_events_matters(subject: UnderTest) -> None:
    """A learner that gives the same bits for any order has no need of positions; none of these is one."""
    kind = subject.inputs[0]
    batch, forwards, backwards = triplets(5, 30, DIM, kind), subject.make(), subject.make()
    forwards.learn_many(batch)
    backwards.learn_many(batch.take(np.arange(29, -1, -1)))
    assert bits(forwards) != bits(backwards)


@EVERY_INPUT
def test_only_an_update_changes_a_score(subject: UnderTest, kind: str) -> None:
    """Passive, degenerate and rejected events change none (a projection, which comes by count, may); an
    update changes the state."""
    batch = spoiled(triplets(6, 60, DIM, kind), 6)
    weights = np.random.default_rng(6).choice(WEIGHTS, 60)
    learner, items = subject.make(), block(rows(np.random.default_rng(1), 9, DIM, 1.0), kind)
    before, state = learner.similarity(items, items).tobytes(), bits(learner)
    for t in range(60):
        info = learner.learn_many(batch.slice(t, t + 1), weights[t : t + 1])
        after, now = learner.similarity(items, items).tobytes(), bits(learner)
        if info.outcome[0] == UPDATED:
            assert without_counters(now) != without_counters(state)
        else:
            assert info.tau[0] == 0
            assert after == before or info.projected or subject.passive_counts
        before, state = after, now


@EACH_IMPLEMENTATION
def test_a_weight_of_1_is_no_weight(subject: UnderTest) -> None:
    kind = subject.inputs[0]
    batch, plain, weighed = triplets(7, 40, DIM, kind), subject.make(), subject.make()
    plain.learn_many(batch)
    weighed.learn_many(batch, np.ones(40))
    assert bits(plain) == bits(weighed)


@EACH_IMPLEMENTATION
def test_warm_up_leaves_nothing_behind(subject: UnderTest) -> None:
    learner = subject.make()
    before = bits(learner)
    assert learner.warm_up() is None
    assert bits(learner) == before == bits(subject.make())
