"""Mistake bounds hold on random streams, also where clicks contradict each other.

OKS: theorem 1, Hedge: the bound (26) of its weighted vote (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), section 5).
OASIS's is tested beside its formulas.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import as_block
from learners.hedge import HedgeConfig, best_beta
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels, one_kernel
from learners.omks_maps import OmksMaps, OmksMapsConfig

from .examples import Floats
from .oracle_kernels import rbf
from .oracle_step import Doubles

DIM = 6


def clicks(seed: int, n: int, noise: float) -> tuple[Floats, Floats, Floats]:
    """Triplets of unit vectors, clicked by a random bilinear taste, some the wrong way round."""
    rng = np.random.default_rng(seed)
    taste = rng.standard_normal((DIM, DIM))
    q, a, b = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in rng.normal(size=(3, n, DIM))
    )
    better = (np.einsum("nd,de,ne->n", q, taste, a - b) > 0) ^ (rng.random(n) < noise)
    clicked, skipped = np.where(better[:, None], a, b), np.where(better[:, None], b, a)
    return q.astype(np.float32), clicked.astype(np.float32), skipped.astype(np.float32)


@given(seed=st.integers(0, 2**32 - 1), C=st.sampled_from([0.1, 1.0]), noise=st.sampled_from([0.0, 0.1, 0.5]))
@settings(max_examples=10, deadline=None)
def test_oks_errs_no_more_often_than_theorem_1_allows(seed: int, C: float, noise: float) -> None:
    """mistakes <= (||L - I||^2 + 2 C sum of L's losses) / min(1/R, C), R >= ||Z_t||^2, for any L: here I, and
    I + sum_l a_l Z_l with random a, whose norm and margins are made of kernel values."""
    q, c, s = clicks(seed, 60, noise)
    learner = Omks(DIM, one_kernel(DIM, KernelConfig("rbf"), 1.0, C=C, triplets=60, objects=180))
    mistakes = sum(float(learner.learn_one(*event).loss[0]) >= 1 for event in zip(q, c, s, strict=True))
    queries = gram(q, q)
    errors = gram(c, c) - gram(c, s) - gram(s, c) + gram(s, s)
    own = np.einsum("tt->t", gram(q, c)) - np.einsum("tt->t", gram(q, s))
    radius = float((np.diag(queries) * np.diag(errors)).max())
    rng = np.random.default_rng(seed)
    for a in (np.zeros(60), np.full(60, 0.1), rng.random(60), rng.standard_normal(60)):
        margins = own + (queries * errors) @ a
        size = float(a @ (queries * errors) @ a)
        losses = float(np.maximum(0, 1 - margins).sum())
        assert mistakes <= (size + 2 * C * losses) / min(1 / radius, C) * (1 + 1e-6)


def gram(x: Floats, y: Floats) -> Doubles:
    """The RBF kernel of all pairs."""
    kernel = rbf(1.0)
    return np.array([[kernel(one.astype(float), other.astype(float)) for other in y] for one in x])


def omks(hedge: HedgeConfig) -> Omks:
    """Three views with two kernels each."""
    kernels = (KernelConfig("rbf"), KernelConfig("linear"))
    views = tuple(ViewKernels(start, start + 2, kernels, gamma=1.0) for start in (0, 2, 4))
    return Omks(DIM, OmksConfig(views, triplets=500, objects=1500, hedge=hedge))


def omks_maps(hedge: HedgeConfig) -> OmksMaps:
    """Three blocks."""
    return OmksMaps(DIM, OmksMapsConfig((2, 2, 2), hedge=hedge))


@pytest.mark.parametrize("make", [omks, omks_maps])
@given(
    seed=st.integers(0, 2**32 - 1),
    beta=st.sampled_from([0.3, 0.8, 0.99]),
    noise=st.sampled_from([0.0, 0.2, 0.5]),
)
@settings(max_examples=8, deadline=None)
def test_the_vote_of_the_kernels_errs_no_more_often_than_26_allows(
    make: type[Omks], seed: int, beta: float, noise: float
) -> None:
    """mistakes of the vote <= 2 ln(1/beta)/(1-beta) min_i sum z_i + 2 ln m/(1-beta). theta tells z_i: the log
    weights of two kernels part by ln beta for every mistake of one and not the other."""
    learner = make(HedgeConfig("hedge", beta=beta))
    m = len(learner.theta)
    mistakes, wrong = 0, np.zeros(m)
    for event in zip(*clicks(seed, 150, noise), strict=True):
        before = learner.theta
        info = learner.learn_one(*(as_block(vector) for vector in event))
        after = learner.theta
        if info.tau[0] == 0:
            continue
        fell = np.log(after / before)
        z = np.rint((fell - fell.max()) / np.log(beta))
        if not z.any():  # all alike: all right or all wrong
            z[:] = info.loss[0] >= 1
        wrong += z
        mistakes += float(before @ z) >= 0.5
    bound = 2 * np.log(1 / beta) / (1 - beta) * wrong.min() + 2 * np.log(m) / (1 - beta)
    assert mistakes <= bound * (1 + 1e-6)
    assert wrong.sum() > 0


def test_the_best_beta_of_a_known_length() -> None:
    assert best_beta(10_000, 36) == pytest.approx(100 / (100 + np.sqrt(np.log(36))))


def test_the_streams_have_mistakes() -> None:
    """Else the bounds would hold for nothing."""
    learner = Omks(DIM, one_kernel(DIM, KernelConfig("rbf"), 1.0, triplets=100, objects=300))
    info = [learner.learn_one(*event) for event in zip(*clicks(0, 100, 0.2), strict=True)]
    assert sum(float(one.loss[0]) >= 1 for one in info) > 20
