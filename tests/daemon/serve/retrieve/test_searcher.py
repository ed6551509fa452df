"""Answers over parts with the dead among them are those of the serving form over the living."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from daemon.serve.query import Query, QueryError, ScoredId
from daemon.serve.retrieve.finding import FEW
from daemon.serve.retrieve.part import Norms
from learners import ServingForm
from learners.forms.carried import CarriedForm
from learners.forms.quadratic import Pieces, ServedForm
from learners.forms.serving import with_learned
from learners.search import as_items, topk
from tests.daemon.serve.retrieve.makers import (
    DIM,
    Items,
    OneReplica,
    backing_off,
    learned,
    searcher_of,
    several_parts,
    view_of,
)
from tests.learners.examples import rows

KINDS = ("dense", "sparse")


def agree(hits: Sequence[ScoredId] | QueryError, scores: dict[str, float], k: int) -> None:
    """The hits are the k best by these scores, each with its score; rounding may change equal ones."""
    assert not isinstance(hits, QueryError)
    best = sorted(scores.values(), reverse=True)[:k]
    assert len(hits) == len(best) == len({hit.id for hit in hits})
    np.testing.assert_allclose([hit.score for hit in hits], best, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(
        [hit.score for hit in hits], [scores[hit.id] for hit in hits], rtol=2e-5, atol=2e-6
    )
    assert all(a.score >= b.score for a, b in pairwise(hits))


def expected(items: Items, form: ServedForm, name: str) -> dict[str, float]:
    """Score of every living object for the object `name`, by the serving form itself."""
    names, block = items.block()
    scores = form.scores(block.take([names.index(name)]), block)[0]
    return dict(zip(names, scores.tolist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalised", [True, False])
def test_answers_are_those_of_the_serving_form(kind: str, normalised: bool) -> None:
    items = several_parts(kind)
    view = view_of(learned(1), normalised=normalised)
    searcher, _ = searcher_of(items, view)
    names = ["a0", "a12", "b3", "twin", *(f"a{i}" for i in range(20, 45))]
    answers = searcher.search("latest", [Query(id=name, k=10) for name in names])
    assert answers.model == view.model
    assert len(items.snapshot().parts) > 2
    assert any(part.dead for part in items.snapshot().parts)
    for name, hits in zip(names, answers.results, strict=True):
        scores = expected(items, view.form, name)
        del scores[name]
        agree(hits, scores, 10)


def test_a_low_rank_form_a_carried_one_and_one_that_backs_off_answer_as_they_score() -> None:
    items = several_parts("sparse")
    W, later = learned(2), learned(3)
    low_rank = ServingForm.from_matrix(W, full_up_to=1, pairs=4)
    carried = CarriedForm.of(ServingForm.from_matrix(W), later)
    for form in (low_rank, carried, backing_off(W), with_learned(backing_off(W), carried)):
        searcher, _ = searcher_of(items, replace(view_of(W), form=form))
        hits = searcher.search("latest", [Query(id="b3", k=7)]).results[0]
        scores = expected(items, form, "b3")
        del scores["b3"]
        agree(hits, scores, 7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", ["full", "low rank", "backing off"])
def test_a_batch_answers_as_each_alone_to_the_bit(kind: str, made: str) -> None:
    items = several_parts(kind)
    view = view_of(learned(4))
    if made == "backing off":
        view = replace(view, form=backing_off(learned(4)))
    if made == "low rank":
        view = replace(view, form=ServingForm.from_matrix(learned(4), full_up_to=1, pairs=4))
    searcher, _ = searcher_of(items, view)
    queries = [
        Query(id="a0", k=3),
        Query(id="a1", k=30, tags=frozenset({"red"})),
        Query(id="gone", k=3),
        Query(id="a2", k=3, include=frozenset({"a3", "b9", "twin", "nobody"})),
        Query(id="a3", k=5, exclude=frozenset({"a4", "b1"})),
        *(Query(id=f"b{i}", k=i) for i in range(20, 40)),
    ]
    together = searcher.search("latest", queries).results
    for query, hits in zip(queries, together, strict=True):
        alone = searcher.search("latest", [query]).results[0]
        if query.id == "gone":
            assert isinstance(hits, QueryError)
            assert (hits.status, hits.field) == (404, "id")
        else:
            assert alone == hits
            if query.include is None and not query.tags:
                assert len(hits) == query.k


@pytest.mark.parametrize("kind", KINDS)
def test_filters_leave_what_remains_of_the_whole_order(kind: str) -> None:
    items = several_parts(kind)
    searcher, _ = searcher_of(items, view_of(learned(5)))

    def ask(**words: object) -> list[ScoredId]:
        result = searcher.search("latest", [Query(id="a0", **words)]).results[0]  # type: ignore[arg-type]
        assert not isinstance(result, QueryError)
        return list(result)

    whole = ask(k=1000)
    names = {hit.id for hit in whole}
    assert names == set(items.vectors) - {"a0"}
    some = frozenset(sorted(names)[::3])
    most = frozenset([*sorted(names)[5:], *(f"nobody{i}" for i in range(100))])
    assert len(most) > FEW  # more than are looked for and left out
    big_red = {name for name in names if {"red", "big"} <= set(items.tags.get(name, ()))}
    assert len(big_red) > 5
    for found, allowed in (
        (ask(k=9, include=some), some),
        (ask(k=1000, include=some | {"a0", "nobody"}), some),
        (ask(k=9, include=some, exclude=frozenset(sorted(some)[:4])), set(sorted(some)[4:])),
        (ask(k=9, exclude=some), names - some),
        (ask(k=3, exclude=most), names - most),
        (ask(k=9, tags=frozenset({"red", "big"})), big_red),
        (ask(k=9, tags=frozenset({"red", "big"}), include=some), big_red & some),
        (ask(k=1000, tags=frozenset({"red", "big"})), big_red),
        (ask(k=9, tags=frozenset({"unknown"})), set()),
        (ask(k=9, include=frozenset()), set()),
    ):
        remaining = [hit for hit in whole if hit.id in allowed]
        assert found == remaining[: len(found)]
        assert len(found) >= min(3, len(remaining))
    assert len(ask(k=9, exclude=some)) == len(ask(k=9, include=some)) == 9
    assert ask(k=0) == []


def test_equal_scores_come_in_the_order_of_parts_and_rows() -> None:
    items = several_parts("dense")
    searcher, _ = searcher_of(items, view_of(learned(6)))
    hits = searcher.search("latest", [Query(id="a5", k=300)]).results[0]
    assert not isinstance(hits, QueryError)
    names = [hit.id for hit in hits]
    assert names.index("twin2") == names.index("twin") + 1
    twins = [hit.score for hit in hits if hit.id.startswith("twin")]
    assert twins[0] == twins[1]


def test_features_are_asked_for_as_objects_are() -> None:
    items = several_parts("dense")
    searcher, _ = searcher_of(items, view_of(learned(7)))
    by_id, by_x, wrong = searcher.search(
        "latest",
        [Query(id="a0", k=5), Query(x=items.vectors["a0"].tolist(), k=6), Query(x=[1.0], k=6)],
    ).results
    assert not isinstance(by_id, QueryError)
    assert not isinstance(by_x, QueryError)
    assert by_x[0].id == "a0"
    assert by_x[0].score == pytest.approx(1, abs=1e-6)
    assert list(by_x[1:]) == list(by_id)
    assert isinstance(wrong, QueryError)


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_norm_scores_zero_and_cannot_ask(kind: str) -> None:
    items = Items(kind)
    values = rows(np.random.default_rng(0), 4, DIM, 1.0)
    values[1] = 0
    items.put(["a", "zero", "b", "c"], values)
    searcher, _ = searcher_of(items, view_of(learned(8)))
    of_zero, of_a = searcher.search("latest", [Query(id="zero", k=3), Query(id="a", k=3)]).results
    assert isinstance(of_zero, QueryError)
    assert (of_zero.code, of_zero.status, of_zero.field) == ("zero_query", 422, "id")
    assert not isinstance(of_a, QueryError)
    assert {hit.id: hit.score for hit in of_a}["zero"] == 0


def test_a_query_too_large_to_score_is_refused_alone() -> None:
    items = several_parts("dense")
    searcher, _ = searcher_of(items, view_of(learned(9) * np.float32(1e30), normalised=False))
    good, bad = searcher.search("latest", [Query(id="a0", k=2), Query(x=[1e18] * DIM, k=2)]).results
    assert not isinstance(good, QueryError)
    assert len(good) == 2
    assert isinstance(bad, QueryError)
    assert bad.code == "magnitude"


def test_a_removal_counts_at_once_and_a_new_object_once_prepared() -> None:
    items = several_parts("dense")
    view = view_of(learned(10))
    searcher, replica = searcher_of(items, view)

    def names() -> list[str]:
        found = searcher.search("latest", [Query(id="a0", k=1000)]).results[0]
        assert not isinstance(found, QueryError)
        return [hit.id for hit in found]

    assert "b3" in names()
    items.remove(["b3"])
    assert "b3" not in names()
    items.put(["new"], items.vectors["a1"][None])
    assert "new" not in names()
    assert replica.view is not None
    replica.view = replace(replica.view, prepared=searcher.prepare(replica.view))
    assert abs(names().index("new") - names().index("a1")) == 1  # the same vector, with a norm of its own


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_each_part_keeps_its_own_norms_when_another_one_has_died(kind: str, gone: int) -> None:
    items, names = Items(kind), [[f"{part}{n}" for n in range(30)] for part in "abc"]
    for scale, part in zip(
        (1, 10, 100), names, strict=True
    ):  # as large, so that nothing else tells them apart
        items.put(part, rows(np.random.default_rng(scale), 30, DIM) * np.float32(scale))
    view = view_of(learned(12))
    searcher, _ = searcher_of(items, view)
    serials = [part.serial for part in items.snapshot().parts]
    items.remove(names[gone])
    assert [part.serial for part in items.snapshot().parts] == serials[:gone] + serials[gone + 1 :]
    left = [part for part in names if part is not names[gone]]
    for queries in ([left[0][3]], [left[1][5], left[0][4]]):
        answers = searcher.search("latest", [Query(id=name, k=20) for name in queries])
        for name, hits in zip(queries, answers.results, strict=True):
            scores = expected(items, view.form, name)
            del scores[name]
            agree(hits, scores, 20)
            included = Query(id=name, k=20, include=frozenset(items.vectors))
            assert searcher.search("latest", [included]).results[0] == hits


class Counting:
    """A form that says how many items it was asked for the norms of."""

    def __init__(self, form: ServingForm) -> None:
        self.form, self.asked = form, 0
        self.dim, self.normalised = form.dim, form.normalised
        self.fold = form.fold

    def self_scores(self, items: object, pieces: Pieces) -> object:
        self.asked += len(items)  # type: ignore[arg-type]
        return self.form.self_scores(items, pieces)


def test_norms_are_computed_once_per_form_and_gathered_for_merged_parts() -> None:
    items = several_parts("sparse")
    form = Counting(ServingForm.from_matrix(learned(11)))
    view = replace(view_of(learned(11)), form=form)  # type: ignore[arg-type]
    searcher, replica = searcher_of(items, view)
    assert replica.view is not None
    total = sum(map(len, items.snapshot().parts))
    assert form.asked == total
    items.put(["new"], items.vectors["a1"][None])
    again = searcher.prepare(replica.view)
    assert form.asked == total + 1
    parts = len(items.snapshot().parts)
    while len(items.snapshot().parts) == parts:
        assert items.index.work(), "nothing to merge: give the test smaller parts"
    merged = searcher.prepare(replace(replica.view, prepared=again))
    assert form.asked == total + 1
    fresh, kept = searcher.prepare(replace(view, prepared=None)), {}
    for part in items.snapshot().parts:
        kept[part.serial] = merged.parts[part.serial].scale
        assert np.array_equal(fresh.parts[part.serial].scale, kept[part.serial])  # type: ignore[arg-type]
    searcher.prepare(replace(replica.view, prepared=merged, formed=99))  # another form: nothing is kept
    assert form.asked > total * 2


def test_norms_are_made_in_pieces_that_rest_once_somebody_has_asked() -> None:
    items = several_parts("dense")
    searcher, _ = searcher_of(items, view_of(learned(11)))
    slept = list[float]()
    searcher._pace._sleep = slept.append  # type: ignore[method-assign,assignment]
    searcher._pace._clock = itertools.count(0, 1e-6).__next__  # type: ignore[method-assign]
    searcher.prepare(view_of(learned(12)))
    assert slept == []
    searcher.search("latest", [Query(id="a1", k=1)])
    searcher.prepare(view_of(learned(12)))
    assert len(slept) >= len(items.snapshot().parts)


def test_parts_are_made_ready_once_for_all_models_and_go_with_the_last() -> None:
    items = several_parts("sparse")
    searcher, _ = searcher_of(items)
    one, two = (searcher.prepare(view_of(learned(seed))) for seed in (1, 2))
    serial = items.snapshot().parts[0].serial
    assert one.parts[serial].indexed is two.parts[serial].indexed
    scale = one.parts[serial].scale
    assert scale is not None
    address = scale.ctypes.data
    del one, scale
    three = searcher.prepare(view_of(learned(3)))  # in the place of what is gone
    assert address in {part.scale.ctypes.data for part in three.parts.values() if part.scale is not None}
    preparer = searcher._preparer
    assert len(preparer._indexed) == len(items.snapshot().parts)
    del two, three
    assert len(preparer._indexed) == 0


def test_norms_that_are_read_are_never_written_again() -> None:
    items = several_parts("sparse")
    searcher, _ = searcher_of(items)
    held = searcher.prepare(view_of(learned(1)))
    before = {serial: part.scale.copy() for serial, part in held.parts.items() if part.scale is not None}
    for seed in range(2, 12):
        searcher.prepare(view_of(learned(seed)))
    for serial, scale in before.items():
        assert np.array_equal(scale, held.parts[serial].scale)  # type: ignore[arg-type]


def test_who_cannot_be_asked_says_why() -> None:
    items = several_parts("dense")
    searcher, replica = searcher_of(items)
    with pytest.raises(QueryError) as unknown:
        searcher.search("nobody", [Query(id="a0")])
    assert (unknown.value.status, unknown.value.field) == (404, "alias")
    with pytest.raises(QueryError, match="no version yet") as nothing:
        searcher.search("latest", [Query(id="a0")])
    assert nothing.value.status == 503
    replica.view = view_of(learned(1), map_id="another")
    with pytest.raises(QueryError) as other:
        searcher.search("latest", [Query(id="a0")])
    assert (other.value.status, other.value.code) == (503, "other_map")


def test_a_view_that_was_not_prepared_answers_the_same() -> None:
    items = several_parts("dense")
    view = view_of(learned(12))
    searcher, _ = searcher_of(items, view)
    queries = [Query(id="a0", k=5)]
    assert searcher.search_view(view, queries).results == searcher.search("latest", queries).results


def test_an_empty_catalog_answers_nothing_and_can_be_warmed() -> None:
    items = Items("dense")
    searcher, replica = searcher_of(items, view_of(learned(13)))
    assert replica.view is not None
    searcher.warm(replica.view)
    assert searcher.sample(5) is None
    answers = searcher.search("latest", [Query(x=[1.0] * DIM, k=3), Query(id="a", k=3)]).results
    assert answers[0] == []
    assert isinstance(answers[1], QueryError)


def test_warming_searches_and_says_when_the_model_cannot_answer() -> None:
    items = several_parts("dense")
    searcher, replica = searcher_of(items, view_of(learned(14)))
    assert replica.view is not None
    searcher.warm(replica.view)
    broken = view_of(learned(14), normalised=False)
    W = np.full((DIM, DIM), np.inf, np.float32)
    form = replace(broken.form, matrix=W)  # type: ignore[type-var]
    with pytest.raises(QueryError):
        searcher.warm(replace(broken, form=form))


def test_the_sample_is_the_same_while_the_largest_part_lives() -> None:
    items = several_parts("sparse")
    searcher, _ = searcher_of(items)
    first, second = searcher.sample(8), None
    items.put(["new"], items.vectors["a1"][None])
    second = searcher.sample(8)
    assert first is not None
    assert second is not None
    assert len(first) == 8
    assert first.values.tobytes() == second.values.tobytes()


def test_the_score_is_that_of_the_search_below() -> None:
    """Nothing is added on the way: an answer can be computed again from its version and the catalog alone."""
    items = Items("sparse")
    items.put([f"a{i}" for i in range(50)], rows(np.random.default_rng(1), 50, DIM, 1.0))
    view = view_of(learned(15))
    searcher, _ = searcher_of(items, view)
    norms = searcher.prepare(view)
    assert isinstance(norms, Norms)
    _, vectors = items.block()
    query = vectors.take([7])
    folded = view.fold(query)
    own = np.float32(
        sum(float(folded[0, j]) * float(v) for j, v in zip(query.indices, query.values, strict=True))
    )
    root = np.float32(1) / np.sqrt(own)
    scale = np.float32(1) / np.sqrt(view.self_scores(vectors))
    scores, found = topk(folded * root, as_items(vectors), scale, None, 6)
    hits = searcher.search("latest", [Query(id="a7", k=5)]).results[0]
    assert not isinstance(hits, QueryError)
    again = [(f"a{row}", float(score)) for row, score in zip(found[0], scores[0], strict=True) if row != 7]
    assert [(hit.id, hit.score) for hit in hits] == again


def test_a_replica_that_stops_serving_is_told() -> None:
    items = several_parts("dense")
    searcher, replica = searcher_of(items, view_of(learned(1)))
    assert isinstance(replica, OneReplica)
    replica.view = None
    with pytest.raises(QueryError):
        searcher.search("latest", [Query(id="a0")])
