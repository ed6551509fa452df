"""Spaces, rows and records that the tests of the serving catalog are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from daemon.serve.items.snapshot import Changes, IndexSnapshot, PartRows
from learners.block import Block, DenseBlock, SparseBlock
from learners.maps import FittedSpaceMap, SpaceMap, ViewConfig
from streams.event import ObjectRef, SpaceSpec, SparseVector, ViewSpec
from streams.ids import Packed
from streams.items import Display, ItemPut, ItemRemove, item_record, pack_display
from streams.source import OutRecord

DENSE = SpaceSpec("shop", (ViewSpec("x", "dense", 4),))
SPARSE = SpaceSpec("shop", (ViewSpec("x", "sparse", 20),))
MIXED = SpaceSpec("shop", (ViewSpec("image", "dense", 3), ViewSpec("words", "sparse", 10)))


def identity(space: SpaceSpec, unit: bool = False) -> FittedSpaceMap:
    """A map that joins the views as they are."""
    sample = {
        view.name: DenseBlock(np.eye(view.dim, dtype=np.float32))
        if view.kind == "dense"
        else SparseBlock(np.array([0, 1]), np.array([0]), np.array([1.0], np.float32), view.dim)
        for view in space.views
    }
    return SpaceMap({view.name: ViewConfig("identity") for view in space.views}, unit).fit(sample)


def dense(number: float) -> np.ndarray:
    """A vector of DENSE that tells its number."""
    return np.array([number, 1, 2, 3], np.float32)


def sparse(number: int) -> SparseVector:
    """A vector of SPARSE that tells its number; 0 is the zero vector."""
    return SparseVector(np.arange(number % 5, dtype=np.int32), np.full(number % 5, number, np.float32))


def block_of(vectors: Sequence[np.ndarray | SparseVector]) -> Block:
    """These vectors as rows; sparse ones of SPARSE."""
    if not isinstance(vectors[0], SparseVector):
        return DenseBlock(np.stack(vectors))
    indptr = np.cumsum([0, *(len(one.indices) for one in vectors)])
    return SparseBlock(
        indptr,
        np.concatenate([one.indices for one in vectors]).astype(np.int32),
        np.concatenate([one.values for one in vectors]).astype(np.float32),
        20,
    )


def changes(
    puts: Mapping[str, tuple[np.ndarray | SparseVector, Display]], removes: Sequence[str] = ()
) -> Changes:
    """These objects put, those removed."""
    touched = Packed.of_texts([*puts, *(one for one in removes if one not in puts)])
    if not puts:
        return Changes(touched, None)
    vectors = block_of([vector for vector, _ in puts.values()])
    texts = Packed.of([pack_display(display) for _, display in puts.values()])
    return Changes(
        touched, PartRows(Packed.of_texts(puts), vectors, [one.tags for _, one in puts.values()], texts)
    )


def put(object_id: str, vector: object, space: str | None = None, **display: object) -> OutRecord:
    """The record that puts an object with the view `x`."""
    return item_record(ItemPut(ObjectRef(object_id, x=vector), Display(**display), space))  # type: ignore[arg-type]


def remove(object_id: str) -> OutRecord:
    """The record that removes an object."""
    return item_record(ItemRemove(object_id))


def row_of(block: Block, row: int) -> tuple[float, ...]:
    """A row as numbers that can be compared: dense ones, or pairs of index and value."""
    if isinstance(block, DenseBlock):
        return tuple(block.values[row].tolist())
    part = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
    return (*block.indices[part].tolist(), *block.values[part].tolist())


def contents(snapshot: IndexSnapshot) -> dict[str, tuple[float, ...]]:
    """Every living object of a snapshot with its vector; fails when one lives twice."""
    found: dict[str, tuple[float, ...]] = {}
    for part in snapshot.parts:
        assert part.dead == (0 if part.alive is None else int((~part.alive).sum()))
        assert len(part.vectors) == len(part.ids) == len(part.texts) == len(part.tags)
        for row in range(len(part)):
            if part.alive is None or part.alive[row]:
                assert part.ids[row] not in found
                found[part.ids[row]] = row_of(part.vectors, row)
    return found
