"""The SQLite file of a log and the topics in it: created whole, opened with care, errors put plainly.

Tables: `meta` names the log; `topics` gives each topic its number and identity; `partitions` keeps, per
partition, the log's start, the next offset, the newest timestamp and the bytes ever written, so that offsets
are never used again; `records_<topic number>_<partition>` holds the records, the offset being the row id. A
topic number is never used again either.

Retention removes records from the start of each partition. Compaction keeps only the last of the records with
one key; the topic's offsets then have gaps, which readers pass over. A record that a later one has superseded
stays superseded, so that nothing has to be looked at twice: each run reads the new records and deletes older
ones of the same keys.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from streams.durable import sync
from streams.errors import (
    LogFileError,
    LogMismatch,
    LogNotWritable,
    NothingWritten,
    StreamError,
    TopicMissing,
)
from streams.partitions import RetentionLimits
from streams.partitions import limits as limits_of
from streams.source import TopicIdentity

APPLICATION_ID = 0x74724C67
SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 10.0
PAGE_BYTES = 16384
"""Eight events of 1.7 KB to a page: fewer pages to look up than with SQLite's 4,096."""

_SCHEMA = """
PRAGMA page_size = {page_bytes};
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
BEGIN;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    topic_id TEXT NOT NULL, partitions INTEGER NOT NULL);
CREATE TABLE partitions (
    topic INTEGER NOT NULL, partition INTEGER NOT NULL,
    start INTEGER NOT NULL, next INTEGER NOT NULL, high INTEGER NOT NULL, total INTEGER NOT NULL,
    committed INTEGER, PRIMARY KEY (topic, partition)) WITHOUT ROWID;
PRAGMA application_id = {application_id};
PRAGMA user_version = {schema_version};
INSERT INTO meta VALUES ('log_id', '{log_id}');
COMMIT;
"""


