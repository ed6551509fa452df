"""Making index parts, and marking their dead: pure, nothing given is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daemon.serve.items.snapshot import IndexPart
from daemon.serve.items.tags import TagColumn
from learners.block import Block, SparseBlock
from streams.ids import IdColumn, Packed


@dataclass(frozen=True, slots=True)
class Rows:
    """Objects ready for a part, one per row: different ids, mapped vectors, tags, packed display data."""

    ids: Packed
    vectors: Block
    tags: Sequence[Sequence[str]]
    texts: Packed


@dataclass(frozen=True, slots=True)
class Changes:
    """One batch of changes: `touched` ids (put or removed, each once) lose the object they had; `rows` are
    the new ones, None for removals alone.
    """

    touched: Packed
    rows: Rows | None


def make_part(serial: int, rows: Rows) -> IndexPart:
    """A part of these objects, all alive."""
    vectors = rows.vectors
    if isinstance(vectors, SparseBlock) and (vectors.indptr[0] or vectors.indptr[-1] < len(vectors.indices)):
        vectors = vectors.take(np.arange(len(vectors)))  # rows of their own, not a slice of larger arrays
    return IndexPart(serial, IdColumn(rows.ids), vectors, None, 0, TagColumn.of(rows.tags), rows.texts)


def without(part: IndexPart, ids: Packed) -> IndexPart:
    """The part with these objects dead: the same one where none of them lived there."""
    rows = part.ids.rows_of(ids)
    rows = rows[rows >= 0]
    if part.alive is not None:
        rows = rows[part.alive[rows]]
    if not len(rows):
        return part
    alive: NDArray[np.bool_] = np.ones(len(part), np.bool_) if part.alive is None else part.alive.copy()
    alive[rows] = False
    return replace(part, alive=alive, dead=part.dead + len(rows))


def living_rows(part: IndexPart) -> NDArray[np.int32]:
    """The rows of a part that are alive, ascending."""
    if part.alive is None:
        return np.arange(len(part), dtype=np.int32)
    return np.flatnonzero(part.alive).astype(np.int32)
