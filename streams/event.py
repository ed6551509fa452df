"""An event: one triplet (query, clicked, skipped) with its id, time and weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streams.space import UNNAMED_VIEW
from streams.vectors import Vector


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object: by id (features in the catalog), by features, or both (the features given here win).

    `x` fills the space's single view called "x"; `views` maps view names to vectors. At most one of
    the two may be given.
    """

    id: str | None = None
    x: Vector | None = None
    views: Mapping[str, Vector] | None = None

    def features(self) -> Mapping[str, Vector] | None:
        """The inline features by view name, or None when the object is by id alone."""
        return {UNNAMED_VIEW: self.x} if self.x is not None else self.views


@dataclass(frozen=True, slots=True)
class Event:
    """One triplet to learn from.

    `ts` is the time of the click in milliseconds since the epoch; `weight` scales the step;
    `impression` names the shown list it came from; `propensity` is the clicked rank's logged
    probability of being examined, in (0, 1]; `space` names the feature space of inline features;
    `key` the model that learns it, where there is one per key.
    """

    id: str
    ts: int
    query: ObjectRef
    clicked: ObjectRef
    skipped: ObjectRef
    weight: float = 1.0
    source: str | None = None
    impression: str | None = None
    propensity: float | None = None
    space: str | None = None
    key: str | None = None