def create_log(path: str) -> None:
    """Create an empty log at `path` unless there is one; it appears whole or not at all.

    Built under another name and linked into place, so that of two processes one wins and the other
    finds a finished log. Raises LogFileError naming a missing folder, and LogNotWritable.
    """
    _check_place(path)
    stale = os.path.exists(path + "-wal")  # looked at first: a log is there before its journal is
    if os.path.exists(path):
        return
    if stale:
        raise LogFileError(
            f"{path}-wal is left of a log that was moved or removed; move it along with the log it "
            f"belongs to, or stop whatever still uses that log and remove {path}-wal and {path}-shm"
        )
    building = f"{path}.{uuid.uuid4().hex}.new"
    try:
        os.close(os.open(building, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with errors_of(path), closing(sqlite3.connect(building, isolation_level=None)) as connection:
            connection.executescript(
                _SCHEMA.format(
                    page_bytes=PAGE_BYTES,
                    application_id=APPLICATION_ID,
                    schema_version=SCHEMA_VERSION,
                    log_id=uuid.uuid4(),
                )
            )
        try:
            os.link(building, path)
        except FileExistsError:
            return
        sync(Path(path).absolute().parent)
    except OSError as error:
        raise LogNotWritable(f"{path}: the log cannot be created: {error.strerror}") from error
    finally:
        with suppress(OSError):  # there is none, or its name is one that no file can have
            os.unlink(building)


def open_log(path: str, *, durable: bool, timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Open an existing log; `durable` makes every transaction reach the disk before it ends.

    Raises TopicMissing when there is no file, LogFileError when it is not a log this release reads.
    """
    _check_place(path)
    if not os.path.exists(path):
        raise TopicMissing(f"there is no log at {path}; feed into it, or correct the address")
    if not os.path.isfile(path):
        raise LogFileError(f"{path} is not a file; choose another path")
    uri = Path(path).absolute().as_uri() + "?mode=rw"
    with errors_of(path):
        connection = sqlite3.connect(
            uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            _check_format(connection, path)
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("PRAGMA journal_size_limit = 67108864")
        except BaseException:
            connection.close()
            raise
    return connection


_UNWRITABLE = (LogNotWritable, "; readers, too, write next to the log: make it and its folder writable")
_LOCKED = (
    NothingWritten,
    ": another process has held the log for too long, nothing was written; try again (one that is frozen "
    "holds it until it resumes or ends)",
)
_ADVICE: dict[int, tuple[type[StreamError], str]] = {
    sqlite3.SQLITE_NOTADB: (LogFileError, ": this is not a log; choose another path"),
    sqlite3.SQLITE_CORRUPT: (LogFileError, ": the log is damaged; restore it from a copy or start a new one"),
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_PERM: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_FULL: (NothingWritten, ": the disk is full, nothing was written; free some space"),
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_IOERR: (NothingWritten, ": the disk failed, nothing was written; try again"),
}
"""What each kind of SQLite error means for a log, and what to do about it."""


@contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
    """All of the block or nothing of it; a writer waits its turn at the start, not at the end."""
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def errors_of(path: str) -> Iterator[None]:
    """Turn SQLite's errors inside the block into stream errors that name the file and the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(path, error) from error


def file_identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a file, or None where none can be: tells a replaced file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_same_file(path: str, identity: tuple[int, int] | None) -> None:
    """Raise LogMismatch when the file was removed or replaced since it was opened."""
    if file_identity(path) != identity:
        raise LogMismatch(f"{path} was removed or replaced while it was open; open it again")


def _translate(path: str, error: sqlite3.Error) -> StreamError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind of error
    if code == sqlite3.SQLITE_ERROR and "no such table" in str(error):
        return LogMismatch(f"{path}: the topic was removed or re-created while it was open; open it again")
    kind, advice = _ADVICE.get(code, (StreamError, ""))
    return kind(f"{path}: {error}{advice}")


def _check_place(path: str) -> None:
    if os.path.isdir(path):
        raise LogFileError(
            f"{path} is a directory; name a file in it, such as {os.path.join(path, 'clicks.log')}"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise LogFileError(f"{path}: its folder does not exist; create {folder}")


def _check_format(connection: sqlite3.Connection, path: str) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise LogFileError(f"{path} is an SQLite file, but not a log; choose another path")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise LogFileError(
            f"{path} has log format {version}, this release reads {SCHEMA_VERSION}; "
            "use a release that reads it"
        )


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
    with closing(open_log(path, durable=True)) as log, errors_of(path), transaction(log, write=True):
        found = _look_up(log, topic) or _create(log, topic, partitions)
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


LEAST_NEW = 10_000
"""New records below which a compaction never pays."""
_COMPACTED_AT_ONCE = 1000
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
    with closing(open_log(path, durable=False)) as connection:
        row = find_topic(connection, path, topic)
        with errors_of(path):
            return {
                partition: _compact_partition(connection, row, partition, least)
                for partition in range(row.identity.partitions)
            }


def _compact_partition(connection: sqlite3.Connection, row: TopicRow, partition: int, least: int) -> int:
    found = connection.execute(
        "SELECT next FROM partitions WHERE topic = ? AND partition = ?", (row.number, partition)
    ).fetchone()
    if found is None:  # the topic was removed meanwhile
        return 0
    end, note = found[0], f"compacted {row.table(partition)}"
    noted = connection.execute("SELECT value FROM meta WHERE name = ?", (note,)).fetchone()
    compacted_to, kept = (
        map(int, noted[0].split()) if noted else (0, 0)
    )  # its end and what it kept, last time
    if not is_due(end, compacted_to, kept, least):
        return 0
    table, at, removed, kept = row.table(partition), end, 0, 0
    seen: set[bytes] = set()
    while True:  # from the newest back, so that the first record of a key is the one that stays
        rows = connection.execute(
            f"SELECT offset, key FROM {table} WHERE offset < ? ORDER BY offset DESC LIMIT ?",  # noqa: S608
            (at, _COMPACTED_AT_ONCE),
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
    with closing(open_log(path, durable=False)) as connection:
        row = find_topic(connection, path, topic)
        limits = limits_of(max_age_s, max_bytes, now_ms, before, row.identity.partitions)
        with errors_of(path):
            return {
                partition: _retain_partition(connection, row, partition, limits)
                for partition in range(row.identity.partitions)
            }


MOST_AHEAD_MS = 86_400_000
"""A record that claims to come later than this was stamped by a wrong clock; clocks differ by less."""


def _lower_times(connection: sqlite3.Connection, row: TopicRow, partition: int, now_ms: int) -> None:
    """Where a record's time lies in the future (earlier releases took any), take it for having come now.

    The newest time only grows along the log, so that one such time would end retention by age for good. The
    records themselves keep the time they have.
    """
    latest, table, where = now_ms + MOST_AHEAD_MS, row.table(partition), (row.number, partition)
    highest = "SELECT high, start, next FROM partitions WHERE topic = ? AND partition = ?"
    found = connection.execute(highest, where).fetchone()
    if found is None or found[0] <= latest:
        return
    at = first_at_least(connection, table, "high", latest + 1, range(found[1], found[2]))
    before = connection.execute(
        f"SELECT high FROM {table} WHERE offset < ? ORDER BY offset DESC LIMIT 1",  # noqa: S608
        (at,),
    ).fetchone()
    came = now_ms if before is None else max(now_ms, before[0])
    while True:  # from there on to the end, which writers move on meanwhile
        with transaction(connection, write=True):
            connection.execute(
                f"UPDATE {table} SET high = ? WHERE offset >= ? AND offset < ?",  # noqa: S608 (our table name)
                (came, at, at + _ROWS_AT_ONCE),
            )
            at += _ROWS_AT_ONCE
            _, _, end = connection.execute(highest, where).fetchone() or (0, 0, 0)
            if at >= end:
                connection.execute(
                    "UPDATE partitions SET high = ? WHERE topic = ? AND partition = ?", (came, *where)
                )
                return


def _retain_partition(
    connection: sqlite3.Connection, row: TopicRow, partition: int, limits: RetentionLimits
) -> int:
    if limits.now_ms is not None:
        _lower_times(connection, row, partition, limits.now_ms)
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
    connection: sqlite3.Connection, row: TopicRow, partition: int, limits: RetentionLimits
) -> tuple[int, int] | None:
    """The partition's start and the first offset that stays; None without the topic."""
    found = connection.execute(
        "SELECT start, next, total FROM partitions WHERE topic = ? AND partition = ?", (row.number, partition)
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
