"""Learn a batch under caps: any learner that honours weights, whose step a weight bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learners.batch import TripletBatch
from learners.caps.kernel import LET_IN
from learners.caps.window import NAMES, StepWindow
from learners.errors import BlockError
from learners.infos import joined
from learners.outcome import UPDATED, StepInfo
from learners.protocol import Learner


@dataclass(frozen=True, slots=True, eq=False)
class CappedInfo:
    """What became of a batch under caps.

    info: of the events that were let in, in order. rows: int64, which those are. weights: float64, what each
    was learned with. limited: how many of them with less than their own. fates: uint8 [n], 0 or a key of
    REASONS.
    """

    info: StepInfo
    rows: NDArray[np.int64]
    weights: NDArray[np.float64]
    limited: int
    fates: NDArray[np.uint8]


def learn_capped(
    learner: Learner,
    window: StepWindow,
    batch: TripletBatch,
    weights: NDArray[np.float64],
    names: NDArray[np.uint64],
    *,
    full_step: float | None,
) -> CappedInfo:
    """Apply a batch in order under the window's caps; the same bits however batches are cut.

    weights: float64 [n]. names: uint64 [n, 4], see NAMES. full_step: the largest tau of an event of weight
    1, so that tau / full_step is what it spends; None: an event that updates spends all its weight. What an
    event may still do is a bound of its weight, so no learner knows of caps. Raises BlockError for names of
    another shape.

    The learner is called for as many events at once as surely fit, that is with all that is held for those
    before them; near a cap that is down to one.
    """
    n = len(batch)
    if names.shape != (n, NAMES) or weights.shape != (n,):
        raise BlockError(
            f"names have shape {names.shape}, weights {weights.shape}: give {NAMES} and 1 per event"
        )
    fates, limits = np.zeros(n, np.uint8), np.zeros(n)
    infos: list[StepInfo] = []
    start = 0
    while start < n:
        stop, fates[start:stop], limits[start:stop] = window.plan(names, weights, start)
        rows = start + np.flatnonzero(fates[start:stop] == LET_IN)
        if len(rows):
            whole = len(rows) == stop - start
            part = batch.slice(start, stop) if whole else batch.take(rows)
            info = learner.learn_many(part, limits[rows])
            window.settle(_spent(info, limits[rows], full_step))
            infos.append(info)
        start = stop
    rows = np.flatnonzero(fates == LET_IN)
    limited = int(np.count_nonzero(limits[rows] < weights[rows]))
    return CappedInfo(joined(infos), rows, limits[rows], limited, fates)


def _spent(info: StepInfo, limits: NDArray[np.float64], full_step: float | None) -> NDArray[np.float64]:
    """Float64 [n]: the step of each event in full steps, 0 where nothing changed."""
    steps = limits if full_step is None else info.tau.astype(np.float64) / full_step
    return np.where(info.outcome == UPDATED, steps, 0.0)
