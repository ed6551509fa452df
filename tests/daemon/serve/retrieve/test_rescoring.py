"""Models whose scores are no inner products: a shortlist by the cosine, in the order of their own scores."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from daemon.serve.query import Query, QueryError, ScoredId
from daemon.serve.retrieve import Searcher, finding
from daemon.serve.retrieve import norms as features
from daemon.serve.retrieve.finding import Rescoring
from learners.block import DenseBlock
from learners.forms.quadratic import ServedForm, featured, folds
from learners.multikernel import Omks, OmksConfig, ViewKernels
from learners.search import best_of, kept_scores
from tests.daemon.serve.retrieve.makers import DIM, Items, searcher_of, several_parts, view_of
from tests.learners.examples import block, triplets

KINDS = ("dense", "sparse")


@cache
def form_of(normalised: bool = True) -> ServedForm:
    """OMKS of two views after some events."""
    views = (ViewKernels(0, 10), ViewKernels(10, DIM))
    learner = Omks(DIM, OmksConfig(views, triplets=60, objects=96))
    learner.learn_many(triplets(3, 120, DIM, "dense"))
    return learner.form(normalised)


def ask(
    items: Items, shortlist: int, *queries: Query, form: ServedForm | None = None
) -> list[list[ScoredId]]:
    view = replace(view_of(np.eye(DIM, dtype=np.float32)), form=form or form_of())
    searcher, _ = searcher_of(items, view, shortlist=shortlist)
    results = searcher.search("latest", queries).results
    assert all(not isinstance(hits, Exception) for hits in results)
    return [list(hits) for hits in results]  # type: ignore[arg-type]


def own_order(items: Items, name: str, form: ServedForm, among: list[str] | None = None) -> list[ScoredId]:
    """Every other living object, or those, by the form itself."""
    names, block = items.block()
    scores = form.scores(block.take([names.index(name)]), block)[0]
    hits = [ScoredId(one, float(score)) for one, score in zip(names, scores, strict=True)]
    return sorted(
        (hit for hit in hits if hit.id != name and (among is None or hit.id in among)),
        key=lambda hit: -hit.score,
    )


def nearest_by_cosine(items: Items, name: str, count: int) -> list[str]:
    """Names of the `count` nearest, the object itself among them."""
    names, _ = items.block()
    values = np.array([items.vectors[one] for one in names], np.float64)
    units = values / np.linalg.norm(values, axis=1, keepdims=True)
    order = np.argsort(-(units @ units[names.index(name)]), kind="stable")
    return [names[row] for row in order[:count].tolist()]


def test_the_form_in_these_tests_does_not_fold() -> None:
    assert not folds(form_of())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalised", [True, False])
def test_with_room_for_all_answers_are_the_forms_own_to_the_bit(kind: str, normalised: bool) -> None:
    items, form = several_parts(kind), form_of(normalised)
    names = ["a0", "b3", "a12"]
    found = ask(items, 1000, *(Query(id=one, k=12) for one in names), form=form)
    for name, hits in zip(names, found, strict=True):
        assert [hit.score for hit in hits] == [hit.score for hit in own_order(items, name, form)[:12]]
        assert hits[:5] == own_order(items, name, form)[:5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_shortlist_is_what_is_nearest_by_the_cosine(kind: str) -> None:
    items = several_parts(kind)
    (hits,) = ask(items, 30, Query(id="a0", k=10))
    short = nearest_by_cosine(items, "a0", 31)
    assert hits == own_order(items, "a0", form_of(), short)[:10]
    assert hits != own_order(items, "a0", form_of())[:10]
    (more,) = ask(items, 30, Query(id="a0", k=50))  # who asks for more has more looked at
    assert more == own_order(items, "a0", form_of(), nearest_by_cosine(items, "a0", 51))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_answers_as_each_alone(kind: str) -> None:
    items = several_parts(kind)
    queries = [
        Query(id="a0", k=3),
        Query(id="a1", k=40, tags=frozenset({"red"})),
        Query(id="a2", k=3, include=frozenset({"a3", "b9", "twin", "nobody"})),
        Query(id="a3", k=5, exclude=frozenset({"a4", "b1"})),
        *(Query(id=f"b{i}", k=i) for i in range(10, 40)),
    ]
    for query, hits in zip(queries, ask(items, 25, *queries), strict=True):
        assert ask(items, 25, query)[0] == hits


def test_filters_hold() -> None:
    items = several_parts("dense")
    few = frozenset({"a3", "b9", "twin", "a0"})
    everything = own_order(items, "a0", form_of())
    asked = (
        Query(id="a0", k=3, include=few),
        Query(id="a0", k=400, tags=frozenset({"big"})),
        Query(id="a0", k=5, exclude=frozenset(hit.id for hit in everything[:4])),
    )
    included, tagged, others = ask(items, 1000, *asked)
    assert included == [hit for hit in everything if hit.id in few]
    assert {hit.id for hit in tagged} == {one for one in items.vectors if "big" in items.tags[one]}
    assert [hit.score for hit in others] == [hit.score for hit in everything[4:9]]


def test_an_answer_says_whether_it_may_have_passed_something_over() -> None:
    items = several_parts("dense")
    view = replace(view_of(np.eye(DIM, dtype=np.float32)), form=form_of())
    tag, few = frozenset({"big"}), frozenset({"a3"})
    bearing = sum("big" in items.tags[name] for name in items.vectors)
    for shortlist, query, exact in (
        (len(items.vectors), Query(id="a0", k=3), True),
        (len(items.vectors) - 2, Query(id="a0", k=3), False),
        (5, Query(id="a0", k=3, include=few), True),
        (bearing + 1, Query(id="a0", k=3, tags=tag), True),
        (bearing - 2, Query(id="a0", k=3, tags=tag), False),
    ):
        searcher, _ = searcher_of(items, view, shortlist=shortlist)
        assert searcher.search("latest", [query]).each[0].exact == exact


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_made_once_per_form_and_gathered_for_merged_parts(kind: str) -> None:
    items, form = several_parts(kind), form_of()
    view = replace(view_of(np.eye(DIM, dtype=np.float32)), form=form)
    searcher, replica = searcher_of(items, view)
    before = replica.view
    assert before is not None
    items.put(["new"], items.vectors["a1"][None])
    again = replace(before, prepared=searcher.prepare(before))
    parts = len(items.snapshot().parts)
    while len(items.snapshot().parts) == parts:
        assert items.index.work(), "nothing to merge: give the test smaller parts"
    merged = searcher.prepare(again).parts
    fresh = searcher.prepare(replace(view, prepared=None)).parts
    for part in items.snapshot().parts:
        mine, anew = merged[part.serial].features, fresh[part.serial].features
        assert mine is not None
        assert anew is not None
        assert mine.tobytes() == anew.tobytes()
    assert featured(form)


def test_a_part_that_is_too_large_is_scored_without_features(monkeypatch: pytest.MonkeyPatch) -> None:
    items = several_parts("dense")
    (known,) = ask(items, 1000, Query(id="a0", k=20))
    monkeypatch.setattr(features, "MOST_BYTES", 0)
    assert ask(items, 1000, Query(id="a0", k=20)) == [known]


def test_parts_with_features_and_parts_without_are_scored_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    items, form = several_parts("dense"), form_of()
    (known,) = ask(items, 1000, Query(id="a0", k=20))
    smallest, *_, largest = sorted(len(part) for part in items.snapshot().parts)
    assert smallest < largest
    width = form.features(np.ones((1, DIM), np.float32)).shape[1]  # type: ignore[attr-defined]
    monkeypatch.setattr(features, "MOST_BYTES", 4 * width * smallest)
    assert ask(items, 1000, Query(id="a0", k=20)) == [known]


def test_equal_scores_are_ordered_by_part_and_row_however_they_were_found() -> None:
    items, form = several_parts("dense"), form_of()
    snapshot, one = items.snapshot(), items.block()[1].take([0])
    parts = np.concatenate([np.full(len(part), n) for n, part in enumerate(snapshot.parts)])
    rows = np.concatenate([np.arange(len(part)) for part in snapshot.parts])
    nothing = DenseBlock(np.zeros((1, DIM), np.float32))  # scores the same with everything
    for query in (one, nothing):
        rescoring = Rescoring(form, query, [None] * len(snapshot.parts), 5)
        forwards = rescoring.ordered(snapshot, 0, parts, rows)
        assert rescoring.ordered(snapshot, 0, parts[::-1], rows[::-1]) == forwards
        assert forwards == sorted(forwards, key=lambda place: (-place[0], *place[1:]))
    assert len({score for score, *_ in forwards}) == 1


@pytest.mark.parametrize("few", [256, 2], ids=["left out afterwards", "taken out of the scan"])
def test_what_is_excluded_takes_no_room_of_a_shortlist(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "FEW", few)
    items = several_parts("dense")
    near = nearest_by_cosine(items, "a0", 16)
    (hits,) = ask(items, 5, Query(id="a0", k=5, exclude=frozenset(near[1:11])))
    assert hits == own_order(items, "a0", form_of(), near[11:])


def test_a_search_can_be_ended_before_each_rescoring() -> None:
    items, calls = several_parts("dense"), []
    view = replace(view_of(np.eye(DIM, dtype=np.float32)), form=form_of())
    searcher, _ = searcher_of(items, view, shortlist=5)
    queries = [Query(id=f"a{n}", k=1) for n in range(7)]
    searcher.search("latest", queries, lambda: calls.append(1))
    assert len(calls) == 1 + len(queries)  # they share one scan


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_too_large_to_score_changes_no_answer_beside_it(kind: str) -> None:
    """The search is by the cosine of the vectors, which only a vector that is not finite escapes."""
    items = several_parts(kind)
    view = replace(view_of(np.eye(DIM, dtype=np.float32)), form=form_of())
    bad, good = block(np.full((1, DIM), np.inf, np.float32), kind), items.block()[1].take([0])
    searcher = Searcher({}, items.snapshot, lambda queries, snapshot, maps: [bad, good], shortlist=30)
    view = replace(view, prepared=searcher.prepare(view))
    refused, hits = searcher.search_view(view, [Query(k=5), Query(id="a0", k=5)]).results
    assert isinstance(refused, QueryError)
    assert list(hits) == ask(items, 30, Query(id="a0", k=5))[0]  # type: ignore[arg-type]


def test_scores_that_are_no_numbers_come_last_and_stay_finite() -> None:
    scores = kept_scores(np.array([np.nan, 1.0, np.inf, -np.inf], np.float32))
    best, rows = best_of(scores, np.array([8, 2, 5, 3]), 5)
    assert rows.tolist() == [[5, 2, 3, 8, -1]]
    assert np.isfinite(best[0, :4]).all()
    assert best[0, 4] == -np.inf
