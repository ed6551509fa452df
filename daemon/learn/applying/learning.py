"""What of a batch reaches the learner: not what is known already, and not what is over a cap."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.learn.applying.names import Names, event_ids, event_names
from daemon.learn.applying.state import State
from learners.block import TripletBatch
from learners.caps import learn_capped
from learners.outcome import StepInfo
from streams.decode import DecodedBatch

WHOLE = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What became of the decoded events of a batch, or of a slice of it.

    triplets: what the step saw, None when it saw nothing; info: what it did with each; weights [n]: what each
    was learned with; rows: which of the decoded events these are, a slice or int64 [n]. duplicates: how many
    were known. limited: how many the caps left less than their weight. capped int64 [k]: the rows of those
    that a cap refused; fates uint8 [k]: which one, a key of `learners.caps.REASONS`.
    """

    triplets: TripletBatch | None
    info: StepInfo
    weights: npt.NDArray[Any]
    rows: Any
    duplicates: int = 0
    limited: int = 0
    capped: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    fates: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))


def names_of(state: State, decoded: DecodedBatch) -> Names | None:
    """What the caps know events by; None where there are none."""
    return event_names(decoded) if state.caps.config.any else None


def learn(
    state: State, decoded: DecodedBatch, triplets: TripletBatch | None, names: Names | None, at: slice = WHOLE
) -> Learned:
    """Learn the decoded events `at`, a slice of step 1, in order. Raises the learner's errors.

    First the ids: what is known goes no further, and what is not is known from here on. Then the caps, then
    the step.
    """
    nothing = Learned(None, StepInfo.empty(0), decoded.weights[:0], slice(0))
    if triplets is None:
        return nothing
    start, stop, _ = at.indices(len(decoded))
    fresh = state.window.admit(event_ids(decoded, at))
    duplicates = int(len(fresh) - np.count_nonzero(fresh))
    rows: Any = at if not duplicates else start + np.flatnonzero(fresh)
    if duplicates == len(fresh):
        return Learned(None, nothing.info, nothing.weights, slice(0), duplicates)
    whole = not duplicates and stop - start == len(decoded)
    numbered = np.arange(len(decoded))[rows]
    seen = triplets if whole else triplets.take(numbered)
    weights = decoded.weights[rows]
    if names is None:
        return Learned(seen, state.learner.learn_many(seen, weights), weights, rows, duplicates)
    done = learn_capped(
        state.learner,
        state.caps,
        seen,
        weights.astype(np.float64),
        names[rows],
        full_step=state.full_step,
    )
    refused = np.flatnonzero(done.fates)
    return Learned(
        _let_in(seen, done.rows),
        done.info,
        done.weights,
        numbered[done.rows],
        duplicates,
        done.limited,
        numbered[refused],
        done.fates[refused],
    )


def _let_in(seen: TripletBatch, rows: npt.NDArray[np.int64]) -> TripletBatch | None:
    if len(rows) == len(seen):
        return seen
    return seen.take(rows) if len(rows) else None
