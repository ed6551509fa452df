"""Fit the frozen maps once, on the catalog or on the stream's first objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import structlog

from daemon.config.model import Config
from daemon.config.view import ViewConfig
from daemon.exits import EX_DATAERR, UserError
from daemon.learn.starting.inputs import Inputs
from daemon.learn.starting.warmup import Sample, catalog_sample, stream_sample
from daemon.process.watchdog import Pulse
from daemon.versions.algorithms import ALGORITHMS
from learners.block import Block, DenseBlock, SparseBlock
from learners.maps import FittedSpaceMap, SpaceMap
from learners.maps import ViewConfig as MapConfig
from streams.errors import StreamUnavailable

log = structlog.get_logger("tripletd.learn")


LEARNER_SAMPLE = 5_000
"""Most mapped objects that a learner sees before its first event: mean distances need no more."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The map of a new store. sample: mapped objects of the warm-up, None unless the learner wants them."""

    space: FittedSpaceMap
    sample: Block | None = None


def space_map(config: Config) -> SpaceMap:
    """The configured maps. Vectors are brought to unit length (each block of theirs, where the algorithm
    learns by blocks), unless no view is to be changed at all.
    """
    views = config.space.views
    unit = any(view.scalings != ["identity"] or view.kernels for view in views.values())
    by_block = unit and ALGORITHMS[config.learner.algorithm].by_block
    return SpaceMap({name: _map_config(view) for name, view in views.items()}, unit, by_block)


def fit_map(
    config: Config,
    inputs: Inputs,
    offsets: Mapping[int, int],
    take_what_there_is: bool,
    go_on: Callable[[str, bool], bool],
    *,
    pulse: Pulse,
) -> Fitted | None:
    """The fitted space of a new store, and what its learner wants to see of it. None when `go_on(what it
    waits for, whether in vain)` said to stop.

    `pulse` is this thread's: fitting takes as long as it takes.
    `take_what_there_is`: fit on fewer objects once the stream is read to its end instead of waiting.
    """
    plan, for_learner = space_map(config), ALGORITHMS[config.learner.algorithm].needs_sample
    if not (for_learner or any(view.needs_sample for view in config.space.views.values())):
        return Fitted(plan.fit({name: _no_rows(view) for name, view in config.space.views.items()}))
    if inputs.catalog is not None:
        log.info("fitting the maps on the catalog", objects=len(inputs.catalog))
        with pulse.patient("fitting the maps"):
            return _fitted(plan, catalog_sample(inputs.catalog), for_learner)
    stopped = False
    wanted = config.space.warmup_objects

    def keep_reading(sample: Sample, trouble: StreamUnavailable | None) -> bool:
        nonlocal stopped
        stands = f"warming up: {len(sample)}/{wanted} objects to fit the maps on"
        stopped = not go_on(stands if trouble is None else f"{stands}; {trouble}", trouble is not None)
        return not stopped

    sample = stream_sample(
        inputs.control, offsets, inputs.decoder, wanted, to_the_end=take_what_there_is, go_on=keep_reading
    )
    if stopped:
        return None
    if not len(sample):
        raise UserError(
            f"{inputs.address}: no usable object to fit the maps on",
            "feed events first, configure catalog.path, or use maps that need no fitting (identity, unit)",
            EX_DATAERR,
        )
    log.info("fitting the maps on the stream's first objects", objects=len(sample))
    with pulse.patient("fitting the maps"):
        return _fitted(plan, sample.blocks(), for_learner)


def _fitted(plan: SpaceMap, sample: Mapping[str, Block], for_learner: bool) -> Fitted:
    """The plan fitted on a sample; of the same objects, at equal distances, what the learner is to see."""
    space = plan.fit(sample)
    if not for_learner:
        return Fitted(space)
    count = len(next(iter(sample.values())))
    rows = np.unique(np.linspace(0, count - 1, min(count, LEARNER_SAMPLE)).astype(np.int64))
    return Fitted(space, space.transform({name: block.take(rows) for name, block in sample.items()}))


def _map_config(view: ViewConfig) -> MapConfig:
    maps = [
        MapConfig(name, {"components": view.components} if name == "whiten" else {}) for name in view.scalings
    ]
    kernels = [MapConfig(one.map, one.options()) for one in view.kernels]
    if kernels:
        maps.append(kernels[0] if len(kernels) == 1 else MapConfig("kernels", {"maps": kernels}))
    return maps[0] if len(maps) == 1 else MapConfig("chain", {"maps": maps})


def _no_rows(view: ViewConfig) -> Block:
    if view.kind == "dense":
        return DenseBlock(np.zeros((0, view.dim), np.float32))
    return SparseBlock(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), view.dim)
