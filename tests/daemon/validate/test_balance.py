"""Position-balanced accuracy: the shown order earns nothing; counts against a slow oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daemon.validate import shown
from daemon.validate.measures import position_balanced
from daemon.validate.shown import ShownLists


def browsed(random, lists, length):
    """Lists of random lengths, clicked as users do who look at the top first."""
    valid = np.arange(length) < random.integers(2, length + 1, lists)[:, None]
    seen = 1 / (1 + np.arange(length)) ** random.uniform(0.3, 1.5)
    return (random.random((lists, length)) < 0.6 * seen) & valid, valid


def value(scores, clicked, valid):
    return position_balanced(scores, ShownLists(valid, clicked, np.ones(valid.shape)))


@pytest.mark.parametrize("seed", range(10))
def test_any_order_by_rank_alone_scores_exactly_one_half(seed):
    random = np.random.default_rng(seed)
    clicked, valid = browsed(random, 300, 12)
    by_rank = np.arange(12, 0, -1, dtype=np.float32)
    for order in (by_rank, -by_rank, random.permutation(by_rank), np.zeros(12, np.float32)):
        assert value(np.tile(order, (300, 1)), clicked, valid) == 0.5


def test_it_tells_a_better_order_from_a_worse_one():
    random = np.random.default_rng(1)
    clicked, valid = browsed(random, 500, 10)
    noise = random.standard_normal(clicked.shape)
    assert value(noise + clicked, clicked, valid) > 0.7
    assert value(noise - clicked, clicked, valid) < 0.3
    assert value(noise, clicked, valid) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("ties", [False, True])
def test_agrees_with_a_slow_loop_in_any_parts(ties, monkeypatch):
    random = np.random.default_rng(2)
    clicked, valid = browsed(random, 60, 7)
    scores = random.integers(0, 3 if ties else 10**6, clicked.shape).astype(np.float32)
    total = weight = 0.0
    for upper in range(7):
        for lower in range(upper + 1, 7):
            found = {upper: [], lower: []}
            for n in range(60):
                for hit, miss in ((upper, lower), (lower, upper)):
                    if valid[n, lower] and clicked[n, hit] and not clicked[n, miss]:
                        a, b = scores[n, hit], scores[n, miss]
                        found[hit].append(1.0 if a > b else 0.5 if a == b else 0.0)
            if found[upper] and found[lower]:
                a, b = len(found[upper]), len(found[lower])
                mean = (sum(found[upper]) / a + sum(found[lower]) / b) / 2
                total, weight = total + a * b / (a + b) * mean, weight + a * b / (a + b)
    assert value(scores, clicked, valid) == pytest.approx(total / weight)
    monkeypatch.setattr(shown, "PART_PAIRS", 40)
    monkeypatch.setattr(shown, "KEPT_PAIRS", 0)
    assert value(scores, clicked, valid) == pytest.approx(total / weight)


def test_without_both_directions_there_is_no_value():
    clicked = np.array([[True, False], [True, False]])
    assert math.isnan(value(np.ones((2, 2), np.float32), clicked, np.ones((2, 2), bool)))
