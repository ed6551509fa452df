"""The serving form of W_0 + U V^T: that of W_0, made once for all, and a correction of low rank.

W_0 has the form S_0, an eigendecomposition. Its answer to a change K = sym(U V^T) is to first order P K P,
with P of `learners.psd.psd_tangent`, as in `learners.forms.carried`. So S = S_0 + P K P is S_0 and at most
2 r pairs, found by a decomposition of 2 r dimensions: a query folds to S_0 q plus 4 d r multiplications, and
models of many keys share S_0. What is neglected is of the second order in the correction; S may be less than
positive semi-definite by as much, and self scores are clipped at 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from learners.block import Float32s
from learners.forms.serving import ServingForm
from learners.psd import psd_tangent


@dataclass(frozen=True, slots=True, eq=False)
class LowRankBase:
    """The form of W_0, and P, float32 [d, d]; None for I, where the form has no projection and no power."""

    form: ServingForm
    P: Float32s | None

    @classmethod
    def of(cls, form: ServingForm, start: Float32s) -> Self:
        """Of the form that was made of W_0."""
        plain = form.matrix is None or form.power is None
        return cls(form, None if plain else psd_tangent(start, form.power))  # type: ignore[arg-type]


def low_rank_form(base: LowRankBase, U: Float32s, V: Float32s) -> ServingForm:
    """S_0 + P sym(U V^T) P. U, V: float32 [k, d], columns of the factors as rows; not kept."""
    if not len(U):
        return base.form
    both = np.concatenate([U, V]).astype(np.float64)
    if base.P is not None:
        both = both @ base.P
    Q, R = np.linalg.qr(both.T)
    left, right = R[:, : len(U)], R[:, len(U) :]
    product = left @ right.T
    values, vectors = np.linalg.eigh((product + product.T) / 2)
    kept = np.abs(values) > 1e-7 * np.abs(values).max(initial=0)
    pairs = np.asarray((Q @ vectors)[:, kept], np.float32)
    own = base.form
    return replace(
        own,
        correction_vectors=np.ascontiguousarray(np.concatenate([own.correction_vectors, pairs], axis=1)),
        correction_values=np.concatenate([own.correction_values, -values[kept].astype(np.float32)]),
        removed=None,
    )
