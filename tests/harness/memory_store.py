"""A store of versions in memory."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterable
from typing import BinaryIO

from checkpoints.store import Buffer, KeyExists, KeyMissing, PutResult, check_key


class MemoryStore:
    """Objects in a dictionary, with the rules of a real store; safe to share between threads."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put_new(self, key: str, chunks: Iterable[Buffer], durable: bool = True) -> PutResult:
        """See `checkpoints.store.BlobStore`."""
        check_key(key)
        data = b"".join(memoryview(chunk).cast("B") for chunk in chunks)
        with self._lock:
            if key in self._objects:
                raise KeyExists(key, "is taken")
            self._objects[key] = data
        return PutResult(len(data), hashlib.sha256(data).hexdigest())

    def open(self, key: str) -> BinaryIO:
        """See `checkpoints.store.BlobStore`."""
        return io.BytesIO(self.get(key))

    def get(self, key: str) -> bytes:
        """See `checkpoints.store.BlobStore`."""
        check_key(key)
        with self._lock:
            if key not in self._objects:
                raise KeyMissing(key, "there is no such object")
            return self._objects[key]

    def list(self, prefix: str = "") -> list[str]:
        """See `checkpoints.store.BlobStore`."""
        with self._lock:
            return sorted(key for key in self._objects if key.startswith(prefix))

    def delete(self, key: str, durable: bool = True) -> None:
        """See `checkpoints.store.BlobStore`."""
        check_key(key)
        with self._lock:
            self._objects.pop(key, None)

    def append_line(self, key: str, line: bytes) -> None:
        """See `checkpoints.store.BlobStore`."""
        check_key(key)
        with self._lock:
            self._objects[key] = self._objects.get(key, b"") + line + b"\n"

    def sweep(self) -> int:
        """0: nothing is ever half-written."""
        return 0
