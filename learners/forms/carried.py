"""A serving form carried on behind the state it was made from, while W keeps learning.

Making the form of a state takes an eigendecomposition, far longer than a step. Between two of them the form
answers to the change of W to first order: S(t) = S(b) + P (sym(W(t)) - sym(W(b))) P, exact at b, with P of
`psd_tangent`. The change itself, without P, is the wrong answer: half of what clicks add lies in directions
that projection and sharpened spectrum take away, and on the demo's data S(b) left as it was agreed better
with the recomputed form. `carried_error` measures what is still neglected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learners.block import Block, DenseBlock, Float32s, against, as_block, row_blocks, times
from learners.forms.quadratic import (
    DiagonalForm,
    FoldingForm,
    Pieces,
    apply_terms,
    batches,
    fold_symmetric,
    has_terms,
    pair_products,
    remove_pairs,
    score_pairs,
    self_products,
    terms_of,
    whole,
)
from learners.forms.serving import ServingForm
from learners.pending import PendingSteps
from learners.psd import psd_tangent


@dataclass(frozen=True, slots=True, eq=False)
class Tangent:
    """Where a form with a matrix of its own was made: S = constant + P sym(W) P, float32 [d, d] each."""

    constant: Float32s
    P: Float32s


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """A matrix that W is a part of, float32 [d, d]; share: of a change of W in that of the matrix."""

    matrix: Float32s
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class CarriedForm:
    """S = C + P sym(W) P with a `tangent`, else sym(W) - U diag(lambda) U^T.

    state_matrix: W, float32 [d, d], read and never copied: the form follows it. pending: the steps that wait
    to be added to it, followed likewise; None where none ever do. tangent: None where the form has no matrix
    of its own, since all eigenvalues of a large W are out of reach. correction_vectors, correction_values: U
    float32 [d, k], lambda float32 [k], the eigenpairs removed at b. normalised and distance: as in
    `ServingForm`. S need not be PSD behind b: self scores are clipped at 0.
    """

    state_matrix: Float32s
    tangent: Tangent | None
    correction_vectors: Float32s
    correction_values: Float32s
    normalised: bool
    distance: bool = False
    pending: PendingSteps | None = None

    @classmethod
    def of(
        cls,
        form: ServingForm,
        W: Float32s,
        power: float = 1.0,
        out: Tangent | None = None,
        pending: PendingSteps | None = None,
        *,
        mixed: Mixed | None = None,
    ) -> CarriedForm:
        """The form of W, ready to be carried on as W changes. W must not have changed since `form` was made.

        power: what the eigenvalues of the form were raised to. out: written and kept, where `form` has a
        matrix, which may be its `constant`; None allocates. mixed: what `form` was made of, where that is W
        mixed with others, which stay as they are. Raises ConfigError as `psd_tangent`.
        """
        pairs = form.correction_vectors, form.correction_values
        if form.matrix is None:
            return cls(W, None, *pairs, form.normalised, form.distance, pending)
        whole_matrix = W if pending is None else pending.with_them(W)
        if mixed is None:
            P = psd_tangent(whole_matrix, power)
        else:
            P = psd_tangent(mixed.matrix, power) * np.float32(np.sqrt(mixed.share))
        tangent = Tangent(np.empty_like(form.matrix), P) if out is None else out
        if tangent.P is not P:
            np.copyto(tangent.P, P)
        for part in row_blocks(len(W), len(W)):
            followed = fold_symmetric(whole_matrix, DenseBlock(P[part])) @ P
            np.subtract(form.matrix[part], followed, out=tangent.constant[part])
        return cls(W, tangent, *pairs, form.normalised, form.distance, pending)

    @classmethod
    def of_diagonal(
        cls,
        form: DiagonalForm,
        W: Float32s,
        power: float = 1.0,
        scale: float = 1.0,
        *,
        out: Tangent | None = None,
        pending: PendingSteps | None = None,
        mixed: Mixed | None = None,
    ) -> CarriedForm:
        """A diagonal form M, which is no function of W, carried on by what changes in the form of W: S = M +
        scale (f(W(t)) - f(W)) to first order.

        scale: how much longer M is than the form of W. out: written and kept, as in `of`; None where W is M
        itself and S = sym(W(t)). mixed: as in `of`. Raises ConfigError as `psd_tangent`.
        """
        none, no_values = np.zeros((len(W), 0), np.float32), np.zeros(0, np.float32)
        if out is not None:
            whole_matrix = W if pending is None else pending.with_them(W)
            made_of, share = (whole_matrix, 1.0) if mixed is None else (mixed.matrix, mixed.share)
            np.copyto(out.P, psd_tangent(made_of, power))
            np.multiply(out.P, np.float32(np.sqrt(scale * share)), out=out.P)
            for part in row_blocks(len(W), len(W)):
                np.negative(
                    fold_symmetric(whole_matrix, DenseBlock(out.P[part])) @ out.P, out=out.constant[part]
                )
            out.constant.reshape(-1)[:: len(W) + 1] += form.weights
        return cls(W, out, none, no_values, form.normalised, form.distance, pending)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.state_matrix.shape[0])

    def fold(self, queries: Any) -> Float32s:
        """S q for each query, float32 [n, d], 2 S q for a distance. Raises BlockError on another dimension or
        a bad index."""
        block = as_block(queries, self.dim, "queries")
        if self.tangent is not None:
            turned = DenseBlock(times(block, self.tangent.P))
            folded = np.asarray(self._followed(turned) @ self.tangent.P, np.float32)
            folded += times(block, self.tangent.constant)
        else:
            folded = self._followed(block)
            remove_pairs(folded, block, self.correction_vectors, self.correction_values)
        if self.distance:
            folded *= np.float32(2)
        return folded

    def _followed(self, block: Block) -> Float32s:
        folded = fold_symmetric(self.state_matrix, block)
        if self.pending is not None and len(self.pending):
            folded += self.pending.folded(block)
        return folded

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T S p for each item, clipped at 0, float32 [n]; summed in float64. `pieces` changes no bit."""
        block = as_block(items, self.dim, "items")
        if self.tangent is None:
            products = self_products(self.state_matrix, block, pieces)
            if self.pending is not None and len(self.pending):
                products += self.pending.self_products(block)
            products -= pair_products(block, self.correction_vectors, self.correction_values, pieces)
        else:
            products = self_products(self.tangent.constant, block, pieces)
            for batch in batches(len(block), 2 * self.dim**2, pieces):
                turned = DenseBlock(times(block.slice(batch.start, batch.stop), self.tangent.P))
                products[batch] += self_products(self.state_matrix, turned)
                if self.pending is not None and len(self.pending):
                    products[batch] += self.pending.self_products(turned)
        return np.maximum(products, 0).astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items]."""
        return score_pairs(self, queries, items)


@dataclass(frozen=True, slots=True)
class CarriedError:
    """How far carried scores are from those of the recomputed form; 0, 0 and 1 are exact.

    fold: ||S(t) q - S q|| / ||S q|| over all sampled queries together. norms: the largest relative error of
    an item's norm sqrt(S(p, p)), 0 where scores use none. overlap: mean share of the exact top 10
    that is in the carried top 10.
    """

    fold: float
    norms: float
    overlap: float


TOP = 10
"""Of each sampled query, of which `overlap` tells."""


def carried_error(
    folded: Float32s, norms_then: Float32s, exact: FoldingForm, sample: tuple[Block, Block]
) -> CarriedError:
    """Compare a carried form with the exact one of the same W, as they are used: new folds, older norms.

    sample: queries and items. folded: the queries folded by the carried form, float32 [queries, d].
    norms_then: self scores of the items when the carried form was made, float32 [items].
    """
    queries, items = sample
    exact_folded = exact.fold(queries)
    size = float(np.linalg.norm(exact_folded))
    fold = float(np.linalg.norm(folded - exact_folded)) / size if size else 0.0
    scores, exact_scores = against(folded, items), against(exact_folded, items)
    norms = 0.0
    if has_terms(exact):
        exact_norms = exact.self_scores(items)
        roots, exact_roots = np.sqrt(norms_then), np.sqrt(exact_norms)
        used = exact_roots > 0
        norms = float(np.max(np.abs(roots[used] / exact_roots[used] - 1), initial=0))
        for found, squares in ((scores, norms_then), (exact_scores, exact_norms)):
            apply_terms(exact, found, terms_of(exact, squares))
    return CarriedError(fold, norms, _overlap(scores, exact_scores, min(TOP, len(items))))


def _overlap(scores: Float32s, exact: Float32s, k: int) -> float:
    if not (len(scores) and k):
        return 1.0
    found, wanted = (np.argsort(-one, axis=1, kind="stable")[:, :k] for one in (scores, exact))
    return float(np.mean([len(np.intersect1d(*rows)) / k for rows in zip(found, wanted, strict=True)]))
