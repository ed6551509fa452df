"""Why a hit has its score: what each view contributes, where version 0 has it, and its clicks.

A form that folds scores by q^T S p, over the norms of both where it is normalised, or by
-(q - p)^T S (q - p). With q and p cut into the columns of the views (`FittedSpaceMap.blocks`) that is a sum
over pairs of views a, b of q_a^T S_ab p_b: what a view contributes by itself, and what two contribute
together. A form that does not fold is no such sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daemon.replica.view import ModelId, View
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import ExplainedId, HitClicks, Query, ScoredId, ViewShare
from daemon.serve.retrieve.finding import eligible_rows
from daemon.serve.retrieve.part import Norms, folded_queries, own_scores
from learners.block import Block, DenseBlock, Float32s, SparseBlock, concatenate, dense_rows
from learners.forms.bilinear import OwnLengthForm
from learners.forms.quadratic import inverse_roots
from learners.forms.serving import linear_fold
from learners.maps.base import OwnRanking
from learners.search import score_rows

Places: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int64]]
"""Parts and rows of objects."""
NEAR = 20
"""Nearest objects by version 0 whose own clicks count as near a query's."""
Blocks: TypeAlias = Mapping[str, range]
"""The columns of each view, in order; together all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """What a query was answered with: a model, what was prepared of it, the items; and the query, a mapped
    block of one row."""

    view: View
    norms: Norms
    snapshot: IndexSnapshot
    query: Query
    vector: Block


Clicks: TypeAlias = Callable[[str | None, Sequence[str], Sequence[str], str | None], list[HitClicks] | None]
"""Gives the clicks behind each object, by query, queries near it, objects and key (`daemon.serve.clicks`);
None where they are not known (yet)."""


class Explainer:
    """Explains hits. Of version 0 it keeps a float32 per item, once somebody asked.

    blocks: the columns of each view. own: the user's ranking where the space knows it, which is then what
    version 0 answers; else version 0 is the similarity that learning begins from, S = I. clicks: None tells
    of none. One thread.
    """

    def __init__(self, blocks: Blocks, own: OwnRanking | None, clicks: Clicks | None = None) -> None:
        self._blocks, self._own, self._clicks = blocks, own, clicks
        self._terms: dict[tuple[int, bool, bool], Float32s] = {}

    def explained(self, asked: Searched, hits: Sequence[ScoredId]) -> list[ExplainedId]:
        """The hits of a query with their explanations."""
        if not hits:
            return []
        places = asked.snapshot.find_many([hit.id for hit in hits])
        scores, ranks, near = self._by_version_0(asked, places)
        shares = None if asked.view.rescored else self._shares(asked, places)
        clicks, query = None, asked.query
        if self._clicks is not None:
            clicks = self._clicks(query.id, near, [hit.id for hit in hits], query.key)
        return [
            ExplainedId(
                hit.id,
                hit.score,
                None if shares is None else tuple(shares[at]),
                float(scores[at]),
                int(ranks[at]),
                None if clicks is None else clicks[at],
            )
            for at, hit in enumerate(hits)
        ]

    def _shares(self, asked: Searched, places: Places) -> list[list[ViewShare]]:
        parts, view = asked.snapshot.parts, asked.view
        found = [(parts[part], row) for part, row in zip(*places, strict=True)]
        items = concatenate([part.vectors.take([row]) for part, row in found])
        # 1 / norm of each item, as the search divided by it; 1 where it did not. Of an order none is ready.
        if isinstance(view.form, OwnLengthForm):
            scales = view.terms(view.self_scores(items)).astype(np.float64)
        else:
            norms = [(asked.norms.parts[part.serial].scale, row) for part, row in found]
            scales = np.array([1.0 if scale is None else float(scale[row]) for scale, row in norms])
        return _shares(asked.view, asked.vector, items, scales, self._blocks)

    def _by_version_0(
        self, asked: Searched, places: Places
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
        """Scores and ranks, from 1, of these rows under version 0, among all that the query allows; and the
        ids of the `NEAR` nearest of these, best first.
        """
        snapshot, (parts, rows) = asked.snapshot, places
        form = asked.view.by_owner(self._own)
        zero = View(ModelId(0), asked.view.map_id, form, 0)
        folded = folded_queries(zero, asked.vector)
        less = float(own_scores(zero, folded, asked.vector)[0])
        scores, better = np.zeros(len(rows), np.float32), np.zeros(len(rows), np.int64)
        everywhere: list[Float32s] = []
        near: list[tuple[float, int, int]] = []
        serials = {part.serial for part in snapshot.parts}
        self._terms = {key: terms for key, terms in self._terms.items() if key[0] in serials}
        for number, allowed in enumerate(eligible_rows(snapshot, asked.query)):
            part, here = snapshot.parts[number], parts == number
            items = asked.norms.parts[part.serial].indexed.items
            key = (part.serial, form.normalised, form.distance)
            if key not in self._terms and zero.has_terms:
                self._terms[key] = zero.terms(zero.self_scores(part.vectors))
            terms = self._terms.get(key)
            scale, offset = (terms, None) if form.normalised else (None, terms)
            if here.any():
                scores[here] = score_rows(folded[0], items, scale, rows[here], offset=offset)
            found = score_rows(folded[0], items, scale, allowed, offset=offset)
            everywhere.append(found)
            best = np.argpartition(-found, NEAR)[:NEAR] if len(found) > NEAR else np.arange(len(found))
            near += [(float(found[at]), number, int(allowed[at])) for at in best.tolist()]
        for found in everywhere:
            better += len(found) - np.searchsorted(np.sort(found), scores, side="right")
        nearest = [snapshot.id_at(part, row) for _, part, row in sorted(near, reverse=True)[:NEAR]]
        return scores.astype(np.float64) - less, better + 1, nearest


def _shares(
    view: View, query: Block, items: Block, scales: NDArray[np.float64], blocks: Blocks
) -> list[list[ViewShare]]:
    """Per item what the views contribute: each by itself, then pairs of them that contribute anything."""
    columns = list(blocks.values())
    form = view.search
    if view.by_distance:
        apart = np.asarray(dense_rows(items) - dense_rows(query), np.float32)
        # fold gives 2 S e
        parted = [
            -_parted(form.fold, DenseBlock(apart[at : at + 1]), apart[at : at + 1], columns)[0] / 2
            for at in range(len(items))
        ]
        products = np.array(parted)
    else:
        fold = linear_fold(form, query)
        products = _parted(fold, query, dense_rows(items), columns)
        if view.normalised:
            own = _parted(fold, query, dense_rows(query), columns).sum()
            if isinstance(form, OwnLengthForm):  # not divided by its own scores
                own = float(form.self_scores(query)[0])
            products *= float(inverse_roots(np.array([max(own, 0.0)], np.float32))[0])
        products *= scales[:, None, None]
    names = list(blocks)
    found = []
    for one in products:
        shares = [ViewShare((name,), float(one[at, at])) for at, name in enumerate(names)]
        for a, b in combinations(range(len(names)), 2):
            together = float(one[a, b] + one[b, a])
            if together:
                shares.append(ViewShare((names[a], names[b]), together))
        found.append(shares)
    return found


def _parted(
    fold: Callable[[Any], Float32s], query: Block, items: Float32s, columns: Sequence[range]
) -> NDArray[np.float64]:
    """fold(q_a)_b . p_b for each item, float64 [items, views, views]: q cut into its views."""
    folded = fold(_cut(query, columns)).astype(np.float64)
    parted = np.empty((len(items), len(columns), len(columns)))
    for b, of in enumerate(columns):
        parted[:, :, b] = items[:, of.start : of.stop].astype(np.float64) @ folded[:, of.start : of.stop].T
    return parted


def _cut(query: Block, columns: Sequence[range]) -> Block:
    """A row for each view: the query with nothing but that view."""
    if isinstance(query, DenseBlock):
        rows = np.zeros((len(columns), query.values.shape[1]), np.float32)
        for row, of in zip(rows, columns, strict=True):
            row[of.start : of.stop] = query.values[0, of.start : of.stop]
        return DenseBlock(rows)
    inside = slice(int(query.indptr[0]), int(query.indptr[1]))
    indices, values = query.indices[inside], query.values[inside]
    edges = np.searchsorted(indices, [0, *(of.stop for of in columns)])
    return SparseBlock(edges.astype(np.int64), indices, values, query.dim)
