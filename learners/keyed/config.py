"""Settings of one model per key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from learners.errors import ConfigError
from learners.protocol import Learner

MAX_KEY_BYTES = 64
"""Longest key, bytes of UTF-8; none of them is 0."""

WhenFull: TypeAlias = Literal["refuse", "evict"]


@dataclass(frozen=True, slots=True)
class KeyedConfig:
    """Settings of one model per key.

    make: dim -> the model of a key before any event. restore: (its arrays) -> the model that goes on from
    them, taking over what it writes in place. slots: most models at once, > 0. when_full: what befalls a key
    that comes when all are taken: "refuse" its events, or "evict" the key whose last event is the longest
    ago, if that was at least evict_after events ago (and refuse otherwise). Raises ConfigError.
    """

    make: Callable[[int], Learner]
    restore: Callable[[Mapping[str, NDArray[Any]]], Learner]
    slots: int
    when_full: WhenFull = "refuse"
    evict_after: int = 0

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ConfigError(f"slots must be at least 1, not {self.slots}")
        if self.when_full not in ("refuse", "evict"):
            raise ConfigError(f'when_full must be "refuse" or "evict", not {self.when_full!r}')
        if self.evict_after < 0:
            raise ConfigError(f"evict_after must be 0 or a number of events, not {self.evict_after}")
