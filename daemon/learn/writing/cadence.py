"""When a version is due, and how far a poll may go so that versions fall on exact event counts. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cadence:
    """`every_s`: seconds between versions (0: no clock). `every_events`: records between them (0: off)."""

    every_s: float
    every_events: int

    def due(self, seconds_since: float, records: int, records_at_last: int, moved: bool) -> bool:
        """Whether a version is due: `records` counts since version 0, `records_at_last` at the last capture.

        `moved`: something is applied that is in no version. By count, a version is due only exactly on a
        multiple: one that was missed waits for the next. One that failed is due again by the clock.
        """
        if self.every_events and records % self.every_events == 0 and records != records_at_last:
            return True
        return moved and bool(self.every_s) and seconds_since >= self.every_s

    def poll_limit(self, most: int, records_polled: int) -> int:
        """The most records of the next poll, so that a batch ends on every multiple of `every_events`."""
        if not self.every_events:
            return most
        return min(most, self.every_events - records_polled % self.every_events)
