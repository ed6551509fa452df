"""Search of one part of the index under one model: exact, or approximate where the recall guard lets it.

Approximate search of dense items: cells of directions that faiss finds, of which only the nearest are
searched. The cells know no version. Which of them are nearest, and every score in them, is computed with
the form and the norms of the version that asks, so that what is missed lies in other cells and nowhere
else.

The recall guard: how wide an approximate search has to be under a version, or that it has to be exact.
What an approximate index finds depends on the version that asks: a strong change of W turns the folded
queries away from the directions that the index was made for. So recall is measured for every version
before it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.replica.view import View
from daemon.serve.items.snapshot import IndexSnapshot
from learners.block import Block, DenseBlock, Float32s, Int64s
from learners.forms.bilinear import BilinearForm
from learners.forms.quadratic import inverse_roots
from learners.search import DenseItems, SearchItems, TopK, topk, topk_dense

TRAINING, ROUNDS = 64, 10
"""Items per cell that its centre is found from, and rounds of k-means: more change little and cost much."""

SEED = 20100


@dataclass(frozen=True, slots=True)
class AnnSettings:
    """recall: share of the exact top 10 that has to be found, on the guard's sample. least: parts with fewer
    items are searched exactly, which takes no longer there.
    """

    recall: float = 0.95
    least: int = 20_000


class AnnIndex:
    """The items of a part by cells, sqrt(n) of them; read by any thread.

    centres: unit vectors, one per cell.
    """

    def __init__(self, items: DenseItems) -> None:
        faiss = load_faiss()
        cells = max(1, round(float(np.sqrt(len(items)))))
        units = _units(items)
        means = faiss.Kmeans(
            items.dim,
            cells,
            niter=ROUNDS,
            spherical=True,
            seed=SEED,
            max_points_per_centroid=TRAINING,
            min_points_per_centroid=1,
        )
        means.train(units)
        self.centres = DenseBlock(means.centroids)
        owners = means.index.search(units, 1)[1][:, 0]
        self._rows: Int64s = np.argsort(owners, kind="stable")
        self._starts = np.searchsorted(owners[self._rows], np.arange(cells + 1))

    def rows_of(self, cells: Int64s) -> Int64s:
        """The rows of all items in these cells."""
        return np.concatenate([self._rows[self._starts[cell] : self._starts[cell + 1]] for cell in cells])


def load_faiss() -> Any:
    """The library, with one thread. Raises UserError where it is not installed."""
    try:
        import faiss
    except ImportError as error:
        raise UserError(
            f"serve.ann is on, but faiss cannot be imported: {error}",
            "pip install 'tripletd[ann]', or set serve.ann to off: search is then exact",
            EX_UNAVAILABLE,
        ) from error
    faiss.omp_set_num_threads(1)
    return faiss


def _units(items: DenseItems) -> NDArray[np.float32]:
    """The items' directions; a row of zeros stays, and one that is too short for float32 becomes one."""
    norms = items.bounds[:, 1]
    inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > np.finfo(np.float32).tiny)
    return np.asarray(items.values * inverse[:, None].astype(np.float32), np.float32)


TOP = 10
"""Neighbours that recall is the found share of."""

QUERIES = 64
"""Items of the part, evenly spaced, that ask for their neighbours; recall is then known to about .01, its
standard error, by which it has to be better than what is demanded."""

NARROWEST = 4
"""Cells of the first attempt."""

WORTH = 16
"""A search of more than this part of all cells saves nothing: a row that is looked up costs several times
as much as one of a scan that several queries share."""


@dataclass(frozen=True, slots=True)
class GuardResult:
    """What the guard found for one part. width: cells to search, None for exact search. recall: measured at
    that width, 1 for exact; attempts: recall by width, in the order tried. model, items: what it was
    measured for.
    """

    width: int | None
    recall: float
    attempts: tuple[tuple[int, float], ...]
    model: str = ""
    items: int = 0


