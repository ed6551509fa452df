"""The bench of `make quality`: its fast steps, clicks and measures are those of the product, and rivals are
trained as they say.
"""

from __future__ import annotations

import numpy as np
import pytest

from daemon.demo.users import position_biased
from learners import Oasis, OasisConfig
from learners.forms.serving import ServingForm
from streams.event import Impression, ObjectRef
from streams.feed.options import FeedSettings
from streams.feed.triplets import CatalogCandidates, make_events
from tests.quality.bench import rivals
from tests.quality.bench.forms import Eigen, Form, own_scores, scores
from tests.quality.bench.geometry import mapped
from tests.quality.bench.labels import ridge, triplets
from tests.quality.bench.loop import Learning, step
from tests.quality.bench.retrieval import judge, nearest
from tests.quality.bench.sets import RawSet, load, unit
from tests.quality.bench.users import LENGTH, Users, cascade, position, split
from tests.quality.clicks import cascade as cascade_of_one


@pytest.fixture(scope="module")
def digits() -> RawSet:
    return load("digits")


@pytest.fixture(scope="module")
def learned(digits):
    lists = nearest(own_scores(digits.joined()), LENGTH, len(digits))
    return lists, Users(digits, "position", 3, split(digits)).look(lists, 1_500)


def test_steps_are_those_of_the_learner(digits, learned):
    space, how = mapped(digits, "precondition"), Learning(negative=0.3)
    rows, drawn = learned[1].rows, learned[1].drawn
    W = step(space.first("own"), space, rows, how.bounds(drawn))
    state = {"W": space.first("own"), "events": np.zeros((), np.int64)}
    learner = Oasis.from_state(state, OasisConfig(C=how.C))
    learner.learn_many(*(space.Z[one] for one in rows), np.where(drawn, 0.3, 1.0))
    assert np.abs(learner.W - space.first("own")).max() > 0.1
    np.testing.assert_allclose(W, learner.W, atol=2e-4)


def test_the_owners_ranking_is_a_metric_of_the_space(digits):
    space, rows = mapped(digits, "precondition"), np.arange(40)
    form = scores(np.diag(space.metric), space.Z)
    of_items = form(rows) / form(rows)[np.arange(40), rows][:, None]
    np.testing.assert_allclose(of_items, own_scores(digits.joined())(rows), atol=1e-5)


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_forms_are_those_that_are_served(digits, learned, power):
    space = mapped(digits, "precondition")
    W = step(space.first("identity"), space, learned[1].rows, Learning().bounds(learned[1].drawn))
    served = ServingForm.from_matrix(W, power=power)
    rows = np.arange(0, 200, 7)
    ours = scores(Eigen(W).matrix(Form(power), space.metric), space.Z)(rows)
    theirs = served.scores(space.Z[rows], space.Z)
    scale = (ours / theirs).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs * scale, atol=2e-4 * np.abs(ours).max())


def test_measures_by_hand():
    labels = np.array([0, 0, 1, 0, 1])
    table = np.array([[9.0, 3, 5, 4, 1]] * 5, np.float32)
    found = judge(lambda rows: table[rows], labels, np.array([0, 2]))
    np.testing.assert_allclose(found.ap, [(1 / 2 + 2 / 3) / 2, 1 / 4])  # 2 3 1 4; 0 3 1 4
    np.testing.assert_allclose(found.p10, [2 / 4, 1 / 4])


@pytest.mark.parametrize(("many", "one"), [(position, position_biased), (cascade, cascade_of_one)])
def test_clicks_are_as_likely_as_of_one_list(many, one):
    same = np.array([True, False, True, True, False, False, True, False, True, True])
    rng = np.random.default_rng(0)
    each = np.zeros(LENGTH)
    for _ in range(20_000):
        each[list(one(same, rng))] += 1
    np.testing.assert_allclose(many(np.tile(same, (20_000, 1)), rng).mean(0), each / 20_000, atol=0.015)


