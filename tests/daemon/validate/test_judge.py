"""The judge against slow oracles; its numbers again; its memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse as sparse_module
from sklearn.metrics import average_precision_score

from daemon.validate import judge as catalog_module
from daemon.validate import judge as shown_module
from daemon.validate.judge import SCORE_FLOATS
from daemon.validate.scorer import MappedObjects, NotFinite, Scorer, draws
from learners.block import DenseBlock, as_block
from learners.forms.serving import ServingForm
from learners.maps import SpaceMap, ViewConfig
from streams.catalog import Catalog
from streams.event import DenseColumn, Impression, ObjectRef, SpaceSpec, SparseColumn, ViewSpec
from tests.daemon.validate.helpers import OneJudge, cosine, judge_of, plain, usable


def test_shown_measures_and_random_objects_agree_with_a_slow_loop(world):
    impressions = usable(world, 70)
    judge, objects = judge_of(world)
    got = judge.on(Scorer(plain(12), objects), impressions)
    scores, ap, order_ap, above, loss = cosine(world), [], [], [], []
    for one in impressions:
        query, shown = int(one.query.id[1:]), [int(ref.id[1:]) for ref in one.shown]
        truth = np.isin(np.arange(len(shown)), one.clicked)
        s = scores[query][shown]
        ap.append(average_precision_score(truth, s))
        order_ap.append(average_precision_score(truth, -np.arange(len(shown))))
        random = [r for r in draws([one.id], 100, len(world.ids))[0] if r != query and r not in shown]
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
        judge.on(Scorer(plain(12), objects), lists)["map_shown"] for lists in (base, equal, slope)
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
    a, b = judge.on(scorer, by_id), judge.on(scorer, inline)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name] == pytest.approx(b[name], abs=2e-3), name


def test_judging_twice_gives_identical_numbers(world):
    impressions = usable(world, 80)
    world.learn(2000)
    form = ServingForm.from_matrix(world.learner.W)
    first, second = (judge_of(world) for _ in range(2))
    one = first[0].on(Scorer(form, first[1]), impressions)
    two = second[0].on(Scorer(form, second[1]), impressions)
    assert one == two


@pytest.mark.parametrize("normalised", [True, False])
def test_block_sizes_change_nothing_but_rounding(world, monkeypatch, normalised):
    impressions = usable(world, 50)
    judge, objects = judge_of(world)
    world.learn(2000)
    scorer = Scorer(ServingForm.from_matrix(world.learner.W, normalised), objects)
    whole = judge.on(scorer, impressions)
    monkeypatch.setattr(catalog_module, "SCORE_FLOATS", 1)
    monkeypatch.setattr(shown_module, "PART_FLOATS", 1)
    single = judge.on(scorer, impressions)
    assert whole.keys() == single.keys()
    for name in whole:
        assert whole[name] == pytest.approx(single[name], abs=2e-3), name


@pytest.mark.parametrize("named", [True, False])
def test_without_a_catalog_random_objects_are_other_lists_own(world, named):
    lists = usable(world, 40, inline=True)
    row_of = {one.tobytes(): row for row, one in enumerate(world.values)}
    if not named:
        lists = [nameless(one) for one in lists]
    objects = MappedObjects(world.space, None, world.fitted)
    judge = OneJudge(objects, None, 10)
    got = judge.on(Scorer(plain(12), objects), lists)
    ordered = [lists[place] for place in judge.panel(lists).order]
    shown = [[row_of[ref.x.tobytes()] for ref in one.shown] for one in ordered]
    pool = [(n, row) for n, rows in enumerate(shown) for row in rows]
    scores, above = cosine(world), []
    for n, one in enumerate(ordered):
        query = row_of[one.query.x.tobytes()]
        barred = {query, *shown[n]} if named else set()
        picked = [pool[place] for place in draws([one.id], 100, len(pool))[0]]
        random = [row for owner, row in picked if owner != n and row not in barred]
        own, other = scores[query][[shown[n][rank] for rank in one.clicked]], scores[query][random]
        above.append((np.mean(own[:, None] > other), np.mean(own[:, None] >= other)))
    assert len(pool) < 1024
    least, most = np.mean(above, axis=0)  # an object without an id is drawn again, and float32 breaks ties
    assert least - 1e-6 <= got["clicked_vs_random"] <= most + 1e-6
    assert most - least < (1e-9 if named else 0.01)
    assert "map_clicks" not in got


def nameless(one):
    shown = tuple(ObjectRef(x=ref.x) for ref in one.shown)
    return Impression(one.id, one.ts, ObjectRef(x=one.query.x), shown, one.clicked)


def test_a_sparse_space_is_judged_as_its_dense_twin(world):
    """Same objects, features dense and sparse: every measure agrees."""
    kept = np.where(np.abs(world.values) > 0.7, world.values, 0).astype(np.float32)
    form = ServingForm.from_matrix(np.eye(12, dtype=np.float32) + kept[:12] / 20)
    lists, found = usable(world, 50), []
    for kind in ("dense", "sparse"):
        space = SpaceSpec("toy", (ViewSpec("x", kind, 12),))
        rows = sparse_module.csr_array(kept)
        sparse = SparseColumn(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, 12)
        column = DenseColumn(kept) if kind == "dense" else sparse
        block = DenseBlock(kept) if kind == "dense" else as_block(rows)
        fitted = SpaceMap({"x": ViewConfig("unit")}).fit({"x": block})
        objects = MappedObjects(space, Catalog(world.ids, {"x": column}, space), fitted)
        found.append(OneJudge(objects, None, 100).on(Scorer(form, objects), lists))
    assert found[0].keys() == found[1].keys()
    for name in found[0]:
        assert found[0][name] == pytest.approx(found[1][name], abs=2e-3), name


def test_a_score_that_is_not_finite_is_refused(world):
    judge, objects = judge_of(world)
    huge = np.full((12, 12), 1e38, np.float32)
    form = ServingForm(huge, np.zeros((12, 0), np.float32), np.zeros(0, np.float32), False)
    with np.errstate(all="ignore"), pytest.raises(NotFinite):
        judge.on(Scorer(form, objects), usable(world, 5))


def test_draws_are_uniform_and_seeded_by_the_id():
    one, other = draws(["a", "b"], 50, 1000).tolist()
    assert draws(["a"], 50, 1000).tolist() == [one]
    assert one != other
    counts = np.bincount(draws([f"i{n}" for n in range(200)], 100, 10).reshape(-1), minlength=10)
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
    judge, scorer = OneJudge(objects, None, queries), Scorer(plain(dim), objects)
    judge.on(scorer, impressions[:2])
    tracemalloc.start()
    judge.on(scorer, impressions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    whole = queries * rows * 4  # 96 MB of scores at once
    bound = 4 * SCORE_FLOATS + 32 * rows + (8 << 20)
    assert peak < bound < whole / 3
