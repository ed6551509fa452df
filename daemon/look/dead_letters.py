"""The newest dead letters. Bytes are shown escaped, never unpacked: those who feed a stream choose them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from daemon.text import moment
from streams.address import Address
from streams.errors import TopicMissing
from streams.open import open_source
from streams.poison import parse_dead_letter
from streams.source import Headers, Source

HEAD_BYTES = 40
MOST_TEXT = 300  # characters of what a header says
POLL_RECORDS = 500
POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """One dead letter: the refused record's place, when it was refused, why, its size and first bytes.

    `partition` and `offset` are None, and `detail` says why, for a record that is no dead letter. `size` is
    None for a record without a value.
    """

    topic: str
    partition: int | None
    offset: int | None
    time: str
    reason: str
    detail: str
    size: int | None
    head: str


def newest_letters(stream: Address, last: int) -> list[ShownLetter]:
    """The newest `last` dead letters of a stream, oldest first; [] where an embedded log has none yet.

    Raises StreamError.
    """
    try:
        source = open_source(stream.dead)
    except TopicMissing:
        if stream.scheme == "kafka":
            raise
        open_source(stream).close()  # raises where there is no such stream at all
        return []
    with closing(source):
        found = sorted(_read(source, last), key=lambda one: one[0])  # of all partitions, by time
    return [letter for _, letter in found[-last:]]


def escaped(value: bytes | None) -> str:
    """The first bytes, printable ASCII as it is and all else as \\xNN."""
    return "".join(
        chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in (value or b"")[:HEAD_BYTES]
    )


def _read(source: Source, last: int) -> Iterator[tuple[int, ShownLetter]]:
    """(time in ms, letter) of what each partition held last; ends where nothing comes any more."""
    bounds = source.bounds()
    source.assign({p: max(earliest, end - last) for p, (earliest, end) in bounds.items()})
    while any(source.reached()[p] < end for p, (_, end) in bounds.items()):
        batch = source.poll(POLL_RECORDS, POLL_SECONDS)
        if batch is None:
            return
        for at, value, headers in zip(batch.timestamps, batch.values, batch.headers, strict=True):
            yield at, _shown(at, value, headers)


def _shown(at: int, value: bytes | None, headers: Headers) -> ShownLetter:
    time, size, head = moment(at), None if value is None else len(value), escaped(value)
    try:
        letter = parse_dead_letter(value, headers)
    except ValueError as error:
        return ShownLetter("", None, None, time, "", str(error)[:MOST_TEXT], size, head)
    texts = letter.reason[:MOST_TEXT], letter.detail[:MOST_TEXT]
    return ShownLetter(letter.topic, letter.partition, letter.offset, time, *texts, size, head)
