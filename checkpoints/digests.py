"""A fast digest of each array of a state, taken in the one pass that hashes its file.

The sha256 of the file proves that a version is what was written. A digest per array lets whoever holds an
array that should equal a version's, a replica, say, find out in a fraction of the time (xxh3_128, about the
speed of memory) and without the other arrays. It guards against mistakes, not against forgery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from xxhash import xxh3_128

from checkpoints.encoding import Encoded
from checkpoints.manifest import ArraySpec
from checkpoints.store import Buffer


def array_digest(array: np.ndarray) -> str:
    """xxh3_128 (32 hex digits) of an array's bytes in C order, little-endian, as a manifest has it."""
    flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
    return xxh3_128(flat.view(np.uint8).data if flat.size else b"").hexdigest()


class ArrayDigests:
    """Told the bytes of an encoded state in the order of its file, however they are cut."""

    def __init__(self, encoded: Encoded) -> None:
        self._specs = encoded.specs
        self._digests = [xxh3_128() for _ in encoded.arrays]
        self._left = [array.nbytes for array in encoded.arrays]
        self._before = len(encoded.header)  # bytes that belong to no array
        self._at = 0

    def update(self, data: Buffer) -> None:
        """The next bytes."""
        view = memoryview(data).cast("B")
        skipped = min(self._before, len(view))
        self._before -= skipped
        view = view[skipped:]
        while view:
            size = min(self._left[self._at], len(view))
            self._digests[self._at].update(view[:size])
            self._left[self._at] -= size
            view = view[size:]
            self._at += self._left[self._at] == 0

    def passing(self, chunks: Iterable[Buffer]) -> Iterator[Buffer]:
        """The chunks, each told here on its way."""
        for chunk in chunks:
            self.update(chunk)
            yield chunk

    def specs(self) -> tuple[ArraySpec, ...]:
        """What a manifest says of the arrays, once all bytes were told."""
        assert not any(self._left), "told of every byte"
        return tuple(
            replace(spec, digest=digest.hexdigest())
            for spec, digest in zip(self._specs, self._digests, strict=True)
        )
