"""Writing to an embedded log: one durable transaction per call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgpack

from streams.log.database import BUSY_TIMEOUT_S, errors_of, transaction
from streams.log.opened import Opened
from streams.placing import place_records, record_bytes
from streams.source import MAX_RECORD_BYTES, OutRecord


class LogSink(Opened):
    """Appends to one topic of an embedded log (see `streams.source.Sink`)."""

    max_record_bytes = MAX_RECORD_BYTES

    def __init__(
        self, path: str, topic: str, timeout_s: float = BUSY_TIMEOUT_S, *, durable: bool = True
    ) -> None:
        super().__init__(path, topic, durable=durable, timeout_s=timeout_s)

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        """Write all records or none; when it returns they are on the disk, unless opened as not durable."""
        identity = self._topic.identity
        placed = place_records(identity.topic, identity.partitions, records)
        if not records:
            return []
        self._check_file()
        with errors_of(self._path), transaction(self._connection, write=True):
            return self._append(records, placed)

    def _append(self, records: Sequence[OutRecord], placed: list[int]) -> list[tuple[int, int]]:
        tails = self._tails()
        rows: dict[int, list[tuple[Any, ...]]] = {partition: [] for partition in placed}
        written = []
        now = int(time.time() * 1000)
        for record, partition in zip(records, placed, strict=True):
            offset, high, total = tails[partition]
            ts = now if record.timestamp is None else record.timestamp
            high = max(high, ts)
            headers = msgpack.packb(record.headers) if record.headers else None
            rows[partition].append((offset, ts, high, total, record.key, headers, record.value))
            tails[partition] = offset + 1, high, total + record_bytes(record)
            written.append((partition, offset))
        for partition, batch in rows.items():
            statement = f"INSERT INTO {self._topic.table(partition)} VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
            self._connection.executemany(statement, batch)
            self._connection.execute(
                "UPDATE partitions SET next = ?, high = ?, total = ? WHERE topic = ? AND partition = ?",
                (*tails[partition], self._topic.number, partition),
            )
        return written

    def _tails(self) -> dict[int, tuple[int, int, int]]:
        """Per partition: next offset, newest timestamp, bytes ever written."""
        rows = self._connection.execute(
            "SELECT partition, next, high, total FROM partitions WHERE topic = ?", (self._topic.number,)
        ).fetchall()
        if not rows:
            raise self._other_topic()
        return {partition: (offset, high, total) for partition, offset, high, total in rows}
