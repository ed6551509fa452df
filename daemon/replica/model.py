"""What names a served model, and the space it lives in."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.manifest import ArraySpec, Manifest
from daemon.config.keys import KeysConfig
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
