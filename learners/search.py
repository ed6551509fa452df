"""The k best items of each folded query, exactly.

    score(f, p) = float32( scale_p sum_j f_j p_j + offset_p )

Products of float32 numbers are summed in float64 in the order of the row's entries, scaled and moved in
float64, rounded once and kept within +-3.4e38. Nothing else decides: neither how many queries are asked at
once, nor the kind of block (a dense row and the sparse row of the same numbers score alike to the bit), nor
the quick scan, which only leaves out what provably cannot be among the best. scale is 1 / norm of the item
for a normalised score, 0 for an item without a norm, which then scores 0. offset is minus the item's own
score where similarity is a distance.

Rows come descending by score, equal scores by ascending row. `SearchIndex` holds items for one form after
another, and gives the scores of the form.

Also: one answer out of the answers of several parts; the order of a few items by the scores themselves, for
similarities that no inner product gives; the score itself, for given rows. Items are prepared first: what is
scored, and what makes a scan quick and its bound rigorous. What a search refuses is refused before anything
is indexed.

Pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import (
    Block,
    DenseBlock,
    Float32s,
    Int64s,
    SparseBlock,
    as_block,
    not_finite,
    numbers,
    row_blocks,
    row_numbers,
)
from learners.errors import BlockError, require_whole
from learners.forms.quadratic import (
    ServedForm,
    by_distance,
    featured,
    folds,
    has_terms,
    inverse_roots,
    terms_of,
)
from learners.kernels.intrinsics import LANES, QUERIES, STRIDE
from learners.kernels.scan import (
    encode,
    encode_queries,
    pad_long,
    pad_short,
    scan,
    scan_many_long,
    scan_many_short,
    scan_one_long,
    scan_one_short,
    score_places_long,
    score_places_short,
    score_rows_dense,
    settle,
)

SHORT_DIM = 1 << 16
"""Dimensions whose columns fit 16 bits, which are half the bytes to read."""

UNIT = 2.0**-24
"""Unit roundoff of float32."""

NORMAL = 2.0**-120
"""A bound for underflow that is itself a normal number: sums with others take a hundred times as long."""

FEW = 16
"""Roundings granted beyond those of a row's own products and sums: those of the bound and of the score
itself."""

UP = 1 + 1e-6
"""Makes up for the rounding of a bound itself to float32, and of norms summed in float64."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SparseItems:
    """Sparse items, n rows of d columns, copied and padded for the scan; 6 or 8 bytes per entry.

    order: int64 [n], the rows by their number of entries; places: its inverse. What follows is in that order.
    pointers: int64 [n + 1]; columns: uint16 up to 65,536 columns, else uint32; values: float32; radius:
    float32 [n], how far a float32 product of a row with f may be from the true one, per ||f||: gamma ||row||,
    with gamma = c u / (1 - c u) for c roundings, which holds for any order of summation (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd ed., section 3.1). longest: norm of the longest row. lost: most
    that underflow may take from a product.
    """

    dim: int
    pointers: Int64s
    columns: NDArray[Any]
    values: Float32s
    radius: Float32s
    order: Int64s
    places: Int64s
    longest: float
    lost: float

    @classmethod
    def of(cls, block: SparseBlock) -> SparseItems:
        """Prepare a block. Raises BlockError naming a row with a value that is not finite, or an index out of
        range or not above the one before it."""
        block.check_indices()
        lengths = -(-np.diff(block.indptr) // LANES) * LANES
        order = np.argsort(lengths, kind="stable")
        lengths, places = lengths[order], np.empty_like(order)
        places[order] = np.arange(len(order))
        pointers = np.zeros(len(block) + 1, np.int64)
        np.cumsum(lengths, out=pointers[1:])
        short = block.dim <= SHORT_DIM
        columns = np.zeros(pointers[-1], np.uint16 if short else np.uint32)
        values, norms = np.zeros(pointers[-1], np.float32), np.zeros(len(block))
        fill = pad_short if short else pad_long
        wrong = fill(block.dim, block.kernel_rows(), pointers, order, columns, values, norms)
        _refuse(wrong, f"a value that is not finite or an index outside 0..{block.dim - 1}")
        errors = (lengths + FEW) * UNIT
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            gamma = np.where(errors < 1, errors / np.maximum(1 - errors, 0), np.inf)
            radius = (gamma * norms * UP).astype(np.float32)
        lost = max(float(lengths.max(initial=0) + FEW) * 2.0**-148, NORMAL)
        longest = float(norms.max(initial=0))
        return cls(block.dim, pointers, columns, values, radius, order, places, longest, lost)

    def __len__(self) -> int:
        return len(self.radius)

    def arrays(self) -> tuple[Int64s, NDArray[Any], Float32s, Float32s, Int64s]:
        """The arrays as the kernels take them."""
        return self.pointers, self.columns, self.values, self.radius, self.order


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DenseItems:
    """Dense items, n rows of d columns, by reference, and their 8-bit codes: one more byte per number of
    four.

    values: float32 [n, d]; codes: int8 [n, p], d padded with zeros; bounds: float64 [n, 3]: the step of
    each row's codes, its norm, and the norm of what its codes leave out.
    """

    values: Float32s
    codes: NDArray[np.int8]
    bounds: NDArray[np.float64]

    @classmethod
    def of(cls, block: DenseBlock) -> DenseItems:
        """Prepare a block. Raises BlockError naming the first row with a value that is not finite."""
        codes = np.empty((len(block), -(-block.dim // STRIDE) * STRIDE), np.int8)
        bounds = np.empty((len(block), 3))
        _refuse(encode(block.values, codes, bounds), "a value that is not finite")
        return cls(block.values, codes, bounds)

    @property
    def dim(self) -> int:
        """The number of columns."""
        return int(self.values.shape[1])

    def __len__(self) -> int:
        return len(self.values)

    def arrays(self) -> tuple[Float32s, NDArray[np.int8], NDArray[np.float64]]:
        """The arrays as the kernels take them."""
        return self.values, self.codes, self.bounds


SearchItems: TypeAlias = SparseItems | DenseItems


def as_items(rows: Any) -> SearchItems:
    """Rows made ready for the search: a block, or anything that `as_block` reads. Raises BlockError."""
    block = as_block(rows)
    return SparseItems.of(block) if isinstance(block, SparseBlock) else DenseItems.of(block)


def _refuse(row: int, what: str) -> None:
    if row >= 0:
        raise BlockError(f"row {row} of the items has {what}: leave it out")


Mask: TypeAlias = NDArray[np.bool_]

EVERY = np.zeros(0, np.int64)
ALL = np.zeros(0, np.bool_)
NONE_GIVEN = np.zeros(0, np.float32)


def checked_queries(folded: Any, dim: int) -> Float32s:
    """`folded` as C-contiguous float32 [m, dim]. Raises BlockError for another shape, or numbers not
    finite."""
    queries = numbers("folded queries", folded)
    if queries.ndim != 2 or queries.shape[1] != dim or queries.dtype != np.float32:
        raise BlockError(
            f"folded queries are {queries.dtype} {list(queries.shape)}: give float32 [queries, {dim}]"
        )
    if not np.isfinite(queries).all():
        row = int(np.flatnonzero(~np.isfinite(queries).all(axis=1))[0])
        raise BlockError(f"folded query {row} has a number that is not finite: look at its vector and at W")
    ready = queries.flags.c_contiguous and queries.flags.aligned
    return queries if ready else np.require(queries, np.float32, ["C", "A"])


def checked_scale(scale: Float32s | None, rows: int) -> Float32s:
    """The scale of each row as kernels take it: empty for 1. Raises BlockError."""
    checked = _row_terms("scale", scale, rows)
    if len(checked) and not (checked.min() >= 0 and checked.max() < np.inf):
        raise BlockError("scale has a number that is negative or not finite: give 1 / norm, 0 where none is")
    return checked


def checked_offset(offset: Float32s | None, rows: int) -> Float32s:
    """The offset of each row as kernels take it: empty for 0. Raises BlockError."""
    checked = _row_terms("offset", offset, rows)
    if not np.isfinite(checked).all():
        raise BlockError("offset has a number that is not finite: look at the items and at W")
    return checked


def _row_terms(name: str, given: Float32s | None, rows: int) -> Float32s:
    if given is None:
        return NONE_GIVEN
    given = numbers(name, given)
    if given.shape != (rows,) or given.dtype != np.float32:
        raise BlockError(f"{name} is {given.dtype} {list(given.shape)}: give float32 [{rows}]")
    return np.require(given, np.float32, ["C", "A"])


RowTerms: TypeAlias = tuple[Float32s, Float32s]
"""Scale and offset of each row as kernels take them."""


def checked_mask(allowed: Mask | None, rows: int) -> Mask:
    """The mask as kernels take it: empty for all. Raises BlockError."""
    if allowed is None:
        return ALL
    allowed = numbers("allowed", allowed)
    if allowed.shape != (rows,) or allowed.dtype != np.bool_:
        raise BlockError(f"allowed is {allowed.dtype} {list(allowed.shape)}: give bool [{rows}]")
    return np.require(allowed, np.bool_, ["C", "A"])


def checked_count(k: Any) -> int:
    """How many are asked for, as an int. Raises BlockError."""
    require_whole("k", k, BlockError)
    if k < 0:
        raise BlockError(f"k must not be negative: {k}")
    return int(k)


TopK: TypeAlias = tuple[Float32s, Int64s]
"""Scores float32 [m, k] and rows int64 [m, k]; what is absent has score -inf and row -1, at the end."""

Best: TypeAlias = tuple[Float32s, Int64s, Int64s]

ALONE = 2
"""Queries up to which a scan for each is quicker than one for 16."""

LINE = 16
"""float32 numbers of a cache line."""

SAFE = 1e37
"""Norms whose product is below this leave every partial sum within float32."""

SLACK = 2.0**-22
"""Of ||f|| ||x||: more than the rounding of a score to float32 can add to it."""


def topk_sparse(
    folded: Float32s,
    items: SparseItems,
    scale: Float32s | None,
    allowed: Mask | None,
    k: int,
    *,
    offset: Float32s | None = None,
) -> TopK:
    """The k best sparse items of each folded query.

    folded: float32 [m, d], any m; 16 queries share one pass over the items. scale: float32 [n], finite and
    >= 0, or None for 1. offset: float32 [n], finite, or None for 0. allowed: bool [n], False leaves a row
    out; None allows all. k >= 0, also above n. One thread, the GIL released, no allocation per item.
    Raises BlockError for other shapes or dtypes, for a query, scale or offset that is not finite, a negative
    scale or k.
    """
    _require(items, SparseItems)
    queries = checked_queries(folded, items.dim)
    best = _empty(len(queries), len(items), k)
    terms = checked_scale(scale, len(items)), checked_offset(offset, len(items))
    mask = checked_mask(allowed, len(items))
    short = items.columns.dtype == np.uint16
    scan_one, scan_many = (scan_one_short, scan_many_short) if short else (scan_one_long, scan_many_long)
    lengths = _lengths(queries, items.longest)
    lost, arrays = np.float32(items.lost), items.arrays()
    if best[0].shape[1]:
        for first in range(0, len(queries), QUERIES):
            part = slice(first, first + QUERIES)
            if len(queries[part]) <= ALONE:
                for n in range(first, min(first + QUERIES, len(queries))):
                    scan_one(queries[n], lengths[n], lost, arrays, terms, mask, n, best)
                continue
            side_by_side, norms = _side_by_side(queries[part], lengths[part])
            heaps = (best[0][part], best[1][part], best[2][part])
            scan_many(side_by_side, norms, lost, queries[part], arrays, terms, mask, heaps)
    return _settled(best, k)


def topk_dense(
    folded: Float32s | EncodedQueries,
    items: DenseItems,
    scale: Float32s | None,
    allowed: Mask | None,
    k: int,
    *,
    offset: Float32s | None = None,
) -> TopK:
    """As `topk_sparse`, for dense items; folded: may be encoded already."""
    _require(items, DenseItems)
    encoded = folded if isinstance(folded, EncodedQueries) else EncodedQueries.of(folded, items.dim)
    queries, coded, weights = encoded.values, encoded.codes, encoded.weights
    if queries.shape[1] != items.dim:
        raise BlockError(f"folded queries have {queries.shape[1]} dimensions, the items {items.dim}")
    best = _empty(len(queries), len(items), k)
    terms = checked_scale(scale, len(items)), checked_offset(offset, len(items))
    mask = checked_mask(allowed, len(items))
    if best[0].shape[1]:
        for first in range(0, len(queries), QUERIES):
            part = slice(first, first + QUERIES)
            heaps = (best[0][part], best[1][part], best[2][part])
            scan(queries[part], coded[part], weights[part], items.arrays(), terms, mask, EVERY, heaps)
    return _settled(best, k)


def best_among(
    encoded: EncodedQueries, items: DenseItems, rows: Int64s, k: int, *, terms: RowTerms, allowed: Mask | None
) -> TopK:
    """As `topk_dense`, of these rows alone, each given once. For a search that has found them: neither they
    nor the terms are looked at again, and rows outside the items are read from anywhere."""
    best = _empty(len(encoded.values), len(items), k)
    if best[0].shape[1] and len(rows):
        mask = checked_mask(allowed, len(items))
        scan(encoded.values, encoded.codes, encoded.weights, items.arrays(), terms, mask, rows, best)
    return _settled(best, k)


def topk(
    folded: Float32s,
    items: SearchItems | Any,
    scale: Float32s | None,
    allowed: Mask | None,
    k: int,
    *,
    offset: Float32s | None = None,
) -> TopK:
    """`topk_sparse` or `topk_dense`, by the kind of the items. Rows that `as_block` reads are made items for
    this one call; see `as_items`."""
    if not isinstance(items, SparseItems | DenseItems):
        items = as_items(items)
    if isinstance(items, SparseItems):
        return topk_sparse(folded, items, scale, allowed, k, offset=offset)
    return topk_dense(folded, items, scale, allowed, k, offset=offset)


def _require(items: Any, kind: type) -> None:
    """Raises BlockError for items of another kind."""
    if not isinstance(items, kind):
        raise BlockError(f"expected {kind.__name__}, not {type(items).__name__}: see `as_items`")


def _empty(queries: int, rows: int, k: int) -> Best:
    room = min(checked_count(k), rows)
    scores = np.full((queries, room), -np.inf, np.float32)
    return scores, np.full((queries, room), -1, np.int64), np.zeros(queries, np.int64)


def _settled(best: Best, k: int) -> TopK:
    scores, rows, counts = best
    settle(scores, rows, counts)
    missing = ((0, 0), (0, k - scores.shape[1]))
    if k == scores.shape[1]:
        return scores, rows
    return np.pad(scores, missing, constant_values=-np.inf), np.pad(rows, missing, constant_values=-1)


def _lengths(queries: Float32s, longest: float) -> Float32s:
    """||f|| of each query, rounded up; infinite, so that every bound is, where float32 might overflow."""
    norms = np.sqrt(np.einsum("md,md->m", queries, queries, dtype=np.float64)) * UP
    with np.errstate(over="ignore"):
        return np.where(norms * max(longest, 1.0) < SAFE, norms, np.inf).astype(np.float32)


def _side_by_side(queries: Float32s, lengths: Float32s) -> tuple[Float32s, Float32s]:
    """(float32 [d * 16] at the start of a cache line: for each column the queries' numbers; lengths [16])."""
    count, dim = queries.shape
    room = np.zeros(dim * QUERIES + LINE, np.float32)
    start = -(room.ctypes.data // room.itemsize) % LINE
    side_by_side = room[start : start + dim * QUERIES]
    side_by_side.reshape(dim, QUERIES)[:, :count] = queries.T
    padded = np.zeros(QUERIES, np.float32)
    padded[:count] = lengths
    return side_by_side, padded


_MOST_16, _MOST_32 = int(np.iinfo(np.int16).max), int(np.iinfo(np.int32).max)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQueries:
    """Folded queries as dense items are scanned with, and graphs walked.

    values: float32 [m, d]; codes: int16 [m, p], d padded with zeros; weights: float64 [m, 3]: what a code is
    worth, and what the bounds of a scan need.
    """

    values: Float32s
    codes: NDArray[np.int16]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, folded: Float32s, dim: int) -> EncodedQueries:
        """Of float32 [m, dim]. A code has as many bits as keep a product with 8-bit codes within 32. Raises
        BlockError for another shape, or numbers that are not finite."""
        queries = checked_queries(folded, dim)
        width = -(-dim // STRIDE) * STRIDE
        coded, weights = np.empty((len(queries), width), np.int16), np.empty((len(queries), 3))
        most = min(_MOST_16, _MOST_32 // (127 * width))
        encode_queries(queries, most, SLACK, UP, coded, weights)
        return cls(queries, coded, weights)

    def one(self, place: int) -> EncodedQueries:
        """The query at this place alone."""
        part = slice(place, place + 1)
        return EncodedQueries(self.values[part], self.codes[part], self.weights[part])


def merge_topk(parts: Sequence[TopK], k: int) -> tuple[Float32s, Int64s, Int64s]:
    """(scores, parts, rows), each [m, at most k]: the k best of at least one part, ties by ascending (part,
    row).

    What is absent has score -inf, part -1 and row -1, at the end. Raises BlockError without a part.
    """
    k = checked_count(k)
    if not len(parts):
        raise BlockError("there is no part to merge: give at least one")
    if len(parts) == 1 and parts[0][0].shape[1] <= k:  # in order already
        only, places = parts[0]
        return only, np.where(places >= 0, 0, -1), places
    scores = np.concatenate([scores for scores, _ in parts], axis=1)
    rows = np.concatenate([rows for _, rows in parts], axis=1)
    numbers = np.repeat(np.arange(len(parts)), [part.shape[1] for _, part in parts])
    numbers = np.where(rows >= 0, numbers, -1)
    # Absent ones share the lowest score with nothing that is present: every score is finite.
    order = np.lexsort((rows, numbers, -scores), axis=1)[:, :k]
    at = np.arange(len(rows))[:, None]  # np.take_along_axis takes as long as all of the rest
    return scores[at, order], numbers[at, order], rows[at, order]


SHORTLIST = 1000
"""Items that are scored for each query where nobody says how many."""

MOST = float(np.finfo(np.float32).max)


def exact_scores(form: ServedForm, query: Block, items: Block, features: Float32s | None = None) -> Float32s:
    """Scores float32 [items] of one query, a block of one row, by the form itself; features: of the items,
    where the form keeps any and they are known, which changes no bit. A score is kept within +-3.4e38, and
    one that is no number is the least.
    """
    if featured(form) and features is not None:
        scores = form.pair_scores(query, form.features(query), items, features)
    else:
        scores = form.scores(query, items)
    return kept_scores(scores[0])


def best_of(scores: Float32s, rows: Int64s, k: int) -> TopK:
    """The k best of rows with these scores, as `topk` gives them for one query: float32 [1, k] and int64
    [1, k], descending, equal ones by ascending row, -inf and -1 for what is absent. rows: each once.
    """
    k = checked_count(k)
    order = np.lexsort((rows, -scores))[:k]
    best, where = np.full((1, k), -np.inf, np.float32), np.full((1, k), -1, np.int64)
    best[0, : len(order)], where[0, : len(order)] = scores[order], rows[order]
    return best, where


def kept_scores(scores: Float32s) -> Float32s:
    """Scores within +-3.4e38, the least for what is no number."""
    return np.asarray(np.nan_to_num(scores, nan=-MOST, posinf=MOST, neginf=-MOST), np.float32)


def score_rows(
    folded: Float32s,
    items: SearchItems | Any,
    scale: Float32s | None,
    rows: Int64s,
    *,
    offset: Float32s | None = None,
) -> Float32s:
    """Scores float32 [len(rows)] of one folded query float32 [d] for these rows, bit for bit those of `topk`.

    Raises BlockError as `topk` does, and for a row outside the items.
    """
    if not isinstance(items, SparseItems | DenseItems):
        items = as_items(items)
    query = checked_queries(numbers("folded query", folded)[None], items.dim)[0]
    terms = checked_scale(scale, len(items)), checked_offset(offset, len(items))
    chosen = row_numbers(rows, len(items), "items")
    scores = np.empty(len(chosen), np.float32)
    if isinstance(items, SparseItems):
        score = score_places_short if items.columns.dtype == np.uint16 else score_places_long
        score(query, items.arrays(), terms, items.places[chosen], scores)
    else:
        score_rows_dense(query, items.values, terms, chosen, scores)
    return scores


class SearchIndex:
    """Items that stay as they are, made ready for one form after another (`with_form`). Exact.

    items: numpy rows [n, dim], scipy CSR, or a block; referred to. A form that folds is searched by inner
    product; one that does not scores every pair. Raises BlockError, also naming the first row with a value
    that is not finite.
    """

    def __init__(self, form: ServedForm, items: Any) -> None:
        self._block: Block = as_block(items, form.dim, "items")
        self._refuse(self._block, "the items")
        self._items: SearchItems | None = None
        self._use(form)

    def _use(self, form: ServedForm) -> None:
        self.form = form
        if folds(form) and self._items is None:
            self._items = as_items(self._block)
        self._terms = terms_of(form, form.self_scores(self._block)) if has_terms(form) else None

    def __len__(self) -> int:
        return len(self._block)

    def with_form(self, form: ServedForm) -> SearchIndex:
        """The same items for another form, such as that of a learner that has gone on; they are not read
        again where both fold. Raises BlockError for a form of another dimension."""
        as_block(self._block, form.dim)
        other = object.__new__(type(self))
        other._block, other._items = self._block, self._items
        other._use(form)
        return other

    def search(self, queries: Any, k: int) -> TopK:
        """(scores float32 [queries, k], rows int64 [queries, k]), descending, equal scores by ascending
        row; what is absent has score -inf and row -1. Scores as `form.scores` gives them, up to rounding.
        Raises BlockError, also for a query with a value that is not finite."""
        block, form, k = as_block(queries, self.form.dim, "queries"), self.form, checked_count(k)
        self._refuse(block, "the queries")
        if not folds(form):
            return self._scored(block, k)
        assert self._items is not None
        scale, offset = (self._terms, None) if form.normalised else (None, self._terms)
        scores, rows = topk(form.fold(block), self._items, scale, None, k, offset=offset)
        if form.normalised:
            own = inverse_roots(form.self_scores(block))[:, None]
            np.multiply(scores, own, out=scores, where=rows >= 0)
        elif by_distance(form):
            scores -= form.self_scores(block)[:, None]
        return scores, rows

    @staticmethod
    def _refuse(block: Block, of: str) -> None:
        wrong = not_finite(block)
        if len(wrong):
            raise BlockError(f"row {wrong[0]} of {of} has a value that is not finite: leave it out")

    def _scored(self, queries: Block, k: int) -> TopK:
        every, best = np.arange(len(self)), []
        for part in row_blocks(len(queries), len(self)):
            scores = kept_scores(self.form.scores(queries.slice(part.start, part.stop), self._block))
            best += [best_of(row, every, k) for row in scores]
        if not best:
            return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
        return np.concatenate([one for one, _ in best]), np.concatenate([one for _, one in best])
