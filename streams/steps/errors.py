"""Why a record of the step log cannot be used."""

from __future__ import annotations

from streams.errors import StreamError

NULL_VALUE = "null_value"
MALFORMED = "malformed"
UNSUPPORTED_VERSION = "unsupported_version"
TOO_LARGE = "too_large"
OUT_OF_RANGE = "out_of_range"
BAD_VECTORS = "bad_vectors"
BAD_PARTS = "bad_parts"
BAD_HASH = "bad_hash"

REASONS: dict[str, str] = {
    NULL_VALUE: "the record has no value",
    MALFORMED: "the bytes are not one msgpack map with the fields of a segment, and no others",
    UNSUPPORTED_VERSION: "the format version is not one this release reads",
    TOO_LARGE: "a segment, its header or its number of parts is over the limit",
    OUT_OF_RANGE: "a number, text or hash is outside its range or length",
    BAD_VECTORS: "rows, indices or values are not those of a step",
    BAD_PARTS: "a part is missing, comes twice, or belongs to another segment",
    BAD_HASH: "the segment's bytes do not give the chain value that it states",
}


class BadSegment(StreamError):
    """A record that is not a usable part of a segment; `reason` is a key of `REASONS`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"a bad record in the step log ({reason}): {detail}")
        self.reason, self.detail = reason, detail
