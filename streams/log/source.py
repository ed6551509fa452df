"""Reading and writing an embedded log: short statements between polls, one durable transaction per write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import msgpack

from streams.errors import LogMismatch, OffsetExpired, PartitionMissing
from streams.limits import MAX_POLL_BYTES, MAX_RECORD_BYTES
from streams.log import database
from streams.partitions import Bounds, assigned, check_positions, place_records, record_bytes
from streams.source import UNKNOWN, HeldBack, OutRecord, Quiet, RecordBatch, TopicIdentity


class OpenLog:
    """One topic of an embedded log, open. `durable`: every transaction reaches the disk before it ends."""

    def __init__(
        self, path: str, topic: str, *, durable: bool, timeout_s: float = database.BUSY_TIMEOUT_S
    ) -> None:
        self._path = path
        self._file = database.file_identity(path)
        self._connection = database.open_log(path, durable=durable, timeout_s=timeout_s)
        try:
            self._topic = database.find_topic(self._connection, path, topic)
        except BaseException:
            self._connection.close()
            raise

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        return self._topic.identity

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def _other_topic(self) -> LogMismatch:
        return LogMismatch(
            f"{self._path}: topic {self._topic.identity.topic!r} was removed or re-created while it "
            "was open; open it again"
        )


_FIRST_SLEEP_S, _LONGEST_SLEEP_S = 0.001, 0.02
_IDLE_SLEEP_S, _LONGEST_IDLE_SLEEP_S = 0.05, 0.2
"""Between two looks once a whole poll has found nothing, and after seconds without a commit to any topic: a
process at rest has several such readers."""


class LogSource(OpenLog):
    """Reads one topic of an embedded log (see `streams.source.Source`)."""

    def __init__(self, path: str, topic: str) -> None:
        super().__init__(path, topic, durable=False)
        self._positions: dict[int, int] | None = None
        self._idle_since: int | None = None  # the data version at which all was read
        self._quiet = Quiet(_IDLE_SLEEP_S, _LONGEST_IDLE_SLEEP_S)

    def assign(self, positions: Mapping[int, int], known: Mapping[int, str] = UNKNOWN) -> None:
        """Read these partitions from these next offsets, replacing any earlier assignment.

        An offset never gets another record here, so that nothing has to be compared with `known`.
        """
        check_positions(self._topic.identity.topic, positions, self.bounds())
        self._positions = dict(positions)
        self._idle_since = None

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        """Up to `max_records` next records of one partition, or None after `timeout_s` without any."""
        positions = assigned(self._positions, max_records)
        deadline = time.monotonic() + timeout_s
        with database.errors_of(self._path):
            while True:
                # read before the records are looked for, so that no commit in between goes unseen
                version = self._data_version()
                if version != self._idle_since:
                    for partition in list(positions):
                        batch = self._read(partition, max_records)
                        if batch is not None:
                            return batch
                    # nothing to read: because it expired, or because this is no longer the log it was?
                    database.check_same_file(self._path, self._file)
                    check_positions(self._topic.identity.topic, positions, self.bounds())
                else:
                    database.check_same_file(self._path, self._file)
                if not self._wait_for_commit(version, deadline):
                    return None

    def reached(self) -> dict[int, int]:
        """Per assigned partition: the offset below which everything was handed out."""
        return dict(self._positions or {})

    def bounds(self) -> Bounds:
        """Per partition: the earliest offset still there, and the end (one past the newest)."""
        with database.errors_of(self._path):
            rows = self._connection.execute(
                "SELECT partition, start, next FROM partitions WHERE topic = ?", (self._topic.number,)
            ).fetchall()
        if not rows:
            raise self._other_topic()
        return {partition: (start, end) for partition, start, end in rows}

    def held_back(self) -> dict[int, HeldBack]:
        """Nothing ever: what was written can be read."""
        return {}

    def offsets_at(self, ts_ms: int) -> dict[int, int]:
        """Per partition: the first offset whose timestamp is >= `ts_ms`, else the end."""
        with database.errors_of(self._path), database.transaction(self._connection, write=False):
            return {
                partition: self._offset_at(partition, ts_ms, start, end)
                for partition, (start, end) in self.bounds().items()
            }

    def commit(self, positions: Mapping[int, int], note: str = "") -> None:
        """Note positions for lag dashboards; nothing ever resumes from them."""
        partitions = self._topic.identity.partitions
        for partition in positions:
            if not 0 <= partition < partitions:
                raise PartitionMissing(self._topic.identity.topic, partition, partitions)
        rows = [(position, self._topic.number, partition) for partition, position in positions.items()]
        with database.errors_of(self._path), database.transaction(self._connection, write=True):
            self._connection.executemany(
                "UPDATE partitions SET committed = ? WHERE topic = ? AND partition = ?", rows
            )
            if note:
                self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (self._noted, note))

    def committed(self) -> dict[int, int]:
        """The positions last noted by anybody, for lag dashboards."""
        with database.errors_of(self._path):
            rows = self._connection.execute(
                "SELECT partition, committed FROM partitions WHERE topic = ? AND committed IS NOT NULL",
                (self._topic.number,),
            ).fetchall()
        return dict(rows)

    def note(self) -> str:
        """The note last kept with the positions; "" for none."""
        with database.errors_of(self._path):
            row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (self._noted,)).fetchone()
        return str(row[0]) if row else ""

    @property
    def _noted(self) -> str:
        return f"noted {self._topic.number}"

    def _read(self, partition: int, max_records: int) -> RecordBatch | None:
        """The next records of a partition; it then goes to the end of the queue of partitions."""
        assert self._positions is not None
        position = self._positions[partition]
        statement = (
            f"SELECT offset, ts, value, key, headers FROM {self._topic.table(partition)}"  # noqa: S608
            " WHERE offset >= ? ORDER BY offset LIMIT ?"
        )
        with closing(self._connection.execute(statement, (position, max_records))) as cursor:
            rows: list[tuple[Any, ...]] = []
            held = 0
            for row in cursor:
                rows.append(row)
                held += len(row[2] or b"")
                if held >= MAX_POLL_BYTES:
                    break
        if not rows:
            return None
        if rows[0][0] != position and self.bounds()[partition][0] > position:
            raise OffsetExpired(partition, position, rows[0][0])  # else compaction has removed what was here
        del self._positions[partition]
        self._positions[partition] = rows[-1][0] + 1
        offsets, timestamps, values, keys, headers = map(list, zip(*rows, strict=True))
        unpacked = [() if one is None else tuple(map(tuple, msgpack.unpackb(one))) for one in headers]
        return RecordBatch(partition, offsets, timestamps, values, keys, unpacked)

    def _wait_for_commit(self, version: int, deadline: float) -> bool:
        """Sleep until somebody commits; False once the deadline has passed. Nothing is there at `version`:
        the next call, at the same one, asks for nothing else and sleeps as long as it may.
        """
        pause, longest = _FIRST_SLEEP_S, _LONGEST_SLEEP_S
        if version == self._idle_since:
            pause = longest = self._quiet.rest_s()
        else:
            self._quiet.broken()
        self._idle_since = version
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            if self._data_version() != version:
                return True
            pause = min(2 * pause, longest)
        return False

    def _data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _offset_at(self, partition: int, ts_ms: int, start: int, end: int) -> int:
        table = self._topic.table(partition)
        first = database.first_at_least(self._connection, table, "high", ts_ms, range(start, end))
        # the record that raised `high` may have expired; from here on look at the timestamps themselves
        row = self._connection.execute(
            f"SELECT offset FROM {table} WHERE offset >= ? AND ts >= ? ORDER BY offset LIMIT 1",  # noqa: S608
            (first, ts_ms),
        ).fetchone()
        return end if row is None else int(row[0])


def now_ms() -> int:
    """The clock that records arrive by, ms since the epoch."""
    return int(time.time() * 1000)


class LogSink(OpenLog):
    """Appends to one topic of an embedded log (see `streams.source.Sink`).

    A record's time is when it was written, or an earlier one that was asked for: never a later one, which
    would keep all records after it from ever growing old.
    """

    max_record_bytes = MAX_RECORD_BYTES

    def __init__(
        self, path: str, topic: str, timeout_s: float = database.BUSY_TIMEOUT_S, *, durable: bool = True
    ) -> None:
        super().__init__(path, topic, durable=durable, timeout_s=timeout_s)

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        """Write all records or none; when it returns they are on the disk, unless opened as not durable."""
        identity = self._topic.identity
        placed = place_records(identity.topic, identity.partitions, records)
        if not records:
            return []
        database.check_same_file(self._path, self._file)
        with database.errors_of(self._path), database.transaction(self._connection, write=True):
            return self._append(records, placed)

    def _append(self, records: Sequence[OutRecord], placed: list[int]) -> list[tuple[int, int]]:
        tails = self._tails()
        rows: dict[int, list[tuple[Any, ...]]] = {partition: [] for partition in placed}
        written = []
        now = now_ms()
        for record, partition in zip(records, placed, strict=True):
            offset, high, total = tails[partition]
            ts = now if record.timestamp is None else min(record.timestamp, now)
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
