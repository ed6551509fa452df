"""Search of one part of the index under one model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daemon.replica.view import View
from daemon.serve.retrieve.ann import AnnIndex
from daemon.serve.retrieve.guard import TOP, saves
from learners.block import Block, DenseBlock, Float32s
from learners.forms.quadratic import inverse_roots
from learners.search import DenseItems, Items, TopK, topk, topk_dense

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Indexed:
    """A part as it is searched under any model: its items, and where there is an approximate index, that
    and the centres of its cells as items.
    """

    items: Items
    ann: AnnIndex | None = None
    centres: DenseItems | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ReadyPart:
    """A part as it is searched under one model. scale: float32 [n], 1 / norm of each item, None for raw
    scores. offset: float32 [n], what is added to each item's product, None where nothing is.
    cell_scale, cell_offset: the same of the centres. width: cells that an approximate search has to look
    into, None for exact search. features: float32 [n, F], see `learners.forms.quadratic.FeaturedForm`; None
    where there are none.
    """

    indexed: Indexed
    scale: Float32s | None = None
    offset: Float32s | None = None
    cell_scale: Float32s | None = None
    cell_offset: Float32s | None = None
    width: int | None = None
    features: Float32s | None = None

    @property
    def terms(self) -> Float32s | None:
        """Scale or offset, whichever there is."""
        return self.offset if self.scale is None else self.scale


def folded_queries(view: View, queries: Block) -> Float32s:
    """S q / sqrt(q^T S q) for each mapped query, float32 [m, d], or S q for a model with raw scores.

    A query without a norm folds to zeros. A row is not finite where float32 could not hold it. Dense
    queries are folded one by one, because BLAS gives other bits to a row among others; sparse ones share
    the reading of S.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(queries, DenseBlock):
            folded = np.vstack([view.fold(queries.slice(row, row + 1)) for row in range(len(queries))])
        else:
            folded = view.fold(queries)
        if view.normalised:
            roots = inverse_roots(_self_scores(folded, queries))
            folded = np.asarray(folded * roots[:, None], np.float32)
    return folded


def own_scores(view: View, folded: Float32s, queries: Block) -> Float32s:
    """What the score of every item loses for a query's own part, float32 [m]: S(q, q) under a distance, of
    which 2 S q was folded; else 0."""
    if not view.by_distance:
        return np.zeros(len(queries), np.float32)
    return np.asarray(_self_scores(folded, queries) / 2, np.float32)


def _self_scores(folded: Float32s, queries: Block) -> Float32s:
    """q^T (S q), clipped at 0: without reading S a second time."""
    if isinstance(queries, DenseBlock):
        products = np.einsum("md,md->m", folded, queries.values, dtype=np.float64)
    else:
        products = np.zeros(len(queries))
        for row, (start, stop) in enumerate(zip(queries.indptr, queries.indptr[1:], strict=False)):
            values = queries.values[start:stop].astype(np.float64)
            products[row] = folded[row, queries.indices[start:stop]].astype(np.float64) @ values
    return np.asarray(np.maximum(products, 0), np.float32)


def nearest(ready: ReadyPart, folded: Float32s, allowed: Mask | None, k: int) -> TopK:
    """The k best allowed items of each folded query, exactly."""
    return topk(folded, ready.indexed.items, ready.scale, allowed, k, offset=ready.offset)


def near_enough(ready: ReadyPart, folded: Float32s, allowed: Mask | None, k: int) -> TopK:
    """The k best allowed items of each folded query among those in the `width` cells whose centres score
    best."""
    indexed = ready.indexed
    assert indexed.ann is not None
    assert indexed.centres is not None
    assert ready.width is not None
    assert isinstance(indexed.items, DenseItems)
    scores, rows = np.full((len(folded), k), -np.inf, np.float32), np.full((len(folded), k), -1, np.int64)
    cells = topk(folded, indexed.centres, ready.cell_scale, None, ready.width, offset=ready.cell_offset)[1]
    for n in range(len(folded)):
        among, query = indexed.ann.rows_of(cells[n]), folded[n : n + 1]
        found = topk_dense(query, indexed.items, ready.scale, allowed, k, offset=ready.offset, among=among)
        scores[n], rows[n] = found[0][0], found[1][0]
    return scores, rows


def width_for(ready: ReadyPart, k: int, selective: bool) -> int | None:
    """Cells to search for k hits: in proportion to the hits that the guard has measured the recall of. None
    for `nearest`: where the guard wants it, where so many cells save nothing, and where a filter is
    selective, for it may leave next to nothing in the cells that are searched.
    """
    if selective or ready.width is None or ready.indexed.ann is None:
        return None
    width = ready.width * max(1, -(-k // (TOP + 1)))
    return width if saves(width, len(ready.indexed.ann.centres)) else None


def search_part(ready: ReadyPart, folded: Float32s, allowed: Mask | None, k: int, selective: bool) -> TopK:
    """The k best allowed items of each folded query, all of them or as many as `near_enough` finds; never
    fewer than k where the part has them.
    """
    width = width_for(ready, k, selective)
    if width is None:
        return nearest(ready, folded, allowed, k)
    scores, rows = near_enough(replace(ready, width=width), folded, allowed, k)
    short = (rows < 0).any(axis=1)
    if short.any():
        scores[short], rows[short] = nearest(ready, folded[short], allowed, k)
    return scores, rows
