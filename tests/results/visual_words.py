"""Pictures as sparse bags of visual words, by one vocabulary at several sizes.

Words are cells of small square pieces of a picture: as they are, brought to mean 0 and length 1, with their
place in the picture beside them. The vocabulary is a tree (Nister, Stewenius, CVPR 2006): the first level is
k-means, and every cell of a level is split into ten by its own pieces, so that a million words are assigned
by some thousand distances each. A size without words enough to split has fewer words than it could have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.cluster import MiniBatchKMeans

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

SIDE = 7
"""Pixels along a side of a piece."""
LEAST_CONTRAST = 12.0
"""Standard deviation in gray levels of a piece that is kept: paler ones are background."""
PLACE_WEIGHT = 0.5
"""Length of the place beside that of the piece, 1."""
BRANCHES = 10
ROUNDS = 3
"""Of Lloyd's algorithm, in every split."""
AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Pieces:
    """vectors: float32 [n, SIDE^2 + 2]; of: the picture of each, int64 [n], ascending."""

    vectors: Floats
    of: Ints

    def of_pictures(self, pictures: Ints) -> Pieces:
        """Those of some pictures."""
        kept = np.isin(self.of, pictures)
        return Pieces(self.vectors[kept], self.of[kept])


def pieces_of(pictures: Sequence[npt.NDArray[np.uint8]], stride: int) -> Pieces:
    """Of gray pictures of any size, uint8 [height, width], at so many pixels from each other."""
    vectors, of = [], []
    for number, picture in enumerate(pictures):
        windows = np.lib.stride_tricks.sliding_window_view(picture, (SIDE, SIDE))[::stride, ::stride]
        rows, columns = windows.shape[:2]
        flat = windows.reshape(rows * columns, SIDE * SIDE).astype(np.float32)
        flat -= flat.mean(axis=1, keepdims=True)
        lengths = np.linalg.norm(flat, axis=1)
        kept = lengths > LEAST_CONTRAST * SIDE
        y, x = np.divmod(np.flatnonzero(kept), columns)
        places = np.stack([y / max(1, rows - 1), x / max(1, columns - 1)], axis=1) - 0.5
        beside = (PLACE_WEIGHT * 2 * places).astype(np.float32)
        vectors.append(np.concatenate([flat[kept] / lengths[kept, None], beside], axis=1))
        of.append(np.full(len(beside), number, np.int64))
    return Pieces(np.concatenate(vectors), np.concatenate(of))


class Vocabulary:
    """A tree of visual words: `first` on the first level, ten times as many on each one below."""

    def __init__(self, vectors: Floats, first: int, levels: int, seed: int) -> None:
        """Fitted on pieces, float32 [n, d]. Memory: the pieces, and n / 10 centres on the last level."""
        rng = np.random.default_rng(seed)
        some = vectors[rng.permutation(len(vectors))[: 100 * first]]
        kmeans = MiniBatchKMeans(first, random_state=seed, batch_size=4096, n_init=1, max_iter=20).fit(some)
        self._first: Floats = np.asarray(kmeans.cluster_centers_, np.float32)
        self._splits: list[_Split] = []
        cell = _nearest(vectors, self._first)
        for level in range(levels - 1):
            split = _Split(vectors, cell, first * BRANCHES**level, rng)
            self._splits.append(split)
            cell = split.assign(vectors, cell)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Words on each level."""
        return tuple(len(self._first) * BRANCHES**level for level in range(len(self._splits) + 1))

    def bags(self, pieces: Pieces, pictures: int) -> list[sparse.csr_array]:
        """How often every picture holds every word, float32 [pictures, words], one for each level."""
        cell, out = _nearest(pieces.vectors, self._first), []
        for level, size in enumerate(self.sizes):
            if level:
                cell = self._splits[level - 1].assign(pieces.vectors, cell)
            ones = np.ones(len(cell), np.float32)
            counted = sparse.coo_array((ones, (pieces.of, cell)), shape=(pictures, size)).tocsr()
            counted.sum_duplicates()
            out.append(counted)
        return out


class _Split:
    """Every cell in ten: of each, at most as many centres as it has pieces."""

    def __init__(self, vectors: Floats, cell: Ints, cells: int, rng: np.random.Generator) -> None:
        order = np.lexsort((rng.random(len(cell)), cell))
        starts = np.searchsorted(cell[order], np.arange(cells))
        rank = np.arange(len(cell)) - starts[cell[order]]
        drawn = order[rank < BRANCHES]
        self._slot = np.full(cells * BRANCHES, -1, np.int64)
        self._slot[cell[drawn] * BRANCHES + rank[rank < BRANCHES]] = np.arange(len(drawn))
        self._centres: Floats = vectors[drawn]
        for _ in range(ROUNDS):
            slot = self._slot[self.assign(vectors, cell)]
            count = np.bincount(slot, minlength=len(drawn))
            held = sparse.csr_array((np.ones(len(slot), np.float32), (slot, np.arange(len(slot)))))
            means = held @ vectors
            self._centres = np.where(count[:, None] > 0, means / np.maximum(count, 1)[:, None], self._centres)

    def assign(self, vectors: Floats, cell: Ints) -> Ints:
        """The word of each piece, int64 [n]: the nearest of its cell's, the first where a cell has none."""
        out = np.empty(len(cell), np.int64)
        for start in range(0, len(cell), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            words = cell[part, None] * BRANCHES + np.arange(BRANCHES)
            slots = self._slot[words]
            best, nearest = np.full(len(slots), np.inf, np.float32), np.zeros(len(slots), np.int64)
            for branch in range(BRANCHES):
                apart = vectors[part] - self._centres[slots[:, branch]]
                far = np.einsum("nd,nd->n", apart, apart)
                far[slots[:, branch] < 0] = np.inf
                nearer = far < best
                best[nearer], nearest[nearer] = far[nearer], branch
            out[part] = cell[part] * BRANCHES + nearest
        return out


def _nearest(vectors: Floats, centres: Floats) -> Ints:
    """The nearest centre of each vector, int64 [n]."""
    out = np.empty(len(vectors), np.int64)
    lengths = np.einsum("kd,kd->k", centres, centres) / 2
    for start in range(0, len(vectors), AT_ONCE // 8):
        part = slice(start, start + AT_ONCE // 8)
        out[part] = np.argmax(vectors[part] @ centres.T - lengths, axis=1)
    return out
