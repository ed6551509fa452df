"""The judge against slow oracles; its numbers again; its memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from daemon.judgments import load_judgments
from daemon.validate import catalog as catalog_module
from daemon.validate import judge as judge_module
from daemon.validate.catalog import SCORE_FLOATS
from daemon.validate.judge import Judge
from daemon.validate.lists import draw
from daemon.validate.objects import MappedObjects
from daemon.validate.scorer import NotFinite, Scorer
from daemon.validate.window import is_usable
from learners.block import DenseBlock
from learners.maps import SpaceMap, ViewConfig
from learners.serving import ServingForm
from streams.catalog import Catalog
from streams.event import ObjectRef
from streams.impression import Impression
from streams.space import SpaceSpec, ViewSpec
from streams.vectors import DenseColumn


def plain(dim, normalised=True):
    """The form of the untrained state: cosine."""
    eye = np.eye(dim, dtype=np.float32)
    return ServingForm(eye, np.zeros((dim, 0), np.float32), np.zeros(0, np.float32), normalised)


def usable(world, count, **how):
    return [one for one in (world.impression(**how) for _ in range(count * 2)) if is_usable(one)][:count]


def judge_of(world, judgments=True, max_queries=1000):
    objects = MappedObjects(world.space, world.catalog, world.fitted)
    bound = load_judgments(f"labels:{world.path / 'labels.tsv'}").bind(world.ids) if judgments else None
    return Judge(objects, bound, max_queries), objects


def cosine(world):
    unit = world.values / np.linalg.norm(world.values, axis=1, keepdims=True)
    return unit @ unit.T


def test_full_catalog_measures_agree_with_scikit_learn(world):
    impressions = usable(world, 40)
    judge, objects = judge_of(world)
    got = judge.judge(Scorer(plain(12), objects), impressions)
    scores = cosine(world)
    rows = sorted({int(one.query.id[1:]) for one in impressions})
    ap, p10 = [], []
    for row in rows:
        others = np.arange(len(world.ids)) != row
        truth = (world.labels == world.labels[row])[others]
        ap.append(average_precision_score(truth, scores[row][others]))
        p10.append(truth[np.argsort(-scores[row][others], kind="stable")[:10]].mean())
    assert got["queries_full"] == len(rows)
    assert got["map_full"] == pytest.approx(np.mean(ap), abs=1e-4)
    assert got["p10_full"] == pytest.approx(np.mean(p10), abs=1e-3)
    groups = [np.mean([a for a, r in zip(ap, rows, strict=True) if world.labels[r] == c]) for c in range(6)]
    assert got["macro_map_full"] == pytest.approx(np.nanmean(groups), abs=1e-4)


def test_clicks_as_relevance_join_all_lists_of_a_query(world):
    impressions = usable(world, 60)
    judge, objects = judge_of(world, judgments=False)
    got = judge.judge(Scorer(plain(12), objects), impressions)
    scores, clicked = cosine(world), {}
    for one in impressions:
        rows = clicked.setdefault(int(one.query.id[1:]), set())
        rows.update(int(one.shown[rank].id[1:]) for rank in one.clicked)
    ap = []
    for row, rows in clicked.items():
        others = np.arange(len(world.ids)) != row
        truth = np.isin(np.arange(len(world.ids)), list(rows))[others]
        ap.append(average_precision_score(truth, scores[row][others]))
    assert got["map_clicks"] == pytest.approx(np.mean(ap), abs=1e-4)
    assert "map_full" not in got


def test_shown_measures_and_random_objects_agree_with_a_slow_loop(world):
    impressions = usable(world, 70)
    judge, objects = judge_of(world)
    got = judge.judge(Scorer(plain(12), objects), impressions)
    scores, ap, order_ap, above, loss = cosine(world), [], [], [], []
    for one in impressions:
        query, shown = int(one.query.id[1:]), [int(ref.id[1:]) for ref in one.shown]
        truth = np.isin(np.arange(len(shown)), one.clicked)
        s = scores[query][shown]
        ap.append(average_precision_score(truth, s))
        order_ap.append(average_precision_score(truth, -np.arange(len(shown))))
        random = [
            r for r in draw(one.id, 100, len(world.ids)) if r != query and r not in np.array(shown)[truth]
        ]
        above.append(np.mean(s[truth][:, None] > scores[query][random][None, :]))
        loss.append(np.mean(np.maximum(0, 1 - s[truth][:, None] + s[~truth][None, :])))
    assert got["map_shown"] == pytest.approx(np.mean(ap), abs=1e-6)
    assert got["shown_order_map"] == pytest.approx(np.mean(order_ap), abs=1e-6)
    assert got["clicked_vs_random"] == pytest.approx(np.mean(above), abs=1e-4)
    assert got["loss"] == pytest.approx(np.mean(loss), abs=1e-5)
    np.testing.assert_allclose(judge.losses(Scorer(plain(12), objects), impressions), loss, atol=1e-5)


def test_logged_propensities_weight_the_shown_lists(world):
    base = usable(world, 30)
    equal = [Impression(o.id, o.ts, o.query, o.shown, o.clicked, (0.5,) * len(o.shown)) for o in base]
    slope = [
        Impression(o.id, o.ts, o.query, o.shown, o.clicked, tuple(1 / (1 + r) for r in range(len(o.shown))))
        for o in base
    ]
    judge, objects = judge_of(world)
    plain_ap, equal_ap, slope_ap = (
        judge.judge(Scorer(plain(12), objects), lists)["map_shown"] for lists in (base, equal, slope)
    )
    assert plain_ap == pytest.approx(equal_ap)
    assert plain_ap != pytest.approx(slope_ap)


def test_inline_and_catalog_objects_of_the_same_features_judge_alike(world):
    by_id = usable(world, 20)
    inline = [
        Impression(
            one.id,
            one.ts,
            world.ref(int(one.query.id[1:]), True),
            tuple(world.ref(int(ref.id[1:]), rank % 2 == 0) for rank, ref in enumerate(one.shown)),
            one.clicked,
        )
        for one in by_id
    ]
    judge, objects = judge_of(world)
    scorer = Scorer(plain(12), objects)
    a, b = judge.judge(scorer, by_id), judge.judge(scorer, inline)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name] == pytest.approx(b[name], abs=2e-3), name


def test_judging_twice_gives_identical_numbers(world):
    impressions = usable(world, 80)
    world.learn(2000)
    form = ServingForm.from_matrix(world.learner.W)
    first, second = (judge_of(world) for _ in range(2))
    one = first[0].judge(Scorer(form, first[1]), impressions)
    two = second[0].judge(Scorer(form, second[1]), impressions)
    assert one == two


@pytest.mark.parametrize("normalised", [True, False])
def test_the_scorer_gives_the_serving_forms_own_scores(world, normalised):
    world.learn(3000)
    _, objects = judge_of(world)
    form = ServingForm.from_matrix(world.learner.W, normalised)
    scorer, rows = Scorer(form, objects), np.array([5, 3, 99])
    want = form.scores(world.mapped.take([1, 2]), world.mapped)
    folded = scorer.fold([world.ref(1), world.ref(2, True)])
    np.testing.assert_allclose(scorer.catalog(folded), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scorer.rows(folded, rows), want[:, rows], rtol=1e-4, atol=1e-5)
    mixed = [world.ref(5), world.ref(3, True), world.ref(99)]
    np.testing.assert_allclose(scorer.objects(folded, mixed), want[:, rows], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalised", [True, False])
def test_block_sizes_change_nothing_but_rounding(world, monkeypatch, normalised):
    impressions = usable(world, 50)
    judge, objects = judge_of(world)
    world.learn(2000)
    scorer = Scorer(ServingForm.from_matrix(world.learner.W, normalised), objects)
    whole = judge.judge(scorer, impressions)
    monkeypatch.setattr(catalog_module, "SCORE_FLOATS", 1)
    monkeypatch.setattr(judge_module, "OBJECT_FLOATS", 1)
    single = judge.judge(scorer, impressions)
    assert whole.keys() == single.keys()
    for name in whole:
        assert whole[name] == pytest.approx(single[name], abs=2e-3), name


def test_the_subset_of_queries_is_fixed(world):
    impressions = usable(world, 80)
    judge, objects = judge_of(world, max_queries=10)
    scorer = Scorer(plain(12), objects)
    got = judge.judge(scorer, impressions)
    assert got["queries_full"] == 10
    assert judge.judge(scorer, impressions[::-1])["map_full"] == pytest.approx(got["map_full"], abs=1e-6)


def test_a_score_that_is_not_finite_is_refused(world):
    judge, objects = judge_of(world)
    huge = np.full((12, 12), 1e38, np.float32)
    form = ServingForm(huge, np.zeros((12, 0), np.float32), np.zeros(0, np.float32), False)
    with np.errstate(all="ignore"), pytest.raises(NotFinite):
        judge.judge(Scorer(form, objects), usable(world, 5))


def test_draws_are_uniform_and_seeded_by_the_id():
    assert draw("a", 50, 1000).tolist() == draw("a", 50, 1000).tolist()
    assert draw("a", 50, 1000).tolist() != draw("b", 50, 1000).tolist()
    counts = np.bincount(np.concatenate([draw(f"i{n}", 100, 10) for n in range(200)]), minlength=10)
    assert counts.min() > 1800
    assert counts.max() < 2200


def test_memory_of_a_large_catalog_stays_bounded():
    rows, dim, queries = 60_000, 8, 400
    random = np.random.default_rng(0)
    values = random.standard_normal((rows, dim)).astype(np.float32)
    space = SpaceSpec("big", (ViewSpec("x", "dense", dim),))
    catalog = Catalog([f"o{row}" for row in range(rows)], {"x": DenseColumn(values)}, space)
    fitted = SpaceMap({"x": ViewConfig("unit")}).fit({"x": DenseBlock(values[:100])})
    objects = MappedObjects(space, catalog, fitted)
    impressions = [
        Impression(f"i{n}", n, ObjectRef(f"o{n}"), (ObjectRef(f"o{n + 500}"), ObjectRef(f"o{n + 900}")), (0,))
        for n in range(queries)
    ]
    judge, scorer = Judge(objects, None, queries), Scorer(plain(dim), objects)
    judge.judge(scorer, impressions[:2])
    tracemalloc.start()
    judge.judge(scorer, impressions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    whole = queries * rows * 4  # 96 MB of scores at once
    bound = 4 * SCORE_FLOATS + 32 * rows + (8 << 20)
    assert peak < bound < whole / 3
