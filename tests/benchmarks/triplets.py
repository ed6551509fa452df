"""The triplets every step benchmark shares: random sparse vectors of unit length, ids in random order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from learners import SparseBlock, TripletBatch

DIM = 10_000
NON_ZEROS = 70
COUNT = 20_000


def random_block(
    rng: np.random.Generator, count: int, dim: int = DIM, non_zeros: int = NON_ZEROS
) -> SparseBlock:
    """`count` rows of about `non_zeros` entries at uniformly drawn ids, positive values, unit length."""
    lengths = np.clip(rng.poisson(non_zeros, count), 1, dim)
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    indices = np.empty(indptr[-1], np.int32)
    values = np.empty(indptr[-1], np.float32)
    for row, (begin, end) in enumerate(pairwise(indptr.tolist())):
        indices[begin:end] = np.sort(rng.choice(dim, lengths[row], replace=False))
        drawn = rng.exponential(size=end - begin)
        values[begin:end] = drawn / np.linalg.norm(drawn)
    return SparseBlock(indptr=indptr, indices=indices, values=values, dim=dim)


def random_triplets(
    count: int = COUNT, dim: int = DIM, non_zeros: int = NON_ZEROS, seed: int = 0
) -> TripletBatch:
    """A batch of `count` random triplets; nearly every round violates, so every step is paid for."""
    rng = np.random.default_rng(seed)
    return TripletBatch(
        query=random_block(rng, count, dim, non_zeros),
        clicked=random_block(rng, count, dim, non_zeros),
        skipped=random_block(rng, count, dim, non_zeros),
    )
