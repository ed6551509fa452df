"""What one kernel learned, as eigenvectors in the space of its features; see `supports_form`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from learners.block import Float32s, Int32s
from learners.block_krylov import kernel_ends
from learners.kernels.object_scores import fill_tiles, object_values
from learners.kernels.tiles import LANES
from learners.multikernel.config import KernelConfig, OmksConfig, ViewKernels
from learners.multikernel.plan import make_plan
from learners.scores import row_blocks

RANK = 64
"""Eigenvectors kept of each kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """eigenvalues: float32 [r], of the vectors u = Phi y. vectors: y, float32 [n, r]."""

    eigenvalues: Float32s
    vectors: Float32s


def learned_part(gram: Float32s, M: sparse.csr_array, rank: int, centred: bool) -> Part:
    """The eigenvectors of I + Phi M Phi^T farthest from eigenvalue 1, `rank` of them; gram = Phi^T Phi.

    centred: the direction of the objects' mean is taken out: everything happens orthogonal to it, and one
    more vector has the eigenvalue 0.
    """
    K = gram.astype(np.float64)
    square = K.sum()
    with threadpool_limits(limits=1, user_api="blas"):
        if not centred or square <= 0:
            values, vectors = kernel_ends(K, M, rank)
            return Part(1 + values, vectors)
        mean = np.full(len(K), 1 / np.sqrt(square))
        along = mean @ K
        K -= np.outer(along, along)
        values, vectors = kernel_ends(K, M, rank)
        vectors -= np.outer(mean, along @ vectors).astype(np.float32)
        return Part(np.append(1 + values, np.float32(0)), np.column_stack([vectors, mean.astype(np.float32)]))


def matrix_of(triplets: Int32s, tau: Float32s, n: int) -> sparse.csr_array:
    """sym(M), float64 [n, n]: M[q, c] += tau and M[q, s] -= tau of each triplet; triplets: objects [T, 3]."""
    query, clicked, skipped = triplets.T
    places = (np.concatenate([query, query]), np.concatenate([clicked, skipped]))
    half = np.concatenate([tau, -tau]).astype(np.float64) / 2
    whole = (np.concatenate([half, half]), (np.concatenate(places), np.concatenate(places[::-1])))
    return sparse.csr_array(sparse.coo_array(whole, shape=(n, n)))


def gram(objects: Float32s, view: ViewKernels, kernel: KernelConfig, gamma: float, several: bool) -> Float32s:
    """k of all pairs of objects, float32 [n, n]; 0 where one lacks the view and there are several."""
    own = np.ascontiguousarray(objects[:, view.start : view.stop])
    n, tiles = len(own), -(-len(own) // LANES)
    alone = ViewKernels(0, own.shape[1], (kernel,), gamma)
    plan = make_plan(OmksConfig((alone,)), np.array([gamma]))
    kept = (
        np.zeros((tiles, own.shape[1], LANES), np.float32),
        np.ones((tiles, 1, LANES), np.float32),
        np.zeros((tiles, 1), np.bool_),
    )
    fill_tiles(plan, own, kept)
    K = np.empty((n, n), np.float32)
    for part in row_blocks(n, tiles * LANES):
        values = np.empty((part.stop - part.start, 1, tiles * LANES), np.float32)
        object_values(plan, kept, own[part], values)
        K[part] = values[:, 0, :n]
    if several:
        lacking = ~own.any(axis=1)
        K[lacking], K[:, lacking] = 0, 0
    return K
