"""Codebooks by k-means, and bags of their words weighed by tf-idf (OASIS, JMLR 2010, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_BATCH = 4096
_ROWS = 2048
"""Vectors that are compared with all centres at once: with 10,000 of them, 80 MB."""
_PLUS_PLUS = 2000
"""Centres up to which k-means++ chooses the first ones; beyond, it costs more than all that follows."""


class TooFewVectors(ValueError):
    """Fewer different vectors than a codebook has centres."""

    def __init__(self, there: int, wanted: int) -> None:
        super().__init__(f"{there:,} different vectors for a codebook of {wanted:,}")
        self.there, self.wanted = there, wanted


def fit_codebook(vectors: npt.NDArray[np.generic], size: int, seed: int) -> Floats:
    """Centres of k-means by mini-batches (Sculley, WWW 2010), float32 [size, d].

    vectors: [n, d], of any type of number. The same vectors and seed give the same centres on one machine,
    since one thread computes. Raises TooFewVectors.
    """
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    rows = np.ascontiguousarray(vectors, np.float32)
    different = np.unique(rows, axis=0) if len(rows) < 4 * size else rows
    if len(different) < size:
        raise TooFewVectors(len(different), size)
    start = "k-means++" if size <= _PLUS_PLUS else _drawn(different, size, seed)
    with threadpool_limits(1):
        fitted = MiniBatchKMeans(
            size,
            init=start,
            n_init=1,
            batch_size=_BATCH,
            max_iter=20,
            max_no_improvement=20,
            random_state=seed,
            init_size=min(len(rows), max(3 * size, 3 * _BATCH)),
        ).fit(rows)
    return np.asarray(fitted.cluster_centers_, np.float32)


def _drawn(rows: Floats, size: int, seed: int) -> Floats:
    drawn = np.random.default_rng(seed).permutation(len(rows))
    few = np.unique(rows[drawn[: 2 * size]], axis=0)
    if len(few) < size:
        few = np.unique(rows, axis=0)
    if len(few) < size:
        raise TooFewVectors(len(few), size)
    chosen = np.random.default_rng(seed).choice(len(few), size, replace=False)
    return few[np.sort(chosen)]


def nearest(vectors: npt.NDArray[np.generic], centres: Floats) -> Ints:
    """Of each vector the nearest centre by Euclidean distance, int64 [n]; of equally near ones the first."""
    found = np.empty(len(vectors), np.int64)
    half = 0.5 * np.einsum("cd,cd->c", centres, centres)
    for at in range(0, len(vectors), _ROWS):
        rows = np.asarray(vectors[at : at + _ROWS], np.float32)
        found[at : at + _ROWS] = np.argmax(rows @ centres.T - half, axis=1)
    return found


@dataclass(frozen=True, slots=True)
class Bag:
    """Which words an object holds and how often: `words` int32 [k], rising; `counts` float32 [k]."""

    words: npt.NDArray[np.int32]
    counts: Floats

    @classmethod
    def of(cls, words: Ints) -> Bag:
        """Count them."""
        found, counts = np.unique(words, return_counts=True)
        return cls(found.astype(np.int32), counts.astype(np.float32))


def stacked(bags: Sequence[Bag]) -> tuple[Ints, npt.NDArray[np.int32], Floats]:
    """Bags below each other, as CSR: row pointers int64 [bags + 1], words, counts."""
    indptr = np.concatenate([[0], np.cumsum([len(bag.words) for bag in bags])]).astype(np.int64)
    words, counts = ([getattr(bag, name) for bag in bags] for name in ("words", "counts"))
    return indptr, np.concatenate(words), np.concatenate(counts)


def inverse_frequencies(holding: Ints, objects: int) -> Floats:
    """d_i = -log(share of the objects holding word i), float32 [words].

    A word that none of them holds counts as held by one: it is rare, not infinitely rare, should a new object
    hold it. One that all hold weighs nothing.
    """
    shares = np.maximum(holding, 1) / max(objects, 1)
    return np.asarray(-np.log(np.minimum(shares, 1.0)), np.float32)


def weigh(bag: Bag, weights: Floats) -> Bag:
    """f_i d_i brought to unit length; words that weigh nothing are left out, and none may remain."""
    values = bag.counts * weights[bag.words]
    kept = values > 0
    values = values[kept]
    length = np.linalg.norm(values)
    return Bag(bag.words[kept], np.asarray(values / max(float(length), 1e-12), np.float32))
