"""Settings of the caps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from learners.errors import ConfigError

MAX_CAP = 1e9
"""Largest cap: sums of steps are counted in whole parts of a full step, which must not overflow."""


@dataclass(frozen=True, slots=True)
class CapsConfig:
    """How many full steps one name may take part in, within the newest `window` events that were let in.

    A full step is the largest one that an event of weight 1 can make (tau = C in OASIS). source, query, item:
    > 0, or 0 for no cap; an item is clicked or skipped. window: > 0 where any of them is.
    Raises ConfigError.
    """

    window: int = 0
    source: float = 0.0
    query: float = 0.0
    item: float = 0.0

    def __post_init__(self) -> None:
        for name in ("source", "query", "item"):
            cap = getattr(self, name)
            if not (math.isfinite(cap) and 0 <= cap <= MAX_CAP):
                raise ConfigError(f"{name} must be 0 (no cap) or a number of full steps, not {cap}")
        if self.window < 0:
            raise ConfigError(f"window must be a number of events, not {self.window}")
        if self.any and not self.window:
            raise ConfigError("caps need a window of events above 0")

    @property
    def any(self) -> bool:
        """Whether there is a cap at all."""
        return self.source > 0 or self.query > 0 or self.item > 0
