"""The user's own ranking, with its first objects in order: over several parts, with filters, over graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from daemon.replica.view import ModelId, View
from daemon.serve.query import Answered, Query, QueryError
from daemon.versions.order import Answering, OrderChoice
from learners.forms.bilinear import OwnLengthForm
from learners.forms.quadratic import DiagonalForm
from tests.daemon.serve.retrieve import graphed
from tests.daemon.serve.retrieve.makers import Floats, Items, learned, searcher_of, several_parts

TOP = 30


def view_that_orders(A: Floats) -> View:
    """A version that re-ranks the cosine by 3 times the cosine and A."""
    eye = np.eye(len(A), dtype=np.float32)
    answers = Answering(OrderChoice("all", 3.0, TOP), reach=False)
    cosine = DiagonalForm(np.ones(len(A), np.float32), True, False)
    model = ModelId(3, 0, None, 30)
    return View(model, "map", cosine, 30, answers=answers, order=OwnLengthForm(A + 3 * eye, eye.diagonal()))


def wanted(items: Items, view: View, query: str, allowed: Sequence[str]) -> list[str]:
    """All allowed objects as they must be answered, in float64."""
    assert view.order is not None
    asked = items.vectors[query].astype(np.float64)
    rows = {one: items.vectors[one].astype(np.float64) for one in allowed if one != query}
    cosine = {one: row @ asked / np.linalg.norm(row) for one, row in rows.items()}
    ranked = sorted(rows, key=lambda one: -cosine[one])
    folded = view.order.matrix.T.astype(np.float64) @ asked
    order = {one: rows[one] @ folded / np.linalg.norm(rows[one]) for one in ranked[:TOP]}
    return [*sorted(order, key=lambda one: -order[one]), *ranked[TOP:]]


def ids(answered: Answered) -> list[str]:
    assert not isinstance(answered.result, QueryError)
    return [hit.id for hit in answered.result]


def test_objects_of_all_parts_are_in_one_order_and_filters_hold() -> None:
    items = several_parts("dense")
    view = view_that_orders(learned(1, strength=2.0))
    searcher, _ = searcher_of(items, view)
    living = [one for one in items.vectors if one not in ("twin", "twin2")]
    twins = frozenset(("twin", "twin2"))
    many = frozenset(f"x{number}" for number in range(300)) | twins  # taken out of the scan by a mask
    red = [one for one in living if "red" in items.tags[one]]
    for query in ("a15", "b3", "a120"):
        asked = [
            Query(id=query, k=400, exclude=twins),
            Query(id=query, k=7, exclude=many),
            Query(id=query, k=400, exclude=twins, tags=frozenset(["red"])),
            Query(id=query, k=400, include=frozenset(living), found=True),
            Query(id=query, k=3, exclude=frozenset(wanted(items, view, query, living)[:20]) | twins),
        ]
        left = [one for one in living if one not in asked[4].exclude]
        expected = [wanted(items, view, query, one) for one in (living, living, red, living, left)]
        for answered, question, whole in zip(
            searcher.search("latest", asked).each, asked, expected, strict=True
        ):
            assert ids(answered) == whole[: question.k]
            assert answered.ordered_by == "order"


def test_a_version_with_an_order_that_searches_orders_what_is_given_alone() -> None:
    items = several_parts("dense")
    found = view_that_orders(learned(1, strength=2.0))
    view = replace(found, answers=replace(found.answers, reach=True))
    searcher, _ = searcher_of(items, view)
    living = frozenset(items.vectors) - {"twin", "twin2"}
    asked = [Query(id="a15", k=9, exclude=frozenset(("twin", "twin2"))), Query(id="a15", k=9, include=living)]
    asked.append(replace(asked[1], found=True))
    searched, given, of_store = searcher.search("latest", asked).each
    assert [one.ordered_by for one in (searched, given, of_store)] == ["form", "order", "form"]
    assert ids(searched) == ids(of_store) != ids(given)
    assert view.order is not None
    folded, rows = items.vectors["a15"] @ view.order.matrix, items.vectors
    order = {one: folded @ rows[one] / np.linalg.norm(rows[one]) for one in living - {"a15"}}
    assert ids(given) == sorted(order, key=lambda one: -order[one])[:9]


def test_what_a_graph_finds_is_put_in_order(tmp_path: Path) -> None:
    items = graphed.clustered()
    view = view_that_orders(learned(1, graphed.DIM, strength=2.0))
    searcher = graphed.searcher_over(items, graphed.keeper_of(items, tmp_path), 0.8)
    view = replace(view, prepared=searcher.prepare(view))
    shares = []
    for number in range(20):
        (answered,) = searcher.search_view(view, [Query(id=f"a{number}", k=10)]).each
        assert not answered.exact
        shares.append(len({*ids(answered)} & {*wanted(items, view, f"a{number}", list(items.vectors))[:10]}))
        assert not isinstance(answered.result, QueryError)
        scores = [hit.score for hit in answered.result]
        assert scores == sorted(scores, reverse=True)
    assert np.mean(shares) > 8
