"""The bench of `make quality`: its fast steps, clicks and measures are those of the product, and rivals are
trained as they say.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from daemon.demo.users import position_biased
from daemon.validate.choosing import OFFERED
from learners import Oasis, OasisConfig
from learners.block import DenseBlock
from learners.forms.serving import ServingForm
from streams.event import Impression, ObjectRef
from streams.feed.options import FeedSettings
from streams.feed.triplets import CatalogCandidates, make_events
from tests.quality.bench import rivals
from tests.quality.bench.forms import Eigen, Form, own_scores, scores
from tests.quality.bench.geometry import mapped
from tests.quality.bench.labels import ridge, triplets
from tests.quality.bench.loop import Learning, step
from tests.quality.bench.product import VERSIONS, Product
from tests.quality.bench.retrieval import judge, nearest
from tests.quality.bench.sets import RawSet, load, unit
from tests.quality.bench.static import own_lists
from tests.quality.bench.tables import table
from tests.quality.bench.users import LENGTH, NOTHING, Users, cascade, position, split
from tests.quality.bench.versions import Version
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
    """Of the pairs above the clicks, which learners learn by default, the same where the cap takes none
    away, as many where it does; one drawn object per click."""
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
        feed = make_events(seen, frozenset(), CatalogCandidates(ids), FeedSettings(rule="skip_above"))
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
    assert (q != c).all()
    assert set(s) <= set(rows)
    shares = np.bincount(digits.labels[s]) / len(s)
    np.testing.assert_allclose(shares, 0.1, atol=0.02)
    judged = split(digits).judged[:100]
    own = judge(own_scores(digits.joined()), digits.labels, judged).pair
    assert judge(ridge(digits.joined(), digits, rows, 1.0), digits.labels, judged).pair > own


def test_a_cell_of_fewer_seeds_than_its_column_says_so():
    rows = {"ours": {500: (0.5, 0.6, 3)}, "rival": {500: (0.4, 0.5, 1)}}
    text = list(table("a set", rows, {500: 3}, {500: "learned"}))
    assert "| ours | 0.500 / 0.600 |" in text
    assert "| rival | 0.400 / 0.500 (1 of 3 seeds) |" in text


def test_who_is_alone_in_a_class_is_no_query():
    data = RawSet("few", {"x": np.eye(5, dtype=np.float32)}, np.array([0, 1, 1, 2, 2]))
    q, c, _ = triplets(data, np.array([0, 1, 3, 4]), 200, 0)
    assert set(zip(q.tolist(), c.tolist(), strict=True)) == {(3, 4), (4, 3)}


@pytest.mark.parametrize(
    "loss",
    [partial(rivals.both_sides, temperature=0.1), partial(rivals.query_side, margin=0.3)],
    ids=["both", "query"],
)
def test_adapters_follow_the_gradient_of_their_loss(loss):
    rng = np.random.default_rng(1)
    batch = tuple(unit(rng.normal(size=(6, 5))) for _ in range(3))
    A = (np.eye(5) + 0.1 * rng.normal(size=(5, 5))).astype(np.float32)
    _, found = loss(A, batch)
    for i, j in ((0, 0), (1, 3), (4, 2)):
        moved = np.zeros_like(A)
        moved[i, j] = step_size = np.float32(5e-3)
        slope = (loss(A + moved, batch)[0] - loss(A - moved, batch)[0]) / (2 * step_size)
        assert found[i, j] == pytest.approx(slope, rel=0.05, abs=2e-3)


def pairs_of(made, size):
    clicks = np.concatenate([made.clicked[1], made.held_clicked[1]])
    counts = [np.bincount(rows.ravel(), minlength=size) for rows in (made.shown, clicks)]
    return rivals.Pairs(made.clicked, made.held_clicked, *counts)


def test_rivals_learn_from_clicks(digits, learned, monkeypatch):
    """Each in its best setting is at least about the owner's ranking here, and some are above."""
    for name in ("RATES", "TEMPERATURES", "MARGINS"):
        monkeypatch.setattr(rivals, name, getattr(rivals, name)[-1:])  # one of each is soon trained
    X, pairs = digits.joined(), pairs_of(learned[1], len(digits))
    judged = split(digits).judged[:100]
    own = judge(own_scores(X), digits.labels, judged).pair[0]
    best = {
        name: max(judge(one, digits.labels, judged).pair[0] for one in rival(X, pairs))
        for name, rival in rivals.RIVALS.items()
    }
    assert min(best.values()) > own - 0.05
    assert sum(one > own for one in best.values()) >= 3


def test_adapters_are_trained_until_clicks_held_out_say_enough(digits, learned):
    """What is taken has a lower loss on lists held out than what training began and ended with."""
    X, pairs = digits.joined(), pairs_of(learned[1], len(digits))
    seen = []

    def loss(A, batch):
        found = rivals.both_sides(A, batch, 0.07)
        seen.append(A.copy())
        return found

    kept = rivals.trained(X, pairs, loss, 2e-3)
    held = rivals._batch(X, pairs.held, np.random.default_rng(9))
    first, last, best = (rivals.both_sides(A, held, 0.07)[0] for A in (seen[0], seen[-1], kept))
    assert best < first - 0.1
    assert best < last + 0.01
    assert not np.array_equal(kept, seen[-1])
    assert len(seen) < rivals.MOST_STEPS


def test_every_form_on_offer_is_that_of_the_product(digits, learned):
    """As `FormChoice.beside` makes it, also in which queries it finds unlike those that were clicked."""
    space = mapped(digits, "precondition")
    W = step(space.first("mean"), space, learned[1].rows, Learning().bounds(learned[1].drawn))
    Z, rows = space.Z.copy(), np.arange(0, 200, 7)
    Z[rows[3]] = 0  # nothing is known of it
    version = Version(W, Z, space.metric)
    for one in OFFERED:
        served = ServingForm.from_matrix(W, power=one.power)
        choice = one.with_usual(served, space.own, DenseBlock(Z[rows]))
        form = choice.beside(served, space.own)
        ours, theirs = (
            version.scores(version.with_usual(one, rows))(rows),
            form.scores(Z[rows], Z),
        )
        largest = np.abs(theirs).argmax(axis=1)[:, None]
        top = [np.take_along_axis(one, largest, axis=1) for one in (ours, theirs)]
        scale = np.divide(*top, out=np.zeros_like(top[0]), where=top[1] != 0)
        np.testing.assert_allclose(ours, theirs * scale, atol=1e-3 * np.abs(ours).max())
        if one.gives_way:
            found = version.known(version.with_usual(one, rows), rows)
            np.testing.assert_allclose(found, form.known(Z[rows]), rtol=2e-3)


def test_what_is_served_follows_what_users_prefer():
    """Something is served once it is surely better, and nothing where clicks depend on the rank alone."""
    data, lists = load("lsa"), own_lists("lsa")
    for clicks, users_prefer in (("position", True), (next(iter(NOTHING)), False)):
        made = Product(data, clicks, 0, split(data), Learning("mean"))
        assert made.served is made.own
        for count in VERSIONS[:6]:
            made.go_on(count, lists)
        assert bool(made.best) is users_prefer
        assert (made.served is made.own) is not users_prefer
        assert made.standing.lists > 200
