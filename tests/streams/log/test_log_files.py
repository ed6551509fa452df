"""Files that are not logs, and disks that do not do what they should: each with its own message."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest

from streams.errors import (
    LogFileError,
    LogMismatch,
    LogNotWritable,
    StreamError,
    StreamUnavailable,
    TopicMissing,
)
from streams.log import database as retention
from streams.log.database import APPLICATION_ID, errors_of
from streams.log.source import LogSink
from streams.open import ensure_topic, open_sink, open_source, retain
from streams.source import OutRecord, parse_address


@pytest.fixture
def address(tmp_path):
    return parse_address(f"log:{tmp_path}/clicks.log")


def refuse(address, message):
    for action in (open_source, open_sink, lambda a: ensure_topic(a, 1)):
        with pytest.raises(LogFileError, match=message) as error:
            action(address)
        assert address.path in str(error.value)


def test_not_an_sqlite_file(address, tmp_path):
    (tmp_path / "clicks.log").write_bytes(b"127.0.0.1 - - GET /\n" * 100)
    refuse(address, "not a database: this is not a log")
    assert (tmp_path / "clicks.log").read_bytes().startswith(b"127.0.0.1")


def test_an_empty_file_and_another_program_s_database(address, tmp_path):
    (tmp_path / "clicks.log").touch()
    refuse(address, "not a log")
    sqlite3.connect(tmp_path / "clicks.log").execute("CREATE TABLE t (a)")
    refuse(address, "not a log")


def test_a_directory_a_fifo_and_a_missing_folder(tmp_path):
    refuse(parse_address(f"log:{tmp_path}"), "is a directory")
    os.mkfifo(tmp_path / "pipe")
    refuse(parse_address(f"log:{tmp_path}/pipe"), "not a file")
    refuse(parse_address(f"log:{tmp_path}/none/clicks.log"), "folder does not exist; create")


def test_a_name_too_long_for_any_file(tmp_path):
    long = parse_address(f"log:{tmp_path / ('x' * 300)}")
    with pytest.raises(LogFileError, match="cannot be created: File name too long"):
        ensure_topic(long, 1)
    with pytest.raises(TopicMissing):
        open_source(long)


def test_a_missing_file(address):
    with pytest.raises(TopicMissing, match="there is no log at"):
        open_source(address)
    assert not os.path.exists(address.path), "opening to read creates nothing"


def test_a_newer_format_is_refused_by_number(address):
    ensure_topic(address, 1)
    connection = sqlite3.connect(address.path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    refuse(address, "log format 7, this release reads 1")


def test_a_damaged_file(address):
    ensure_topic(address, 1)
    with open(address.path, "r+b") as file:
        file.seek(16384)
        file.write(b"\xff" * 65536)
    with pytest.raises(LogFileError, match="damaged; restore"):
        open_source(address)


def test_a_full_disk_writes_nothing_and_recovers(address):
    ensure_topic(address, 1)
    sink = LogSink(address.path, address.topic)
    sink.send([OutRecord(b"before")])
    connection = sink._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")  # SQLite then behaves as on a full disk
    with pytest.raises(StreamUnavailable, match="disk is full, nothing was written") as error:
        sink.send([OutRecord(bytes(9000))] * 50)
    assert error.value.retriable
    connection.execute("PRAGMA max_page_count = 1000000")
    assert sink.send([OutRecord(b"after")]) == [(0, 1)]
    sink.close()


def test_locked_for_too_long(address):
    ensure_topic(address, 1)
    hog = sqlite3.connect(address.path, isolation_level=None)
    hog.execute("BEGIN IMMEDIATE")
    sink = LogSink(address.path, address.topic, timeout_s=0.05)
    with pytest.raises(StreamUnavailable, match="held the log for too long"):
        sink.send([OutRecord(b"x")])
    hog.execute("ROLLBACK")
    assert sink.send([OutRecord(b"x")]) == [(0, 0)]
    hog.close()
    sink.close()


def test_read_only_and_other_errors_are_told_apart(address):
    ensure_topic(address, 1)
    connection = sqlite3.connect(f"file:{address.path}?mode=ro", uri=True)
    with pytest.raises(LogNotWritable, match="make it and its folder writable"), errors_of(address.path):
        connection.execute("DELETE FROM meta")
    with pytest.raises(StreamError, match="syntax error") as plain, errors_of(address.path):
        connection.execute("SELEKT")
    assert type(plain.value) is StreamError
    connection.close()


def test_a_folder_that_cannot_be_written():
    # sysfs takes no new file from anyone, root included.
    with pytest.raises(
        LogNotWritable, match=r"/sys/kernel/clicks\.log.*cannot be created: Permission denied"
    ):
        ensure_topic(parse_address("log:/sys/kernel/clicks.log"), 1)


def test_a_log_replaced_or_removed_while_open(address, tmp_path):
    ensure_topic(address, 1)
    source, sink = open_source(address), open_sink(address)
    source.assign({0: 0})
    os.rename(address.path, tmp_path / "elsewhere.log")
    for _ in range(2):
        with pytest.raises(LogMismatch, match="removed or replaced"):
            source.poll(1, 0)
        with pytest.raises(LogMismatch, match="removed or replaced"):
            sink.send([OutRecord(b"into the void")])
        if os.path.exists(address.path + "-wal"):  # SQLite would replay the old journal into a new log
            with pytest.raises(LogFileError, match="move it along"):
                ensure_topic(address, 1)
            os.remove(address.path + "-wal")
            os.remove(address.path + "-shm")
        ensure_topic(address, 1)
    source.close()
    sink.close()


def test_a_log_is_for_its_owner_alone(address, tmp_path):
    ensure_topic(address, 1)
    sink = open_sink(address)
    sink.send([OutRecord(b"x")])
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    sink.close()


def test_identity_survives_reopening_and_differs_between_files(address, tmp_path):
    first = ensure_topic(address, 1)
    other = ensure_topic(parse_address(f"log:{tmp_path}/other.log"), 1)
    assert ensure_topic(address, 1) == first
    assert other.log_id != first.log_id
    assert other.topic_id != first.topic_id


def test_retention_goes_in_steps_and_frees_space_for_reuse(address, monkeypatch):
    monkeypatch.setattr(retention, "_ROWS_AT_ONCE", 7)
    ensure_topic(address, 1)
    sink = open_sink(address)
    sink.send([OutRecord(bytes(2000), timestamp=n) for n in range(100)])
    assert retain(address, None, 10 * 2000) == {0: 90}
    source = open_source(address)
    assert source.bounds() == {0: (90, 100)}
    (pages,) = source._connection.execute("PRAGMA page_count").fetchone()
    sink.send([OutRecord(bytes(2000))] * 80)
    assert source._connection.execute("PRAGMA page_count").fetchone() == (pages,)
    source.close()
    sink.close()


def test_every_send_is_synced(address):
    # What reaches the disk cannot be seen from here: SQLite syncs its journal at each commit only when FULL.
    ensure_topic(address, 1)
    with closing(LogSink(address.path, address.topic)) as sink:
        assert sink._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert sink._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
