"""What [stream] and [steps] say alike: how long, and how much, is kept."""

from __future__ import annotations

from typing import Protocol

from daemon.config.units import parse_duration, parse_size


class _Keys(Protocol):
    retention: str
    retention_bytes: str


class Retained:
    """The numbers of `retention` and `retention_bytes`, for a section that has both keys."""

    @property
    def retention_s(self: _Keys) -> float | None:
        """`retention` in seconds; None keeps records for ever."""
        return parse_duration(self.retention) if self.retention else None

    @property
    def retention_size(self: _Keys) -> int | None:
        """`retention_bytes` in bytes; None is no limit."""
        return parse_size(self.retention_bytes) if self.retention_bytes else None
