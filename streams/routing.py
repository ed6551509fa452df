"""Stable routing: by the query, so that a query's clicks always go the same way.

All hashes are BLAKE2b over the key alone (and a seed), so every process, release and machine agrees.
"""

from __future__ import annotations

from hashlib import blake2b

from streams.codec import raw_vector
from streams.event import ObjectRef


def route_key(query: ObjectRef) -> bytes:
    """The key of a query: its id in UTF-8, else `#` and the hash of its features.

    The hash is BLAKE2b-128, in hexadecimal, over each view in order of name: name, kind, number of
    bytes, bytes. Raises ValueError for an object with neither id nor features.
    """
    if query.id is not None:
        return query.id.encode()
    features = query.features()
    if not features:
        raise ValueError("an object needs an id or features to be routed")
    digest = blake2b(digest_size=16)
    for name in sorted(features):
        vector = features[name]
        raw = raw_vector(vector)
        parts = [raw] if isinstance(raw, bytes) else raw
        for part in (name.encode(), str(len(parts)).encode(), *parts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return b"#" + digest.hexdigest().encode()


def is_holdout(key: bytes, share: float, seed: int) -> bool:
    """Whether this query belongs to the holdout: a fraction `share` of all keys, chosen by `seed`.

    BLAKE2b-64 of the key, keyed with the seed, as a fraction of 2**64, is below `share`. With one
    seed, a larger share only adds queries.
    """
    digest = blake2b(key, digest_size=8, key=seed.to_bytes(16, "little", signed=True), person=b"holdout")
    return int.from_bytes(digest.digest(), "little") < share * 2.0**64


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key: BLAKE2b-64 of the key modulo the number of partitions."""
    digest = blake2b(key, digest_size=8, person=b"partition").digest()
    return int.from_bytes(digest, "little") % partitions
