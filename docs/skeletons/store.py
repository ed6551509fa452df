"""A store of versions to copy: objects as rows of one SQLite file.

What a store adds: the methods of `BlobStore`. Its promises are the contract in tests/checkpoints/contract: an
object is created once and whole or not at all, and is durable when `put_new` returns. A store into which
states are written piece by piece also implements `StagingStore`. To open it from an address, add a line to
`STORES` in daemon/versions/storage.py.
"""

from __future__ import annotations

import hashlib
import io
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from checkpoints.store import Buffer, KeyExists, KeyMissing, PutResult, check_key


class SqliteStore:
    """Objects in the table `objects` of one file; may be shared between threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, data BLOB)")

    def put_new(self, key: str, chunks: Iterable[Buffer], durable: bool = True) -> PutResult:
        """Create `key`; raises KeyExists. Nothing is left when `chunks` raises."""
        data = b"".join(memoryview(chunk).cast("B") for chunk in chunks)
        try:
            self._write("INSERT INTO objects VALUES (?, ?)", check_key(key), data)
        except sqlite3.IntegrityError:
            raise KeyExists(key, "is taken") from None
        return PutResult(len(data), hashlib.sha256(data).hexdigest())

    def open(self, key: str) -> BinaryIO:
        """The object as a stream; raises KeyMissing."""
        return io.BytesIO(self.get(key))

    def get(self, key: str) -> bytes:
        """The whole object; raises KeyMissing."""
        check_key(key)
        with self._lock:
            row = self._connection.execute("SELECT data FROM objects WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyMissing(key, "there is no such object")
        return bytes(row[0])

    def list(self, prefix: str = "") -> list[str]:
        """Every key that starts with `prefix`, ascending."""
        with self._lock:
            rows = self._connection.execute("SELECT key FROM objects ORDER BY key").fetchall()
        return [key for (key,) in rows if key.startswith(prefix)]

    def delete(self, key: str, durable: bool = True) -> None:
        """Remove `key` if it is there."""
        check_key(key)
        self._write("DELETE FROM objects WHERE key = ?", key)

    def append_line(self, key: str, line: bytes) -> None:
        """Add a line to `key`, which is created when missing."""
        check_key(key)
        self._write(
            "INSERT INTO objects VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET data = CAST(data || excluded.data AS BLOB)",
            key,
            line + b"\n",
        )

    def sweep(self) -> int:
        """0: a transaction leaves nothing half-written."""
        return 0

    def _write(self, statement: str, *values: object) -> None:
        with self._lock, self._connection:
            self._connection.execute(statement, values)
