"""The arrays of a support set: made, read back and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, Int32s, Int64s
from learners.errors import StateError, saved, to_write
from learners.kernels.compile import Steps
from learners.kernels.kernel_values import Plan
from learners.kernels.omks_supports import TWO, step_supports
from learners.kernels.support_slots import EMPTY, index_support, score_supports
from learners.kernels.tiles import LANES
from learners.multikernel.config import OmksConfig

WIDTH = 8
"""taus of a triplet fill whole vectors of so many numbers."""

TOGETHER, TOGETHER_OF_MANY = 4, 8
"""Events whose kernel values are worked out together, so that objects are read from memory once for all; it
changes no bit. More of them where objects are far away, beyond NEAR: their values are further away too."""

NEAR = 1 << 23
"""Bytes of objects that stay in a cache: a quarter of what one processor's usually holds, beside all else."""

ROOM = 1 << 24
"""Coefficients of the queries that are scored at once: 64 MB."""

ALIGNED = 64
"""Large arrays begin at a line of the cache: else every second vector lies in two of them."""


@dataclass(frozen=True, slots=True, eq=False)
class SupportSet:
    """What is kept, and what follows from it.

    rows: float32 [tiles, dim, LANES], each object once. triplets: int32 [T, 3], slots of query, clicked,
    skipped, -1 where none is kept. tau: float32 [T, m rounded up], 0 beyond the m kernels. joined: int64 [T].
    index and values belong to the kernels: lengths, hashes and users of the slots, and room for their values.
    """

    rows: Float32s
    triplets: Int32s
    tau: Float32s
    joined: Int64s
    index: tuple[Float32s, NDArray[np.bool_], NDArray[np.uint64], Int32s]
    values: tuple[Float32s, Float32s]

    @classmethod
    def empty(cls, dim: int, config: OmksConfig) -> Self:
        """An empty support set."""
        tiles = -(-config.objects // LANES)
        width = -(-config.kernels // WIDTH) * WIDTH
        return cls(
            _zeros((tiles, dim, LANES)),
            np.full((config.triplets, 3), EMPTY, np.int32),
            _zeros((config.triplets, width)),
            np.zeros(config.triplets, np.int64),
            *_derived(tiles, width, len(config.views), _together(4 * tiles * LANES * dim)),
        )

    @classmethod
    def read(
        cls, arrays: Mapping[str, NDArray[Any]], dim: int, config: OmksConfig, plan: Plan, copy: bool
    ) -> Self:
        """Restore from saved arrays. Raises StateError naming the one that does not fit."""
        model = cls.empty(dim, config)
        kept = {name: saved_array(arrays, name, getattr(model, name), copy) for name in cls.names()}
        triplets, slots = kept["triplets"], model.rows.shape[0] * LANES
        empty = (triplets == EMPTY).all(axis=1)
        if not (empty | ((triplets >= 0) & (triplets < slots)).all(axis=1)).all():
            raise StateError(f"array triplets holds slots outside 0..{slots - 1}")
        read = cls(**kept, index=model.index, values=model.values)
        index_support(read.arrays(), plan, read.index)
        return read

    @staticmethod
    def names() -> tuple[str, ...]:
        """The arrays that are saved."""
        return "rows", "triplets", "tau", "joined"

    def arrays(self) -> tuple[Float32s, Int32s, Float32s, Int64s]:
        """The arrays as kernels take them."""
        return self.rows, self.triplets, self.tau, self.joined

    def step(  # noqa: PLR0917  (as the kernel takes them)
        self, plan: Plan, limits: Any, rule: Any, standing: Any, counts: Any, rows: Any, steps: Steps
    ) -> None:
        """Apply triplets; see `step_supports`. rows: queries, clicked, skipped and their weights."""
        step_supports(
            self.arrays(), self.index, self.values, plan, limits, rule, standing, counts, *rows, steps
        )

    def scores(self, plan: Plan, theta: Float32s, queries: Float32s, items: Float32s) -> Float32s:
        """f of all pairs, float32 [queries, items], a few queries at a time; theta: float32 [m]."""
        out = np.empty((len(queries), len(items)), np.float32)
        tiles, width = len(self.rows), self.tau.shape[1]
        step = min(LANES, max(1, ROOM // (tiles * width * LANES)))
        room = np.empty((min(step, len(queries)), tiles, width, LANES), np.float32)
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            score_supports(self.arrays(), self.index, plan, theta, queries[part], items, room, out[part])
        return out

    def compact(self) -> tuple[Float32s, Int32s, Float32s]:
        """What is kept, without the gaps: objects float32 [n, dim], triplets int32 [t, 3], by row of
        `objects`, and their taus float32 [t, m rounded up]. Copies."""
        used = self.index[3].any(axis=1)
        number = np.cumsum(used) - 1
        slots = np.flatnonzero(used)
        on = self.triplets[:, 0] != EMPTY
        objects = np.ascontiguousarray(self.rows[slots // LANES, :, slots % LANES])
        return objects, number[self.triplets[on]].astype(np.int32), self.tau[on]

    @property
    def kept(self) -> int:
        """How many triplets are kept."""
        return int(np.count_nonzero(self.triplets[:, 0] != EMPTY))

    @property
    def objects(self) -> int:
        """How many distinct objects are kept."""
        return int(np.count_nonzero(self.index[3].any(axis=1)))


def support_bytes(dim: int, config: OmksConfig) -> int:
    """Memory of a support set: what is kept, and the lengths and kernel values that follow from it."""
    slots, width = -(-config.objects // LANES) * LANES, -(-config.kernels // WIDTH) * WIDTH
    kept = 4 * slots * dim + config.triplets * (12 + 4 * width + 8)
    return kept + slots * (4 * len(config.views) + 16) + 8 * _together(4 * slots * dim) * slots * width


def _together(size: int) -> int:
    """Events whose values are worked out together, where objects take so many bytes."""
    return TOGETHER if size <= NEAR else TOGETHER_OF_MANY


def _zeros(shape: tuple[int, ...]) -> Float32s:
    """float32 zeros that begin at a line of the cache."""
    size = 4 * math.prod(shape)
    room = np.zeros(size + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    return room[start : start + size].view(np.float32).reshape(shape)


def _derived(tiles: int, width: int, views: int, together: int) -> Any:
    slots = tiles * LANES
    index = (
        np.ones((tiles, views, LANES), np.float32),
        np.zeros((tiles, views), np.bool_),
        np.zeros(slots, np.uint64),
        np.zeros((slots, 2), np.int32),
    )
    return index, tuple(_zeros((together // TWO, slots, TWO * width)) for _ in range(2))


def saved_array(
    arrays: Mapping[str, NDArray[Any]], name: str, like: NDArray[Any], copy: bool = True
) -> NDArray[Any]:
    """The array of that name, of the dtype and shape of `like`: written there, or itself. Raises
    StateError."""
    array = saved(arrays, name, like.dtype, like.shape)
    if copy:
        like[...] = array
        return like
    return to_write(array, name, copy)
