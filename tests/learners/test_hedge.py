"""The weights of many kernels: as printed, without an end in a corner, and their mistake bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.errors import ConfigError, StateError
from learners.hedge import HedgeConfig, best_beta, first_standing, read_standing, theta
from learners.kernels.omks_blocks import weigh_rounds

LEARNING = ["hedge", "share", "discount", "margins"]


def play(config: HedgeConfig, margins: np.ndarray, awake: np.ndarray | None = None) -> np.ndarray:
    """The standing after these rounds."""
    standing = first_standing(config, margins.shape[1])
    present = np.ones(margins.shape, bool) if awake is None else awake
    rule = config.kernel_settings(margins.shape[1])
    weigh_rounds(*rule, standing, np.ascontiguousarray(margins), present)
    return standing


@pytest.mark.parametrize("rule", ["hedge", "share", "discount"])
def test_of_a_known_number_of_rounds_beta_is_as_printed(rule: Any) -> None:
    """sqrt(T) / (sqrt(T) + sqrt(ln m)), whatever beta is given besides."""
    margins = np.random.default_rng(0).standard_normal((40, 3))
    printed = math.sqrt(40) / (math.sqrt(40) + math.sqrt(math.log(3)))
    known, given_one = HedgeConfig(rule, beta=0.5, horizon=40), HedgeConfig(rule, beta=printed)
    assert play(known, margins).tobytes() == play(given_one, margins).tobytes()
    if rule == "hedge":
        expected = printed ** (margins <= 0).sum(axis=0)
        np.testing.assert_allclose(theta(known, play(known, margins)), expected / expected.sum())


@pytest.mark.parametrize(("rule", "horizon"), [("margins", 10), ("uniform", 10), ("hedge", -1)])
def test_a_horizon_that_means_nothing_is_refused(rule: Any, horizon: int) -> None:
    with pytest.raises(ConfigError, match="horizon"):
        HedgeConfig(rule, horizon=horizon)


def test_as_printed_a_weight_is_beta_to_the_mistakes() -> None:
    margins = np.random.default_rng(0).standard_normal((40, 3))
    margins[3, 1] = 0.0  # a margin of 0 is a mistake
    config = HedgeConfig("hedge", beta=0.9)
    printed = 0.9 ** (margins <= 0).sum(axis=0)
    np.testing.assert_allclose(theta(config, play(config, margins)), printed / printed.sum(), rtol=1e-12)


def test_on_a_long_stream_nothing_underflows_and_the_order_is_kept() -> None:
    margins = np.where(np.random.default_rng(0).random((300_000, 3)) < [0.5, 0.4, 0.3], -1.0, 1.0)
    config = HedgeConfig("hedge", beta=0.5)
    standing = play(config, margins)
    mistakes = (margins <= 0).sum(axis=0)
    np.testing.assert_allclose(np.diff(standing), np.diff(mistakes) * np.log(0.5), rtol=1e-9)
    assert theta(config, standing).tolist() == [0, 0, 1]
    assert theta(config, standing).sum() == 1


@pytest.mark.parametrize("rule", ["share", "discount", "margins"])
def test_other_rules_come_back_when_the_stream_turns(rule: str) -> None:
    """The first kernel is right for long, then wrong: Hedge as printed stays with it, the others do not."""
    rng = np.random.default_rng(1)
    right = np.concatenate([np.tile([0.95, 0.5], (20_000, 1)), np.tile([0.3, 0.9], (5_000, 1))])
    margins = np.where(rng.random(right.shape) < right, 1.0, -1.0) * rng.random(right.shape)
    assert theta(HedgeConfig("hedge"), play(HedgeConfig("hedge"), margins))[0] > 0.99
    assert theta(HedgeConfig(rule), play(HedgeConfig(rule), margins))[1] > 0.8


@pytest.mark.parametrize("rule", ["hedge", "share", "discount", "margins", "uniform"])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_kernel_asleep_keeps_its_weight(rule: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    margins, awake = rng.standard_normal((30, 4)), rng.random((30, 4)) < 0.7
    awake[:, 2] = False
    config = HedgeConfig(rule)
    standing = play(config, margins, awake)
    assert standing[2] == first_standing(config, 4)[2]
    if rule != "margins":
        np.testing.assert_allclose(np.exp(standing).sum(), 1, rtol=1e-12)
    changed = np.where(awake, margins, np.nan)
    assert play(config, changed, awake).tobytes() == standing.tobytes()


@given(seed=st.integers(0, 2**32 - 1), m=st.integers(2, 8), T=st.integers(1, 400))
@settings(max_examples=50, deadline=None)
def test_the_weighted_vote_keeps_its_mistake_bound(seed: int, m: int, T: int) -> None:
    """Mistakes of the vote <= (2 ln(1/beta) min_i sum_t z_i + 2 ln m) / (1 - beta)."""
    rng = np.random.default_rng(seed)
    margins = rng.standard_normal((T, m)) + rng.uniform(-1, 1, m)
    beta = best_beta(T, m)
    config, mistakes = HedgeConfig("hedge", beta=beta), 0
    standing, awake = first_standing(config, m), np.ones((1, m), bool)
    for row in margins:
        mistakes += theta(config, standing) @ (row <= 0) >= 0.5
        weigh_rounds(*config.kernel_settings(m), standing, row[None], awake)
    best = (margins <= 0).sum(axis=0).min()
    assert mistakes <= (2 * np.log(1 / beta) * best + 2 * np.log(m)) / (1 - beta)


@pytest.mark.parametrize("rule", LEARNING)
def test_rounds_cut_anywhere_give_the_same_bits(rule: str) -> None:
    config, margins = HedgeConfig(rule), np.random.default_rng(2).standard_normal((50, 5))
    standing = first_standing(config, 5)
    for part in np.array_split(margins, 7):
        weigh_rounds(*config.kernel_settings(5), standing, part, np.ones(part.shape, bool))
    assert standing.tobytes() == play(config, margins).tobytes()


def test_margins_can_lose_all_weight_and_find_it_again() -> None:
    config = HedgeConfig("margins", C=10.0)
    none = play(config, -np.ones((20, 2)))
    assert theta(config, none).tolist() == [0, 0]
    assert theta(config, play(config, np.vstack([-np.ones((20, 2)), [[1.0, -1.0]]]))).tolist() == [1, 0]


def test_given_weights_stay_as_they_are() -> None:
    config = HedgeConfig("given", weights=(1.0, 3.0, 0.0))
    np.testing.assert_allclose(
        theta(config, play(config, -np.ones((9, 3)))), [0.25, 0.75, 0], rtol=1e-12, atol=1e-300
    )
    with pytest.raises(ConfigError, match="3 weights are given for 2 kernels"):
        first_standing(config, 2)


@pytest.mark.parametrize(
    ("settings_", "word"),
    [
        ({"rule": "best"}, "rule"),
        ({"beta": 1.0}, "beta"),
        ({"beta": 0.0}, "beta"),
        ({"share": 1.5}, "share"),
        ({"discount": 0.0}, "discount"),
        ({"C": 0.0}, "C must"),
        ({"rule": "given"}, "weights"),
        ({"weights": (1.0,)}, "weights"),
        ({"rule": "given", "weights": (1.0, -1.0)}, "weights"),
        ({"rule": "given", "weights": (0.0, 0.0)}, "weights"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings_: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        HedgeConfig(**settings_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({}, "missing"),
        ({"standing": np.zeros(3, np.float32)}, "float64"),
        ({"standing": np.zeros(2)}, "float64"),
        ({"standing": np.full(3, np.nan)}, "finite"),
        ({"standing": np.array([1.0, 1.0, -1.0])}, "below 0"),
    ],
)
def test_arrays_that_are_no_standing_are_refused(arrays: dict[str, np.ndarray], word: str) -> None:
    with pytest.raises(StateError, match=word):
        read_standing(arrays, HedgeConfig("margins"), 3)
