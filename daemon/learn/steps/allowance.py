"""How many bytes may be published: per second, and between two versions. Pure."""

from __future__ import annotations

BURST_SECONDS = 2.0
"""Unused rate is saved up for this long: a batch read ahead comes at once."""


class Allowance:
    """A bucket that fills with `rate` bytes per second, up to `BURST_SECONDS` of them.

    between: most bytes between two durable versions, None for any number: what retention cannot remove, since
    replicas of the last version need it, must not fill a disk while no version becomes durable.
    """

    def __init__(self, rate: int, now: float, between: int | None = None) -> None:
        self._rate, self._between = rate, between
        self._held = rate * BURST_SECONDS
        self._at = now
        self._taken = 0

    def version(self) -> None:
        """A version is durable: what was taken before it is counted no more."""
        self._taken = 0

    def take(self, size: int, now: float) -> bool:
        """Whether `size` bytes may go; they are counted then. A full bucket lets any size go."""
        full = self._rate * BURST_SECONDS
        self._held = min(full, self._held + self._rate * max(0.0, now - self._at))
        self._at = now
        if size > self._held and self._held < full:
            return False
        if self._between is not None and self._taken and self._taken + size > self._between:
            return False
        self._held -= size
        self._taken += size
        return True
