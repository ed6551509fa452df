"""Another embedding model for queries: a matrix from its vectors to those that a view of the space has.

Objects stay in the vectors of the old model. M, [new, old], is fitted on pairs, the same texts by both
models, and is fixed from then on; the similarity of a new query q with an object p is that of M^T q, and
clicks keep moving W behind it, so that the rectangular W M^T is learned. Ridge regression minimises
||X M - Y||^2 + s ||M||^2; Procrustes takes the nearest matrix with orthonormal rows or columns, of Y^T X
(Schoenemann, Psychometrika 31 (1966)) or of a ridge solution. Which one, pairs that were left out choose, by
the mean cosine of M^T x with y.

Only X^T X and X^T Y are kept, so millions of pairs take the memory of two matrices; of the pairs left out
the first `HELD` stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s
from learners.errors import MapError

Float64s: TypeAlias = NDArray[np.float64]
FitMethod: TypeAlias = Literal["auto", "ridge", "procrustes"]

ARRAY = "@"
"""Begins the name of a matrix among a space's arrays, in which those of views have a dot."""
SHARES = (0.0003, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Of ridge: s as a share of the mean eigenvalue of X^T X."""
LEFT_OUT = 10
"""One pair of so many is left out, until `HELD` are."""
HELD = 5_000
LEAST_PAIRS = 50


@dataclass(frozen=True, eq=False)
class QueryMap:
    """Takes vectors of another model to those of a view. view: its name. matrix: M, float32 [new, old]."""

    view: str
    matrix: Float32s

    @property
    def dim(self) -> int:
        """Dimension of the vectors it takes."""
        return len(self.matrix)

    def given(self, vector: Float32s) -> Float32s:
        """M^T x of one vector, float32 [old], summed in float64; not finite where x is not."""
        with np.errstate(over="ignore", invalid="ignore"):
            return (np.asarray(vector, np.float64) @ self._wide).astype(np.float32)

    @cached_property
    def _wide(self) -> Float64s:
        return self.matrix.astype(np.float64)


QueryMaps: TypeAlias = Mapping[str, QueryMap]
"""By the name that a query gives such a vector, which is that of no view."""


def queries_spec(queries: QueryMaps) -> list[dict[str, Any]]:
    """JSON-able description; with `queries_arrays` it is all of them."""
    return [{"name": name, "view": one.view, "dim": one.dim} for name, one in queries.items()]


def queries_arrays(queries: QueryMaps) -> dict[str, Float32s]:
    """The matrices by the names they have among a space's arrays."""
    return {ARRAY + name: one.matrix for name, one in queries.items()}


def load_queries(
    spec: Iterable[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, QueryMap]:
    """The maps of `queries_spec` and a space's arrays. Raises MapError."""
    found = {}
    try:
        for one in spec:
            matrix = arrays[ARRAY + one["name"]]
            if matrix.ndim != 2 or len(matrix) != one["dim"] or matrix.dtype != np.float32:
                raise MapError(f"the matrix of queries {one['name']} is not float32 [{one['dim']}, view]")
            found[str(one["name"])] = QueryMap(str(one["view"]), matrix)
    except (KeyError, TypeError) as error:
        raise MapError(f"the description of the maps of queries is incomplete: {error}") from error
    return found


def orthogonal(A: Float64s) -> Float64s:
    """The nearest matrix with orthonormal rows or columns."""
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    return np.asarray(U @ Vt)


@dataclass(slots=True)
class PairSums:
    """X^T X, X^T Y and what else a fit needs of pairs, [n, new] and [n, old], taken piece by piece."""

    moments: Float64s
    across: Float64s
    count: int = 0

    @classmethod
    def of(cls, new: int, old: int) -> PairSums:
        """Of no pair yet."""
        return cls(np.zeros((new, new)), np.zeros((new, old)))

    def add(self, X: Float32s, Y: Float32s) -> None:
        """Take further pairs."""
        wide = X.astype(np.float64)
        self.moments += wide.T @ wide
        self.across += wide.T @ Y.astype(np.float64)
        self.count += len(X)

    def ways(self, method: FitMethod) -> Iterator[tuple[str, Callable[[], Float64s]]]:
        """By name, each way in which M may be made of these pairs."""
        if method != "ridge":
            yield "procrustes", lambda: orthogonal(self.across)
        for share in SHARES:
            if method != "procrustes":
                yield f"ridge {share:g}", lambda share=share: self.ridge(share)  # type: ignore[misc]
            if method != "ridge":
                yield f"ridge {share:g}, procrustes", lambda share=share: orthogonal(self.ridge(share))  # type: ignore[misc]

    def ridge(self, share: float) -> Float64s:
        """(X^T X + s I)^-1 X^T Y."""
        dim = len(self.moments)
        size = max(share * float(np.trace(self.moments)) / dim, np.finfo(np.float64).tiny)
        return np.asarray(np.linalg.solve(self.moments + size * np.eye(dim), self.across), np.float64)


@dataclass(frozen=True, slots=True)
class FittedPairs:
    """matrix: M of all pairs, float32. way: how it was made. pairs, left_out: how many there were, and how
    many of them chose. cosine, explained: of these, by M of the others: the mean cosine of M^T x with y, and
    R^2, the share of the variance of y that M^T x explains. wanted: their y, and moved: M^T x, by M of the
    others; float32 [left_out, old].
    """

    matrix: Float32s
    way: str
    pairs: int
    left_out: int
    cosine: float
    explained: float
    wanted: Float32s = field(repr=False)
    moved: Float32s = field(repr=False)


@dataclass(slots=True)
class PairFit:
    """Fits M on pairs that come in pieces. unit: bring vectors to unit length first, as a space does whose
    similarity is the cosine."""

    unit: bool = True
    _sums: PairSums | None = None
    _held: list[tuple[Float32s, Float32s]] = field(default_factory=list)
    _left_out: int = 0
    _seen: int = 0
    _read: int = 0

    def add(self, new: NDArray[Any], old: NDArray[Any]) -> None:
        """Take pairs: rows of both models, in the order of the texts; zeros, which have no direction, are
        passed over where lengths are taken away. Raises MapError for rows that are not finite, or of another
        number or dimension."""
        X, Y = (_rows(name, one) for name, one in (("new", new), ("old", old)))
        if len(X) != len(Y):
            raise MapError(f"{len(X)} new vectors for {len(Y)} old ones: give both of the same texts")
        if self._sums is None:
            self._sums = PairSums.of(X.shape[1], Y.shape[1])
        if (X.shape[1], Y.shape[1]) != self._sums.across.shape:
            raise MapError("the pairs have vectors of several dimensions")
        for name, rows in (("new", X), ("old", Y)):
            wrong = ~np.isfinite(rows).all(axis=1)
            if wrong.any():
                raise MapError(
                    f"pair {self._read + int(np.argmax(wrong)):,}: its {name} vector is not finite"
                )
        self._read += len(X)
        if self.unit:
            whole = X.any(axis=1) & Y.any(axis=1)
            X, Y = _unit(X[whole]), _unit(Y[whole])
        chosen = (np.arange(self._seen, self._seen + len(X)) % LEFT_OUT) == LEFT_OUT - 1
        chosen &= np.cumsum(chosen) + self._left_out <= HELD
        self._held.append((X[chosen], Y[chosen]))
        self._left_out += int(chosen.sum())
        self._seen += len(X)
        self._sums.add(X[~chosen], Y[~chosen])

    def fit(self, method: FitMethod = "auto") -> FittedPairs:
        """Choose by the left-out pairs, and fit on all. Raises MapError for too few."""
        if self._sums is None or self._seen < LEAST_PAIRS:
            raise MapError(f"{self._seen:,} pairs are too few: at least {LEAST_PAIRS}, better thousands")
        X, Y = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        tried = {way: (X @ make()).astype(np.float32) for way, make in self._sums.ways(method)}
        found = {way: float((_unit(moved) * _unit(Y)).sum(axis=1).mean()) for way, moved in tried.items()}
        way = max(found, key=lambda one: found[one])
        cosine, moved = found[way], tried[way]
        spread = float(np.square(Y - Y.mean(axis=0), dtype=np.float64).sum())
        explained = 1.0 - float(np.square(Y - moved, dtype=np.float64).sum()) / spread if spread else 0.0
        self._sums.add(X, Y)
        matrix = dict(self._sums.ways(method))[way]().astype(np.float32)
        return FittedPairs(matrix, way, self._seen, len(X), cosine, explained, Y, moved)


def _rows(name: str, given: NDArray[Any]) -> Float32s:
    rows = np.asarray(given)
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or 0 in rows.shape[1:]:
        raise MapError(f"the {name} vectors are {rows.dtype} of shape {rows.shape}, not numbers in rows")
    return rows.astype(np.float32)


def _unit(rows: Float32s) -> Float32s:
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths == 0, 1.0, lengths), np.float32)
