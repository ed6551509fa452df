"""What a difference between two rankings means, unbiased under which users, and what looking costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daemon.validate.betting import STAKES, PairedTest, log_capital
from daemon.validate.preferences import (
    balanced,
    bets_of,
    by_cluster,
    differences,
    in_shown_order,
    standing_higher,
)
from daemon.validate.scorer import ShownLists
from daemon.validate.shown import propensity_weights

ALPHA = 0.05


def lists_of(clicked, valid=None):
    clicked = np.asarray(clicked, bool)
    valid = np.ones(clicked.shape, bool) if valid is None else valid
    return ShownLists(valid, clicked, np.ones(clicked.shape))


def usable(clicked):
    return clicked.any(axis=1) & ~clicked.all(axis=1)


def examined(length):
    return 1 / np.sqrt(np.arange(1, length + 1))


def shown_order(count, length):
    return np.tile(-np.arange(length, dtype=float), (count, 1))


def test_by_hand():
    """Lists of two: a click on the upper object, one on the lower where the rankings differ, and another."""
    lists = lists_of([[1, 0], [0, 1], [0, 1]])
    own = np.array([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0]])
    other = shown_order(3, 2)
    # They differ by (0 - 1 + 0) / 3 on average; the other direction's share is 0 at first, then 1 and 1/2.
    assert differences(own, other, lists) == pytest.approx([0, 1, 2 * 0.5 * -1 / 3])
    # With nothing subtracted they differ in the second list alone, or in the third one.
    assert balanced(own, other, lists) == pytest.approx([0, 1, 0])
    turned = np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0]])
    assert balanced(turned, other, lists) == pytest.approx([0, 0, 0.5])


def test_rankings_that_agree_differ_nowhere():
    rng = np.random.default_rng(0)
    own = rng.standard_normal((50, 6))
    lists = lists_of(rng.random((50, 6)) < 0.3)
    assert np.all(differences(own, np.exp(own), lists) == 0)
    assert np.all(balanced(own, np.exp(own), lists) == 0)


def slow_above(scores, first, second):
    return 1.0 if scores[first] > scores[second] else 0.5 if scores[first] == scores[second] else 0.0


def slow_apart(own, other, first, second):
    return slow_above(own, first, second) - slow_above(other, first, second)


def slow_pairs(lists):
    """Of each list the pairs of places that are clicked and not, each with its weight, list after list."""
    length = lists.valid.shape[1]
    seen = np.zeros((length, length))
    for valid, clicked in zip(lists.valid, lists.clicked, strict=True):
        pairs = [
            (hit, miss)
            for hit in range(length)
            for miss in range(length)
            if clicked[hit] and valid[miss] and not clicked[miss]
        ]
        both = {pair: seen[pair] + seen[pair[::-1]] for pair in pairs}
        yield [(*p, seen[p[::-1]] / both[p] / len(pairs) if both[p] else 0.0) for p in pairs]
        for pair in pairs:
            seen[pair] += 1 / len(pairs)


def slow_usual(own, other, lists, like):
    """How much the rankings differ on average at two places, over all lists that are counted."""
    length = lists.valid.shape[1]
    usual = np.zeros((length, length))
    for first in range(length):
        for second in range(length):
            apart = [
                slow_apart(own[n], other[n], first, second)
                for n in np.flatnonzero(like & lists.valid[:, first] & lists.valid[:, second])
            ]
            usual[first, second] = np.mean(apart) if apart else 0.0
    return usual


@pytest.mark.parametrize("part", [1, 40, 1 << 20])
@pytest.mark.parametrize("ties", [False, True])
def test_agrees_with_a_slow_loop_in_any_parts(monkeypatch, part, ties):
    monkeypatch.setattr("daemon.validate.shown.PART_PAIRS", part)
    rng = np.random.default_rng(1)
    own, other = rng.integers(0, 3 if ties else 10**6, (2, 90, 5)).astype(np.float32)
    valid = np.arange(5) < rng.integers(0, 6, 90)[:, None]
    lists, like = lists_of(valid & (rng.random((90, 5)) < 0.4), valid), rng.random(90) < 0.6
    weighted = list(slow_pairs(lists))
    for known in (None, like):
        usual = slow_usual(own, other, lists, np.ones(90, bool) if known is None else known)
        wanted = [
            sum(
                w * (slow_above(own[n], h, m) - slow_above(other[n], h, m) - usual[h, m]) for h, m, w in pairs
            )
            for n, pairs in enumerate(weighted)
        ]
        found = differences(own, other, lists, known)
        np.testing.assert_allclose(found, np.clip(2 * np.array(wanted), -1, 1), atol=1e-12)
    plain = [sum(w * slow_apart(own[n], other[n], h, m) for h, m, w in one) for n, one in enumerate(weighted)]
    found = balanced(own, other, lists)
    np.testing.assert_allclose(found, plain, atol=1e-12)
    gained = [
        [w * slow_apart(own[n], other[n], h, m) for h, m, w in pairs] for n, pairs in enumerate(weighted)
    ]
    won, told = standing_higher(own, other, lists)
    np.testing.assert_allclose(told, [sum(map(abs, one)) for one in gained], atol=1e-12)
    np.testing.assert_allclose(won, [0.5 + 0.5 * np.sign(round(sum(one), 12)) for one in gained])
    right = [
        slow_above(own[n], upper, lower)
        for n in range(90)
        for upper in range(5)
        for lower in range(upper + 1, 5)
        if valid[n, lower]
    ]
    assert in_shown_order(own, lists) == pytest.approx(np.mean(right))


def rank_clicks(rng, count, length):
    return rng.random((count, length)) < 0.6 * examined(length)


def test_clicks_by_rank_alone_prefer_nobody():
    """Whoever made the lists, and however the two rankings differ at each rank."""
    rng = np.random.default_rng(2)
    clicked = rank_clicks(rng, 60_000, 6)
    lists = lists_of(clicked[usable(clicked)])
    shown = shown_order(len(lists.clicked), 6)
    other = shown + 3 * rng.standard_normal(shown.shape) * examined(6)
    for own, reference in ((other, shown), (shown, other), (other, -shown)):
        found = differences(own, reference, lists)
        assert abs(found.mean()) < 3 * found.std() / math.sqrt(len(found))
        plain = (_ordered(own, lists) - _ordered(reference, lists)).mean()
        assert abs(plain) > 0.02, "plain pair accuracy takes a rank for a preference"


def _ordered(scores, lists, weights=1.0):
    """Plain share of (clicked, unclicked) pairs in the right order, or propensity-weighted clicks."""
    pairs = lists.clicked[:, :, None] & ~lists.clicked[:, None, :]
    pairs = pairs * np.broadcast_to(weights, lists.clicked.shape)[:, :, None]
    right = scores[:, :, None] > scores[:, None, :]
    return (pairs * right).sum(axis=(1, 2)) / np.maximum(1e-9, pairs.sum(axis=(1, 2)))


def preferring(rng, count, length, informative):
    """Objects of relevance .1 or .8; shown at random, or better ones mostly first; and clicks on them."""
    good = rng.random((count, length)) < 0.4
    order = np.argsort(rng.random(good.shape) - informative * good, axis=1)
    good = np.take_along_axis(good, order, axis=1)
    clicked = rng.random(good.shape) < np.where(good, 0.8, 0.1) * examined(length)
    keep = usable(clicked)
    return good[keep], lists_of(clicked[keep])


@pytest.mark.parametrize("informative", [0.0, 0.5])
def test_the_sign_is_that_of_users_preference(informative):
    rng = np.random.default_rng(3)
    good, lists = preferring(rng, 5_000, 6, informative)
    shown = shown_order(*good.shape)
    better = shown + 2.0 * good
    worse = shown - 2.0 * good
    assert differences(better, shown, lists).mean() > 0.02
    assert differences(worse, shown, lists).mean() < -0.02
    assert differences(better, worse, lists).mean() > 0.02


def test_it_does_not_see_that_the_shown_order_was_good():
    """What it cannot know without exploration: places changed at random cost nothing here, and users a lot.
    With known propensities, weighted clicks on objects see it.
    """
    rng = np.random.default_rng(4)
    good, lists = preferring(rng, 40_000, 6, informative=1.0)
    shown = shown_order(*good.shape)
    shuffled = rng.standard_normal(shown.shape)
    found = differences(shuffled, shown, lists)
    assert abs(found.mean()) < 3 * found.std() / math.sqrt(len(found))
    relevant = np.broadcast_to(1.0, good.shape)
    truly = _mean_rank_of(shuffled, good, relevant) - _mean_rank_of(shown, good, relevant)
    weights = propensity_weights(examined(6))
    weighed = _mean_rank_of(shuffled, lists.clicked, weights) - _mean_rank_of(shown, lists.clicked, weights)
    assert truly > 0.3, "the shuffled order is no worse: nothing is tested"
    assert weighed > 0.3


def _mean_rank_of(scores, chosen, weights):
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1)
    weights = chosen * weights
    return (weights * ranks).sum() / weights.sum()


STREAMS = 10_000
LISTS = 150


def streams_without_preference(rng):
    """One stream: users look at ranks alone, and another ranking made of the shown one and noise is judged.

    In every second one it is the judged ranking that makes the lists.
    """
    clicked = rank_clicks(rng, LISTS, 4)
    lists = lists_of(clicked[usable(clicked)])
    shown = shown_order(len(lists.clicked), 4)
    other = shown + rng.uniform(0.3, 3) * rng.standard_normal(shown.shape)
    return (other, shown, lists) if rng.random() < 0.5 else (shown, other, lists)


def test_of_ten_thousand_streams_looked_at_after_each_list_at_most_one_in_twenty_is_promoted():
    """Beside it the same streams under a fixed threshold: one-sided, at two deviations, from 20 lists on."""
    rng = np.random.default_rng(5)
    told = np.zeros((STREAMS, LISTS))
    for row in told:
        found = differences(*streams_without_preference(rng))
        row[: len(found)] = found
    seen = np.arange(1, LISTS + 1)
    mean = np.cumsum(told, axis=1) / seen
    deviation = np.sqrt(np.cumsum(told**2, axis=1) / seen - mean**2)
    fixed = (mean > 2 * deviation / np.sqrt(seen))[:, 20:].any(axis=1).mean()
    logs = np.zeros((STREAMS, len(STAKES)))
    highest = np.zeros(STREAMS)
    for difference in told.T:
        logs += np.log1p(difference[:, None] * STAKES)
        highest = np.maximum(highest, log_capital(logs))
    always = (highest >= -math.log(ALPHA)).mean()
    sample = PairedTest().take(told[0], LISTS)
    assert sample.above.log == pytest.approx(log_capital(logs[0]))
    print(f"false promotions of {STREAMS:,} streams: {always:.4f}; two deviations: {fixed:.4f}")
    assert always <= ALPHA
    assert fixed > 2 * ALPHA, "a fixed threshold would do: nothing is tested"


def test_lists_of_one_query_make_one_bet():
    assert by_cluster(np.array([0.5, 0.1, -0.5, 0.3]), ["a", "b", "a", "b"]) == pytest.approx([0.0, 0.2])
    assert by_cluster(np.array([np.nan, 0.1, -0.5, np.nan]), ["a", "b", "a", "c"]) == [0.1, -0.5]


def test_a_query_asked_k_times_weighs_as_much_as_the_root_of_k_queries():
    told = bets_of(np.array([0.5, 0.1, -0.2, 0.3]), ["a", "b", "a", "b"])
    assert told == pytest.approx([0.3 / math.sqrt(2), 0.4 / math.sqrt(2)])
    assert bets_of(np.array([np.nan, 0.1, -0.5, np.nan]), ["a", "b", "a", "c"]) == [0.1, -0.5]
    assert bets_of(np.array([0.9, 0.9, -1.0, -1.0]), ["a", "a", "b", "b"]) == [1.0, -1.0], "cut"
    assert bets_of(np.full(3, np.nan), ["a", "b", "a"]) == bets_of(np.zeros(0), []) == []


@pytest.mark.parametrize("length", [2, 3, 6])
def test_balanced_differences_prefer_nobody_where_clicks_are_by_rank_alone(length):
    """Once both outcomes were seen at each pair of ranks: whoever made the lists, and however short they are.
    Cut at one half they would prefer what is nearer to the shown order."""
    rng = np.random.default_rng(12)
    clicked = np.zeros((60_000, length), bool)
    share = examined(length) / examined(length).sum()
    clicked[np.arange(60_000), rng.choice(length, 60_000, p=share)] = True
    lists, shown = lists_of(clicked), shown_order(60_000, length)
    one, two = rng.standard_normal((2, *shown.shape))
    for own, reference in ((one, two), (one, shown), (shown, one), (shown + one, two), (-shown, shown)):
        found = balanced(own, reference, lists)[500:]
        assert abs(found).max() <= 1
        assert abs(found.mean()) < 3 * found.std() / math.sqrt(len(found))
    found = balanced(shown + one, two, lists)[500:].clip(-0.5, 0.5)
    if length == 2:
        assert found.mean() > 3 * found.std() / math.sqrt(len(found)), (
            "a cut costs nothing: nothing is tested"
        )
