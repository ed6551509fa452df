"""The chain of hashes through the segments of one writer epoch. Pure."""

from __future__ import annotations

import hashlib

CHAIN_BYTES = 32
GENESIS = bytes(CHAIN_BYTES)
"""The value before segment 0 of every epoch."""


def link(before: bytes, head: bytes, payload: bytes | memoryview) -> bytes:
    """The value after a segment: sha256 of the value before it, its header's bytes and its payload's."""
    digest = hashlib.sha256(before)
    digest.update(head)
    digest.update(payload)
    return digest.digest()
