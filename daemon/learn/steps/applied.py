"""What the loop hands over: references to what was applied, and where versions were captured. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from learners.block import TripletBatch
from learners.outcome import StepInfo


@dataclass(frozen=True, slots=True, eq=False)
class AppliedBatch:
    """One batch after its step. `first`, `last`: records before and after it, counted since version 0.

    `triplets`: the events the step saw, None when it saw none; `info`: what it did with each; `timestamps`
    int64 [n]: their event times, ms; `weights` [n]: None where all are 1; `watermark`: newest event time
    learned so far.
    """

    first: int
    last: int
    watermark: int | None
    triplets: TripletBatch | None
    info: StepInfo
    timestamps: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Captured:
    """A version was captured after `records`, with this newest event time."""

    records: int
    watermark: int | None


@dataclass(frozen=True, slots=True)
class Durable:
    """The version captured after `records` is durable under `number`; `digest`: of the learner's arrays
    that steps change; `writer`: token of the writer that wrote it."""

    number: int
    records: int
    digest: str
    writer: str


Item: TypeAlias = AppliedBatch | Captured | Durable
