"""The serving form of a learned W: symmetric, positive semi-definite, and normalised.

S = PSD part of sym(W); the normalised score is S(q, p) / sqrt(S(q, q) S(p, p)), a learned cosine. Learning
from clicks on shown lists fills the negative eigenvectors of sym(W) and distorts item norms: retrieval over a
whole catalog needs both undone. Score = (S q)^T p, so a new version folds into the query and never touches an
index of items.

Spectral sharpening, our own addition: the eigenvalues of S raised to a power above 1, by default 1.5. In the
field's terms a power of the learned PSD metric: half a step of diffusion more along the learned directions.
Measured, as mAP over the untrained cosine's: photos x1.56 -> x1.70, texts x1.67 -> x1.70 (-.009 P@10). It
needs the normalised score: unnormalised, a power blows up the directions that most items share, and on texts
P@10 fell below the cosine. An untrained W = I is I at every power.

A learned form gives way to the user's own ranking for queries unlike those that were clicked (`BackoffForm`).
Clicks teach some kinds of queries. On others the learned form S ranks worse than what learning began from,
since it weighs every query by the directions of those that were clicked. How much of a query lies there shows
in S(q, q) / M(q, q), with M the user's own metric: on very different data, queries of kinds that were clicked
have .7 to 1.4 of what is usual among them, and queries of other kinds .5 to .9. So a query is answered with

    S q + (share / g) u M q,    g = min(1, S(q, q) / (familiar u M(q, q))) ^ backoff

(up to a factor of its own), where u is the usual ratio: a small share of the own ranking that grows where a
query has less in common with what was learned. It still folds into one vector, and each
item has one norm, sqrt(S(p, p) + share u M(p, p)), by which what clicks know well stays out of other kinds'
answers.

In language models, taking a coarser model where evidence is scarce is called backing off (Katz, IEEE Trans.
ASSP 35, 1987). A share that is the same for all queries either keeps the loss on kinds that were never
clicked or costs what was learned: docs/decisions/043.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, as_block, times
from learners.errors import StateError, saved, saved_flag
from learners.forms.quadratic import (
    DiagonalForm,
    FoldingForm,
    Pieces,
    ServedForm,
    fold_symmetric,
    pair_products,
    remove_pairs,
    score_pairs,
    self_products,
    whole,
)
from learners.psd import MAX_FULL_DIM, RemovedPairs, lanczos_negative_pairs, psd_part

DEFAULT_PAIRS = 50
"""Eigenpairs removed beyond the full decomposition: enough where the stream carries random negatives."""

DEFAULT_POWER = 1.5
"""Of the eigenvalues: 1 does not sharpen; 2 is better still on photos and worse on texts."""


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """A diagonal metric that is mixed into a learned form: S + share (tr S / tr M) M.

    metric: M, float32 [d], > 0. share: >= 0, of what S weighs by its trace; where directions weigh alike, as
    in a whitened space, that is the mean self score. 0.3 keeps the order that M gives where little was
    learned, and costs little where much was.
    """

    metric: Float32s
    share: float

    def add_to(self, S: Float32s) -> None:
        """Mix it into S, float32 [d, d], in place."""
        trace = np.trace(S, dtype=np.float64)
        factor = self.share * trace / self.metric.sum(dtype=np.float64)
        S.reshape(-1)[:: len(S) + 1] += (factor * self.metric).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class ServingForm:
    """S = base - U diag(lambda) U^T, with base = `matrix`, or sym(`state_matrix`) where `matrix` is None.

    matrix: float32 [d, d], symmetric, or None. state_matrix: the W it was made from, read and never copied,
    needed only where matrix is None. correction_vectors: U, float32 [d, k]. correction_values: lambda < 0,
    float32 [k]. normalised: whether `scores` divides by sqrt(S(q, q) S(p, p)); a query or item whose self
    score is 0 then scores 0. power: what the eigenvalues were raised to. removed: what the projection took
    away. Both are an account of how it was made, and unknown (None) where it was read back from its arrays.
    distance: the raw score is -(q - p)^T S (q - p), for learners of a distance: then a query folds to 2 S q
    and each item has one more number per version, -p^T S p. Never true where `normalised` is. A PSD S
    makes every score at most 0 up to rounding; objects nearly alike lose the digits that its terms share.
    familiarity: where S does not show how much a query has in common with what was learned, the form that
    does; it is stored with a `BackoffForm` alone.
    """

    matrix: Float32s | None
    correction_vectors: Float32s
    correction_values: Float32s
    normalised: bool
    state_matrix: Float32s | None = None
    power: float | None = None
    removed: RemovedPairs | None = None
    distance: bool = False
    familiarity: ServingForm | None = None

    @classmethod
    def from_matrix(
        cls,
        W: Float32s,
        normalised: bool = True,
        full_up_to: int = MAX_FULL_DIM,
        pairs: int = DEFAULT_PAIRS,
        power: float = DEFAULT_POWER,
        *,
        beside: Beside | None = None,
    ) -> Self:
        """Make the form of W: PSD by eigendecomposition up to `full_up_to` dimensions, beyond that without
        its `pairs` most negative eigenpairs (Lanczos), which keeps W itself, 2 pairs vectors and no second
        matrix.

        power: of the eigenvalues, > 0. It applies to the normalised form of a full decomposition; the raw
        score, and Lanczos, which does not know the eigenvalues it keeps, have power 1. beside: a metric that
        is mixed into a full decomposition. Raises ConfigError.
        """
        dim = W.shape[0]
        if dim <= min(full_up_to, MAX_FULL_DIM):
            power = power if normalised else 1.0
            matrix, removed = psd_part(W, power)
            if beside is not None:
                beside.add_to(matrix)
            none, no_values = np.zeros((dim, 0), np.float32), np.zeros(0, np.float32)
            return cls(matrix, none, no_values, normalised, power=power, removed=removed)
        values, vectors = lanczos_negative_pairs(W, pairs)
        return cls(None, vectors, values, normalised, W, 1.0, RemovedPairs(len(values), None))

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.correction_vectors.shape[0])

    @property
    def trace(self) -> float:
        """tr S, of what is left of sym(W)."""
        base = self.matrix if self.matrix is not None else self._state()
        return float(np.trace(base, dtype=np.float64) - self.correction_values.sum(dtype=np.float64))

    def fold(self, queries: Any) -> Float32s:
        """S q for each query, float32 [n, d], 2 S q for a distance; search any index of items with it by
        inner product.

        Raises BlockError on another dimension or an index out of range.
        """
        block = as_block(queries, self.dim, "queries")
        folded = (
            times(block, self.matrix) if self.matrix is not None else fold_symmetric(self._state(), block)
        )
        remove_pairs(folded, block, self.correction_vectors, self.correction_values)
        if self.distance:
            folded *= np.float32(2)
        return folded

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T S p for each item, clipped at 0, float32 [n]; summed in float64. `pieces` changes no bit."""
        block = as_block(items, self.dim, "items")
        products = self_products(self.matrix if self.matrix is not None else self._state(), block, pieces)
        products -= pair_products(block, self.correction_vectors, self.correction_values, pieces)
        return np.maximum(products, 0).astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items]."""
        return score_pairs(self, queries, items)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint stores of it; W itself is stored with the state. `from_arrays` reads it back."""
        arrays: dict[str, NDArray[Any]] = {
            "correction_vectors": self.correction_vectors,
            "correction_values": self.correction_values,
            "normalised": np.array(self.normalised, np.uint8),
        }
        return arrays if self.matrix is None else {"matrix": self.matrix, **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], state_matrix: Float32s | None = None) -> Self:
        """The form of these arrays; state_matrix: the W of the same version, needed where no matrix was
        stored.

        Raises StateError naming the array that is missing or does not fit.
        """
        vectors = saved(arrays, "correction_vectors", np.float32, (None, None))
        dim, pairs = vectors.shape
        values = saved(arrays, "correction_values", np.float32, (pairs,))
        normalised = saved_flag(arrays, "normalised")
        matrix = saved(arrays, "matrix", np.float32, (None, None)) if "matrix" in arrays else None
        base = matrix if matrix is not None else state_matrix
        if base is None:
            raise StateError("the form holds no matrix: give the W of its version as state_matrix")
        if base.shape != (dim, dim):
            raise StateError(f"the matrix has shape {base.shape}, the corrections {dim} dimensions")
        return cls(matrix, vectors, values, normalised, None if matrix is not None else state_matrix)

    def _state(self) -> Float32s:
        if self.state_matrix is None:
            raise StateError("the form holds no matrix: give the W of its version as state_matrix")
        return self.state_matrix


