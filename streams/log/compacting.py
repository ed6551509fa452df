"""Compaction of a topic in an embedded log: of the records with one key only the last stays.

The topic's offsets then have gaps, which readers pass over. A record that a later one has superseded stays
superseded, so that nothing has to stand still meanwhile: rows go in short transactions.
"""

from __future__ import annotations

import sqlite3

from streams.log.database import errors_of, open_log, transaction
from streams.log.topics import TopicRow, find_topic

LEAST_NEW = 10_000
"""New records below which a compaction never pays."""
_ROWS_AT_ONCE = 1000
"""Rows looked at, and removed in one transaction: writers wait for at most that many."""


def is_due(end: int, compacted_to: int, kept: int, least: int = LEAST_NEW) -> bool:
    """Whether as many records are new as the last compaction kept (and at least `least`), so that a record is
    looked at a bounded number of times for each one written.
    """
    return end - compacted_to >= max(least, kept)


def compact(path: str, topic: str, least: int = LEAST_NEW) -> dict[int, int]:
    """Remove superseded records of every partition for which that is due; how many went, per partition.

    Needs memory for one copy of every different key of a partition. A record without a key stays.
    """
    connection = open_log(path, durable=False)
    try:
        row = find_topic(connection, path, topic)
        removed = {}
        with errors_of(path):
            for partition in range(row.identity.partitions):
                removed[partition] = _compact_partition(connection, row, partition, least)
    finally:
        connection.close()
    return removed


def _compact_partition(connection: sqlite3.Connection, row: TopicRow, partition: int, least: int) -> int:
    found = connection.execute(
        "SELECT next FROM partitions WHERE topic = ? AND partition = ?", (row.number, partition)
    ).fetchone()
    if found is None:  # the topic was removed meanwhile
        return 0
    end, note = found[0], f"compacted {row.table(partition)}"
    compacted_to, kept = _read_note(connection, note)
    if not is_due(end, compacted_to, kept, least):
        return 0
    table, at, removed, kept = row.table(partition), end, 0, 0
    seen: set[bytes] = set()
    while True:  # from the newest back, so that the first record of a key is the one that stays
        rows = connection.execute(
            f"SELECT offset, key FROM {table} WHERE offset < ? ORDER BY offset DESC LIMIT ?",  # noqa: S608
            (at, _ROWS_AT_ONCE),
        ).fetchall()
        if not rows:
            break
        at = rows[-1][0]
        superseded = []
        for offset, key in rows:
            if key in seen:
                superseded.append((offset,))
            elif key is not None:
                seen.add(key)
        if superseded:
            with transaction(connection, write=True):
                connection.executemany(f"DELETE FROM {table} WHERE offset = ?", superseded)  # noqa: S608
        removed += len(superseded)
        kept += len(rows) - len(superseded)
    with transaction(connection, write=True):
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (note, f"{end} {kept}"))
    return removed


def _read_note(connection: sqlite3.Connection, note: str) -> tuple[int, int]:
    """(end of the partition at its last compaction, records kept by it); zeros before the first."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (note,)).fetchone()
    end, kept = (0, 0) if row is None else map(int, row[0].split())
    return end, kept
