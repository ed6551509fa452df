"""Items as commands handle them: read from files, sent to the topic, listed from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from daemon.retries import RetryingSink
from daemon.serve.items.decoding import fault
from daemon.serve.items.display import FIELDS, display_of
from streams.catalog import Resolver, load_catalog
from streams.codec import raw_vector
from streams.errors import StreamError, TopicMissing
from streams.event import (
    UNNAMED_VIEW,
    Column,
    DenseColumn,
    Float32Array,
    ObjectRef,
    SpaceSpec,
    SparseVector,
    Vector,
)
from streams.items import ItemPut, ItemRemove, RawItem, item_record, read_item
from streams.objects.json_vectors import FIELDS as FEATURES
from streams.objects.json_vectors import read_features, read_fields
from streams.open import compact, open_sink, open_source, prepare_topic
from streams.poison import Poison
from streams.source import Address, OutRecord, RecordBatch, whole_topic

KNOWN = (*FEATURES, *FIELDS)

Read = Callable[[int], None]
"""Called with how many bytes of the file have been read."""


def records_to_put(path: Path, space: SpaceSpec, read: Read) -> Iterator[OutRecord]:
    """A record for every object of a `.jsonl` file (one object per line) or a `.safetensors` catalog.

    Every object is checked as every reader of the topic will check it. Raises UserError naming file and line,
    after what came before it was handed out; CatalogError.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file", "correct the path", EX_DATAERR)
    if path.suffix == ".jsonl":
        return _lines(path, space, read)
    if path.suffix == ".safetensors":
        return _catalog(path, space)
    raise UserError(f"{path}: items come from .jsonl or .safetensors", "rename or convert the file", EX_USAGE)


def removals(ids: list[str]) -> list[OutRecord]:
    """A record for every id; raises UserError for one that no item can have."""
    try:
        return [item_record(ItemRemove(one)) for one in ids]
    except Poison as error:
        raise UserError(f"not an id: {error.detail}", "an id has 1 to 512 bytes of UTF-8", EX_USAGE) from None


def _lines(path: Path, space: SpaceSpec, read: Read) -> Iterator[OutRecord]:
    resolver = Resolver(space, None)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                read(len(line))
                if line.strip():
                    try:
                        yield _record(_read_line(line), resolver)
                    except (ValueError, Poison) as error:
                        detail = error.detail if isinstance(error, Poison) else str(error)
                        message = f"{path}, line {number}: {detail}"
                        raise UserError(message, "correct the line, or leave it out", EX_DATAERR) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", "correct the path", EX_DATAERR) from None


def _read_line(line: bytes) -> ItemPut:
    fields = read_fields(line, KNOWN)
    views = read_features(fields)
    if "x" in fields:
        return ItemPut(ObjectRef(fields["id"], x=views[UNNAMED_VIEW]), display_of(fields))
    return ItemPut(ObjectRef(fields["id"], views=views), display_of(fields))


def _catalog(path: Path, space: SpaceSpec) -> Iterator[OutRecord]:
    catalog, resolver = load_catalog(path, space), Resolver(space, None)
    for row, object_id in enumerate(catalog.ids):
        views = {name: _row(column, row) for name, column in catalog.views.items()}
        try:
            yield _record(ItemPut(ObjectRef(object_id, views=views)), resolver)
        except Poison as error:
            message = f"{path}, object {row} ({object_id[:40]!a}): {error.detail}"
            raise UserError(message, "leave it out", EX_DATAERR) from None


def _row(column: Column, row: int) -> Vector:
    if isinstance(column, DenseColumn):
        values: Float32Array = column.values[row]
        return values
    part = slice(int(column.indptr[row]), int(column.indptr[row + 1]))
    return SparseVector(column.indices[part], column.values[part])


def _record(item: ItemPut, resolver: Resolver) -> OutRecord:
    record = item_record(item)
    features = {name: raw_vector(vector) for name, vector in (item.item.features() or {}).items()}
    problem = fault(resolver.inline(features, "the item"), resolver.space)
    if problem is not None:
        raise problem
    return record


BATCH_RECORDS = 500
BATCH_BYTES = 4 << 20


def send_items(address: Address, records: Iterable[OutRecord], tell: Callable[[str], None]) -> int:
    """Write the records to the topic of items of a stream; how many.

    An embedded log gets the topic when it has none. Raises StreamError. A UserError of the records, and an
    interruption, pass on after what came before was written; then they name how many that was.
    """
    if address.scheme == "memory":
        message = f"{address} lives inside one process: nobody else would see the items"
        raise UserError(message, "give a log: or kafka:// address", EX_USAGE)
    topic, sent = address.items, 0
    prepare_topic(topic, 1, "write")
    with closing(RetryingSink(open_sink(topic), time.sleep, time.monotonic, tell)) as sink:
        batch: list[OutRecord] = []
        held = 0
        try:
            for record in records:
                batch.append(record)
                held += len(record.value or b"")
                if len(batch) == BATCH_RECORDS or held >= BATCH_BYTES:
                    sink.send(batch)
                    sent, batch, held = sent + len(batch), [], 0
        except UserError as error:
            sink.send(batch)
            message = f"{error.message} ({_written(sent + len(batch))})"
            raise UserError(message, error.remedy, error.code) from None
        except (StreamError, KeyboardInterrupt):
            tell(_written(sent))
            raise
        sink.send(batch)
    compact(topic)
    return sent + len(batch)


def _written(count: int) -> str:
    if not count:
        return "nothing was written"
    return f"{count:,} items were written before; writing them again changes nothing"


@dataclass(frozen=True, slots=True)
class ListedItem:
    """The newest good record of an id: where, when (ms), its bytes, and what it says without its numbers."""

    partition: int
    offset: int
    time: int
    size: int
    item: RawItem


@dataclass(slots=True)
class ItemsRead:
    """A whole topic, read once: the newest record by id, oldest first; records that are none, by reason."""

    records: int = 0
    newest: dict[str, ListedItem] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    @property
    def there(self) -> int:
        """Ids whose newest record puts them."""
        return sum(entry.item.op == "put" for entry in self.newest.values())


def read_items(address: Address, only: str | None = None) -> ItemsRead:
    """Read the topic of items of a stream to its end; `only` keeps the records of one id.

    An embedded log without the topic has no items. Vectors are kept for `only` alone. Raises StreamError.
    """
    found = ItemsRead()
    try:
        with closing(open_source(address.items)) as source:
            for batch in whole_topic(source, source.bounds(), address.items):
                _take_in(batch, found, only)
    except TopicMissing:
        if address.scheme == "kafka":
            raise
        open_source(address).close()  # raises where there is no such stream at all
    found.newest = dict(sorted(found.newest.items(), key=lambda one: (one[1].time, one[1].offset)))
    return found


def _take_in(batch: RecordBatch, found: ItemsRead, only: str | None) -> None:
    rows = zip(batch.offsets, batch.timestamps, batch.values, batch.keys, strict=True)
    for offset, timestamp, value, key in rows:
        found.records += 1
        if only is not None and key != only.encode("utf-8", "surrogatepass"):
            continue
        try:
            item = read_item(value, key)
        except Poison as error:
            found.refused[error.reason] = found.refused.get(error.reason, 0) + 1
            continue
        if only is None:
            item = RawItem(item.op, item.id, None, item.display, item.space)
        found.newest[item.id] = ListedItem(batch.partition, offset, timestamp, len(value or b""), item)