Doubles: TypeAlias = NDArray[np.float64]

BACKOFF = 3.0
"""By which power of what a query lacks the share of the own ranking grows (docs/decisions/086)."""
FAMILIAR = 1.3
"""Of the usual ratio: from here on a query has the least share. One in ten of those that were clicked does;
a usual query has 2.2 times the least share, one of a kind that never came, with .65, 8 times."""

OWN, FAMILIARITY, NUMBERS = "own", "familiarity", ("own_share", "familiar", "backoff")
"""Names of the arrays that it adds to those of the learned form."""


@dataclass(frozen=True, slots=True, eq=False)
class BackoffForm:
    """`learned`, normalised, mixed with the own ranking.

    own: share u M, float32 [d], > 0. share, familiar, backoff: > 0, see above. familiarity: F, float32
    [d, d], symmetric: F(q, q) stands for S(q, q) in g, where S does not show what a query has in common with
    what was learned. It is as large as S for a usual query. None: S shows it.
    """

    learned: FoldingForm
    own: Float32s
    share: float
    familiar: float = FAMILIAR
    backoff: float = BACKOFF
    familiarity: Float32s | None = None

    @classmethod
    def beside(
        cls,
        learned: ServingForm,
        metric: Float32s,
        share: float,
        usual: float,
        familiar: float = FAMILIAR,
        *,
        backoff: float = BACKOFF,
        usual_familiarity: float = 1.0,
    ) -> Self:
        """With a diagonal metric, float32 [d], > 0; usual, usual_familiarity: the `usual_ratio` of `learned`,
        and of its `familiarity` where it has one."""
        size = usual * _size(learned)
        own = np.asarray(share * size * metric, np.float32)
        matrix, shows = None, learned.familiarity
        if shows is not None:
            scale = np.float32(size / (usual_familiarity * _size(shows)))
            matrix = shows.fold(np.eye(shows.dim, dtype=np.float32)) * scale
        return cls(learned, own, share, familiar, backoff, matrix)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.learned.dim

    @property
    def normalised(self) -> bool:
        """Whether the learned part is normalised."""
        return self.learned.normalised

    def fold(self, queries: Any) -> Float32s:
        """What a query is answered with, float32 [n, d], scaled so that its product with the query is the
        query's own self score.

        Raises BlockError on another dimension or a bad index.
        """
        block = as_block(queries, self.dim, "queries")
        learned, own = self.learned.fold(block), self._own.fold(block)
        return _mixed(self._weights(learned, block), learned, own)

    def known(self, queries: Any) -> Doubles:
        """How much each query has in common with what was learned, 1 being usual, float64 [n]."""
        block = as_block(queries, self.dim, "queries")
        return self._ratios(self.learned.fold(block), block)[0]

    def weights(self, queries: Any) -> Float32s:
        """What S q and share u M q are multiplied with for each query, float32 [n, 2]."""
        block = as_block(queries, self.dim, "queries")
        return self._weights(self.learned.fold(block), block)

    def fold_as(self, queries: Any, weights: Float32s) -> Float32s:
        """`fold` with the weights of another query, float32 [1, 2]: linear, so that parts of it add up."""
        block = as_block(queries, self.dim, "queries")
        return _mixed(weights, self.learned.fold(block), self._own.fold(block))

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """S(p, p) + share u M(p, p) for each item, float32 [n]; `pieces` changes no bit."""
        return self.learned.self_scores(items, pieces) + self._own.self_scores(items)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, float32 [queries, items]."""
        return score_pairs(self, queries, items)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint stores of it: the arrays of the learned form, and its own."""
        learned: dict[str, NDArray[Any]] = cast(Any, self.learned).arrays()
        numbers = (self.share, self.familiar, self.backoff)
        named = {name: np.array(one, np.float64) for name, one in zip(NUMBERS, numbers, strict=True)}
        shows = {} if self.familiarity is None else {FAMILIARITY: self.familiarity}
        return learned | {OWN: self.own} | shows | named

    @staticmethod
    def is_in(arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Whether these arrays are of such a form."""
        return OWN in arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], learned: FoldingForm) -> Self:
        """The inverse. Raises StateError naming the array that is missing or does not fit."""
        own = saved(arrays, OWN, np.float32, (learned.dim,))
        numbers = [float(saved(arrays, name, np.float64, ())) for name in NUMBERS]
        if min(own.min(initial=np.inf), *numbers) <= 0:
            raise StateError(f"arrays {OWN}, {', '.join(NUMBERS)} must be above 0")
        shape, shows = (learned.dim, learned.dim), None
        if FAMILIARITY in arrays:
            shows = saved(arrays, FAMILIARITY, np.float32, shape)
        share, familiar, backoff = numbers
        return cls(learned, own, share, familiar, backoff, shows)

    @property
    def _own(self) -> DiagonalForm:
        return DiagonalForm(self.own, self.normalised)

    def _weights(self, folded: Float32s, block: Block) -> Float32s:
        known, learned, own = self._ratios(folded, block)
        given = np.minimum(known / self.familiar, 1) ** self.backoff
        mixed = given * learned + own
        scale = np.divide(learned + own, mixed, out=np.ones(len(block)), where=mixed > 0)
        return np.column_stack([scale * given, scale]).astype(np.float32)

    def _ratios(self, folded: Float32s, block: Block) -> tuple[Doubles, Doubles, Doubles]:
        """F(q, q) / (u M(q, q)), S(q, q) and share u M(q, q) of each query; folded: S q."""
        learned = np.maximum(_products(folded, block), 0)
        own = self._own.self_scores(block).astype(np.float64)
        return self.ratio(block, learned, own), learned, own

    def ratio(self, queries: Block, learned: Doubles, own: Doubles) -> Doubles:
        """How much each query has in common with what was learned, float64 [n]. learned, own: S(q, q) and
        share u M(q, q) of each."""
        if self.familiarity is not None:
            learned = np.maximum(_products(times(queries, self.familiarity), queries), 0)
        return np.divide(self.share * learned, own, out=np.ones(len(own)), where=own > 0)


def usual_ratio(learned: ServingForm, metric: Float32s, queries: Any) -> float:
    """The median of S(q, q) / M(q, q) over queries, S at a mean eigenvalue of 1: so the scale of what was
    learned does not matter. 1 without queries, and where nothing is left of S."""
    block = as_block(queries, learned.dim, "queries")
    own = DiagonalForm(metric, True).self_scores(block).astype(np.float64)
    ratios = learned.self_scores(block)[own > 0] / own[own > 0]
    found = float(np.median(ratios)) / _size(learned) if len(ratios) else 0.0
    return found if found > 0 else 1.0


def learned_of(form: ServedForm) -> ServedForm:
    """The learned part of a form: itself, or the part that is mixed with the own ranking."""
    return form.learned if isinstance(form, BackoffForm) else form


def with_learned(form: ServedForm, learned: ServedForm) -> ServedForm:
    """The form with something else in place of `learned_of` it."""
    return replace(form, learned=cast(FoldingForm, learned)) if isinstance(form, BackoffForm) else learned


def familiar_matrix(form: FoldingForm) -> Float32s:
    """What queries are folded by, float32 [d, d], symmetric: S, or S + share u M where the own ranking is
    mixed in, for queries that the form does not give way for."""
    directions = np.eye(form.dim, dtype=np.float32)
    if isinstance(form, BackoffForm):
        return form.fold_as(directions, np.ones((1, 2), np.float32))
    return form.fold(directions)


def linear_fold(form: FoldingForm, query: Any) -> Callable[[Any], Float32s]:
    """`fold` as it is for one query: linear, so that the query's parts add up."""
    return partial(form.fold_as, weights=form.weights(query)) if isinstance(form, BackoffForm) else form.fold


def _size(learned: ServingForm) -> float:
    """The mean eigenvalue; 1 where nothing is left."""
    mean = learned.trace / learned.dim
    return mean if mean > 0 else 1.0


def _mixed(weights: Float32s, learned: Float32s, own: Float32s) -> Float32s:
    return np.asarray(weights[:, :1] * learned + weights[:, 1:] * own, np.float32)


def _products(folded: Float32s, block: Block) -> Doubles:
    """The inner product of each folded query with the query, float64 [n]."""
    if isinstance(block, DenseBlock):
        return np.asarray((folded.astype(np.float64) * block.values).sum(axis=1))  # no bit from other rows
    rows = block.checked_csr()
    owners = np.repeat(np.arange(len(block)), np.diff(rows.indptr))
    products = rows.data.astype(np.float64) * folded[owners, rows.indices]
    return np.asarray(np.bincount(owners, products, minlength=len(block)), np.float64)
