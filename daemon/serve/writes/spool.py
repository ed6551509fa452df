"""Raw records of impressions and clicks, and where they are kept until `feed` reads them: files of JSON lines
in a folder, or a topic. The mapping `http` of `feed` reads them.

A folder is what a single machine needs: any tool reads it, `feed` and `feed --follow` among them. Every
process writes files of its own, so nothing is shared, and nobody appends to a line that a crash cut off.
"""

from __future__ import annotations

import fcntl
import math
import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic_core import to_json

from streams.durable import is_locked, sync, write_whole
from streams.open import open_sink, prepare_topic
from streams.source import Address, OutRecord, Sink

ENDING = ".jsonl"
FILE_BYTES = 64 << 20
"""A file is closed at this size: a reader that is a file behind is never far behind."""
FILE_SECONDS = 3600.0
"""A file is closed at this age, so that old records can be removed."""
LOOK_SECONDS = 30.0
"""How often the folder is measured: others may write to it, and somebody may have made room."""


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """One record to be kept. impression: its id, the same for an impression and its clicks. line: a JSON
    object in one line, without its end."""

    impression: str
    line: bytes


def impression_record(
    impression: str,
    ts: int,
    query: str,
    shown: Sequence[str],
    *,
    propensity: Sequence[float] | None = None,
    source: str | None = None,
    key: str | None = None,
) -> SpoolRecord:
    """A shown list, best place first. ts: Unix milliseconds. propensity: for each place, the probability in
    (0, 1] that the user looked at it."""
    said = {"event": "impression", "impression": impression, "ts": ts, "query": query, "shown": shown}
    more = {"propensity": propensity, "source": source, "key": key}
    said |= {name: value for name, value in more.items() if value is not None}
    return SpoolRecord(impression, to_json(said))


def click_record(impression: str, ts: int, clicked: str, keys: Collection[str] | None = None) -> SpoolRecord:
    """A click on an object of an impression. ts: Unix milliseconds. keys: whose impressions it may belong to,
    where its sender may not write for all."""
    said = {"event": "click", "impression": impression, "ts": ts, "object": clicked}
    return SpoolRecord(impression, to_json(said if keys is None else said | {"key": sorted(keys)}))


class SpoolFull(Exception):
    """There is no room for more records; the message says where, and what makes room."""


class Spool(Protocol):
    """Keeps raw records. One thread at a time."""

    def append(self, records: Sequence[SpoolRecord]) -> None:
        """Keep all of them: when it returns they are durable. Raises OSError, SpoolFull, StreamError or
        UserError; then some may be there, and writing them again does no harm, for their ids stay."""

    def close(self) -> None:
        """Let go of files and sockets."""


@dataclass(frozen=True, slots=True)
class SpoolBounds:
    """How much a folder may hold. size: bytes in all. keep_s: files whose last record is older than this are
    removed, fed or not; None removes none. Time is what went by since the newest file was written: a clock
    that jumps ahead makes no record old."""

    size: int
    keep_s: float | None


class SpoolFolder:
    """Files of JSON lines, one open; a name begins with the second at which the file was begun."""

    def __init__(
        self,
        path: Path,
        bounds: SpoolBounds,
        *,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._path, self._bounds, self._now, self._steady = path, bounds, now, steady
        self._newest: tuple[float, float] | None = None
        self._file_bytes = min(file_bytes, max(1, bounds.size // 4))
        self._descriptor = -1
        self._name, self._written, self._began = "", 0, 0.0
        self._held, self._checked_at = 0, float("-inf")

    def append(self, records: Sequence[SpoolRecord]) -> None:
        """Write and flush to the disk; what could not be written whole is taken back."""
        block = b"".join(record.line + b"\n" for record in records)
        self._make_room(len(block))
        if self._descriptor < 0:
            self._begin()
        try:
            write_whole(self._descriptor, block, self._written, os.fdatasync)
        except OSError:
            self.close()
            raise
        self._written += len(block)
        self._held += len(block)
        if self._written >= self._file_bytes:
            self.close()

    def close(self) -> None:
        """Close the file; the next record begins another."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        self._began = self._now()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._began))
        self._name = f"{stamp}-{secrets.token_hex(4)}{ENDING}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor, self._written = os.open(self._path / self._name, flags, 0o640), 0
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # until it is closed, no other process removes it
        sync(self._path)

    def _make_room(self, wanted: int) -> None:
        """Close a file that is old, remove files that are out of date, and refuse what passes the bound."""
        now = self._now()
        if self._descriptor >= 0 and now - self._began >= FILE_SECONDS:
            self.close()
        if now - self._checked_at >= LOOK_SECONDS or self._held + wanted > self._bounds.size:
            self._held, self._checked_at = self._measured(), now
        if self._held + wanted > self._bounds.size:
            raise SpoolFull(
                f"{self._path} holds {self._held:,} bytes; serve.writes.size allows {self._bounds.size:,}; "
                "remove files that were fed, or raise it"
            )

    def _measured(self) -> int:
        """Bytes of all files; those out of date are removed first."""
        held, keep_s, files = 0, self._bounds.keep_s, []
        with suppress(FileNotFoundError), os.scandir(self._path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.name.endswith(ENDING):
                        files.append((entry, entry.stat()))
        oldest = -math.inf if keep_s is None else self._time([found.st_mtime for _, found in files]) - keep_s
        for entry, found in files:
            is_open = self._descriptor >= 0 and entry.name == self._name
            with suppress(FileNotFoundError):
                if found.st_mtime < oldest and not is_open and not _is_written(entry.path):
                    os.unlink(entry.path)
                else:
                    held += found.st_size
        return held

    def _time(self, written: Sequence[float]) -> float:
        """The time by which files grow old: of the newest file there was at first, and what went by since."""
        steady = self._steady()
        if self._newest is None:
            self._newest = max(written, default=self._now()), steady
        newest, since = self._newest
        return min(self._now(), newest + steady - since)


def _is_written(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not is_locked(descriptor)
    finally:
        os.close(descriptor)


class SpoolTopic:
    """A topic whose values are raw records, keyed by impression: its clicks share its partition."""

    def __init__(self, address: Address, partitions: int) -> None:
        self._address, self._partitions = address, partitions
        self._sink: Sink | None = None

    def append(self, records: Sequence[SpoolRecord]) -> None:
        """Send, and wait until the log has them."""
        if self._sink is None:
            prepare_topic(self._address, self._partitions, "write")
            self._sink = open_sink(self._address)
        try:
            self._sink.send([OutRecord(one.line, one.impression.encode()) for one in records])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the sink; the next record opens another."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
