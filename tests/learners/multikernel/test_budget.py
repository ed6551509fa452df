"""The support set: objects once each, a budget that holds, who goes, and states that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import ConfigError, StateError, TripletBatch, as_block
from learners.kernels.tiles import LANES
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels, one_kernel

from ..examples import triplets
from .setups import DIM, learner


def events(objects: np.ndarray, rows: list[tuple[int, int, int]]) -> TripletBatch:
    """Triplets of rows of `objects`."""
    q, c, s = (as_block(objects[[row[role] for row in rows]]) for role in range(3))
    return TripletBatch(q, c, s)


def some_objects(n: int = 40) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((n, DIM)).astype(np.float32) / 4


@given(seed=st.integers(0, 2**32 - 1), evict=st.sampled_from(["oldest", "smallest"]))
@settings(max_examples=25, deadline=None)
def test_the_budget_holds_and_what_is_derived_agrees(seed: int, evict: str) -> None:
    rng, objects = np.random.default_rng(seed), some_objects(60)
    one = learner(evict=evict, triplets=25, objects=LANES)
    shapes = {name: (array.shape, array.dtype) for name, array in one.state().items()}
    for _ in range(6):
        one.learn_many(events(objects, rng.integers(0, 60, (12, 3)).tolist()))
        assert one.support.kept <= 25
        assert one.support.objects <= LANES
        again = one.clone()
        used = again.support.index[3]
        np.testing.assert_array_equal(one.support.index[3], used)
        held = np.flatnonzero(used.any(axis=1))
        np.testing.assert_array_equal(one.support.index[2][held], again.support.index[2][held])
        rows = one.support.rows.transpose(0, 2, 1).reshape(-1, DIM)[held]
        assert len(np.unique(rows, axis=0)) == len(held)
    assert {name: (array.shape, array.dtype) for name, array in one.state().items()} == shapes


def test_an_object_is_kept_once_and_a_triplet_too() -> None:
    objects = some_objects()
    objects[3] = objects[0] + np.float32(0)
    objects[0, 0], objects[3, 0] = 0.0, -0.0
    one = learner()
    one.learn_many(events(objects, [(0, 1, 2), (3, 1, 2), (1, 0, 2)]))
    assert one.support.objects == 3
    assert one.support.kept == 2


def test_the_oldest_goes_and_one_that_came_again_is_no_longer_old() -> None:
    objects, one = some_objects(), learner(triplets=3, objects=200, C=0.001)
    rows = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 1, 2), (9, 10, 11)]
    one.learn_many(events(objects, rows), np.array([1.0, 4.0, 1.0, 1.0, 1.0]))
    kept = one.support.rows.transpose(0, 2, 1).reshape(-1, DIM)[one.support.triplets[:, 0]]
    assert {tuple(row) for row in kept} == {tuple(objects[row]) for row in (0, 6, 9)}
    np.testing.assert_array_equal(one.counts, [5, 1])


def test_the_smallest_goes() -> None:
    objects = some_objects()
    one = Omks(
        DIM, one_kernel(DIM, KernelConfig(), gamma=1.0, C=0.01, triplets=3, objects=50, evict="smallest")
    )
    batch = events(objects, [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)])
    one.learn_many(batch, np.array([1.0, 0.25, 2.0, 0.5]))
    assert sorted(one.support.tau[:, 0].tolist()) == pytest.approx([0.005, 0.01, 0.02])


def test_what_was_evicted_no_longer_counts() -> None:
    objects = some_objects()
    forgot, never = (learner("uniform", triplets=1, objects=200) for _ in range(2))
    forgot.learn_many(events(objects, [(0, 1, 2), (3, 4, 5)]))
    place = {name: array.copy() for name, array in forgot.state().items()}
    alone = Omks.from_state(place, never.config)
    assert alone.similarity(objects, objects).tobytes() == forgot.similarity(objects, objects).tobytes()
    never.learn_many(events(objects, [(3, 4, 5)]))
    np.testing.assert_allclose(
        forgot.similarity(objects, objects), never.similarity(objects, objects), atol=0.1
    )


@pytest.mark.parametrize("name", ["rows", "triplets", "tau", "joined", "standing", "gamma", "counts"])
def test_arrays_that_are_no_state_are_refused_by_name(name: str) -> None:
    one = learner()
    one.learn_many(triplets(0, 20, DIM, "dense"))
    state = {key: array.copy() for key, array in one.state().items()}
    wrong: list[Any] = [None, state[name].astype(np.int16), state[name][..., :0]]
    if state[name].dtype.kind == "f":
        wrong.append(np.full_like(state[name], np.nan))
    for array in wrong:
        arrays = {**state, name: array}
        if array is None:
            del arrays[name]
        with pytest.raises(StateError, match=name):
            Omks.from_state(arrays, one.config)


def test_slots_out_of_range_are_refused() -> None:
    one = learner()
    state = {key: array.copy() for key, array in one.state().items()}
    state["triplets"][0] = 0, 1, 10**6
    with pytest.raises(StateError, match="slots"):
        Omks.from_state(state, one.config)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: KernelConfig("wave"), "kind"),  # type: ignore[arg-type]
        (lambda: KernelConfig(sigma=0), "sigma"),
        (lambda: KernelConfig("polynomial", degree=0), "degree"),
        (lambda: KernelConfig("polynomial", shift=-1), "shift"),
        (lambda: KernelConfig("linear", centred=True), "can be centred"),
        (lambda: KernelConfig(sigma=11, centred=True), "sigma of a centred"),
        (lambda: ViewKernels(3, 3), "start < stop"),
        (lambda: ViewKernels(0, 3, ()), "kernel"),
        (lambda: ViewKernels(0, 3, gamma=-1), "gamma"),
        (lambda: OmksConfig(()), "views"),
        (lambda: OmksConfig((ViewKernels(0, 3),), C=0), "C must"),
        (lambda: OmksConfig((ViewKernels(0, 3),), triplets=0), "triplets"),
        (lambda: OmksConfig((ViewKernels(0, 3),), objects=2), "objects"),
        (lambda: OmksConfig((ViewKernels(0, 3),), evict="first"), "evict"),  # type: ignore[arg-type]
        (lambda: Omks(2, OmksConfig((ViewKernels(0, 3),))), "column"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(make: Any, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        make()


def test_gamma_comes_from_the_sample() -> None:
    sample = some_objects()
    one = Omks(DIM, OmksConfig((ViewKernels(0, 5), ViewKernels(5, 12, gamma=0.5))), sample)
    part = sample[:, :5].astype(float)
    distances = np.linalg.norm(part[:, None] - part, axis=2)
    np.testing.assert_allclose(one.gamma, [distances.sum() / (len(part) * (len(part) - 1)), 0.5])
    assert Omks(DIM, OmksConfig((ViewKernels(0, 5),))).gamma.tolist() == [np.sqrt(2)]


def test_gamma_does_not_depend_on_the_order_of_the_sample() -> None:
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(20, DIM))
    by_class = (np.repeat(centres, 30, axis=0) + 0.1 * rng.normal(size=(600, DIM))).astype(np.float32)
    config = OmksConfig((ViewKernels(0, DIM),))
    found, mixed = (Omks(DIM, config, rows).gamma for rows in (by_class, rng.permutation(by_class)))
    np.testing.assert_allclose(found, mixed, rtol=1e-6)
