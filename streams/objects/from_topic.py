"""Objects from a topic of JSON values that are keyed by their ids, of Kafka or of an embedded log.

Of the records of one key the last one counts, and one without a value removes the object, as compaction has
it: what a topic says does not depend on whether a broker has compacted it by now. The topic is read from its
beginning to where it ended when it was opened; values wait in a file until the last one of each key is known.
Objects come in the order of their keys.

A value is the object, or a change as Debezium tells it, `{"op", "before", "after"}`, with the schema around
it or without.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from streams.catalog_cache import ReadingProgress
from streams.event import SpaceSpec
from streams.objects.columns import ObjectColumns
from streams.objects.from_lines import DocumentRead, document_reading, object_rows
from streams.objects.json_vectors import read_json
from streams.objects.rows import CatalogError, ObjectReader, ObjectRows, Tell
from streams.open import open_source
from streams.partitions import Bounds, behind_transactions
from streams.source import NO_TOPIC_IDS, Address, Source, whole_topic


@dataclass(frozen=True, slots=True, repr=False)
class TopicPlace:
    """A topic of objects."""

    address: Address

    def __str__(self) -> str:
        return str(self.address)

    def __repr__(self) -> str:
        return f"topic {self.address.topic}"

    @contextmanager
    def opened(
        self, columns: ObjectColumns, space: SpaceSpec | None, folder: Path | None, tell: Tell
    ) -> Iterator[tuple[str, ObjectReader]]:
        """As `LivePlace.opened`. The state is the topic's id, and where each partition begins and ends."""
        with closing(open_source(self.address)) as source:
            identity, bounds = source.identity(), source.bounds()
            described = [identity, sorted(bounds.items())]
            if identity.topic_id in NO_TOPIC_IDS:  # a topic made again under its name would look the same
                described.append(uuid4())
            state = sha256(repr(described).encode()).hexdigest()
            try:
                read = document_reading(columns, space)
            except ValueError as error:
                raise CatalogError(f"{self}: {error}") from None
            name = columns.id or "id"
            yield state, _TopicReader(self.address, source, bounds, name, read, folder=folder, tell=tell)


@dataclass(frozen=True, slots=True)
class _LastRecord:
    """The last record of a key: where it is in the topic, its time (ms), and where its value waits; a size of
    -1 for one without."""

    partition: int
    offset: int
    time: int
    at: int
    size: int


class _TopicReader:
    """The objects of a topic within its bounds. id_name: of the field of the id."""

    def __init__(
        self,
        address: Address,
        source: Source,
        bounds: Bounds,
        id_name: str,
        read: Callable[[Any], DocumentRead],
        *,
        folder: Path | None,
        tell: Tell,
    ) -> None:
        self._address, self._source, self._bounds = address, source, bounds
        self._id, self._read, self._folder, self._tell = id_name, read, folder, tell
        self.space = None

    def rows(self) -> int | None:
        """Unknown: only the last record of each key is an object."""
        return None

    def batches(self) -> Iterator[ObjectRows]:
        """The objects in the order of their keys. Raises CatalogError naming partition and offset."""
        try:
            with tempfile.TemporaryFile(dir=self._folder) as waiting:
                newest = self._newest(waiting)
                waiting.flush()
                yield from object_rows(self._documents(newest, waiting.fileno()), self._read, self._place)
        except OSError as error:
            where = self._folder or tempfile.gettempdir()
            raise CatalogError(
                f"{self._address}: its values wait in {where}: {error.strerror or error}; free some space"
            ) from None

    def _newest(self, waiting: IO[bytes]) -> dict[bytes, _LastRecord]:
        progress = ReadingProgress(
            self._tell, sum(end - first for first, end in self._bounds.values()), "records"
        )
        newest: dict[bytes, _LastRecord] = {}
        count = at = 0
        for line in behind_transactions(self._address.topic, self._source.held_back()):
            self._tell(line)
        for batch in whole_topic(self._source, self._bounds, self._address):
            where, (_, end) = batch.partition, self._bounds[batch.partition]
            if batch.damaged:
                raise CatalogError(f"{self._address}: {batch.damaged}; it may hold objects: write them again")
            columns = batch.offsets, batch.timestamps, batch.keys, batch.values
            for offset, time, key, value in zip(*columns, strict=True):
                if offset >= end:
                    continue
                if key is None:
                    place = self._place((where, offset))
                    raise CatalogError(f"{place}: has no key; the key of a record is the id of its object")
                before = newest.get(key)
                if before is not None and before.partition != where and before.time > time:
                    continue  # partitions were added since, and the key is in two of them
                size = -1 if value is None else waiting.write(value)
                newest[key] = _LastRecord(where, offset, time, at, size)
                at += max(0, size)
            progress.have(count := count + len(batch))
        return newest

    def _documents(
        self, newest: dict[bytes, _LastRecord], waiting: int
    ) -> Iterator[tuple[tuple[int, int], Any]]:
        for key in sorted(newest):
            one = newest[key]
            if one.size < 0:
                continue
            place = one.partition, one.offset
            try:
                document = current(read_json(os.pread(waiting, one.size, one.at)))
                if isinstance(document, dict) and self._id not in document and "." not in self._id:
                    document = {self._id: id_of(key), **document}
            except ValueError as error:
                raise CatalogError(f"{self._place(place)}: {error}") from None
            if document is not None:
                yield place, document

    def _place(self, at: tuple[int, int]) -> str:
        return f"{self._address}, partition {at[0]}, offset {at[1]}"


_UPSERTS = ("c", "u", "r")


def current(document: Any) -> Any:
    """The object that a value tells of, None where it tells that it is gone. Raises ValueError for a change
    of a kind that is not known."""
    if isinstance(document, dict) and "payload" in document and ("schema" in document or len(document) == 1):
        document = document["payload"]
    if not isinstance(document, dict) or "op" not in document or not {"before", "after"} & document.keys():
        return document
    if document["op"] == "d":
        return None
    if document["op"] not in _UPSERTS or not isinstance(document.get("after"), dict):
        raise ValueError(f"op {str(document['op'])[:20]!a} with what is after it: known are c, u, r and d")
    return document["after"]


def id_of(key: bytes) -> str:
    """The id that a record's key is: a text, or JSON of a text, or of an object with one field. Raises
    ValueError."""
    text = key.decode(errors="surrogateescape")
    if text[:1] not in ('"', "{"):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(found, dict) and "payload" in found:
        found = found["payload"]
    if isinstance(found, dict) and len(found) == 1:
        (found,) = found.values()
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise ValueError("its key is no single id, and its value has none; name it with catalog.columns.id")
    return str(found)
