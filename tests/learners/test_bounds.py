"""Mistake bounds hold on random streams, and are so near there that learning the wrong way breaks them.

OASIS: theorem 1 (Chechik et al., JMLR 11 (2010)); OKS: theorem 1, and Hedge: the bound (26) of its weighted
vote (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), section 5). A mistake is a margin <= 0, so a loss >= 1.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Oasis, OasisConfig, TripletBatch, as_block
from learners.forms.blocks import BlockLayout
from learners.hedge import HedgeConfig, best_beta
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels, one_kernel
from learners.omks_maps import OmksMaps, OmksMapsConfig

from .examples import Floats
from .oracle import psd
from .oracle_kernels import rbf
from .oracle_step import Doubles

DIM = 6
DISTINCT, TIMES = 10, 40

STREAM = {
    "seed": st.integers(0, 2**32 - 1),
    "C": st.sampled_from([0.1, 0.3, 1.0]),
    "noise": st.sampled_from([0.0, 0.05]),
}


def clicks(seed: int, noise: float) -> tuple[list[Floats], TripletBatch, Doubles]:
    """Few events of unit vectors that come many times, in any order, now and then the wrong way round.

    (queries, clicked and skipped of the distinct events; the stream; how often each comes as it is and how
    often turned round, [2, DISTINCT])
    """
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(3, DISTINCT, DIM)).astype(np.float32)
    q, c, s = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    which, turned = np.repeat(np.arange(DISTINCT), TIMES), rng.random(DISTINCT * TIMES) < noise
    order = rng.permutation(len(which))
    which, turned = which[order], turned[order][:, None]
    clicked, skipped = np.where(turned, s[which], c[which]), np.where(turned, c[which], s[which])
    times = np.array([np.bincount(which[turned[:, 0] == way], minlength=DISTINCT) for way in (0, 1)])
    return [q, c, s], TripletBatch(*map(as_block, (q[which], clicked, skipped))), times.astype(float)


def nearest(H: Doubles, own: Doubles, C: float, times: Doubles) -> Doubles:
    """The a for which U = I + sum_l a_l V_l makes ||U - I||^2 + 2 C sum of U's losses small: coordinate
    ascent on the dual. H: <V_l, V_k>; own: margins under I; times: [2, n], of V_l and of -V_l."""
    a = np.zeros((2, len(own)))
    for _ in range(200):
        for way, sign in enumerate((1.0, -1.0)):
            for l in range(len(own)):
                loss = 1 - sign * (own[l] + H[l] @ (a[0] - a[1]))
                a[way, l] = np.clip(a[way, l] + loss / H[l, l], 0, C * times[way, l])
    difference: Doubles = a[0] - a[1]
    return difference


def allowed_mistakes(H: Doubles, own: Doubles, C: float, times: Doubles, a: Doubles) -> float:
    """max(R^2, 1/C) (||U - I||^2 + 2 C sum of U's losses), R >= ||V||, of U = I + sum_l a_l V_l."""
    margins = own + H @ a
    losses = float(times[0] @ np.maximum(0, 1 - margins) + times[1] @ np.maximum(0, 1 + margins))
    return max(float(np.diag(H).max()), 1 / C) * (float(a @ H @ a) + 2 * C * losses) * (1 + 1e-5) + 1e-6


@given(**STREAM, symmetric=st.sampled_from(["off", "online"]))
@settings(max_examples=30, deadline=None)
def test_oasis_errs_no_more_often_than_theorem_1_allows(
    seed: int, C: float, noise: float, symmetric: Literal["off", "online"]
) -> None:
    (q, c, s), stream, times = clicks(seed, noise)
    info = Oasis(DIM, OasisConfig(C=C, symmetric=symmetric)).learn_many(stream)
    V = q.astype(float)[:, :, None] * (c.astype(float) - s)[:, None, :]
    sides = (V + V.transpose(0, 2, 1)) / 2 if symmetric == "online" else V
    H, own = np.einsum("lij,kij->lk", sides, sides), np.einsum("lii->l", V)
    allowed = allowed_mistakes(H, own, C, times, nearest(H, own, C, times))
    if symmetric == "online":  # R is that of V itself
        allowed *= max((V**2).sum(axis=(1, 2)).max(), 1 / C) / max(np.diag(H).max(), 1 / C)
    assert np.count_nonzero(info.loss >= 1) <= allowed


@given(
    seed=st.integers(0, 2**32 - 1),
    C=st.sampled_from([0.3, 1.0]),
    symmetric=st.sampled_from(["off", "online"]),
)
@settings(max_examples=10, deadline=None)
def test_so_does_a_projected_one_against_every_psd_matrix(
    seed: int, C: float, symmetric: Literal["off", "online"]
) -> None:
    """Projecting onto a convex set brings W nearer to every U in it. Clicks by a PSD taste, all of margins
    that a small U has."""
    rng = np.random.default_rng(seed)
    U = psd(rng.standard_normal((DIM, DIM)))
    vectors = rng.normal(size=(3, 3_000, DIM))
    q, a, b = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    margins = np.einsum("nd,de,ne->n", q, U, a - b)
    far = np.argsort(-np.abs(margins))[:400]
    U /= np.abs(margins[far]).min()
    better = (margins[far] > 0)[:, None]
    rows = q[far], np.where(better, a[far], b[far]), np.where(better, b[far], a[far])
    order = rng.permutation(400)
    learner = Oasis(DIM, OasisConfig(C=C, symmetric=symmetric, psd_every=20))
    info = learner.learn_many(TripletBatch(*(as_block(part[order].astype(np.float32)) for part in rows)))
    R2 = float((np.linalg.norm(rows[1] - rows[2], axis=1) ** 2).max())
    assert np.count_nonzero(info.loss >= 1) <= max(R2, 1 / C) * ((U - np.eye(DIM)) ** 2).sum() * (1 + 1e-5)


@given(**STREAM)
@settings(max_examples=10, deadline=None)
def test_oks_errs_no_more_often_than_theorem_1_allows(seed: int, C: float, noise: float) -> None:
    """U = I + sum_l a_l Z_l: its norm and margins are made of kernel values."""
    (q, c, s), stream, times = clicks(seed, noise)
    learner = Omks(DIM, one_kernel(DIM, KernelConfig("rbf"), 1.0, C=C, triplets=40, objects=60))
    mistakes = np.count_nonzero(learner.learn_many(stream).loss >= 1)
    H = gram(q, q) * (gram(c, c) - gram(c, s) - gram(s, c) + gram(s, s))
    own = np.diag(gram(q, c)) - np.diag(gram(q, s))
    assert mistakes <= allowed_mistakes(H, own, C, times, nearest(H, own, C, times))


def gram(x: Floats, y: Floats) -> Doubles:
    """The RBF kernel of all pairs."""
    kernel = rbf(1.0)
    return np.array([[kernel(one.astype(float), other.astype(float)) for other in y] for one in x])


def omks(hedge: HedgeConfig) -> Omks:
    """Three views with two kernels each."""
    kernels = (KernelConfig("rbf"), KernelConfig("linear"))
    views = tuple(ViewKernels(start, start + 2, kernels, gamma=1.0) for start in (0, 2, 4))
    return Omks(DIM, OmksConfig(views, triplets=300, objects=900, hedge=hedge))


def omks_maps(hedge: HedgeConfig) -> OmksMaps:
    """Three blocks."""
    return OmksMaps(DIM, OmksMapsConfig((2, 2, 2), hedge=hedge))


def margins_of(learner: Omks | OmksMaps, q: Floats, c: Floats, s: Floats) -> Doubles:
    """S_i(q, c) - S_i(q, s) of each kernel, of one event [1, DIM] each."""
    if isinstance(learner, OmksMaps):
        layout, e = BlockLayout.of(learner.config.widths), (c - s).astype(float)
        parts = zip(layout.columns, layout.matrices(learner.W), strict=True)
        return np.array([float(q[0, at] @ W @ e[0, at]) for at, W in parts])
    each, items = np.eye(learner.config.kernels, dtype=np.float32), np.concatenate([c, s])
    scores = [learner.support.scores(learner._plan, theta, q, items)[0] for theta in each]
    return np.array([float(clicked) - float(skipped) for clicked, skipped in scores])


@pytest.mark.parametrize("make", [omks, omks_maps])
@given(
    seed=st.integers(0, 2**32 - 1),
    beta=st.sampled_from([0.3, 0.6, 0.8]),
    noise=st.sampled_from([0.0, 0.05]),
)
@settings(max_examples=5, deadline=None)
def test_the_vote_of_the_kernels_errs_no_more_often_than_26_allows(
    make: Any, seed: int, beta: float, noise: float
) -> None:
    """mistakes of the vote <= 2 ln(1/beta)/(1-beta) min_i sum z_i + 2 ln m/(1-beta), the vote being wrong
    where kernels of half the weight are. Users click what is nearer in the first view; the others tell
    nothing."""
    rng = np.random.default_rng(seed)
    views = rng.normal(size=(3, 120, 3, 2))
    q, a, b = (views / np.linalg.norm(views, axis=3, keepdims=True)).reshape(3, 120, DIM).astype(np.float32)
    better = ((q[:, :2] * (a - b)[:, :2]).sum(axis=1) > 0) ^ (rng.random(120) < noise)
    learner = make(HedgeConfig("hedge", beta=beta))
    wrong, mistakes = np.zeros(len(learner.theta)), 0
    for t in range(120):
        rows = (q[t : t + 1], *(one[t : t + 1] for one in ((a, b) if better[t] else (b, a))))
        z, theta = margins_of(learner, *rows) <= 0, learner.theta
        learner.learn_one(*rows)
        wrong += z
        mistakes += float(theta @ z) >= 0.5
    m = len(wrong)
    assert mistakes <= 2 * np.log(1 / beta) / (1 - beta) * wrong.min() + 2 * np.log(m) / (1 - beta)
    assert wrong.max() > 20, "the bound would hold for nothing"


def test_the_best_beta_of_a_known_length() -> None:
    assert best_beta(10_000, 36) == pytest.approx(100 / (100 + np.sqrt(np.log(36))))
