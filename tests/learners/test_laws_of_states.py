"""Laws of every learner: its state is named arrays of fixed shapes, read-only, checked, and all it needs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learners import StateError
from tests.harness.memory import kept_after

from .examples import spoiled, triplets
from .learners_under_test import EACH_IMPLEMENTATION, EACH_IMPLEMENTATION_INPUT, EVERY_INPUT
from .under_test import DIM, UnderTest, saved


@EVERY_INPUT
def test_names_shapes_and_types_follow_from_settings_and_dimension(subject: UnderTest, kind: str) -> None:
    """But for the length of arrays that say so."""

    learner = subject.make()

    def layout() -> dict[str, Any]:
        arrays, grows = learner.state(), learner.GROWS
        return {name: (one.dtype, one.ndim if name in grows else one.shape) for name, one in arrays.items()}

    before = layout()
    for seed in range(3):
        learner.learn_many(spoiled(triplets(seed, 60, DIM, kind), seed))
        assert layout() == before
    assert not any("." in name for name in before)


@EACH_IMPLEMENTATION
def test_a_state_cannot_be_written_through(subject: UnderTest) -> None:
    learner = subject.make()
    learner.learn_many(triplets(0, 20, DIM, subject.inputs[0]))
    for name, array in learner.state().items():
        assert array.base is None or not array.flags.writeable, name


@EACH_IMPLEMENTATION
def test_it_changes_with_the_next_step_or_stays_but_a_copy_stays(subject: UnderTest) -> None:
    learner = subject.make()
    kept = saved(learner)
    learner.learn_many(triplets(0, 20, DIM, subject.inputs[0]))
    fresh = saved(subject.make())
    assert {name: array.tobytes() for name, array in kept.items()} == {
        name: array.tobytes() for name, array in fresh.items()
    }


def shorter(array: NDArray[Any]) -> NDArray[Any]:
    """Another shape."""
    return np.zeros((*array.shape, 2), array.dtype)


def retyped(array: NDArray[Any]) -> NDArray[Any]:
    """Another type of number."""
    return array.astype(np.complex64)


@EACH_IMPLEMENTATION
def test_arrays_that_are_no_state_are_refused_by_name(subject: UnderTest) -> None:
    """One that is missing, or of another shape or type."""
    learner = subject.make()
    learner.learn_many(triplets(0, 20, DIM, subject.inputs[0]))
    for name, spoil in product(learner.state(), (None, shorter, retyped)):
        arrays = saved(learner)
        wrong = arrays.pop(name)
        if spoil is not None:
            arrays[name] = spoil(wrong)
        for copy in (True, False):
            with pytest.raises(StateError, match=name):
                subject.restored(arrays, copy=copy)


@EACH_IMPLEMENTATION
def test_values_that_are_not_finite_are_refused_by_name(subject: UnderTest) -> None:
    learner = subject.make()
    learner.learn_many(triplets(0, 20, DIM, subject.inputs[0]))
    for name, value in product(learner.state(), (np.nan, np.inf, -np.inf)):
        arrays = saved(learner)
        if arrays[name].dtype.kind == "f":
            arrays[name].reshape(-1)[-1] = value
            with pytest.raises(StateError, match=name):
                subject.restored(arrays)


@EACH_IMPLEMENTATION
def test_arrays_of_another_dimension_are_refused_or_make_another_learner(subject: UnderTest) -> None:
    arrays = saved(subject.make(DIM + 1))
    try:
        learner = subject.restored(arrays)
    except StateError:
        return
    assert learner.dim == DIM + 1


@EACH_IMPLEMENTATION
def test_a_read_only_state_cannot_be_taken_over(subject: UnderTest) -> None:
    """Where a step writes in place; a state whose arrays are all copied anyway may be."""
    learner, other = subject.make(), subject.make()
    refusal = ""
    try:
        taken = subject.restored(learner.state(), copy=False)
    except StateError as error:
        refusal = str(error)
    if refusal:
        assert "read-only" in refusal
        return
    batch = triplets(0, 20, DIM, subject.inputs[0])
    taken.learn_many(batch)
    assert {name: array.tobytes() for name, array in learner.state().items()} == {
        name: array.tobytes() for name, array in other.state().items()
    }


@EACH_IMPLEMENTATION_INPUT
def test_memory_does_not_grow_with_the_stream(subject: UnderTest, kind: str) -> None:
    """Less than 60 bytes an event: no array is kept. (The interpreter keeps some of its free objects.)"""
    learner, batch = subject.make(), triplets(0, 50, DIM, kind)
    assert kept_after(lambda: learner.learn_many(batch), 20, less_than=60_000) < 60_000
