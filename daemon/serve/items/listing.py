"""What the topic of items says of each object: the newest record of every id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from streams.address import Address
from streams.errors import StreamUnavailable, TopicMissing
from streams.items import RawItem, read_item
from streams.open import open_source
from streams.poison import Poison
from streams.source import RecordBatch

POLL_RECORDS = 2000
POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Entry:
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
    newest: dict[str, Entry] = field(default_factory=dict)
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
        batches = list_batches(address)
        for batch in batches:
            _take_in(batch, found, only)
    except TopicMissing:
        if address.scheme == "kafka":
            raise
        open_source(address).close()  # raises where there is no such stream at all
    found.newest = dict(sorted(found.newest.items(), key=lambda one: (one[1].time, one[1].offset)))
    return found


def list_batches(address: Address) -> Iterator[RecordBatch]:
    """Every batch of the topic of items that is there now. Raises StreamError."""
    with closing(open_source(address.items)) as source:
        bounds = source.bounds()
        source.assign({partition: start for partition, (start, _) in bounds.items()})
        while any(source.reached()[partition] < end for partition, (_, end) in bounds.items()):
            batch = source.poll(POLL_RECORDS, POLL_SECONDS)
            if batch is None:
                raise StreamUnavailable(f"{address.items}: no answer for {POLL_SECONDS:g} s; ask again")
            yield batch


def _take_in(batch: RecordBatch, found: ItemsRead, only: str | None) -> None:
    rows = zip(batch.offsets, batch.timestamps, batch.values, batch.keys, strict=True)
    for offset, time, value, key in rows:
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
        found.newest[item.id] = Entry(batch.partition, offset, time, len(value or b""), item)
