"""The ends of the spectrum of W - I = Phi M Phi^T in the space of a kernel, from the Gram matrix alone.

Phi's columns are n objects, K = Phi^T Phi, M symmetric. A vector Phi y has the length sqrt(y^T K y) and the
image Phi (M K y), so nothing is factorised and a singular K does no harm. Randomised block Krylov iteration
(Musco and Musco: Randomized block Krylov methods for stronger and faster approximate singular value
decomposition, NIPS 2015) with full reorthogonalisation in that metric, then Rayleigh and Ritz. Deterministic:
fixed start; run it with one BLAS thread.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Float32s

Doubles: TypeAlias = NDArray[np.float64]

SEED = 2015
BLOCKS = 4
"""Of the subspace, each as wide as the pairs that are asked for."""
SPARE = 8

DEPENDENT = 1e-9
"""A direction of less than this share of the longest squared length is no new one: kernel values are float32,
whose rounding is all that is left of it."""
LEAST = 1e-6
"""Eigenvalues below this share of the largest are 0."""


def kernel_ends(K: Doubles, M: sparse.csr_array, pairs: int) -> tuple[Float32s, Float32s]:
    """At most `pairs` eigenpairs of Phi M Phi^T, those farthest from 0: values float32 [r], by descending
    size; and y float32 [n, r] with eigenvectors Phi y of length 1.

    K: float64 [n, n]; M: float64. Pairs that stand apart are found to rounding; crowded ones as Ritz
    approximations. All there are where `pairs` reaches that.
    """
    n = len(K)
    width = min(n, pairs + SPARE)
    start = np.random.default_rng(SEED).standard_normal((n, width))
    basis, images = np.empty((n, 0)), np.empty((n, 0))
    block = M @ (K @ start)
    for _ in range(BLOCKS):
        block, image = _orthonormal(block, K, basis, images)
        if block.shape[1] == 0:
            break
        basis, images = np.hstack([basis, block]), np.hstack([images, image])
        block = M @ image
    small = images.T @ (M @ images)
    values, coordinates = np.linalg.eigh((small + small.T) / 2)
    found = np.argsort(-np.abs(values), kind="stable")[:pairs]
    found = found[np.abs(values[found]) > LEAST * np.abs(values).max(initial=0)]
    return values[found].astype(np.float32), np.asarray(basis @ coordinates[:, found], np.float32)


def _orthonormal(block: Doubles, K: Doubles, basis: Doubles, images: Doubles) -> tuple[Doubles, Doubles]:
    """(Y, K Y): what the block adds to the basis, orthonormal in the metric K; images: K basis.

    Twice, since rounding leaves a share of what the first pass takes away.
    """
    longest = float(np.einsum("nw,nw->w", block, K @ block).max(initial=0))
    for _ in range(2):
        block = block - basis @ (images.T @ block)
        image = K @ block
        gram = block.T @ image
        squares, axes = np.linalg.eigh((gram + gram.T) / 2)
        kept = squares > DEPENDENT * max(longest, 1e-300)
        turn = axes[:, kept] / np.sqrt(squares[kept])
        block, image, longest = block @ turn, image @ turn, 1.0
    return block, image
