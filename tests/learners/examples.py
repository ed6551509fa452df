"""Random triplets for the tests, dense or sparse."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners import Block, DenseBlock, Reason, SparseBlock, TripletBatch, as_block

Floats = NDArray[np.float32]


def rows(rng: np.random.Generator, n: int, dim: int, share: float = 0.5) -> Floats:
    """Rows of which about `share` of the entries are not zero, of length about 1; some are empty."""
    values = rng.standard_normal((n, dim)) * (rng.random((n, dim)) < share) / np.sqrt(max(1.0, share * dim))
    return values.astype(np.float32)


def block(values: Floats, kind: str) -> Block:
    """`values` as a block of the kind "dense" or "sparse"."""
    return as_block(sparse.csr_array(values) if kind == "sparse" else values)


def triplets(seed: int, n: int, dim: int, kind: str, size: float = 1.0) -> TripletBatch:
    """Random triplets of vectors about `size` long, now and then with clicked = skipped or an empty query."""
    rng = np.random.default_rng(seed)
    q, c, s = (np.float32(size) * rows(rng, n, dim) for _ in range(3))
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


def spoiled(batch: TripletBatch, seed: int) -> TripletBatch:
    """The batch with a NaN in about one row of ten."""
    part = batch.clicked
    values = np.array(part.values)
    values[np.random.default_rng(seed).random(values.shape) < 0.1 / batch.dim] = np.nan
    bad = (
        SparseBlock(part.indptr, part.indices, values, batch.dim)
        if isinstance(part, SparseBlock)
        else DenseBlock(values)
    )
    return TripletBatch(batch.query, bad, batch.skipped)


def malformed(kind: str, dim: int) -> list[tuple[TripletBatch, Reason]]:
    """Triplets that must be rejected, each fault in each of the three vectors, with the reason expected."""
    good = block(np.eye(1, dim, dtype=np.float32), kind)
    faults: list[tuple[Block, Reason]] = []
    for value, reason in (
        (np.nan, Reason.NOT_FINITE),
        (np.inf, Reason.NOT_FINITE),
        (-np.inf, Reason.NOT_FINITE),
        (3e38, Reason.MAGNITUDE),
        (-1.1e18, Reason.MAGNITUDE),
    ):
        for place in (0, dim - 1):
            values = np.zeros((1, dim), np.float32)
            values[0, place] = value
            faults.append((block(values, kind), reason))
    if kind == "sparse":
        for indices, reason in (
            ([0, dim], Reason.INDEX_OUT_OF_RANGE),
            ([-1, 2], Reason.INDEX_OUT_OF_RANGE),
            ([2**31 - 1], Reason.INDEX_OUT_OF_RANGE),
            ([3, 2], Reason.INDICES_NOT_INCREASING),
            ([4, 4], Reason.INDICES_NOT_INCREASING),
        ):
            ones = np.ones(len(indices), np.float32)
            faults.append((SparseBlock(np.array([0, len(indices)]), np.int32(indices), ones, dim), reason))
    places = [(0, 1, 1), (1, 0, 1), (1, 1, 0)]
    return [
        (TripletBatch(*(good if is_good else bad for is_good in place)), reason)
        for bad, reason in faults
        for place in places
    ]


def turns_during(work: Callable[[], object]) -> int:
    """How often this thread had a turn while another one worked."""
    worker, turns = threading.Thread(target=work), 0
    worker.start()
    while worker.is_alive():
        turns += 1
    worker.join()
    return turns
