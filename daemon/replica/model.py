"""What names a served model, the space it lives in, and what a replica says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from checkpoints.manifest import ArraySpec, Manifest
from daemon.config.learners import KeysConfig
from daemon.versions.algorithms import NO_VIEWS, ONE_MODEL, Columns, keys_of
from daemon.versions.contents import learner_specs


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
    that brought them there, the dimension it gives, the learner, and its arrays.

    columns: of each view in the mapped vectors, for learners that look at them. keys: [keys], whether there
    is one model per key.
    """

    space: str
    map_id: str
    dim: int
    algorithm: str
    arrays: tuple[ArraySpec, ...]
    columns: Columns
    keys: KeysConfig = ONE_MODEL

    @classmethod
    def of(cls, manifest: Manifest, dim: int, columns: Columns = NO_VIEWS) -> ModelSpace:
        """The space of a version; `dim` and `columns` are its map's."""
        name = str(manifest.learner.get("name"))
        arrays, keys = learner_specs(manifest), keys_of(manifest)
        return cls(manifest.space, str(manifest.map.get("id")), dim, name, arrays, columns, keys)


class NotServing(Exception):
    """Nothing can be answered yet under this alias; the message says why."""


@dataclass(frozen=True, slots=True)
class CarryError:
    """What carrying a form over cost, measured on a sample when the form was made anew.

    fold: relative error of folded queries, norms: the largest one of an item's norm, 0 is exact; overlap:
    mean share of the top 10 that stays, 1 is exact. records: applied between the two forms. seconds: of
    processor time that the new form and what is prepared of it took.
    """

    fold: float
    norms: float
    overlap: float
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A snapshot.

    model: what answers, None for nothing yet; since: when its version or its last steps came, seconds since
    the epoch. why_not_newer: why nothing newer is served, "" when there is nothing newer. following: "steps"
    while the learner is followed step by step, else "versions". refusals: versions refused, by reason.
    fallbacks: how often the step log was lost, by reason. swaps: flips by what changed (version, steps,
    relabel, refine). swap_seconds: of the last version swapped in, by phase (load, prepare, follow, warm,
    flip). carried: the last measured error, None before any. stuck: readers who do not leave the old side.
    """

    alias: str
    model: ModelId | None
    since: float | None
    why_not_newer: str
    following: str
    refusals: Mapping[str, int] = field(default_factory=dict)
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    swaps: Mapping[str, int] = field(default_factory=dict)
    swap_seconds: Mapping[str, float] = field(default_factory=dict)
    carried: CarryError | None = None
    stuck: tuple[str, ...] = ()
