"""`python -m daemon.serve.graph_build FOLDER`: links between the objects of a folder, by faiss.

A process of its own, of the lowest priority: it answers nobody, takes no lock of the one that does, and can
be ended at any moment. It reads codes.npy and writes links.npy, under another name until it is whole.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.graph_links import complete

DEGREE = 16
"""Links that a new object makes; on the layer that is kept, an object has at most twice as many."""

BREADTH = 200
"""Candidates that they are chosen from (efConstruction). A million rows then take some nine minutes of a
core; with 64 they take three, and the same recall needs half as large a pool again."""

CHUNK = 4_096
"""Objects between two looks at whether anybody still waits; a second or two."""

SAMPLE = 20_000
"""Objects that the ranges of faiss' own codes are found from."""

SEED = 20100


def build(codes: NDArray[np.int8], going_on: Any = lambda: True) -> NDArray[np.int32] | None:
    """Links int32 [N, 2 DEGREE] of rows int8 [N, p] by their directions, -1 behind the last one of each,
    completed (`learners.graph_links`); None where `going_on` says that nobody waits any more.

    Objects come in a random order: in the order of a catalog, where neighbours stand together, the graph
    would be worse. faiss holds them as 8-bit codes of its own while it builds.
    """
    import faiss as library

    faiss: Any = library
    faiss.omp_set_num_threads(1)
    count, width = codes.shape
    rng = np.random.default_rng(SEED)
    order = rng.permutation(count)
    index = faiss.IndexHNSWSQ(width, faiss.ScalarQuantizer.QT_8bit, DEGREE, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BREADTH
    index.train(_directions(codes, order[:SAMPLE]))
    for first in range(0, count, CHUNK):
        if not going_on():
            return None
        index.add(_directions(codes, order[first : first + CHUNK]))
    hnsw = index.hnsw
    near, offsets = faiss.vector_to_array(hnsw.neighbors), faiss.vector_to_array(hnsw.offsets)
    links = np.full((count, 2 * DEGREE), -1, np.int32)
    for first in range(0, count, 1 << 16):
        starts = offsets[first : min(first + (1 << 16), count)].astype(np.int64)
        mine = near[starts[:, None] + np.arange(2 * DEGREE)]
        to = order[np.maximum(mine, 0)]
        links[order[first : first + len(starts)]] = _packed(np.where(mine >= 0, to, -1))
    del index, hnsw, near
    return links if complete(links, codes, going_on) else None


def _packed(links: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same rows with -1 behind what is there."""
    return np.take_along_axis(links, np.argsort(links < 0, axis=1, kind="stable"), axis=1)


def _directions(codes: NDArray[np.int8], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    values = codes[rows].astype(np.float32)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    np.divide(values, norms, out=values, where=norms > 0)
    return values


def main(folder: Path) -> int:
    """Write links.npy beside codes.npy. Exit codes: 0 written, 1 nobody waits."""
    os.nice(19)
    parent = os.getppid()
    codes = np.load(folder / "codes.npy", mmap_mode="r", allow_pickle=False)
    links = build(codes, lambda: os.getppid() == parent)
    if links is None:
        return 1
    unfinished = folder / "links.part.npy"
    np.save(unfinished, links)
    unfinished.rename(folder / "links.npy")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
