"""The SQLite file of a log: created whole, opened with care, its errors put plainly.

Tables: `meta` names the log; `topics` gives each topic its number and identity; `partitions` keeps,
per partition, the log's start, the next offset, the newest timestamp and the bytes ever written, so
that offsets are never used again; `records_<topic number>_<partition>` holds the records, the offset
being the row id. A topic number is never used again either.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streams.errors import (
    LogFileError,
    LogMismatch,
    LogNotWritable,
    StreamError,
    StreamUnavailable,
    TopicMissing,
)

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
        with errors_of(path):
            connection = sqlite3.connect(building, isolation_level=None)
            try:
                connection.executescript(_schema())
            finally:
                connection.close()
        try:
            os.link(building, path)
        except FileExistsError:
            return
        _sync_folder(Path(path).absolute().parent)
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


_UNWRITABLE = (LogNotWritable, "; readers, too, write beside the log: make it and its folder writable")
_LOCKED = (
    StreamUnavailable,
    ": another process has held the log for too long, nothing was written; try again (one that is frozen "
    "holds it until it goes on or ends)",
)
_ADVICE: dict[int, tuple[type[StreamError], str]] = {
    sqlite3.SQLITE_NOTADB: (LogFileError, ": this is not a log; choose another path"),
    sqlite3.SQLITE_CORRUPT: (LogFileError, ": the log is damaged; restore it from a copy or start a new one"),
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_PERM: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_FULL: (StreamUnavailable, ": the disk is full, nothing was written; free some space"),
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_IOERR: (StreamUnavailable, ": the disk failed, nothing was written; try again"),
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
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise LogFileError(
            f"{path}: its folder does not exist; create {os.path.dirname(os.path.abspath(path))}"
        )


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


def _schema() -> str:
    return _SCHEMA.format(
        page_bytes=PAGE_BYTES,
        application_id=APPLICATION_ID,
        schema_version=SCHEMA_VERSION,
        log_id=uuid.uuid4(),
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
