"""Laws of every learner under caps: what an event may still do is decided by the events in their order alone,
and is a weight, which every learner honours."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.base import Learner
from learners.caps import CappedInfo, CapsConfig, StepWindow, learn_capped

from .examples import spoiled, triplets
from .learners_under_test import EACH_IMPLEMENTATION, EACH_IMPLEMENTATION_INPUT, WITH_FULL_STEP
from .under_test import DIM, UnderTest, bits, saved, without_counters

EVENTS = 60
CAPS = CapsConfig(window=20, source=3.0, query=1.5, item=1.0)
WEIGHTS = [0.0, 0.3, 1.0, 2.5, -1.0]


def stream(seed: int) -> tuple[NDArray[np.float64], NDArray[np.uint64]]:
    """Weights, and names of few, so that they come again."""
    rng = np.random.default_rng(seed)
    names = rng.integers(0, (3, 6, 6, 6), (EVENTS, 4)).astype(np.uint64)
    return rng.choice(WEIGHTS, EVENTS), names


def learn(
    subject: UnderTest, kind: str, seed: int, cuts: list[int], learner: Learner, window: StepWindow
) -> list[CappedInfo]:
    """The stream in pieces."""
    batch, (weights, names) = spoiled(triplets(seed, EVENTS, DIM, kind), seed), stream(seed)
    return [
        learn_capped(
            learner,
            window,
            batch.slice(start, stop),
            weights[start:stop],
            names[start:stop],
            full_step=subject.full_step,
        )
        for start, stop in pairwise([0, *sorted({*cuts, EVENTS})])
    ]


@EACH_IMPLEMENTATION_INPUT
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(1, EVENTS - 1), max_size=6))
@settings(max_examples=5, deadline=None)
def test_any_cut_gives_the_same_bits(subject: UnderTest, kind: str, seed: int, cuts: list[int]) -> None:
    whole, parts = subject.make(), subject.make()
    one, other = StepWindow(CAPS), StepWindow(CAPS, salt=seed)
    first, rest = learn(subject, kind, seed, [], whole, one), learn(subject, kind, seed, cuts, parts, other)
    assert bits(whole) == bits(parts)
    assert {name: array.tobytes() for name, array in one.arrays().items()} == {
        name: array.tobytes() for name, array in other.arrays().items()
    }
    assert first[0].fates.tolist() == np.concatenate([part.fates for part in rest]).tolist()


@EACH_IMPLEMENTATION_INPUT
def test_a_copy_that_takes_what_was_let_in_has_the_same_bits(subject: UnderTest, kind: str) -> None:
    """A replica knows of no caps: it is told the events let in, with the weights they were learned with."""
    learner, copy, plain = subject.make(), subject.make(), subject.make()
    window, batch = StepWindow(CAPS), spoiled(triplets(3, EVENTS, DIM, kind), 3)
    (info,) = learn(subject, kind, 3, [], learner, window)
    assert 0 < len(info.rows) < EVENTS
    assert info.limited
    let_in = batch.take(info.rows)
    for steps in learner.taken(let_in, info.info, info.weights):
        copy.replay(steps)
    plain.learn_many(let_in, info.weights)
    assert bits(plain) == bits(learner)
    assert without_counters(bits(copy)) == without_counters(bits(learner))


@EACH_IMPLEMENTATION
def test_it_goes_on_from_learner_and_window_as_if_never_stopped(subject: UnderTest) -> None:
    kind, learner, window = subject.inputs[0], subject.make(), StepWindow(CAPS)
    learn(subject, kind, 1, [], learner, window)
    again = subject.restored(saved(learner))
    arrays = {name: array.copy() for name, array in window.arrays().items()}
    learn(subject, kind, 2, [], learner, window)
    learn(subject, kind, 2, [17], again, StepWindow.from_arrays(CAPS, arrays))
    assert bits(again) == bits(learner)


@WITH_FULL_STEP
def test_a_weight_bounds_the_step(subject: UnderTest) -> None:
    """tau <= full step times weight, on which a cap in full steps rests; else an event spends its weight."""
    assert subject.full_step
    weights = np.random.default_rng(0).choice([0.0, 0.25, 1.0, 3.0], 200)
    info = subject.make().learn_many(triplets(0, 200, DIM, subject.inputs[0], 0.5), weights)
    assert (info.tau <= subject.full_step * weights * (1 + 1e-6)).all()
    assert np.isclose(info.tau, subject.full_step * weights).any()
