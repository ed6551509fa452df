"""Events and impressions, the objects in them, and the feature space these live in.

An event is one triplet (query, clicked, skipped) with its id, time and weight; an impression is a shown
list with its clicks. An object is an id, or inline vectors, one per view of the space.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

UNNAMED_VIEW = "x"
"""The name of the view that an object's `x` fills: `x: v` and `views: {"x": v}` mean the same."""


@dataclass(frozen=True)
class ViewSpec:
    """One view: its name, whether its vectors are dense or sparse, and how many coordinates it has."""

    name: str
    kind: Literal["dense", "sparse"]
    dim: int


@dataclass(frozen=True)
class SpaceSpec:
    """A feature space: its id, refused on mismatch, and its views in a fixed order."""

    id: str
    views: tuple[ViewSpec, ...]


Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SparseVector:
    """One sparse vector: `indices` int32 [k], strictly increasing, and `values` float32 [k]."""

    indices: Int32Array
    values: Float32Array


Vector = Float32Array | SparseVector
"""A dense vector (float32, one-dimensional) or a `SparseVector`."""


@dataclass(frozen=True, slots=True)
class SparseColumn:
    """One sparse view of n objects, in compressed rows.

    `indptr` int64 [n + 1], `indices` int32 [nnz], `values` float32 [nnz]; row i is the slice
    `indptr[i]:indptr[i + 1]`. `dim` is the number of coordinates of the view.
    """

    indptr: Int64Array
    indices: Int32Array
    values: Float32Array
    dim: int

    def __len__(self) -> int:
        return len(self.indptr) - 1


@dataclass(frozen=True, slots=True)
class DenseColumn:
    """One dense view of n objects: `values` float32 [n, dim], one object per row."""

    values: Float32Array

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dim(self) -> int:
        """The number of coordinates of the view."""
        return int(self.values.shape[1])


Column = SparseColumn | DenseColumn


def kind_of(column: Column) -> Literal["dense", "sparse"]:
    """`dense` or `sparse`."""
    return "dense" if isinstance(column, DenseColumn) else "sparse"


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


PAIR_UNKNOWN, PAIR_ABOVE, PAIR_BELOW, PAIR_RANDOM = 0, 1, 2, 3
"""Where the skipped object of an event stood: it does not say; above the click; below it; nowhere, for it was
drawn at random."""
PAIR_NAMES: Mapping[str, int] = {"above": PAIR_ABOVE, "below": PAIR_BELOW, "random": PAIR_RANDOM}
"""The kinds of pairs by the names that people write."""
PAIR_SIDES = 3
"""The bits of `pair` that hold one of these."""
ONLY_ABOVE, ONLY_BOTH, ONLY_ARMS = 4, 8, 16
"""Bits that say who alone learns an event: learners of pairs above the click, or of pairs on both sides, as a
list has more pairs than they take; arms of the race, as it is held out from the main learner."""


@dataclass(frozen=True, slots=True)
class Event:
    """One triplet to learn from.

    `ts` is the time of the click in milliseconds since the epoch; `weight` scales the step;
    `source` is who clicked, as of an impression, which `impression` names; `propensity` is the clicked rank's
    logged probability of being examined, in (0, 1]; `space` names the feature space of inline features;
    `key` the model that learns it, where there is one per key; `pair` where the skipped object stood, one of
    the `PAIR_` constants, and who alone learns it, `ONLY_` bits.
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
    pair: int = PAIR_UNKNOWN


EITHER, FIRST, SECOND = TEAMS = (0, 1, 2)
"""The team of a place of an interleaved list: none of its own, since both rankings had the object next (or
chance put it there); that of the first ranking; that of the second."""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """One of the models that a list was made of: the name that was asked, the newest version at or before its
    state, and the records it had applied since version 0."""

    name: str
    version: int
    records: int


@dataclass(frozen=True, slots=True)
class Draft:
    """How a list was made by chance: of two models by a team draft, of one or two with an explored slot.

    `models`: one or two of them, in the order of the teams. `teams`: of each shown rank, one of `TEAMS`.
    `explored`: the rank at which a random object stands, or None; `chance` is the probability in (0, 1] that
    this object came to stand at this rank.
    """

    models: tuple[DraftModel, ...]
    teams: tuple[int, ...]
    explored: int | None = None
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class Impression:
    """One shown list.

    `shown` is in the order the user saw; `clicked` holds the clicked ranks, from 0, ascending, and
    may be empty; `propensity`, where logged, is the probability in (0, 1] that the user examined each
    rank. `ts` is in milliseconds since the epoch. `source` is who clicked: a user, a session, or who holds a
    token, by any name that stays the same; None where nobody said. `key` names the model that its clicks are
    of, where there is one per key. `draft`: how the list was made, where chance had a part in it and that was
    proved. `kind`: of what kind its query is, where none of that kind is learned from: the object at the
    centre. `trained`: it is no held-out list: its triplets are in the training topic. `for_arms`: it is held
    out, but arms learn it later: its triplets are there for them alone.
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
    draft: Draft | None = None
    kind: str | None = None
    trained: bool = False
    for_arms: bool = False

    @property
    def is_learned(self) -> bool:
        """Whether anybody learns it after it was bet on."""
        return self.trained or self.for_arms
