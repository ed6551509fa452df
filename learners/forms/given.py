"""A normalised form taken back to the vectors as they were given: a query is folded by one product.

Where the map is linear, z(x) = c(x) M^T x, a form S of mapped vectors is the form M S M^T of given ones, up
to c, which a normalised score divides out. So it is with the user's own metric beside it, which a lossless
map makes diagonal again, and with the ratio of both by which a form gives way. To fold through the map takes
four products with matrices of the same size, one of them of float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from learners.block import Float32s, as_block
from learners.forms.quadratic import DiagonalForm, FoldingForm, inverse_roots
from learners.forms.serving import BackoffForm, ServingForm
from learners.maps.linear import LinearSpace

_ALIKE = 1e-4
"""Largest share of a diagonal that may stand beside it: float32 rounding of a map of thousands of columns."""


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
        return GivenForm(replace(form, learned=learned, own=own))
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
