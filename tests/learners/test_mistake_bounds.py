"""Theorem 1 (Chechik et al., JMLR 11 (2010)) for OASIS and its symmetric and positive forms, on random
streams.

mistakes <= max(R^2, 1/C) (||U - I||_F^2 + 2 C sum of U's losses), R >= ||V||_F, any U. Projecting onto a
convex set brings W nearer to every U in that set, so the bound holds there for each symmetric, or each PSD,
U. A mistake is a margin <= 0, so a loss >= 1.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Oasis, OasisConfig, TripletBatch

from .examples import block, rows
from .oracle import psd
from .oracle_step import Doubles

DIM, EVENTS = 6, 200


@given(
    seed=st.integers(0, 2**32 - 1),
    C=st.sampled_from([0.01, 0.1, 1.0]),
    symmetric=st.sampled_from(["off", "online"]),
    psd_every=st.sampled_from([0, 20]),
    noise=st.sampled_from([0.0, 0.1]),
)
@settings(max_examples=30, deadline=None)
def test_mistakes_stay_below_the_bound(
    seed: int, C: float, symmetric: Literal["off", "online"], psd_every: int, noise: float
) -> None:
    rng = np.random.default_rng(seed)

    def allowed(U: Doubles) -> Doubles:
        return psd(U) if psd_every else (U + U.T) / 2 if symmetric == "online" else U

    truth = allowed(rng.standard_normal((DIM, DIM)) * 3)
    q, a, b = (rows(rng, EVENTS, DIM, 1.0) for _ in range(3))
    right = (np.einsum("nd,de,ne->n", q, truth, a - b) > 0) ^ (rng.random(EVENTS) < noise)
    clicked, skipped = np.where(right[:, None], a, b), np.where(right[:, None], b, a)
    learner = Oasis(DIM, OasisConfig(C=C, symmetric=symmetric, psd_every=psd_every))
    info = learner.learn_many(TripletBatch(*(block(part, "dense") for part in (q, clicked, skipped))))
    mistakes = np.count_nonzero(info.loss >= 1)
    V = q.astype(float)[:, :, None] * (clicked.astype(float) - skipped)[:, None, :]
    R = np.sqrt((V**2).sum(axis=(1, 2)).max())
    for U in (np.eye(DIM), truth, 20 * truth, allowed(learner.W.astype(float))):
        losses = np.maximum(0, 1 - (V * U).sum(axis=(1, 2))).sum()
        bound = max(R**2, 1 / C) * (((U - np.eye(DIM)) ** 2).sum() + 2 * C * losses)
        assert mistakes <= bound * (1 + 1e-6)
