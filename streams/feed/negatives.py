"""Random negatives: catalog objects drawn once per click, from a seed, and written into the event.

Learning from shown lists alone compares nearly right objects with nearly right ones; a uniformly drawn
object per click is the sampling of Chechik et al., JMLR 11 (2010), section 2.3, and keeps retrieval
over the whole catalog in view.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

from streams.event import ObjectRef
from streams.routing import route_key

SEEN_SIZE = 10_000
"""Objects remembered without a catalog."""

MAX_DRAWS = 64
"""Draws before giving up where nearly every candidate is excluded."""


class Candidates(Protocol):
    """The objects a negative is drawn from."""

    def __len__(self) -> int:
        """How many there are now."""
        ...

    def at(self, index: int) -> ObjectRef:
        """One of them."""
        ...

    def see(self, shown: Sequence[ObjectRef]) -> None:
        """Be told of the objects of one impression."""
        ...


class CatalogCandidates:
    """All objects of a catalog, by id: every one is as likely."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def at(self, index: int) -> ObjectRef:
        """The object in this row of the catalog."""
        return ObjectRef(id=self._ids[index])

    def see(self, shown: Sequence[ObjectRef]) -> None:
        """Nothing to learn: the catalog is complete."""


class SeenCandidates:
    """Without a catalog: a uniform sample of the distinct objects shown so far, of bounded size.

    It keeps the `size` objects whose seeded hash is smallest (a bottom-k sketch; Cohen and Kaplan,
    PODC 2007), so an object counts once however often it is shown, and the same input gives the same
    sample.  Until more than `size` objects were shown it holds all of them; the first impressions of
    a run therefore draw from few.
    """

    def __init__(self, size: int = SEEN_SIZE, seed: int = 0) -> None:
        self._size = size
        self._salt = _salt(seed)
        self._members: dict[bytes, None] = {}
        self._heap: list[tuple[int, bytes, ObjectRef]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, index: int) -> ObjectRef:
        """One object of the sample; the order is fixed by what was seen, in which order."""
        return self._heap[index][2]

    def see(self, shown: Sequence[ObjectRef]) -> None:
        """Take the objects of one impression into the sample."""
        for item in shown:
            key = route_key(item)
            if key not in self._members:
                self._offer(key, item)

    def _offer(self, key: bytes, item: ObjectRef) -> None:
        # Negated: heapq keeps its smallest entry in front, the one to give way is the largest hash.
        entry = (-_hash(self._salt, key), key, item)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, entry)
        elif entry[0] > self._heap[0][0]:
            del self._members[heapq.heapreplace(self._heap, entry)[1]]
        else:
            return
        self._members[key] = None


def draw(candidates: Candidates, excluded: frozenset[bytes], purpose: str, seed: int) -> ObjectRef | None:
    """One candidate, uniform among those whose route key is not in `excluded`; None where none is found.

    A pure function of the candidates, the seed and `purpose` (impression id, clicked rank and number
    of the negative), so feeding the same impression again draws the same object.
    """
    size = len(candidates)
    if not size:
        return None
    salt = _salt(seed)
    for attempt in range(MAX_DRAWS):
        # The bias of the modulo is below size / 2**64.
        chosen = candidates.at(_hash(salt, f"{purpose}/{attempt}".encode()) % size)
        if route_key(chosen) not in excluded:
            return chosen
    return None


def _salt(seed: int) -> bytes:
    return seed.to_bytes(16, "little", signed=True)


def _hash(salt: bytes, key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8, key=salt, person=b"negative").digest(), "little")
