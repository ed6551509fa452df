"""Small JSON records that notice any altered byte.

A sealed record is UTF-8 JSON, one object, whose last member is `"sha256"`. The file ends with the exact
79 bytes `"sha256": "<64 hex digits>"\\n}\\n` and the digest is that of every byte before them, so a reader
in any language checks it without reproducing anybody's JSON formatting.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from checkpoints.errors import Damaged

TRAILER_BYTES = 79
_TRAILER = re.compile(rb'"sha256": "([0-9a-f]{64})"\n\}\n')


def seal(record: dict[str, Any]) -> bytes:
    """JSON bytes of `record` with its digest as last member. ValueError for NaN, Infinity or no member."""
    if not record or "sha256" in record:
        raise ValueError("a sealed record has at least one member and none called sha256")
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in record.items()]
    body = ("{\n" + "".join(line + ",\n" for line in lines)).encode()
    return body + f'"sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def unseal(data: bytes, place: str) -> dict[str, Any]:
    """The record inside `data`, its digest checked and removed. Raises Damaged naming `place`."""
    trailer = _TRAILER.fullmatch(data[-TRAILER_BYTES:])
    if trailer is None:
        raise Damaged("truncated", place, "does not end in its sha256 line")
    if hashlib.sha256(data[:-TRAILER_BYTES]).hexdigest().encode() != trailer.group(1):
        raise Damaged("altered", place, "its bytes do not match its sha256")
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged("malformed", place, f"is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Damaged("malformed", place, "is not a JSON object")
    del record["sha256"]
    return record
