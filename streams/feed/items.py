"""What a reader yields: one item of the input, with the place it came from."""

from __future__ import annotations

from dataclasses import dataclass

from streams.event import Event
from streams.impression import Impression


@dataclass(frozen=True, slots=True)
class Dropped:
    """An item that cannot be fed: a reason of `reasons` and what exactly was wrong."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A line that is no impression and none is lost with it (say, a page view in an event log)."""

    reason: str
    detail: str


Item = Event | Impression | Dropped | Ignored
Placed = tuple[str, Item]
"""("file:line", item); for a binary file ("file:byte n", item)."""


class BadItemError(Exception):
    """Raised while parsing one item; the reader turns it into `Dropped` and goes on."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def dropped(self) -> Dropped:
        """The item as the account wants it."""
        return Dropped(self.reason, self.detail)


class FeedError(Exception):
    """The feed cannot go on: an unreadable file or an unknown format.  `remedy` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
