"""What names a served model, and the space it lives in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelId:
    """Which state an answer was computed with.

    version: the newest version (base) at or before that state. behind: records applied since that version, 0
    at it. watermark: newest event time in the state, ms since the epoch, None before any event.
    total: records applied since version 0, which orders the states of one line: "12+3400" and "13+200" may be
    the same one. `str` is "12" at a version and "12+3400" behind it.
    """

    version: int
    behind: int = 0
    watermark: int | None = None
    total: int = 0

    def __str__(self) -> str:
        return f"{self.version}+{self.behind}" if self.behind else str(self.version)


@dataclass(frozen=True, slots=True)
class ModelSpace:
    """What every version served beside an item index must agree with: the objects' space, the frozen map
    that brought them there, and the dimension it gives.
    """

    space: str
    map_id: str
    dim: int
