"""Topics of an embedded log: creating, finding, removing."""

from __future__ import annotations

import sqlite3
import uuid
from bisect import bisect_left
from dataclasses import dataclass

from streams.errors import LogMismatch, TopicMissing
from streams.log.database import create_log, errors_of, open_log, transaction
from streams.source import TopicIdentity


@dataclass(frozen=True)
class TopicRow:
    """A topic as found in the file: its never reused number and its identity."""

    number: int
    identity: TopicIdentity

    def table(self, partition: int) -> str:
        """The name of the table that holds a partition's records."""
        return f"records_{self.number}_{partition}"


def ensure_topic(path: str, topic: str, partitions: int) -> TopicIdentity:
    """Create the log file and the topic unless they exist; another partition count is LogMismatch."""
    create_log(path)
    connection = open_log(path, durable=True)
    try:
        with errors_of(path), transaction(connection, write=True):
            found = _look_up(connection, topic)
            if found is None:
                found = _create(connection, topic, partitions)
    finally:
        connection.close()
    if found.identity.partitions != partitions:
        raise LogMismatch(
            f"topic {topic!r} in {path} has {found.identity.partitions} partitions, not {partitions}; "
            "a topic's partitions are fixed: change the setting, or use another topic"
        )
    return found.identity


def find_topic(connection: sqlite3.Connection, path: str, topic: str) -> TopicRow:
    """The topic of that name; raises TopicMissing naming those there are."""
    with errors_of(path):
        found = _look_up(connection, topic)
        if found is not None:
            return found
        names = [name for (name,) in connection.execute("SELECT name FROM topics ORDER BY name LIMIT 10")]
    raise TopicMissing(f"{path} has no topic {topic!r}; it has {', '.join(names) or 'none yet'}")


def delete_topic(path: str, topic: str) -> None:
    """Remove a topic and all its records; a later topic of the same name has another identity."""
    connection = open_log(path, durable=True)
    try:
        row = find_topic(connection, path, topic)
        with errors_of(path), transaction(connection, write=True):
            for partition in range(row.identity.partitions):
                connection.execute(f"DROP TABLE {row.table(partition)}")
            connection.execute("DELETE FROM partitions WHERE topic = ?", (row.number,))
            connection.execute("DELETE FROM topics WHERE number = ?", (row.number,))
    finally:
        connection.close()


def first_at_least(
    connection: sqlite3.Connection, table: str, column: str, least: int, offsets: range
) -> int:
    """The first of these offsets whose `column`, which never falls, is >= `least`; else their end."""

    def value(offset: int) -> int:  # of the next record, where compaction has removed this one
        statement = f"SELECT {column} FROM {table} WHERE offset >= ? ORDER BY offset LIMIT 1"  # noqa: S608 (our names)
        return int(connection.execute(statement, (offset,)).fetchone()[0])

    return offsets.start + bisect_left(offsets, least, key=value)


def _look_up(connection: sqlite3.Connection, topic: str) -> TopicRow | None:
    row = connection.execute(
        "SELECT number, topic_id, partitions, (SELECT value FROM meta WHERE name = 'log_id')"
        " FROM topics WHERE name = ?",
        (topic,),
    ).fetchone()
    if row is None:
        return None
    number, topic_id, partitions, log_id = row
    return TopicRow(number, TopicIdentity(log_id, topic, topic_id, partitions))


def _create(connection: sqlite3.Connection, topic: str, partitions: int) -> TopicRow:
    connection.execute(
        "INSERT INTO topics (name, topic_id, partitions) VALUES (?, ?, ?)",
        (topic, str(uuid.uuid4()), partitions),
    )
    row = _look_up(connection, topic)
    assert row is not None
    for partition in range(partitions):
        # `high` is the newest timestamp up to and including the record, `before` the bytes of all
        # records before it: both only grow, so times and sizes are found by bisection, without an index.
        connection.execute(
            f"CREATE TABLE {row.table(partition)} (offset INTEGER PRIMARY KEY, ts INTEGER NOT NULL,"
            " high INTEGER NOT NULL, before INTEGER NOT NULL, key BLOB, headers BLOB, value BLOB)"
        )
        connection.execute("INSERT INTO partitions VALUES (?, ?, 0, 0, 0, 0, NULL)", (row.number, partition))
    return row
