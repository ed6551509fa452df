"""Objects as vectors whose inner product is the served score: what an index that is not ours holds.

A form S that is positive semi-definite has the symmetric root R = S^(1/2): the inner product of R q and R p
is S(q, p), and where scores are normalised, that of R q / |R q| and R p / |R p| is the score. One vector for
each object, whichever side it is on. The symmetric root and no other factor of S, since there is only one: it
depends neither on the order nor on the signs of eigenvectors, so that vectors written by one machine and
queries folded by another lie in one space, and those of the next version lie near those of the last. A
diagonal S has a diagonal root, and sparse rows stay sparse. For a distance, -|R q - R p|^2 is the score.

A form that gives way to the own ranking (`learners.forms.serving`) is no inner product of one vector each:
how much it gives way depends on the query alone, so that the score of (q, p) is not that of (p, q). It is one
of two vectors. With O = share u M, y = O^(1/2) x and R the root of I + O^(-1/2) S O^(-1/2), an object is R y
as a document and g R y + (1 - g) R^-1 y as a query, both over |R y|, the query times what `BackoffForm`
scales it by. A query that nothing is given way for has g = 1: both are the same vector then.

A form that is not positive semi-definite (psd = "off"), one that is served as it was learned, and one too
large to be decomposed, has no root. It is an inner product of two vectors in the columns of the map itself:
S q / n(q) and p / n(p) with n(p)^2 = S(p, p), where scores are normalised; S q and p where they are not; for
a distance, (2 S q, 1, -S(q, q)) and (p, -S(p, p), 1).

Forms that do not fold (OKS and OMKS over kept objects) are no inner product of finite vectors: the kernel
itself, which their similarity begins from, has infinitely many coordinates.

Where the map is linear, z(x) = c(x) M^T x, a normalised form S of mapped vectors is also taken back to the
vectors as they were given (`given_form`): it is M S M^T of them, up to c, which a normalised score divides
out, and a query is folded by one product. The same holds with the user's own metric mixed in, which a
lossless map makes diagonal again, and for the ratio of the two by which a form gives way. To fold through the
map takes four products with matrices of the same size, one of them of float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Block, DenseBlock, Float32s, SparseBlock, as_block, times
from learners.errors import ConfigError
from learners.forms.blocks import BlockLayout, BlocksForm
from learners.forms.quadratic import (
    DiagonalForm,
    FoldingForm,
    IdentityForm,
    ServedForm,
    by_distance,
    folds,
    inverse_roots,
    scaled_columns,
)
from learners.forms.serving import BackoffForm, ServingForm
from learners.maps.base import to_unit
from learners.maps.linear import LinearSpace
from learners.psd import MAX_FULL_DIM

SimilarityOfVectors: TypeAlias = Literal["inner_product", "squared_euclidean"]
"""What of two vectors is the score: their inner product, or minus the square of their distance."""

INDEFINITE = 1e-5
"""A negative eigenvalue above this share of the largest is no rounding of float32: the form has no root."""


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """x -> R (scale x). scale: float32 [d], None for 1. matrix: R, float32 [d, d], by blocks, or None for I.
    inverse: R^-1, only of a form that gives way to the own ranking."""

    scale: Float32s | None = None
    matrix: Float32s | BlocksForm | None = None
    inverse: Float32s | None = None

    def scaled(self, rows: Block) -> Block:
        """scale x for each row."""
        return rows if self.scale is None else scaled_columns(rows, self.scale)

    def turned(self, scaled: Block) -> Block:
        """R y for each row y; in new arrays where there is an R, else the same rows."""
        if self.matrix is None:
            return scaled
        if isinstance(self.matrix, BlocksForm):
            return DenseBlock(self.matrix.fold(scaled))
        return DenseBlock(times(scaled, self.matrix))


def root_of(form: ServedForm) -> Root | None:
    """The root of a form, in arrays of its own; None where it has none, is too large to be decomposed
    (`MAX_FULL_DIM`), or changes with every step. It takes an eigendecomposition in float64.
    """
    if isinstance(form, IdentityForm):
        return Root()
    if isinstance(form, DiagonalForm):
        return Root(np.sqrt(form.weights)) if form.weights.min(initial=0) >= 0 else None
    if isinstance(form, BlocksForm):
        return _root_of_blocks(form)
    if isinstance(form, BackoffForm):
        return _root_beside(form)
    return _root_of_matrix(form) if isinstance(form, ServingForm) else None


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """Mapped objects as documents and as queries of an index. form: valid as long as this is used. root: its
    `root_of`; None: in the columns of the map, the two sides apart."""

    form: FoldingForm
    root: Root | None

    @classmethod
    def of(cls, form: ServedForm) -> Embedding:
        """The embedding of a form. Raises ConfigError for one that does not fold."""
        if not folds(form):
            raise ConfigError(
                "its similarity is no inner product of finite vectors: each pair is scored by kernels of the "
                "objects that were kept; the same kernels as maps of features (omks-maps) are one"
            )
        return cls(form, root_of(form))

    @property
    def similarity(self) -> SimilarityOfVectors:
        """What of a query's vector and a document's is the served score."""
        return "squared_euclidean" if by_distance(self.form) and self.root is not None else "inner_product"

    @property
    def symmetric(self) -> bool:
        """Whether an object has the same vector as a query as it has as a document."""
        return self.root is not None and not isinstance(self.form, BackoffForm)

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self.form.dim + (2 if self.root is None and by_distance(self.form) else 0)

    def documents(self, objects: Any) -> Block:
        """What an index holds of mapped objects, in new arrays; sparse where the objects are and R is
        diagonal or there is none. Raises BlockError as `as_block`."""
        rows = as_block(objects, self.form.dim, "objects")
        if self.root is None:
            return self._apart(rows, rows, (-self._own(rows), np.ones(len(rows), np.float32)))
        made = _copied(self.root.turned(self.root.scaled(rows)))
        if self.form.normalised:
            to_unit(made)
        return made

    def queries(self, objects: Any) -> Block:
        """The vectors to query an index with. Raises BlockError as `as_block`."""
        if self.symmetric:
            return self.documents(objects)
        rows = as_block(objects, self.form.dim, "queries")
        if self.root is None:
            if isinstance(self.form, DiagonalForm) and not by_distance(self.form):
                return _copied(scaled_columns(rows, self.form.weights))  # raw: of weights of both signs
            folded = DenseBlock(self.form.fold(rows))
            return self._apart(folded, rows, (np.ones(len(rows), np.float32), -self._own(rows)))
        assert isinstance(self.form, BackoffForm)
        assert self.root.inverse is not None
        scaled = self.root.scaled(rows)
        given, turned = self._given_way(rows, scaled)
        behind = times(scaled, self.root.inverse).astype(np.float64)
        mixed = given[:, None] * turned + (1 - given)[:, None] * behind
        own, both = _squares(scaled), np.square(turned).sum(axis=1)
        answered = given * np.maximum(both - own, 0) + own
        factor = np.divide(both, answered, out=np.zeros(len(rows)), where=answered > 0)
        if self.form.normalised:
            factor *= np.divide(1, np.sqrt(both), out=np.zeros(len(rows)), where=both > 0)
        return DenseBlock((factor[:, None] * mixed).astype(np.float32))

    def given_way(self, objects: Any) -> NDArray[np.bool_]:
        """For which mapped objects, as queries, the form gives way to the own ranking, bool [n]."""
        rows = as_block(objects, self.form.dim, "queries")
        if not isinstance(self.form, BackoffForm):
            return np.zeros(len(rows), np.bool_)
        return np.asarray(self.form.known(rows) < self.form.familiar, np.bool_)

    def _given_way(self, objects: Block, scaled: Block) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """g of each query, float64 [n], and R y, float64 [n, d]."""
        form = self.form
        assert isinstance(form, BackoffForm)
        assert self.root is not None
        rows = self.root.turned(scaled)
        assert isinstance(rows, DenseBlock)
        turned, own = rows.values.astype(np.float64), _squares(scaled)
        known = form.ratio(objects, np.maximum(np.square(turned).sum(axis=1) - own, 0), own)
        return np.minimum(known / form.familiar, 1) ** form.backoff, turned

    def _own(self, rows: Block) -> Float32s:
        return self.form.self_scores(rows)

    def _apart(self, rows: Block, objects: Block, beside: tuple[Float32s, Float32s]) -> Block:
        if self.form.normalised:
            by = inverse_roots(self._own(objects))
            made = _copied(rows)
            if isinstance(made, DenseBlock):
                np.multiply(made.values, by[:, None], out=made.values)
            else:
                np.multiply(made.values, np.repeat(by, np.diff(made.indptr)), out=made.values)
            return made
        return _with_columns(rows, np.column_stack(beside)) if by_distance(self.form) else _copied(rows)


_Eigen: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]


def _matrix(form: ServingForm) -> NDArray[np.float64]:
    """S, float64 [d, d], of any kind of base."""
    plain = replace(form, distance=False)
    return plain.fold(np.eye(form.dim, dtype=np.float32)).astype(np.float64)


def _eigen(S: NDArray[np.float64]) -> _Eigen | None:
    """Eigenvalues, those within rounding of 0 as 0, and vectors; None where S is indefinite."""
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    if len(values) and values[0] < -INDEFINITE * max(values[-1], 0.0):
        return None
    return np.maximum(values, 0), vectors


def _power(parts: _Eigen, of: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Float32s:
    values, vectors = parts
    return np.ascontiguousarray((vectors * of(values)) @ vectors.T, np.float32)


def _root_of_matrix(form: ServingForm) -> Root | None:
    if form.dim > MAX_FULL_DIM:
        return None
    S = _matrix(form)
    diagonal = S.diagonal()
    if np.count_nonzero(S) == np.count_nonzero(diagonal) and diagonal.min(initial=0) >= 0:
        return Root(np.sqrt(diagonal).astype(np.float32))  # as version 0 has it: sparse rows stay sparse
    parts = _eigen(S)
    return None if parts is None else Root(matrix=_power(parts, np.sqrt))


def _root_of_blocks(form: BlocksForm) -> Root | None:
    layout, roots = BlockLayout.of(tuple(form.widths.tolist())), np.empty_like(form.matrices)
    for matrix, root in zip(layout.matrices(form.matrices), layout.matrices(roots), strict=True):
        if not np.array_equal(matrix, matrix.T):  # as it was learned: of two vectors each
            return None
        parts = _eigen(matrix.astype(np.float64))
        if parts is None:
            return None
        root[...] = _power(parts, np.sqrt)
    return Root(matrix=BlocksForm(form.widths, roots, False))


def _root_beside(form: BackoffForm) -> Root | None:
    learned = form.learned
    if not isinstance(learned, ServingForm) or learned.dim > MAX_FULL_DIM:
        return None
    scale = np.sqrt(form.own.astype(np.float64))
    parts = _eigen(_matrix(learned) / np.outer(scale, scale))
    if parts is None:
        return None
    root, inverse = (_power(parts, of) for of in (lambda v: np.sqrt(1 + v), lambda v: 1 / np.sqrt(1 + v)))
    return Root(scale.astype(np.float32), root, inverse)


def _squares(rows: Block) -> NDArray[np.float64]:
    """|x|^2 of each row, float64 [n]."""
    if isinstance(rows, DenseBlock):
        return np.asarray(np.square(rows.values, dtype=np.float64).sum(axis=1))
    return np.asarray(rows.checked_csr().astype(np.float64).power(2).sum(axis=1)).reshape(-1)


def _copied(rows: Block) -> Block:
    if isinstance(rows, DenseBlock):
        return DenseBlock(rows.values.copy())
    part = rows.entries
    return SparseBlock(rows.indptr - part.start, rows.indices[part], rows.values[part].copy(), rows.dim)


def _with_columns(rows: Block, columns: NDArray[np.float32]) -> Block:
    if isinstance(rows, DenseBlock):
        return DenseBlock(np.hstack([rows.values, columns]))
    return as_block(sparse.hstack([rows.checked_csr(), sparse.csr_array(columns)], format="csr"))


_ALIKE = 1e-4
"""Most that may lie off a diagonal, as a share of it: float32 rounding of a map of thousands of columns."""


@dataclass(frozen=True, slots=True)
class GivenForm:
    """`form` in the columns of given vectors of one dense view."""

    form: FoldingForm

    def fold(self, queries: Any) -> Float32s:
        """What the form in the columns of the map folds them to, taken back and over the root of the query's
        own score, float32 [n, dim]; 0 where that is 0. queries: dense, as they were given."""
        block = as_block(queries, self.form.dim, "queries")
        folded = self.form.fold(block)
        own = np.einsum("ij,ij->i", folded, block.values, dtype=np.float64)
        scaled: Float32s = folded * inverse_roots(np.maximum(own, 0).astype(np.float32))[:, None]
        return scaled


def given_form(form: FoldingForm, space: LinearSpace) -> GivenForm | None:
    """The form in the columns of given vectors; None where it is not normalised, has no whole matrix, where
    the map shifts, or where there are several views or sparse ones. Takes the time of two products of
    matrices of this size."""
    if space.sparse or len(space.views) > 1 or space.views[0].linear.shift is not None or not form.normalised:
        return None
    if isinstance(form, BackoffForm):
        learned, own = _learned(form.learned, space), _diagonal(form.own, space)
        if learned is None or own is None:
            return None
        shows = None if form.familiarity is None else space.adapter(form.familiarity)[0]
        return GivenForm(replace(form, learned=learned, own=own, familiarity=shows))
    if isinstance(form, DiagonalForm):
        weights = _diagonal(form.weights, space)
        return None if weights is None else GivenForm(DiagonalForm(weights, True))
    learned = _learned(form, space)
    return None if learned is None else GivenForm(learned)


def _learned(form: FoldingForm, space: LinearSpace) -> ServingForm | None:
    if not isinstance(form, ServingForm) or form.matrix is None or form.correction_vectors.shape[1]:
        return None
    matrix = space.adapter(form.matrix)[0]
    none, no_values = np.zeros((len(matrix), 0), np.float32), np.zeros(0, np.float32)
    return ServingForm(matrix, none, no_values, True)


def _diagonal(weights: Float32s, space: LinearSpace) -> Float32s | None:
    """M diag(weights) M^T, float32 [dim], where it is diagonal: then its rows' sums are it."""
    matrix = space.views[0].linear.matrix
    if matrix.ndim == 1:
        return np.asarray(matrix * matrix * weights, np.float32)
    probes = np.random.default_rng(0).normal(size=(len(matrix), 4))
    probes[:, 0] = 1.0
    products = matrix @ (weights[:, None] * (matrix.T @ probes))
    found = products[:, 0]
    if (found <= 0).any() or np.abs(products - found[:, None] * probes).max() > _ALIKE * found.max():
        return None
    return found.astype(np.float32)
