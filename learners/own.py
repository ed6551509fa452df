"""The user's own ranking in the columns of a map that loses nothing of it: what their index computes today.

Learning steps go better in another geometry than the one a user's vectors lie in, but nobody wants to begin
worse than they were. A map z(x) that is linear and can be undone carries the inner product of the vectors
as they were given, in a metric M of its own columns: x^T y = z(x)^T M z(y). For every map here M is diagonal:
of an uncentred whitening z = D^(-1/2) V^T x it is D. So the cosine, the inner product and the Euclidean
distance of the given vectors are quadratic forms of the mapped ones, exact up to float32 rounding. That is
what version 0 answers with, and what learning may begin from, which is another matter: see `first_diagonal`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s
from learners.forms.quadratic import DiagonalForm

Similarity: TypeAlias = Literal["cosine", "inner_product", "euclidean"]
SIMILARITIES: tuple[Similarity, ...] = ("cosine", "inner_product", "euclidean")

Rows: TypeAlias = Literal["kept", "unit", "scaled"]
"""What a map does to the length of a row: nothing; brings it to that of a unit vector; or anything else."""

Start: TypeAlias = Literal["auto", "own", "identity", "mean"]


@dataclass(frozen=True, slots=True, eq=False)
class ViewMetric:
    """How one map carries the inner product: x^T y = a(x) a(y) sum_j weights_j z_j(x) z_j(y).

    weights: float64 [dim], > 0. rows: a is 1 where `kept`, ||x|| where `unit`, and depends on the row in
    another way where `scaled`.
    """

    weights: NDArray[np.float64]
    rows: Rows

    def then(self, after: ViewMetric) -> ViewMetric | None:
        """That of a second map behind this one; None where it would not be diagonal."""
        if not self._is_identity and not after._is_identity:
            return None
        if self._is_identity:
            return ViewMetric(after.weights, self.rows if after.rows == "kept" else after.rows)
        # the second one, if it takes lengths, takes them in another metric than the user's
        return ViewMetric(self.weights, self.rows if after.rows == "kept" else "scaled")

    @property
    def _is_identity(self) -> bool:
        return bool((self.weights == 1).all())


@dataclass(frozen=True, slots=True, eq=False)
class OwnRanking:
    """What the user's index computes, in the columns of a map.

    similarity: of the vectors as they were given, those of several views joined, each by its weight. metric:
    M, float32 [d], > 0: the inner product of two given vectors is sum_j metric_j z_j z'_j, under `cosine` up
    to their lengths. self_score: the mean of z^T M z over mapped rows, of each block of columns where a
    learner has several; > 0. views: how many are joined.
    """

    similarity: Similarity
    metric: Float32s
    self_score: float = 1.0
    views: int = 1

    @property
    def dim(self) -> int:
        """Columns of the mapped vectors."""
        return len(self.metric)

    @property
    def by_distance(self) -> bool:
        """Whether it is minus a squared distance."""
        return self.similarity == "euclidean"

    def form(self) -> DiagonalForm:
        """What version 0 is judged and served as: exactly that ranking."""
        return DiagonalForm(self.metric, self.similarity == "cosine", self.by_distance)

    def scaled(self) -> Float32s:
        """The metric with a mean self score of 1, float32 [d], as that of I is for rows of unit length: so
        steps are as large beside it."""
        return np.asarray(self.metric / self.self_score, np.float32)


def first_diagonal(own: OwnRanking | None, start: Start) -> Float32s | None:
    """The diagonal of W_0, float32 [d]; None for that of I. start: `own` the user's metric, `scaled`,
    `identity` I, `mean` the mean of both, `auto` that for one view and I for several, whose metrics would
    weigh by size what learning should weigh by use. Without a ranking of the user's own W_0 is I."""
    if own is None or start == "identity" or (start == "auto" and own.views > 1):
        return None
    scaled = own.scaled()
    chosen = scaled if start == "own" else (scaled + np.float32(1)) / np.float32(2)
    return None if (chosen == 1).all() else np.asarray(chosen, np.float32)
