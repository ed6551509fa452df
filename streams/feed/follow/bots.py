"""Which clicks look like a machine's. Pure; told in metrics, and nothing is dropped for it.

A click is one of a machine where its session (or, where none is named, its list) has more than `most` clicks
within the same minute of event time, or where every object of its list was clicked and there are at least
`ALL_OF`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

ALL_OF = 4
"""Objects of a list of which a person rarely clicks each."""
MINUTE_MS = 60_000
REMEMBERED = 50_000
"""Sessions and minutes whose clicks are counted."""


class BotClicks:
    """Counts clicks, and those that look like a machine's."""

    def __init__(self, most: int) -> None:
        self.clicks = self.of_bots = 0
        self._most = most
        self._counts: OrderedDict[tuple[Hashable, int], int] = OrderedDict()

    def click(self, session: Hashable, ts: int) -> None:
        """A click of a session at this time, ms."""
        key = (session, ts // MINUTE_MS)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        self.clicks += 1
        if count > self._most:
            self.of_bots += count if count == self._most + 1 else 1

    def closed(self, shown: int, clicked: int) -> None:
        """A list of so many objects was closed with so many clicks."""
        if shown >= ALL_OF and clicked == shown and clicked <= self._most:
            self.of_bots += clicked