def test_triplets_are_those_of_the_feed(digits, learned):
    """The same pairs where the cap takes none away, as many where it does; one drawn object per click."""
    lists, made = learned
    data, ids = digits, digits.ids
    clicks = {number: set() for number in made.clicked_of.tolist()}
    asked = dict(zip(made.clicked_of.tolist(), made.clicked[0].tolist(), strict=True))
    for number, row in zip(made.clicked_of.tolist(), made.clicked[1].tolist(), strict=True):
        clicks[number].add(row)
    below_cap = 0
    for number, clicked in clicks.items():
        shown = lists[asked[number]].tolist()
        ranks = tuple(rank for rank, row in enumerate(shown) if row in clicked)
        query, objects = ObjectRef(id=ids[asked[number]]), tuple(ObjectRef(id=ids[row]) for row in shown)
        seen = Impression(f"visit-{number}", 1, query, objects, ranks)
        feed = make_events(seen, frozenset(), CatalogCandidates(ids), FeedSettings())
        own = made.rows[:, made.of == number]
        pairs = own[:, ~made.drawn[made.of == number]]
        assert own.shape[1] - pairs.shape[1] == feed.negatives == len(ranks)
        assert (own[0] == asked[number]).all()
        wanted = {(event.clicked.id, event.skipped.id) for event in feed.events[: -feed.negatives]}
        found = {(ids[c], ids[s]) for c, s in zip(*pairs[1:].tolist(), strict=True)}
        assert len(found) == pairs.shape[1] == len(wanted)
        if not feed.capped_pairs:
            below_cap += 1
            assert found == wanted
        drawn = own[2][made.drawn[made.of == number]]
        assert not set(drawn.tolist()) & (clicked | {asked[number]})
    assert below_cap > 300
    assert len(data) > 0


def test_who_is_judged_never_asks(digits, learned):
    for kinds in (False, True):
        who = split(digits, 1, kinds)
        assert not set(who.asking) & (set(who.judged) | set(who.unseen))
        assert not kinds or not set(digits.labels[who.unseen]) & set(digits.labels[who.asking])
    assert not set(learned[1].rows[0]) & set(split(digits).judged)


def test_label_triplets_and_ridge(digits):
    rows = split(digits).asking
    q, c, s = triplets(digits, rows, 20_000, 0)
    assert (digits.labels[q] == digits.labels[c]).all()
    assert (digits.labels[q] != digits.labels[s]).all()
    assert set(s) <= set(rows)
    shares = np.bincount(digits.labels[s]) / len(s)
    np.testing.assert_allclose(shares, 0.1, atol=0.02)
    judged = split(digits).judged[:100]
    own = judge(own_scores(digits.joined()), digits.labels, judged).pair
    assert judge(ridge(digits.joined(), digits, rows, 1.0), digits.labels, judged).pair > own


@pytest.mark.parametrize("gradient", [rivals._both, rivals._query_only])
def test_adapters_follow_the_gradient_of_their_loss(gradient):
    rng = np.random.default_rng(1)
    q, c, s = (unit(rng.normal(size=(6, 5))) for _ in range(3))
    A = (np.eye(5) + 0.1 * rng.normal(size=(5, 5))).astype(np.float32)

    def loss(A):
        u = unit(q.astype(float) @ A).astype(float)
        if gradient is rivals._query_only:
            return np.maximum(0, (u * (s - c)).sum(1) + rivals.MARGIN).mean()
        logits = u @ unit(c.astype(float) @ A).T / rivals.TEMPERATURE
        return np.mean(np.log(np.exp(logits).sum(1)) - np.diag(logits))

    found, step_size = gradient(A, q, c, s), 1e-3
    for i, j in ((0, 0), (1, 3), (4, 2)):
        moved = np.zeros_like(A)
        moved[i, j] = step_size
        slope = (loss(A + moved) - loss(A - moved)) / (2 * step_size)
        assert found[i, j] == pytest.approx(slope, rel=0.05, abs=2e-3)


def test_rivals_learn_from_clicks(digits, learned):
    """Each in its best setting is at least about the owner's ranking here, and some are above."""
    made, X = learned[1], digits.joined()
    counts = [np.bincount(rows.ravel(), minlength=len(digits)) for rows in (made.shown, made.clicked[1])]
    judged = split(digits).judged[:100]
    own = judge(own_scores(X), digits.labels, judged).pair[0]
    best = {
        name: max(
            judge(one, digits.labels, judged).pair[0]
            for one in rival(X, rivals.Pairs(*made.clicked, *counts))
        )
        for name, rival in rivals.RIVALS.items()
    }
    assert min(best.values()) > own - 0.05
    assert sum(one > own for one in best.values()) >= 3
