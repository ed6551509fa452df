"""Random triplets for the tests, dense or sparse."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners import Block, TripletBatch, as_block

Floats = NDArray[np.float32]


def rows(rng: np.random.Generator, n: int, dim: int, share: float = 0.5) -> Floats:
    """Rows of which about `share` of the entries are not zero, of length about 1; some are empty."""
    values = rng.standard_normal((n, dim)) * (rng.random((n, dim)) < share) / np.sqrt(max(1.0, share * dim))
    return values.astype(np.float32)


def block(values: Floats, kind: str) -> Block:
    """`values` as a block of the kind "dense" or "sparse"."""
    return as_block(sparse.csr_array(values) if kind == "sparse" else values)


def triplets(seed: int, n: int, dim: int, kind: str) -> TripletBatch:
    """Random triplets, now and then with clicked = skipped or an empty query."""
    rng = np.random.default_rng(seed)
    q, c, s = (rows(rng, n, dim) for _ in range(3))
    same = rng.random(n) < 0.1
    s[same] = c[same]
    return TripletBatch(block(q, kind), block(c, kind), block(s, kind))


def matrices(batch: TripletBatch) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The three blocks as float64 arrays, for the oracle."""
    return dense(batch.query), dense(batch.clicked), dense(batch.skipped)


def dense(part: Block) -> NDArray[np.float64]:
    """A block as a float64 array."""
    values = part.kernel_rows()
    full = values if isinstance(values, np.ndarray) else part.checked_csr().toarray()  # type: ignore[union-attr]
    return full.astype(np.float64)
