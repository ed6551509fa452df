"""Writing to an embedded log: one durable transaction per call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgpack

from streams.errors import LogMismatch
from streams.log.database import (
    BUSY_TIMEOUT_S,
    check_same_file,
    errors_of,
    file_identity,
    open_log,
    transaction,
)
from streams.log.topics import find_topic
from streams.placing import place_records, record_bytes
from streams.source import OutRecord, TopicIdentity


class LogSink:
    """Appends to one topic of an embedded log (see `streams.source.Sink`)."""

    def __init__(self, path: str, topic: str, timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._file = file_identity(path)
        self._connection = open_log(path, durable=True, timeout_s=timeout_s)
        try:
            self._topic = find_topic(self._connection, path, topic)
        except BaseException:
            self._connection.close()
            raise

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        return self._topic.identity

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        """Write all records or none; when it returns they are on the disk."""
        identity = self._topic.identity
        placed = place_records(identity.topic, identity.partitions, records)
        if not records:
            return []
        check_same_file(self._path, self._file)
        with errors_of(self._path), transaction(self._connection, write=True):
            return self._append(records, placed)

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

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
            raise LogMismatch(
                f"{self._path}: topic {self._topic.identity.topic!r} was removed or re-created while it "
                "was open; open it again"
            )
        return {partition: (offset, high, total) for partition, offset, high, total in rows}
