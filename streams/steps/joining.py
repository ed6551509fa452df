"""Records in the order of the log to segments: parts put together again."""

from __future__ import annotations

from streams.steps.codec import MAX_SEGMENT_BYTES, Part, decode_part, decode_segment
from streams.steps.errors import BAD_PARTS, TOO_LARGE, BadSegment
from streams.steps.segment import Segment


class Joiner:
    """Holds the parts of at most one segment, of at most `MAX_SEGMENT_BYTES`.

    Part 0 begins a segment whatever was there before: a writer that could not know whether its records had
    arrived sends all of them again.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._size = 0

    def feed(self, value: bytes | None) -> Segment | None:
        """The next record; the segment that it completes, None while parts are still to come.

        Raises BadSegment, and nothing else, whatever the bytes; it goes on with the next record then.
        """
        try:
            return self._join(decode_part(value))
        except BadSegment:
            self._forget()
            raise

    def _join(self, part: Part) -> Segment | None:
        if part.part == 0:
            self._forget()
        first = self._parts[0] if self._parts else part
        if part.part != len(self._parts) or not _together(first, part):
            raise BadSegment(BAD_PARTS, f"part {part.part} of {part.parts} after {len(self._parts)} parts")
        self._parts.append(part)
        self._size += len(part.data)
        if self._size > MAX_SEGMENT_BYTES:
            raise BadSegment(TOO_LARGE, f"a segment of more than {MAX_SEGMENT_BYTES} bytes")
        if len(self._parts) < part.parts:
            return None
        payload = part.data if part.parts == 1 else b"".join([one.data for one in self._parts])
        self._forget()
        return decode_segment(part.version, part.before, part.after, part.head, payload)

    def _forget(self) -> None:
        self._parts, self._size = [], 0


def _together(first: Part, part: Part) -> bool:
    """Whether two records are parts of one segment."""
    return (first.version, first.parts, first.before, first.after, first.head) == (
        part.version,
        part.parts,
        part.before,
        part.after,
        part.head,
    )
