"""Measures over the whole catalog, by judgments and by clicks, against slow oracles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from daemon.validate import judge as catalog_module
from daemon.validate.judge import JudgedQueries
from daemon.validate.judgments import load_judgments
from daemon.validate.scorer import MappedObjects, Scorer, stable_order
from streams.event import Impression, ObjectRef
from tests.daemon.validate.helpers import OneJudge, cosine, held_out, judge_of, plain, usable


def test_full_catalog_measures_agree_with_scikit_learn(world):
    impressions = usable(world, 40)
    judge, objects = judge_of(world)
    got = judge.on(Scorer(plain(12), objects), impressions)
    scores = cosine(world)
    rows = [row for row, one in enumerate(world.ids) if held_out(one)]
    assert 30 < len(rows) < 60
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
    got = judge.on(Scorer(plain(12), objects), impressions)
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


def test_judged_queries_are_the_same_on_every_window_and_never_trained_on(world):
    judge, objects = judge_of(world, max_queries=10)
    scorer = Scorer(plain(12), objects)
    got = [judge.on(scorer, usable(world, count)) for count in (3, 40)]
    for name in ("map_full", "p10_full", "queries_full", "macro_map_full"):
        assert got[0][name] == got[1][name]
    assert got[0]["queries_full"] == 10
    assert got[0]["map_clicks"] != got[1]["map_clicks"]
    bound = load_judgments(f"labels:{world.path / 'labels.tsv'}").bind(world.ids)
    fewer = [ref.id for ref in JudgedQueries(objects, bound, held_out, 10).fixed]
    more = [ref.id for ref in JudgedQueries(objects, bound, held_out, 20).fixed]
    assert all(map(held_out, more))
    assert more[:10] == fewer
    assert judge.on(scorer, usable(world, 3))["map_full"] == got[0]["map_full"]


def test_judged_queries_outside_the_catalog_count_while_the_window_holds_them(world):
    lines = "".join(f"text{n} 0 o{n} 1\n" for n in range(20)) + "o1 0 o2 1\no3 0 o4 1\no5 0 o6 1\n"
    (world.path / "qrels").write_text(lines)
    bound = load_judgments(f"qrels:{world.path / 'qrels'}").bind(world.ids)
    objects = MappedObjects(world.space, world.catalog, world.fitted)
    texts = [ObjectRef(f"text{n}", x=world.values[n + 20]) for n in range(8)]
    lists = [Impression(ref.id, 1, ref, (world.ref(1), world.ref(2)), (0,)) for ref in texts]
    scorer, scores = Scorer(plain(12), objects), cosine(world)
    one_held = OneJudge(objects, JudgedQueries(objects, bound, {"o3"}.__contains__, 5), 5)
    got = one_held.on(scorer, [*lists, *usable(world, 5)])
    assert got["queries_full"] == 5
    assert "macro_map_full" not in got
    alone = one_held.on(scorer, lists[:1])
    text = np.count_nonzero(scores[20] >= scores[20, 0])
    own = np.count_nonzero(np.delete(scores[3], 3) >= scores[3, 4])
    assert alone["queries_full"] == 2
    assert alone["map_full"] == pytest.approx((1 / text + 1 / own) / 2)


def test_the_subset_of_the_windows_queries_does_not_depend_on_their_order(world):
    impressions = usable(world, 80)
    judge, objects = judge_of(world, max_queries=10)
    scorer = Scorer(plain(12), objects)
    got, back = judge.on(scorer, impressions), judge.on(scorer, impressions[::-1])
    assert back["map_clicks"] == pytest.approx(got["map_clicks"], abs=1e-6)
    whole = judge_of(world)[0].on(scorer, impressions)
    assert whole["map_clicks"] != pytest.approx(got["map_clicks"], abs=1e-6)


def test_queries_without_a_click_on_a_known_object_have_no_precision(world):
    """Objects outside the catalog, and the query itself, are clicked there."""
    lists = usable(world, 20)
    judge, objects = judge_of(world, judgments=False)
    asked = {one.query.id for one in lists}
    free = [row for row in range(len(world.ids)) if world.ids[row] not in asked]
    outside = ObjectRef(x=world.values[0])
    lost = [
        Impression("u", 1, world.ref(free[0]), (outside, world.ref(1)), (0,)),
        Impression("v", 2, world.ref(free[1]), (world.ref(free[1]), world.ref(1)), (0,)),
    ]
    scorer = Scorer(plain(12), objects)
    assert judge.on(scorer, [*lists, *lost])["map_clicks"] == judge.on(scorer, lists)["map_clicks"]
    assert "map_clicks" not in judge.on(scorer, lost)


def test_blocks_of_queries_change_nothing(world, monkeypatch):
    judge, objects = judge_of(world, judgments=False)
    lists, scorer = usable(world, 60), Scorer(plain(12), objects)
    whole = judge.on(scorer, lists)
    monkeypatch.setattr(catalog_module, "SCORE_FLOATS", 7 * len(world.ids))
    assert judge.on(scorer, lists)["map_clicks"] == pytest.approx(whole["map_clicks"], abs=1e-6)


def of_own_ranking(world, lists, places):
    """The same queries, with what stands at these places of the user's own ranking (0 is the first)."""
    scores, out = cosine(world), []
    for one in lists:
        row = int(one.query.id[1:])
        ranked = [at for at in np.argsort(-scores[row], kind="stable") if at != row]
        out.append(replace(one, shown=tuple(world.ref(ranked[at]) for at in places), clicked=(0,)))
    return out