def saves(width: int, cells: int) -> bool:
    """Whether a search of this many of all cells is worth it."""
    return width * WORTH <= cells


def choose_width(recall_at: Callable[[int], tuple[float, float]], cells: int, least: float) -> GuardResult:
    """The narrowest width, doubled each time, whose recall is at least `least` even after its standard
    error is taken off; exact where none is worth it. recall_at: (recall, standard error) at a width.
    """
    attempts: list[tuple[int, float]] = []
    width = NARROWEST
    while saves(width, cells):
        recall, error = recall_at(width)
        attempts.append((width, recall))
        if recall - error >= least:
            return GuardResult(width, recall, tuple(attempts))
        width *= 2
    return GuardResult(None, 1.0, tuple(attempts))


def recall(exact: Int64s, found: Int64s, own: NDArray[np.int64]) -> tuple[float, float]:
    """(mean, standard error) of the share of the exact rows [m, k] that are among the found rows [m, any],
    query i's own row left out of both (it finds itself in any index); absent rows are -1; (1, 0) where
    there is nothing to find.
    """
    shares = []
    for truth, rows, self_row in zip(exact, found, own, strict=True):
        wanted = set(truth[truth >= 0].tolist()) - {int(self_row)}
        if wanted:
            shares.append(len(wanted & set(rows.tolist())) / len(wanted))
    if not shares:
        return 1.0, 0.0
    return float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares)))


Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Indexed:
    """A part under any model: its items, and for approximate search its cells and their centres as items."""

    items: SearchItems
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


@dataclass(frozen=True, slots=True, eq=False)
class Norms:
    """What `prepare` makes of a view: every part of `snapshot` by serial, for the form made at `formed`."""

    formed: int
    snapshot: IndexSnapshot
    parts: Mapping[int, ReadyPart]

    def cover(self, snapshot: IndexSnapshot) -> bool:
        """Whether every part of the snapshot is ready."""
        return all(part.serial in self.parts for part in snapshot.parts)

    def within(self, snapshot: IndexSnapshot) -> Norms:
        """Those of parts that the snapshot has too."""
        serials = {part.serial for part in snapshot.parts}
        parts = {serial: ready for serial, ready in self.parts.items() if serial in serials}
        return Norms(self.formed, snapshot, parts)


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
    clipped = not isinstance(view.search, BilinearForm)  # there it is a part of the score, of either sign
    return np.asarray(_self_scores(folded, queries, clipped) / 2, np.float32)


def _self_scores(folded: Float32s, queries: Block, clipped: bool = True) -> Float32s:
    """q^T (S q), clipped at 0 or not: without reading S a second time."""
    if isinstance(queries, DenseBlock):
        products = np.einsum("md,md->m", folded, queries.values, dtype=np.float64)
    else:
        products = np.zeros(len(queries))
        for row, (start, stop) in enumerate(zip(queries.indptr, queries.indptr[1:], strict=False)):
            values = queries.values[start:stop].astype(np.float64)
            products[row] = folded[row, queries.indices[start:stop]].astype(np.float64) @ values
    return np.asarray(np.maximum(products, 0) if clipped else products, np.float32)


def nearest(ready: ReadyPart, folded: Float32s, allowed: Mask | None, k: int) -> TopK:
    """The k best allowed items of each folded query, exactly."""
    return topk(folded, ready.indexed.items, ready.scale, allowed, k, offset=ready.offset)


def near_enough(ready: ReadyPart, folded: Float32s, allowed: Mask | None, k: int) -> TopK:
    """The k best allowed items of each folded query among the `width` cells whose centres score best."""
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
    """The k best allowed items of each folded query, or what `near_enough` finds; k where there are k."""
    width = width_for(ready, k, selective)
    if width is None:
        return nearest(ready, folded, allowed, k)
    scores, rows = near_enough(replace(ready, width=width), folded, allowed, k)
    short = (rows < 0).any(axis=1)
    if short.any():
        scores[short], rows[short] = nearest(ready, folded[short], allowed, k)
    return scores, rows
