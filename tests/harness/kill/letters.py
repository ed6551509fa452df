"""What a topic holds, read as it grows: which poison is there, and which of it has its dead letter."""

from __future__ import annotations

from contextlib import closing, suppress

from streams.errors import StreamUnavailable
from streams.open import open_source
from streams.poison import parse_dead_letter
from streams.source import Address, RecordBatch
from tests.harness.kill.events import NOT_AN_EVENT, is_poison
from tests.harness.kill.learners import wait_until
from tests.harness.kill.site import Site

Place = tuple[int, int]
"""(partition, offset)"""


class Growing:
    """Reads a topic to its present end, from where the last call stopped; a broker may be away meanwhile."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._next: dict[int, int] = {}

    def read(self) -> list[RecordBatch]:
        """Every batch that is new."""
        found: list[RecordBatch] = []
        wait_until(lambda: self._read(found))
        return found

    def _read(self, found: list[RecordBatch]) -> bool:
        with suppress(StreamUnavailable), closing(open_source(self._address)) as source:
            bounds = source.bounds()
            self._next = {p: self._next.get(p, earliest) for p, (earliest, _) in bounds.items()}
            source.assign(dict(self._next))
            while any(source.reached()[p] < end for p, (_, end) in bounds.items()):
                batch = source.poll(1000, 1.0)
                if batch is not None:
                    found.append(batch)
                    self._next[batch.partition] = batch.offsets[-1] + 1
            return True
        return False


class Letters:
    """The poison of a site's topic and its dead letters.

    An event that the learner's step refuses is a repetition when it is sent again: one letter is enough.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._events, self._dead = Growing(site.address), Growing(site.address.dead)
        self._poison: dict[Place, bytes] = {}
        self._reported: set[bytes] = set()
        self.letters: list[Place] = []

    def look(self) -> None:
        """Take in what is new."""
        for batch in self._events.read():
            for offset, value in zip(batch.offsets, batch.values, strict=True):
                if is_poison(value):
                    place = batch.partition, offset
                    self._poison[place] = _same_letter(place, value)
        for batch in self._dead.read():
            for value, headers in zip(batch.values, batch.headers, strict=True):
                letter = parse_dead_letter(value, headers)
                self.letters.append((letter.partition, letter.offset))
                self._reported.add(_same_letter(self.letters[-1], value))

    def unreported(self) -> set[Place]:
        """Poison that the newest version's position has passed without a dead letter."""
        newest = self._site.versions.newest_manifest()
        self.look()
        if newest is None:
            return set()
        passed = [place for place in self._poison if place[1] < newest.positions[place[0]].next_offset]
        return {place for place in passed if self._poison[place] not in self._reported}


def _same_letter(place: Place, value: bytes | None) -> bytes:
    """Equal for poison of which one dead letter is enough."""
    return str(place).encode() if value is None or value == NOT_AN_EVENT else value