def shown_of_the_first(world, one):
    """How many of a list's objects are among as many first ones of the user's own ranking."""
    row = int(one.query.id[1:])
    ranked = [f"o{at}" for at in np.argsort(-cosine(world)[row], kind="stable") if at != row]
    return len({*ranked[: len(one.shown)]} & {ref.id for ref in one.shown})


@pytest.mark.parametrize("score_floats", [1 << 22, 1])
def test_as_many_are_put_in_order_as_lists_show_of_the_first_of_the_users_own(
    world, monkeypatch, score_floats
):
    monkeypatch.setattr(catalog_module, "SCORE_FLOATS", score_floats)
    judge, objects = judge_of(world, judgments=False)
    own = Scorer(plain(12), objects)

    def top(lists, where=None):
        every = np.ones(len(lists), bool)
        return judge.order_top(own, judge.panel(lists), every if where is None else where)

    lists = usable(world, 60)
    assert top(of_own_ranking(world, lists, range(10))) == 10, "which it made"
    assert top(of_own_ranking(world, lists, [*range(3), *range(20, 25)])) == 3
    assert top(of_own_ranking(world, lists, range(60, 80))) == 1, "which show none of its first"
    lists = [
        of_own_ranking(world, [one], [*range(number % 7), *range(30, 38 - number % 7)])[0]
        for number, one in enumerate(lists)
    ]
    counts = np.array([shown_of_the_first(world, one) for one in lists])
    assert top(lists) == int(np.median(counts)) == 3
    assert top(lists, counts > 3) == 5
    strangers = [
        replace(one, shown=tuple(world.ref(int(ref.id[1:]), True) for ref in one.shown)) for one in lists
    ]
    assert top(strangers) == top(lists), "they are the same objects"
    alone = OneJudge(MappedObjects(world.space, None, world.fitted), None, 10)
    inline = usable(world, 5, inline=True)
    assert alone.order_top(own, alone.panel(inline), np.ones(5, bool)) is None, "there is no ranking"


def test_lists_of_some_queries_say_how_many_are_put_in_order(world, monkeypatch):
    """Those whose ids come first in the stable order, whenever they were asked."""
    lists = of_own_ranking(world, usable(world, 40), range(8))
    ids = sorted({one.query.id for one in lists}, key=stable_order)
    turned = of_own_ranking(world, lists, range(50, 58))
    mixed = [made if one.query.id in ids[:5] else one for one, made in zip(turned, lists, strict=True)]
    judge, objects = judge_of(world, judgments=False)

    def top():
        return judge.order_top(Scorer(plain(12), objects), judge.panel(mixed), np.ones(40, bool))

    assert top() == 1
    monkeypatch.setattr(catalog_module, "MOST_ASKED", 5)
    assert top() == 8


def test_random_objects_are_of_some_of_a_large_catalog_and_of_all_of_a_small_one(world, monkeypatch):
    judge, objects = judge_of(world, judgments=False)
    panel = judge.panel(usable(world, 40))
    assert [ref.id for ref in catalog_module.RandomObjects(objects, panel).refs] == world.ids
    monkeypatch.setattr(catalog_module, "POOL_OBJECTS", 13)
    some = catalog_module.RandomObjects(objects, panel)
    assert [int(ref.id[1:]) for ref in some.refs] == [119 * at // 12 for at in range(13)]
    for row, one in enumerate(panel.impressions):
        barred = {one.query.id, *(ref.id for ref in one.shown)}
        drawn = [some.refs[at].id not in barred for at in some.picked[row]]
        assert some.counts[row].tolist() == drawn
