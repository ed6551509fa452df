"""From item records and catalog files to rows for the index; refused records become dead letters. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemon.catalogs import as_blocks, map_catalog
from daemon.serve.items.display import DisplayFile
from daemon.serve.items.snapshot import Changes, PartRows
from learners.block import Block, DenseBlock, SparseBlock
from learners.maps import FittedSpaceMap
from streams import poison
from streams.catalog import Catalog, RawParts, Resolver, build_role
from streams.codec import check_vector, vector_of
from streams.event import Column, DenseColumn, SpaceSpec, SparseVector
from streams.ids import Packed
from streams.items import RawItem, pack_display, read_item, unpack_display
from streams.limits import MAX_MAGNITUDE, MAX_VALUE_BYTES
from streams.poison import DeadLetter, Poison
from streams.source import RecordBatch


@dataclass(frozen=True, slots=True)
class DecodedItems:
    """changes: None where nothing is left of the batch. puts, removes: good records. refused: the others."""

    changes: Changes | None
    puts: int
    removes: int
    refused: list[DeadLetter]


@dataclass(frozen=True, slots=True)
class _Put:
    place: int
    item: RawItem
    parts: RawParts


class ItemDecoder:
    """Decodes batches of one topic into one space under one frozen map; keeps nothing from batch to batch."""

    def __init__(
        self,
        space: SpaceSpec,
        fitted: FittedSpaceMap,
        topic: str,
        shown: DisplayFile,
        max_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        self._space, self._fitted, self._topic, self._shown = space, fitted, topic, shown
        self._max_bytes = max_bytes
        self._resolver = Resolver(space, None)

    def decode(self, batch: RecordBatch) -> DecodedItems:
        """Every record of the batch, in order: of several for one id, the last good one counts."""
        refused: list[DeadLetter] = []
        puts: list[_Put] = []
        last: dict[str, int] = {}  # id -> place of its last good record
        removed: set[int] = set()
        for place in range(len(batch)):
            try:
                item, parts = self._read(batch, place)
            except Poison as error:
                refused.append(self._letter(batch, place, error))
                continue
            if parts is None:
                removed.add(place)
                last[item.id] = place
            else:
                puts.append(_Put(place, item, parts))
        good, vectors, bad = self._mapped(puts)
        refused += [self._letter(batch, puts[row].place, error) for row, error in bad]
        for row in good:
            put = puts[row]
            if put.place > last.get(put.item.id, -1):
                last[put.item.id] = put.place
        kept = [n for n, row in enumerate(good) if last[puts[row].item.id] == puts[row].place]
        rows = self._rows([puts[good[n]].item for n in kept], vectors, kept)
        changes = Changes(Packed.of_texts(last), rows) if last else None
        return DecodedItems(changes, len(good), len(removed), sorted(refused, key=lambda one: one.offset))

    def _read(self, batch: RecordBatch, place: int) -> tuple[RawItem, RawParts | None]:
        if batch.damaged is not None:
            raise Poison(poison.CORRUPT_BATCH, batch.damaged)
        item = read_item(batch.values[place], batch.keys[place], self._max_bytes)
        if item.vectors is None:
            return item, None
        self._resolver.check_space(item.space)
        return item, self._resolver.inline(item.vectors, "the item")

    def _mapped(self, puts: Sequence[_Put]) -> tuple[list[int], Block | None, list[tuple[int, Poison]]]:
        """(rows of `puts` whose numbers are sound, their mapped vectors, the other rows with the reason)."""
        if not puts:
            return [], None, []
        views = build_role(self._space, [-1] * len(puts), [put.parts for put in puts]).inline
        assert views is not None
        doubtful = np.logical_or.reduce([_doubtful(column) for column in views.values()])
        bad: dict[int, Poison] = {}
        for row in np.flatnonzero(doubtful).tolist():
            found = fault(puts[row].parts, self._space)
            assert found is not None, "what one pass over all found, a look at the row finds"
            bad[row] = found
        good = [row for row in range(len(puts)) if row not in bad]
        if bad:
            if not good:
                return [], None, list(bad.items())
            views = build_role(self._space, [-1] * len(good), [puts[row].parts for row in good]).inline
            assert views is not None
        mapped = self._fitted.transform(as_blocks(views))
        over = _overflowed(mapped)
        if over.any():
            error = Poison(poison.MAGNITUDE, "the space's map makes a value that is not finite of it")
            bad |= {good[n]: error for n in np.flatnonzero(over).tolist()}
            sound = np.flatnonzero(~over)
            mapped, good = mapped.take(sound), [good[n] for n in sound.tolist()]
        return good, mapped, list(bad.items())

    def _rows(self, items: Sequence[RawItem], vectors: Block | None, kept: Sequence[int]) -> PartRows | None:
        if vectors is None or not items:
            return None
        tags = []
        for item in items:
            texts = item.display.title, item.display.text, item.display.image
            entry = None if item.display.tags or any(texts) else self._shown.of(item.id)
            tags.append(item.display.tags if entry is None else entry.tags)
        if len(kept) < len(vectors):
            vectors = vectors.take(kept)
        return PartRows(
            Packed.of_texts(item.id for item in items),
            vectors,
            tags,
            Packed.of([pack_display(item.display) for item in items]),
        )

    def _letter(self, batch: RecordBatch, place: int, error: Poison) -> DeadLetter:
        where = (self._topic, batch.partition, batch.offsets[place])
        return DeadLetter(*where, error.reason, error.detail, batch.values[place])


def _doubtful(column: Column) -> NDArray[np.bool_]:
    """Per row, whether `fault` finds something: one pass over the whole column."""
    if isinstance(column, DenseColumn):
        # NaN where any value is NaN
        largest: NDArray[np.float32] = np.abs(column.values).max(axis=1, initial=0.0)
        return ~(largest <= MAX_MAGNITUDE)
    wrong = ~(np.abs(column.values) <= MAX_MAGNITUDE)
    wrong |= (column.indices < 0) | (column.indices >= column.dim)
    rising = np.ones(len(wrong), np.bool_)
    rising[1:] = column.indices[1:] > column.indices[:-1]
    starts = column.indptr[:-1]
    rising[starts[starts < len(wrong)]] = True  # a new row may start lower
    rows = np.zeros(len(column), np.bool_)
    places = np.flatnonzero(wrong | ~rising)
    rows[np.searchsorted(column.indptr, places, side="right") - 1] = True
    return rows


def fault(parts: RawParts, space: SpaceSpec) -> Poison | None:
    """What is wrong with the numbers of one object, whose vectors fit the space; None where nothing is."""
    for view, raw in zip(space.views, parts, strict=True):
        vector = vector_of(raw)
        try:
            check_vector(vector, f"view {view.name}")
        except Poison as error:
            return error
        if isinstance(vector, SparseVector) and len(vector.indices) and vector.indices[-1] >= view.dim:
            return Poison(poison.INDEX_OUT_OF_RANGE, f"view {view.name} has size {view.dim}")
    return None


def _overflowed(mapped: Block) -> NDArray[np.bool_]:
    if isinstance(mapped, DenseBlock):
        sound: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(mapped.values), axis=1)
        return ~sound
    rows = np.zeros(len(mapped), np.bool_)
    places = np.flatnonzero(~np.isfinite(mapped.values))
    rows[np.searchsorted(mapped.indptr, places, side="right") - 1] = True
    return rows


def catalog_rows(
    catalog: Catalog, fitted: FittedSpaceMap, shown: DisplayFile, part_bytes: int
) -> Iterator[PartRows]:
    """The objects of a catalog, mapped, cut into pieces of about `part_bytes` of vectors.

    Where the catalog says what people see of an object, that counts; else the display file's tags do, and
    its texts stay there.
    """
    mapped = map_catalog(catalog, fitted)
    width = 4 * fitted.dim
    if fitted.sparse:
        assert isinstance(mapped, SparseBlock)
        width = 8 + int(8 * len(mapped.values) / max(1, len(mapped)))
    step = max(1, part_bytes // width)
    for at in range(0, len(catalog), step):
        ids = catalog.ids[at : at + step]
        vectors = mapped.slice(at, at + step)
        packed = [b"" if catalog.shown is None else catalog.shown[at + n] for n in range(len(ids))]
        shown_of = [shown.of(one) for one in ids] if len(shown) else [None] * len(ids)
        found = [unpack_display(own) if own else other for own, other in zip(packed, shown_of, strict=True)]
        tags = [() if one is None else one.tags for one in found]
        yield PartRows(Packed.of_texts(ids), vectors, tags, Packed.of(packed))
