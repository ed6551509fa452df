"""How likely users examine each rank, out of the newest lists that were closed. Pure; for metrics and status,
and nothing is weighed by it: feeding the same log again is to give the same triplets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from streams.event import Impression
from streams.feed.items import UnclickedList
from streams.feed.shown_places import PositionBias, ShownPlaces, as_proved
from streams.signed_lists import BadSignature

LISTS = 10_000
"""That are looked at: a day or more of a small shop, minutes of a large one."""
FRESH = 500
"""Lists that came since, before they are looked at again."""
RANKS = 10


class RecentExamination:
    """Keeps the newest lists as they were closed. secret: checks signed ids, b"" where none is known.
    shuffled: sources whose lists had a random order."""

    def __init__(self, secret: bytes = b"", shuffled: Collection[str] = ()) -> None:
        self._secret, self._shuffled = secret, frozenset(shuffled)
        self._lists: deque[Impression | UnclickedList] = deque(maxlen=LISTS)
        self._fresh = 0

    def add(self, closed: Impression | UnclickedList) -> None:
        """A list was closed, with its clicks; it is not a repeat."""
        self._lists.append(closed)
        self._fresh += 1

    @property
    def is_due(self) -> bool:
        """Whether enough lists came since the last estimate."""
        return self._fresh >= FRESH

    def estimate(self) -> PositionBias:
        """What the lists say, some 50 microseconds for each; lists whose ids are forged do not count."""
        self._fresh = 0
        places = ShownPlaces(RANKS, self._shuffled)
        for one in self._lists:
            closed = one.impression() if isinstance(one, UnclickedList) else one
            try:
                places.add(as_proved(closed, self._secret))
            except BadSignature:
                continue
        return places.result()
