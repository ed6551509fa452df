"""The newest hour of every live number of every role: one bounded ring, sampled by one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Metrics = Mapping[str, float]

EVERY_SECONDS = 2.0
KEPT = 1800
"""Samples: one hour."""


@dataclass(frozen=True, slots=True)
class Target:
    """A role and how its numbers are read: None when it does not answer."""

    role: str
    read: Callable[[], Metrics | None]


class Series:
    """A ring of samples of each role's numbers; `start()` samples until `close()`."""

    def __init__(self, targets: Sequence[Target], every: float = EVERY_SECONDS, kept: int = KEPT) -> None:
        raise NotImplementedError
