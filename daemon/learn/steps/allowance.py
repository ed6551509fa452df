"""How many bytes per second may be published. Pure."""

from __future__ import annotations

BURST_SECONDS = 2.0
"""Unused rate is saved up for this long: a batch read ahead comes at once."""


class Allowance:
    """A bucket that fills with `rate` bytes per second, up to `BURST_SECONDS` of them."""

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._held = rate * BURST_SECONDS
        self._at = now

    def take(self, size: int, now: float) -> bool:
        """Whether `size` bytes may go; they are counted then. A full bucket lets any size go."""
        full = self._rate * BURST_SECONDS
        self._held = min(full, self._held + self._rate * max(0.0, now - self._at))
        self._at = now
        if size > self._held and self._held < full:
            return False
        self._held -= size
        return True
