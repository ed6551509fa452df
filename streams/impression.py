"""An impression: a shown list with its clicks."""

from __future__ import annotations

from dataclasses import dataclass

from streams.event import ObjectRef


@dataclass(frozen=True, slots=True)
class Impression:
    """One shown list.

    `shown` is in the order the user saw; `clicked` holds the clicked ranks, from 0, ascending, and
    may be empty; `propensity`, where logged, is the probability in (0, 1] that the user examined each
    rank. `ts` is in milliseconds since the epoch. `key` names the model that its clicks are of, where
    there is one per key.
    """

    id: str
    ts: int
    query: ObjectRef
    shown: tuple[ObjectRef, ...]
    clicked: tuple[int, ...]
    propensity: tuple[float, ...] | None = None
    source: str | None = None
    space: str | None = None
    key: str | None = None
