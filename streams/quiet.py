"""How long who looks again and again may rest between two looks: the longer nothing came, the longer."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.05
"""Of the time for which nothing came: what comes then is found later by no more than that."""


class Quiet:
    """Rests of a loop that looks for news: `least_s` each after some came, `most_s` after a long silence."""

    def __init__(self, least_s: float, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least_s, self._most_s, self._clock = least_s, most_s, clock
        self._since = clock()

    def broken(self) -> None:
        """Something came."""
        self._since = self._clock()

    def rest_s(self) -> float:
        """Seconds to the next look."""
        return min(self._most_s, max(self._least_s, SHARE * (self._clock() - self._since)))
