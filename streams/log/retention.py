"""Retention of an embedded log: removing records from the start of each partition."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass

from streams.log.database import errors_of, open_log, transaction
from streams.log.topics import TopicRow, find_topic, first_at_least

_ROWS_AT_ONCE = 5000
"""Rows removed in one transaction: writers wait for at most that many."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """What may go from one partition: too old (ms), too much (bytes), and only below an offset."""

    oldest: int | None
    share: int | None
    before: int | None


def retain(
    path: str,
    topic: str,
    max_age_s: float | None,
    max_bytes: int | None,
    now_ms: int | None,
    *,
    before: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Remove records that are too old or too many (see `streams.open.retain`); how many, per partition.

    The space is used again by later records; the file itself does not shrink.
    """
    now = int(time.time() * 1000) if now_ms is None else now_ms
    oldest = None if max_age_s is None else now - int(max_age_s * 1000)
    connection = open_log(path, durable=False)
    try:
        row = find_topic(connection, path, topic)
        share = None if max_bytes is None else max_bytes // row.identity.partitions
        removed = {}
        with errors_of(path):
            for partition in range(row.identity.partitions):
                below = None if before is None else before.get(partition, 0)
                limits = _Limits(oldest, share, below)
                removed[partition] = _retain_partition(connection, row, partition, limits)
    finally:
        connection.close()
    return removed


def _retain_partition(connection: sqlite3.Connection, row: TopicRow, partition: int, limits: _Limits) -> int:
    removed = 0
    while True:
        with transaction(connection, write=True):
            found = connection.execute(
                "SELECT start, next, total FROM partitions WHERE topic = ? AND partition = ?",
                (row.number, partition),
            ).fetchone()
            if found is None:  # the topic was removed meanwhile, and all its records with it
                return removed
            start, end, total = found
            table, cut = row.table(partition), start
            held = range(start, end)
            if limits.oldest is not None:
                cut = max(cut, first_at_least(connection, table, "high", limits.oldest, held))
            if limits.share is not None:
                cut = max(cut, first_at_least(connection, table, "before", total - limits.share, held))
            if limits.before is not None:
                cut = max(start, min(cut, limits.before))
            cut = min(cut, start + _ROWS_AT_ONCE)
            connection.execute(f"DELETE FROM {table} WHERE offset < ?", (cut,))  # noqa: S608 (our table name)
            connection.execute(
                "UPDATE partitions SET start = ? WHERE topic = ? AND partition = ?",
                (cut, row.number, partition),
            )
        if cut == start:
            return removed
        removed += cut - start
