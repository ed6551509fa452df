"""LORETA on a shared matrix is OASIS up to its rank and near it beyond, and is served and merged cheaply."""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.errors import ConfigError
from learners.forms.serving import ServingForm
from learners.keyed import Keyed, KeyedConfig
from learners.loreta import Loreta, LoretaConfig
from learners.merge_rules import correction_goes_on, corrections
from learners.oasis import Oasis

DIM = 24


def rows(seed: int, count: int) -> Any:
    drawn = np.random.default_rng(seed).normal(size=(3, count, DIM)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=2, keepdims=True)


def taught(rank: int, seed: int, count: int) -> Loreta:
    learner = Loreta(DIM, LoretaConfig(rank=rank))
    learner.learn_many(*rows(seed, count))
    return learner


def test_up_to_its_rank_it_is_oasis() -> None:
    given = rows(0, 8)
    low, full = Loreta(DIM, LoretaConfig(rank=8)), Oasis(DIM)
    low.learn_many(*given)
    full.learn_many(*given)
    np.testing.assert_allclose(low.W, full.W, atol=1e-6)


def test_a_higher_rank_is_nearer_to_oasis() -> None:
    given, full = rows(1, 300), Oasis(DIM)
    full.learn_many(*given)
    off = []
    for rank in (1, 4, 12, DIM):
        low = Loreta(DIM, LoretaConfig(rank=rank))
        low.learn_many(*given)
        assert np.linalg.matrix_rank(low.W - low.start, tol=1e-4) <= rank
        off.append(float(np.linalg.norm(low.W - full.W)))
    assert off == sorted(off, reverse=True)
    assert off[-1] < 1e-3


def test_models_of_keys_share_one_matrix() -> None:
    keyed = Keyed(DIM, KeyedConfig.of(Loreta, LoretaConfig(rank=2), slots=1000))
    keyed.learn_many(*rows(2, 40), keys=[f"k{n % 4}" for n in range(40)])
    state = keyed.state()
    assert state["start"].shape == (DIM, DIM)
    assert state["U"].shape == (1000, 2, DIM)
    models = [keyed.learner_of(f"k{n}") for n in range(4)]
    assert all(np.may_share_memory(one.state()["start"], state["start"]) for one in models if one)


def test_the_form_is_that_of_the_whole_matrix_to_first_order() -> None:
    errors = []
    for count in (2, 8):
        learner = taught(8, 3, count)
        own, whole = learner.form(), ServingForm.from_matrix(learner.W)
        queries, items = rows(4, 20)[:2]
        moved = np.abs(whole.scores(queries, items) - queries @ items.T).max()
        errors.append(np.abs(own.scores(queries, items) - whole.scores(queries, items)).max() / moved)
    assert max(errors) < 0.2


def test_corrections_are_merged_to_their_mean() -> None:
    base = taught(8, 5, 2)
    one, two = base.clone(), base.clone()
    one.learn_many(*rows(6, 2))
    two.learn_many(*rows(7, 2))
    states = [one.state(), two.state()]
    merged = corrections(base.state(), states, [0.5, 0.5], {})
    both = Loreta.from_state({**base.state(), **merged}, base.config)
    np.testing.assert_allclose(both.W, (one.W + two.W) / 2, atol=1e-5)
    on = correction_goes_on(one.state(), base.state(), two.state(), {})
    gone_on = Loreta.from_state({**base.state(), **on}, base.config)
    np.testing.assert_allclose(gone_on.W, one.W + two.W - base.W, atol=1e-5)


def test_settings_that_cannot_be_are_refused() -> None:
    for wrong in ({"rank": 0}, {"rank": 257}, {"C": 0.0}):
        try:
            LoretaConfig(**wrong)  # type: ignore[arg-type]
        except ConfigError:
            continue
        raise AssertionError(wrong)
