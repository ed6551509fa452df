"""A graph of near neighbours over objects as they are, searched for whatever form asks.

Links connect objects whose directions are near each other, so no version of W makes them stale. What leads a
walk over them is the score of the form that asks, its norms and offsets included, of the objects' 8-bit codes
with the folded query. What a walk comes by is then scored exactly by `learners.search.topk_dense`: a score
is never approximate, only which objects were looked at.

    near(f, p) = scale_p step_p unit (codes_p . codes_f) + offset_p

Pure: arrays in, arrays out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, Int64s
from learners.errors import BlockError
from learners.kernels.intrinsics import STRIDE
from learners.kernels.scan import encode
from learners.kernels.walk import hash_rows, walk
from learners.search import EncodedQueries, checked_offset, checked_scale

STARTS = 64, 256
"""Fewest and most rows that every walk begins from, one of a thousand between them, spread over all: so many
cost as much as one to four steps of a walk, and queries that a form has turned away from all objects find a
near one."""

SEED = 20100

Codes: TypeAlias = NDArray[np.int8]
Int32s: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Graph:
    """N rows and their links; may be mapped from files.

    codes: int8 [N, p] and bounds: float64 [N, 3], as in `learners.search.DenseItems`. links: int32 [N, w],
    rows near each row, -1 behind the last one. hashes: uint64 [N], of the rows (`hashes_of`). starts: int32
    [e], start_codes: int8 [e, p], where walks begin.
    """

    codes: Codes
    bounds: NDArray[np.float64]
    links: Int32s
    hashes: NDArray[np.uint64]
    starts: Int32s
    start_codes: Codes

    @classmethod
    def of(
        cls, codes: Codes, bounds: NDArray[np.float64], links: Int32s, hashes: NDArray[np.uint64]
    ) -> Graph:
        """A graph of these arrays. Raises BlockError where they do not go together or a link leads
        outside."""
        count = len(codes)
        shapes = (bounds.shape, len(links), hashes.shape)
        if shapes != ((count, 3), count, (count,)) or links.ndim != 2 or codes.shape[1] % STRIDE:
            raise BlockError("the arrays of the graph do not go together")
        for first in range(0, count, 1 << 16):
            part = links[first : first + (1 << 16)]
            if len(part) and not (part.min() >= -1 and part.max() < count):
                raise BlockError("a link of the graph leads to no row")
        if not np.isfinite(bounds).all():
            raise BlockError("a bound of the graph is not finite")
        rng = np.random.default_rng(SEED)
        wanted = min(count, max(STARTS[0], min(count // 1_000, STARTS[1])))
        starts = np.sort(rng.choice(count, wanted, replace=False)).astype(np.int32)
        return cls(codes, bounds, links, hashes, starts, np.ascontiguousarray(codes[starts]))

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Memory, mapped files included."""
        arrays = (self.codes, self.bounds, self.links, self.hashes, self.starts, self.start_codes)
        return sum(array.nbytes for array in arrays)


def code_rows(values: Float32s) -> tuple[Codes, NDArray[np.float64]]:
    """(codes int8 [n, p], bounds float64 [n, 3]) of rows float32 [n, d]. Raises BlockError for a row that is
    not finite."""
    codes = np.empty((len(values), -(-values.shape[1] // STRIDE) * STRIDE), np.int8)
    bounds = np.empty((len(values), 3))
    row = encode(values, codes, bounds)
    if row >= 0:
        raise BlockError(f"row {row} of the items has a value that is not finite: leave it out")
    return codes, bounds


def hashes_of(values: Float32s) -> NDArray[np.uint64]:
    """64 bits that name each row, uint64 [n]: equal for equal bits; two of a million different rows share
    theirs once in thirty million catalogs, and then one of them may be missed."""
    out = np.empty(len(values), np.uint64)
    hash_rows(np.ascontiguousarray(values, np.float32).view(np.uint32), out)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class GraphTerms:
    """What a form makes of the product of a graph's codes with a query's: factors float32 [N], what a code of
    each row is worth, its scale included; offsets: float32 [N] or empty."""

    factors: Float32s
    offsets: Float32s

    @classmethod
    def of(cls, graph: Graph, scale: Float32s | None, offset: Float32s | None) -> GraphTerms:
        """scale, offset: float32 [N], what the form multiplies and adds, None for nothing. Raises
        BlockError."""
        factors, rows = np.ascontiguousarray(graph.bounds[:, 0], np.float32), len(graph)
        if scale is not None:
            factors *= checked_scale(scale, rows)
        return cls(factors, checked_offset(offset, rows))

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.factors.nbytes + self.offsets.nbytes


def walked(queries: EncodedQueries, graph: Graph, terms: GraphTerms, width: int) -> list[Int64s]:
    """For each query the rows that a walk with a pool of `width` rows ended with, int64 [<= width], those
    that score best first, by their codes. One thread, the GIL released. Raises BlockError for queries of
    another dimension."""
    if queries.codes.shape[1] != graph.codes.shape[1]:
        raise BlockError("the queries do not have the graph's dimension")
    width = max(1, min(width, len(graph)))
    seen = np.empty((len(graph) + 63) // 64, np.uint64)
    pool = np.empty(width, np.float32), np.empty(width, np.int32), np.empty(width, np.bool_)
    near = np.empty(graph.links.shape[1], np.int32)
    arrays = graph.codes, graph.links, graph.starts, graph.start_codes, terms.factors, terms.offsets
    found = []
    for n in range(len(queries.codes)):
        unit = float(queries.weights[n, 0])
        count = walk(queries.codes, n, unit, *arrays, seen, *pool, near)
        found.append(pool[1][:count].astype(np.int64))
    return found
