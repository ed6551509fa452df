"""What a learned W answers with: symmetric, positive semi-definite, sharpened, with a share of the owner's
ranking, normalised by self scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from learners.spectrum import eigen, symmetric
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats


@dataclass(frozen=True)
class Form:
    """power: of the eigenvalues; share: of M beside, both with trace d. normalised: by self scores."""

    power: float = 1.5
    share: float = 0.0
    normalised: bool = True


class Eigen:
    """The positive eigenpairs of a W, from which its forms are made."""

    def __init__(self, W: Floats) -> None:
        values, vectors = eigen(symmetric(W))
        kept = values > values[-1] * 1e-6
        self.values, self.vectors = values[kept] / values[-1], np.ascontiguousarray(vectors[:, kept])

    def matrix(self, form: Form, metric: Floats) -> Floats:
        """S of a form, float32 [d, d]."""
        half = self.vectors * self.values ** np.float32(form.power / 2)
        S = half @ half.T
        S *= np.float32(len(S) / np.trace(S))
        if form.share:
            S[np.diag_indices(len(S))] += form.share * metric * (len(S) / metric.sum())
        return S


def scores(S: Floats, Z: Any, normalised: bool = True) -> Scores:
    """Scores of catalog rows with the catalog under S."""
    folded = np.asarray(Z @ S)
    own = (
        np.asarray(Z.multiply(folded).sum(1)).ravel()
        if sparse.issparse(Z)
        else np.einsum("nd,nd->n", folded, Z)
    )
    roots = np.where(own > 0, 1 / np.sqrt(np.maximum(own, 1e-20)), 0).astype(np.float32)

    def of(rows: Any) -> Floats:
        found = np.asarray((Z @ folded[rows].T).T) if sparse.issparse(Z) else folded[rows] @ Z.T
        return found * roots if normalised else found

    return of


def own_scores(X: Any) -> Scores:
    """The owner's ranking: X X^T."""
    if sparse.issparse(X):
        return lambda rows: np.asarray((X[rows] @ X.T).todense())
    return lambda rows: X[rows] @ X.T
