"""What is two clicks away: against slow oracles, and which versions it guards."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.validate import judge as judge_module
from daemon.validate.evaluator import Evaluator
from daemon.validate.evidence import Comparison, EvidenceRule, Standing, weigh
from daemon.validate.hops import two_clicks_away, weighted_auc
from daemon.validate.scorer import MappedObjects, Scorer, make_panel
from learners.block import DenseBlock
from learners.maps import SpaceMap, ViewConfig
from streams.codec import encode_impression
from streams.event import Impression
from tests.daemon.validate.helpers import cosine, plain, turn, usable

RULE = EvidenceRule(0.05, 1_000)
tied_scores = st.lists(st.integers(-2, 2).map(float), min_size=2, max_size=30)


def away(world, impressions, most=1_000):
    objects = MappedObjects(world.space, world.catalog, world.fitted)
    panel = make_panel(objects, impressions)
    return two_clicks_away([Scorer(plain(12), objects)], panel, len(world.ids), most)[0]


def slow_away(scores, impressions):
    """Plain Python: what other queries clicked that share a clicked object, never shown to the query."""
    clicked, shown = {}, {}
    for one in impressions:
        rows = [int(ref.id[1:]) for ref in one.shown]
        clicked.setdefault(one.query.id, set()).update(rows[rank] for rank in one.clicked)
        shown.setdefault(one.query.id, {int(one.query.id[1:])}).update(rows)
    popularity = {}
    for rows in clicked.values():
        for row in rows:
            popularity[row] = popularity.get(row, 0) + 1
    out = []
    for query, mine in clicked.items():
        weights = {}
        for other, theirs in clicked.items():
            share = sum(1 / popularity[row] for row in mine & theirs)
            if other != query and share:
                for row in theirs - shown[query]:
                    weights[row] = weights.get(row, 0) + share
        if not weights:
            continue
        s = scores[int(query[1:])]
        candidates = [row for row in range(len(s)) if row not in shown[query]]
        above = {r: sum(s[r] > s[c] for c in candidates if c != r) / (len(candidates) - 1) for r in weights}
        out.append(sum(weights[r] * above[r] for r in weights) / sum(weights.values()))
    return sorted(out)


def test_what_is_two_clicks_away_agrees_with_the_slow_oracle_however_queries_are_cut(world, monkeypatch):
    impressions = usable(world, 60)
    got = away(world, impressions)
    assert sorted(got[~np.isnan(got)]) == pytest.approx(slow_away(cosine(world), impressions), abs=1e-4)
    monkeypatch.setattr(judge_module, "SCORE_FLOATS", 7 * len(world.ids))
    np.testing.assert_allclose(away(world, impressions), got, atol=1e-6)
    np.testing.assert_allclose(away(world, impressions, most=9), got[:9], atol=1e-6)


def test_queries_that_share_no_clicked_object_tell_nothing(world):
    lists = [
        Impression(f"i{n}", n, world.ref(n), tuple(world.ref(10 + 4 * n + k) for k in range(4)), (n % 4,))
        for n in range(8)
    ]
    assert np.isnan(away(world, lists)).all()


@settings(max_examples=200, deadline=None)
@given(tied_scores, st.data())
def test_weighted_auc_agrees_with_the_slow_oracle_under_ties(values, data):
    places = st.lists(st.integers(0, len(values) - 1), unique=True)
    barred = data.draw(places)
    targets = [place for place in data.draw(places) if place not in barred]
    weights = np.arange(1.0, len(targets) + 1)
    scores = np.array(values, np.float32)
    got = weighted_auc(scores, np.array(targets, np.int64), weights, np.array(barred, np.int64))
    candidates = [i for i in range(len(values)) if i not in barred]
    if not targets or len(candidates) < 2:
        assert math.isnan(got)
        return
    total = 0.0
    for target, weight in zip(targets, weights.tolist(), strict=True):
        others = [values[i] for i in candidates if i != target]
        won = sum((values[target] > other) + (values[target] == other) / 2 for other in others)
        total += weight * won / len(others)
    assert got == pytest.approx(total / weights.sum())


@pytest.mark.parametrize(("fall", "promoted"), [(-0.05, False), (0.0, True), (0.05, True)])
def test_what_surely_falls_there_does_not_search(fall, promoted):
    rng = np.random.default_rng(0)
    better = np.clip(0.05 + 0.2 * rng.standard_normal(400), -1, 1).tolist()
    moved = np.clip(fall + 0.05 * rng.standard_normal(400), -1, 1).tolist()
    seen = Comparison(better, better, (), (), 400, {0: 400}, away=moved)
    _, outcome = weigh(Standing(), RULE, 1, 0, seen)
    assert (outcome.found, outcome.promoted) == ("superior", promoted)
    assert [guard for guard in outcome.guards if "two clicks away" in guard] == (
        [] if promoted else ["what is two clicks away ranks lower than in your ranking"]
    )


def test_forms_that_give_way_to_the_own_ranking_are_not_guarded(world, start):
    """The same version, judged in a form that is mixed with the own ranking, and in one that is not."""
    rows = {"x": DenseBlock(world.values)}
    world.fitted = SpaceMap({"x": ViewConfig("unit")}, similarity="cosine").fit(rows)
    world.mapped = world.fitted.transform(rows)
    world.publish()
    world.learn(300)
    number = world.publish()
    world.send([encode_impression(one) for one in usable(world, 120)])
    asked = []
    for form in ("judged", "fixed"):
        validator, inputs = start(world, validate__judgments="", serving__form=form)
        while turn(validator) is not None:
            pass
        version, zero = (inputs.candidates.open(one) for one in (number, 0))
        evaluator = inputs.evaluator()
        assert isinstance(evaluator, Evaluator)
        seen = evaluator.compare((version, zero, zero, zero), inputs.holdout.window, {})
        asked.append((version.gives_way, len(seen.away) > 0))
    assert asked == [(True, False), (False, True)]
