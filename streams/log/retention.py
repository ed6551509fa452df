"""Retention of an embedded log: removing records from the start of each partition."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from streams.log.database import errors_of, open_log, transaction
from streams.log.topics import TopicRow, find_topic, first_at_least
from streams.retention import Limits
from streams.retention import limits as limits_of

_ROWS_AT_ONCE = 5000
"""Rows removed in one transaction: writers wait for at most that many."""


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
    connection = open_log(path, durable=False)
    try:
        row = find_topic(connection, path, topic)
        limits = limits_of(max_age_s, max_bytes, now_ms, before, row.identity.partitions)
        removed = {}
        with errors_of(path):
            for partition in range(row.identity.partitions):
                removed[partition] = _retain_partition(connection, row, partition, limits)
    finally:
        connection.close()
    return removed


def _retain_partition(connection: sqlite3.Connection, row: TopicRow, partition: int, limits: Limits) -> int:
    removed = 0
    while True:
        with transaction(connection, write=True):
            found = _first_kept(connection, row, partition, limits)
            if found is None:  # the topic was removed meanwhile, and all its records with it
                return removed
            start, cut = found
            cut = min(cut, start + _ROWS_AT_ONCE)
            connection.execute(f"DELETE FROM {row.table(partition)} WHERE offset < ?", (cut,))  # noqa: S608 (our table name)
            connection.execute(
                "UPDATE partitions SET start = ? WHERE topic = ? AND partition = ?",
                (cut, row.number, partition),
            )
        if cut == start:
            return removed
        removed += cut - start


def _first_kept(
    connection: sqlite3.Connection, row: TopicRow, partition: int, limits: Limits
) -> tuple[int, int] | None:
    """The partition's start and the first offset that stays; None without the topic."""
    found = connection.execute(
        "SELECT start, next, total FROM partitions WHERE topic = ? AND partition = ?",
        (row.number, partition),
    ).fetchone()
    if found is None:
        return None
    start, end, total = found
    table, held = row.table(partition), range(start, end)
    cut = limits.cut(
        partition,
        held,
        lambda oldest: first_at_least(connection, table, "high", oldest, held),
        lambda share: first_at_least(connection, table, "before", total - share, held),
    )
    return start, cut
